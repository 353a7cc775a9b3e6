"""A client's request, opened once: where it goes, what is known of that place, and whether it is ours to touch.

This is the entrance: once the server is known, `Front.read` writes the client's request as a Chat Completions body, and
from there on nothing knows of the front until the outlet writes the answer.
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
    """What is to be done with a request."""

    body: dict[str, Any]
    """The client's body as Chat Completions have it, with the model's real name and the config's defaults in it."""
    route: Route
    url: str
    """Where the request is sent."""
    defaults: Options
    tools: bool
    """Has it to do with tools at all?"""
    payload: bytes | None
    """What to send as it is; None when the request has to be read and written anew."""
    notes: tuple[str, ...] = ()
    """What of the request has no like in Chat Completions."""

    @property
    def place(self) -> tuple[str, str]:
        """Give the provider and the model, as the breaker knows them."""
        target = self.route.target
        return target.provider or target.base_url or self.url, as_text(self.body.get("model"))

    def ask(self, ledger: Ledger) -> Steps[Ask]:
        """Read and check it, noting what is left out; `UsageError` for what cannot be."""
        target, context = self.route.target, ledger.context
        marks, prompt = target.marks or None, target.system_prompt or ""
        read = partial(read_ask, self.body, target.profile, self.defaults, marks=marks, system_prompt=prompt)
        ask = yield from ledger.compute(read)
        if not ledger.front.pieces:
            ask = replace(ask, options=ask.options.override({"arguments": "whole"}))
        ledger.notes.extend(ask.notes)
        less = None if target.profile.thinking else without_reasoning(ask)
        if less:
            ledger.notes.append("the reasoning parameters were left out: the model does not take them")
        today = context.wall().date().isoformat() if context.wall is not None else None
        return replace((less or ask).on(today), vocabulary=context.vocabulary)


def open_case(ledger: Ledger) -> Steps[Case]:
    """Open a request. A body that is no JSON object goes on as it is: the server knows best what to say to it."""
    request, context, front = ledger.client, ledger.context, ledger.front
    defaults = context.options or Options()
    given = yield from ledger.compute(partial(_read, request.body))
    data = as_object(given)
    _check_number(data, context.max_tools)
    options = defaults.override(data.get("promptools"))
    route = context.route(as_text(data.get("model")) or None, options.provider)
    if not is_object(given):
        return Case(data, route, route.url or request.url, defaults, tools=False, payload=request.body)
    route = yield from look(ledger, route, route.target.model or as_text(data.get("model")))
    own = {**route.target.defaults, **data}
    if route.target.model:
        own["model"] = route.target.model
    body, notes = front.read(own, route.target.profile)
    tools = concerns_tools(body)
    body = _described(body, route.target.descriptions)
    touch = tools or "promptools" in data or options.mode is not None or _unlike(body, route.target, front)
    as_it_is = request.body if own == data else dump(own)
    payload = None if touch else as_it_is
    return Case(body, route, route.url or request.url, defaults, tools, payload, notes)


def _read(body: bytes) -> Any:
    """Read JSON; None for what is none."""
    try:
        return json.loads(body)
    except (ValueError, RecursionError):
        return None


def _check_number(body: dict[str, Any], most: int | None) -> None:
    """Raise UsageError for more tools than the operator lets one request offer."""
    for key in ("tools", "functions"):
        offered = len(as_list(body.get(key)))
        if most is not None and offered > most:
            raise UsageError(
                f"{key!r} holds {offered} tools; at most {most} are taken here. Offer those that the request needs, or "
                f"have the limit raised: it is the option max_tools, --max-tools of `promptools serve`"
            )


def _described(body: dict[str, Any], descriptions: Mapping[str, str]) -> dict[str, Any]:
    """Copy with descriptions of tools that go over their own."""
    if not descriptions or not as_list(body.get("tools")):
        return body
    return {**body, "tools": [_retold(each, descriptions) for each in body["tools"]]}


def _retold(tool: Any, descriptions: Mapping[str, str]) -> Any:
    function = as_object(as_object(tool).get("function"))
    said = descriptions.get(as_text(function.get("name")))
    return tool if said is None else {**tool, "function": {**function, "description": said}}


def _unlike(body: dict[str, Any], target: Target, front: Front) -> bool:
    """Tell whether the server cannot be sent the request as it came; a config's defaults are Chat Completions' keys."""
    profile = target.profile
    if profile.wire != front.wire or (front.wire != "chat" and target.defaults):
        return True
    return not profile.thinking and any(key in body for key in REASONING_KEYS)
