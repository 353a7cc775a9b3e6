"""A client's request, parsed and routed once: its server, the server's profile, and whether the body may be changed.

Once the server is known, `Front.read` converts the client's request into a Chat Completions body. From then on nothing
depends on the client's API until the response is written.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from promptools.errors import UsageError
from promptools.exchange.look import look
from promptools.exchange.mend import REASONING_KEYS, without_reasoning
from promptools.exchange.outlet import dump
from promptools.modes.ask import Ask, concerns_tools, read_ask
from promptools.modes.options import Options
from promptools.wire.shapes import as_list, as_object, as_text, is_object

if TYPE_CHECKING:
    from collections.abc import Mapping

    from promptools.exchange.context import Route
    from promptools.exchange.front import Front
    from promptools.exchange.ledger import Ledger, Steps
    from promptools.profiles import Target


@dataclass(frozen=True, slots=True)
class Case:
    """A client request, parsed and routed."""

    body: dict[str, Any]
    """The client's body in the form of Chat Completions, with the model's real name and the config's defaults."""
    route: Route
    url: str
    """The URL that the request is sent to."""
    defaults: Options
    tools: bool
    """Whether the request concerns tools."""
    payload: bytes | None
    """The body to forward unchanged; None when the request has to be rewritten."""
    notes: tuple[str, ...] = ()
    """The parts of the request that Chat Completions cannot express."""

    @property
    def place(self) -> tuple[str, str]:
        """The provider (or its base URL, or the request's URL) and the model, as in the breaker's keys."""
        target = self.route.target
        return target.provider or target.base_url or self.url, as_text(self.body.get("model"))

    def ask(self, ledger: Ledger) -> Steps[Ask]:
        """Parse and validate the body, and add notes on what is left out; raise `UsageError` if it is invalid."""
        target, context = self.route.target, ledger.context
        marks, system_prompt = target.marks or None, target.system_prompt or ""
        parse = partial(read_ask, self.body, target.profile, self.defaults, marks=marks, system_prompt=system_prompt)
        request = yield from ledger.compute(parse)
        if not ledger.front.pieces:
            request = replace(request, options=request.options.override({"arguments": "whole"}))
        ledger.notes.extend(request.notes)
        reduced = None if target.profile.thinking else without_reasoning(request)
        if reduced:
            ledger.notes.append("the reasoning parameters were left out: the model does not take them")
        today = context.wall().date().isoformat() if context.wall is not None else None
        return replace((reduced or request).on(today), vocabulary=context.vocabulary)


def open_case(ledger: Ledger) -> Steps[Case]:
    """Parse and route a request. A body that is not a JSON object is forwarded: the server knows best how to refuse it.

    Raises `UsageError` for invalid options or more tools than `Context.max_tools`.
    """
    request, context, front = ledger.client, ledger.context, ledger.front
    defaults = context.options or Options()
    parsed = yield from ledger.compute(partial(_read, request.body))
    data = as_object(parsed)
    _check_number(data, context.max_tools)
    options = defaults.override(data.get("promptools"))
    route = context.route(as_text(data.get("model")) or None, options.provider)
    if not is_object(parsed):
        return Case(data, route, route.url or request.url, defaults, tools=False, payload=request.body)
    route = yield from look(ledger, route, route.target.model or as_text(data.get("model")))
    client_body = {**route.target.defaults, **data}
    if route.target.model:
        client_body["model"] = route.target.model
    body, notes = front.read(client_body, route.target.profile)
    tools = concerns_tools(body)
    body = _described(body, route.target.descriptions)
    rewrite = tools or "promptools" in data or options.mode is not None or _unlike(body, route.target, front)
    unchanged = request.body if client_body == data else dump(client_body)
    payload = None if rewrite else unchanged
    return Case(body, route, route.url or request.url, defaults, tools, payload, notes)


def _read(body: bytes) -> Any:
    """Parse JSON; None if it is invalid."""
    try:
        return json.loads(body)
    except (ValueError, RecursionError):
        return None


def _check_number(body: dict[str, Any], most: int | None) -> None:
    """Raise `UsageError` if the request offers more tools than the operator allows."""
    for key in ("tools", "functions"):
        offered = len(as_list(body.get(key)))
        if most is not None and offered > most:
            raise UsageError(
                f"{key!r} holds {offered} tools; at most {most} are taken here. Offer those that the request needs, or "
                f"have the limit raised: it is the option max_tools, --max-tools of `promptools serve`"
            )


def _described(body: dict[str, Any], descriptions: Mapping[str, str]) -> dict[str, Any]:
    """Return a copy of `body` in which `descriptions` replace those of the tools they name."""
    if not descriptions or not as_list(body.get("tools")):
        return body
    return {**body, "tools": [_retold(tool, descriptions) for tool in body["tools"]]}


def _retold(tool: Any, descriptions: Mapping[str, str]) -> Any:
    function = as_object(as_object(tool).get("function"))
    description = descriptions.get(as_text(function.get("name")))
    return tool if description is None else {**tool, "function": {**function, "description": description}}


def _unlike(body: dict[str, Any], target: Target, front: Front) -> bool:
    """Whether the server cannot take the client's bytes unchanged.

    It speaks another API, the config's defaults (keys of Chat Completions) do not fit the client's API, or the model
    refuses the reasoning parameters.
    """
    profile = target.profile
    if profile.wire != front.wire or (front.wire != "chat" and target.defaults):
        return True
    return not profile.thinking and any(key in body for key in REASONING_KEYS)
