"""A client's request, parsed and routed once: its server, the server's profile, and whether the body may be changed.

Once the server is known, `ClientApi.decode_request` converts the request into a Chat Completions body. From then on
nothing depends on the client's API until the response is written.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from promptools.errors import UsageError
from promptools.exchange.downstream.response_writer import encode_json
from promptools.exchange.retry.adapt import REASONING_KEYS, find_rewordings, rewords_forwarded, without_reasoning
from promptools.exchange.retry.mode_registry import get_mode
from promptools.exchange.upstream.detection import resolve_route
from promptools.modes.requests.options import Options
from promptools.modes.requests.tool_request import ToolRequest, involves_tools, parse_request
from promptools.profiles.openai_hosts import is_openai_url
from promptools.wire.json_types import as_list, as_object, as_text
from promptools.wire.lenient_json import TOO_DEEP, parse_body
from promptools.wire.parameters import thinking_budget

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from promptools.exchange.context import Context, Route
    from promptools.exchange.downstream.client_api import ClientApi
    from promptools.exchange.exchange_state import ExchangeState, Steps
    from promptools.exchange.upstream.failure import Failure
    from promptools.fallback import Rewording
    from promptools.profiles import Target


@dataclass(frozen=True, slots=True)
class RoutedRequest:
    """A client request, parsed and routed."""

    body: dict[str, Any]
    """The client's body in the form of Chat Completions, with the model's real name and the config's defaults."""
    route: Route
    url: str
    """The URL that the request is sent to."""
    defaults: Options
    has_tools: bool
    """Whether the request concerns tools."""
    unchanged_body: bytes | None
    """The body to forward unchanged; None when the request has to be rewritten."""
    notes: tuple[str, ...] = ()
    """The parts of the request that Chat Completions cannot express."""

    @property
    def provider_model(self) -> tuple[str, str]:
        """The provider (or its base URL, or the request's URL) and the model, as in the breaker's keys."""
        target = self.route.target
        return target.provider or target.base_url or self.url, as_text(self.body.get("model"))

    def parse(self, state: ExchangeState) -> Steps[ToolRequest]:
        """Parse and validate the body, and add notes on what is left out; raise `UsageError` if it is invalid."""
        request, notes = yield from state.compute(partial(self._parse, state.context))
        if not state.client_api.streams_arguments:
            request = replace(request, options=request.options.override({"arguments": "whole"}))
        state.notes.extend(notes)
        return request

    def _parse(self, context: Context) -> tuple[ToolRequest, tuple[str, ...]]:
        """Return the request, and notes on what is left out."""
        target = self.route.target
        body = _without_idle_choice(self.body)
        request = parse_request(
            body,
            target.profile,
            self.defaults,
            marks=target.marks or None,
            system_prompt=target.system_prompt or "",
            vocabulary=context.vocabulary,
            clock=context.wall_clock,
        )
        idle = () if len(body) == len(self.body) else ("tool_choice was left out: no tool is offered",)
        if request.heals_answer and is_openai_url(self.url):
            request = replace(request, options=request.options.override({"heal_format": False}))
        reduced = None if target.profile.thinking else without_reasoning(request)
        without = ("the reasoning parameters were left out: the model does not take them",) if reduced else ()
        return reduced or request, (*idle, *request.notes, *without)

    def wants_form(self, state: ExchangeState) -> Steps[ToolRequest | None]:
        """Return the request if the answer to it, when it is forwarded, is to be healed; None if it passes as it is."""
        if not self.body.get("response_format"):
            return None
        return (yield from state.compute(partial(self._form_request, state.context)))

    def _form_request(self, context: Context) -> ToolRequest | None:
        try:
            request, _ = self._parse(context)
            if request.heals_answer:
                get_mode("native").prepare(request)
                return request
        except UsageError:  # the server knows best how to refuse it, and may take it
            pass
        return None

    def is_reworded(self, state: ExchangeState) -> bool:
        """Whether a request that could be forwarded is known to be refused by the server, unless it is reworded."""
        known = state.context.refusals.get(self.provider_model, state.now)
        return bool(known) and self._rewords(state.context, lambda _: known)

    def can_reword(self, state: ExchangeState, failure: Failure) -> bool:
        """Whether what the server refused in a request that was forwarded can be said otherwise."""
        return self._rewords(state.context, partial(find_rewordings, failure))

    def _rewords(self, context: Context, rewordings: Callable[[ToolRequest], Sequence[Rewording]]) -> bool:
        if not self.body:
            return False
        try:
            request, _ = self._parse(context)
        except UsageError:  # the server knows best how to refuse it
            return False
        return rewords_forwarded(rewordings(request), request, self.body)


def open_request(state: ExchangeState) -> Steps[RoutedRequest]:
    """Parse and route a request. A body that is not a JSON object is forwarded: the server knows best how to refuse it.

    So is one that is nested too deeply to be read, which the server may take.

    Raises `UsageError` where the server does not have the client's API, and for invalid options or more tools than
    `Context.max_tools`.
    """
    request, context, client_api = state.request, state.context, state.client_api
    defaults = context.options or Options()
    parsed, unread = yield from state.compute(partial(parse_body, request.body))
    data = as_object(parsed)
    _check_tool_count(data, context.max_tools)
    options = defaults.override(data.get("promptools"))
    route = context.route(as_text(data.get("model")) or None, options.provider)
    if unread:
        if client_api.wire == "ollama":
            route = yield from resolve_route(state, route, "")
        if client_api.wire is None or (client_api.wire == "ollama" != route.target.profile.wire):
            raise UsageError(unread)
        if unread == TOO_DEEP and context.log:
            context.log(f"a request went on unread, and no call in its reply is looked for: {unread}")
        return RoutedRequest(
            data, route, route.url or request.url, defaults, has_tools=False, unchanged_body=request.body
        )
    route = yield from resolve_route(state, route, route.target.model or as_text(data.get("model")))
    client_body = {**route.target.defaults, **data} if route.target.defaults else data
    if route.target.model and data.get("model") != route.target.model:
        client_body = {**client_body, "model": route.target.model}
    body, notes = client_api.decode_request(client_body, route.target.profile)
    if body is not data:
        _check_tool_count(body, context.max_tools)
    tools = involves_tools(body)
    body = _override_descriptions(body, route.target.descriptions)
    rewrite = (
        tools
        or "promptools" in data
        or options.mode is not None
        or options.takes_undeclared
        or _needs_rewrite(body, route.target, client_api)
    )
    payload = None if rewrite else request.body if client_body == data else encode_json(client_body)
    return RoutedRequest(body, route, route.url or request.url, defaults, tools, payload, notes)


def _check_tool_count(body: dict[str, Any], limit: int | None) -> None:
    """Raise `UsageError` if the request offers more tools than the operator allows."""
    for key in ("tools", "functions"):
        offered = len(as_list(body.get(key)))
        if limit is not None and offered > limit:
            raise UsageError(
                f"{key!r} holds {offered} tools; at most {limit} are taken here. "
                "Offer those that the request needs, or "
                f"have the limit raised: it is the option max_tools, --max-tools of `promptools serve`"
            )


def _without_idle_choice(body: dict[str, Any]) -> dict[str, Any]:
    """Return a body without a choice of tools where none is offered: servers answer such a request."""
    if body.get("tools") or body.get("functions"):
        return body
    return {key: value for key, value in body.items() if key not in {"tool_choice", "function_call"}}


def _override_descriptions(body: dict[str, Any], descriptions: Mapping[str, str]) -> dict[str, Any]:
    """Return a copy of `body` in which `descriptions` replace those of the tools they name."""
    if not descriptions or not as_list(body.get("tools")):
        return body
    return {**body, "tools": [_override_description(tool, descriptions) for tool in body["tools"]]}


def _override_description(tool: Any, descriptions: Mapping[str, str]) -> Any:
    function = as_object(as_object(tool).get("function"))
    description = descriptions.get(as_text(function.get("name")))
    return tool if description is None else {**tool, "function": {**function, "description": description}}


def _needs_rewrite(body: dict[str, Any], target: Target, client_api: ClientApi) -> bool:
    """Whether the server cannot take the client's bytes unchanged.

    It speaks another API, the config's defaults (keys of Chat Completions) do not fit the client's API, the server has
    another key for a thinking budget, or the model refuses the reasoning parameters.
    """
    profile = target.profile
    if profile.wire != client_api.wire or (client_api.wire != "chat" and target.defaults):
        return True
    if profile.thinking_budget is not None and thinking_budget(body.get("thinking")) is not None:
        return True
    return not profile.thinking and any(key in body for key in REASONING_KEYS)
