"""Run an exchange: serve a client's request from start to end, as a generator that yields effects (I/O operations).

`open_request` finds the server and its profile, converts the request into a Chat Completions body
(`ClientApi.decode_request`), and decides whether the client's own body can be forwarded unchanged. From then on nothing
depends on the client's API until the response is written. `run` forwards requests without tools, and serves the rest
with the retry loop. `preview_prompt` only renders the prompt of raw mode, and generates nothing.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias

from promptools.errors import UpstreamError, UsageError, without_credentials
from promptools.exchange.attempt import preparation
from promptools.exchange.client_api import respond_bad_request, respond_failure
from promptools.exchange.detection import resolve_route
from promptools.exchange.effects import Effect, EffectResult, ResponseHead
from promptools.exchange.failures import Failure
from promptools.exchange.learning import learn_format
from promptools.exchange.passthrough import FormMonitor, PassthroughMonitor, TakenReply, forward
from promptools.exchange.plan import AttemptPlan
from promptools.exchange.response_writer import SseWriter, encode_json
from promptools.exchange.retry import RetryLoop, is_retried_by_sdk, single_choice
from promptools.exchange.rewording import REASONING_KEYS, find_rewordings, rewords_forwarded, without_reasoning
from promptools.exchange.state import ExchangeState, Heartbeat, api_base, knowing
from promptools.modes.options import Options
from promptools.modes.registry import PREPARE, modes_for
from promptools.modes.tool_request import ToolRequest, involves_tools, parse_request
from promptools.profiles.profile import is_openai_url
from promptools.types import Reply
from promptools.wire.json_body import TOO_DEEP, as_list, as_object, as_text, parse_body
from promptools.wire.parameters import thinking_budget

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from promptools.dialects.own_dialects import OwnDialects
    from promptools.exchange.client_api import ClientApi
    from promptools.exchange.context import ClientRequest, Context, Route
    from promptools.exchange.state import Steps
    from promptools.fallback import Rewording
    from promptools.modes.prepared_request import PreparedRequest
    from promptools.profiles import Target


# A client's request, parsed and routed once.


@dataclass(frozen=True, slots=True)
class RoutedRequest:
    """A client's request, parsed, and the server that it goes to."""

    body: dict[str, Any]
    """The request as a Chat Completions body, with the server's name for the model and the config's defaults."""
    route: Route
    url: str
    """The URL that the request is sent to."""
    defaults: Options
    has_tools: bool
    """Whether the request offers tools, or has calls or results in its history."""
    unchanged_body: bytes | None
    """The body to forward unchanged; None when the request has to be rewritten."""
    notes: tuple[str, ...] = ()
    """Notes on parts of the request that Chat Completions cannot express."""

    @property
    def provider_model(self) -> tuple[str, str]:
        """The provider and the model. Together they are the key under which facts about a server are remembered.

        A provider without a name is identified by its base URL, or else by the request's URL.
        """
        target = self.route.target
        return target.provider or target.base_url or self.url, as_text(self.body.get("model"))

    def parse(self, state: ExchangeState) -> Steps[ToolRequest]:
        """Parse and validate the body; add notes to `state` about parts of the request that are left out.

        Raises `UsageError` if the body is invalid.
        """
        request, notes = yield from state.compute(partial(self._parse, state.context))
        if not state.client_api.streams_arguments:
            request = replace(request, options=request.options.override({"arguments": "whole"}))
        state.notes.extend(notes)
        return request

    def _parse(self, context: Context) -> tuple[ToolRequest, tuple[str, ...]]:
        """Return the parsed request, and notes on the parts that are left out."""
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
        """Return the parsed request if it asks for an answer format that promptools checks; else None."""
        if not self.body.get("response_format"):
            return None
        return (yield from state.compute(partial(self._form_request, state.context)))

    def _form_request(self, context: Context) -> ToolRequest | None:
        try:
            request, _ = self._parse(context)
            if request.heals_answer:
                PREPARE["native"](request)
                return request
        except UsageError:  # the server knows best how to refuse it, and may accept it
            pass
        return None

    def is_reworded(self, state: ExchangeState) -> bool:
        """Return whether to reword this request. True if the server is known to refuse something in the request."""
        known = state.context.refusals.get(self.provider_model, state.now)
        return bool(known) and self._rewords(state.context, lambda _: known)

    def can_reword(self, state: ExchangeState, failure: Failure) -> bool:
        """Return whether a forwarded request that the server refused can be changed so that it may be accepted."""
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
    """Parse a request, find its server, and decide whether the client's own body can be forwarded unchanged.

    A body that is not a JSON object is forwarded, because the server knows best how to refuse it. A body that is nested
    too deeply to be parsed is forwarded too, because the server may accept it.

    Raises `UsageError` for invalid options, and for more tools than `Context.max_tools`. If the server does not have
    the client's API, `UsageError` is also raised for a body that could not be parsed.
    """
    request, context, client_api = state.request, state.context, state.client_api
    defaults = context.options or Options()
    parsed, unread = yield from state.compute(partial(parse_body, request.body))
    data = as_object(parsed)
    _check_tool_count(data, context.max_tools)
    options = defaults.override(data.get("promptools"))
    route = context.route(as_text(data.get("model")) or None, options.provider)
    if unread:
        route = yield from _route_unread(state, route, unread)
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


def _route_unread(state: ExchangeState, route: Route, unread: str) -> Steps[Route]:
    """Return the route for forwarding a body that could not be read; `unread` is the reason.

    Raises `UsageError` if the server lacks the client's API.
    """
    context, client_api = state.context, state.client_api
    if client_api.wire == "ollama":
        route = yield from resolve_route(state, route, "")
    if client_api.wire is None or (client_api.wire == "ollama" != route.target.profile.wire):
        raise UsageError(unread)
    if unread == TOO_DEEP and context.log:
        context.log(f"a request was forwarded unread, and its reply is not searched for calls: {unread}")
    return route


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
    """Return the body. If it has no tools, remove `tool_choice`, because servers reject that key without tools."""
    if body.get("tools") or body.get("functions"):
        return body
    return {key: value for key, value in body.items() if key not in {"tool_choice", "function_call"}}


def _override_descriptions(body: dict[str, Any], descriptions: Mapping[str, str]) -> dict[str, Any]:
    """Return `body` with the descriptions of some tools replaced; `descriptions` maps tool names to descriptions."""
    if not descriptions or not as_list(body.get("tools")):
        return body
    return {**body, "tools": [_override_description(tool, descriptions) for tool in body["tools"]]}


def _override_description(tool: Any, descriptions: Mapping[str, str]) -> Any:
    function = as_object(as_object(tool).get("function"))
    description = descriptions.get(as_text(function.get("name")))
    return tool if description is None else {**tool, "function": {**function, "description": description}}


def _needs_rewrite(body: dict[str, Any], target: Target, client_api: ClientApi) -> bool:
    """Return whether the client's body must be rewritten, because it cannot be sent unchanged.

    Any of these is a reason:

    - the server's API is not the client's API;
    - the config has defaults, which are keys of Chat Completions, and the client uses another API;
    - the request sets a thinking budget, for which the server has its own key;
    - the request has reasoning parameters, which the model rejects.
    """
    profile = target.profile
    if profile.wire != client_api.wire or (client_api.wire != "chat" and target.defaults):
        return True
    if profile.thinking_budget is not None and thinking_budget(body.get("thinking")) is not None:
        return True
    return not profile.thinking and any(key in body for key in REASONING_KEYS)


# The exchange.


Exchange: TypeAlias = Generator[Effect, EffectResult, Reply | None]


def run(request: ClientRequest, context: Context) -> Exchange:
    """Run one request: yield effects, receive their results, and return the reply, or None if no reply was read.

    If there are several choices, the first reply is returned; `context.on_reply` is called with each reply. The
    only exceptions raised are those that a driver passed in as `Failed.error`. They are raised only if nothing has been
    emitted, or if part of a forwarded JSON body has been emitted.
    """
    state = ExchangeState(request, context)
    replies: list[Reply] = []
    problem: BaseException | None = None
    try:
        replies = yield from _run(state)
    except BaseException as error:
        problem = error
        raise
    finally:
        state.observe_end(replies, problem)
        state.heartbeat = None  # breaks a reference cycle: the heartbeat refers back to the state
    if context.on_reply:
        for reply in replies:
            context.on_reply(reply)
    return replies[0] if replies else None


def _run(state: ExchangeState) -> Steps[list[Reply]]:
    """Route the request, then serve or forward it; answer an invalid request with an error."""
    try:
        routed = yield from open_request(state)
        state.url, state.headers = routed.route.url, routed.route.headers
        state.provider_model = routed.provider_model
        state.notes.extend((*routed.route.notes, *routed.notes))
        routed, learned = yield from _with_format(state, routed)
        answering = _answer(state, routed)
        return (yield from (answering if learned is None else knowing(learned, answering, last=True)))
    except UsageError as error:
        yield from respond_bad_request(state, error)
        return []


def _with_format(state: ExchangeState, routed: RoutedRequest) -> Steps[tuple[RoutedRequest, OwnDialects | None]]:
    """Learn in which format the model's chat template writes calls, if the format is unknown and needed.

    Returns the request with the dialect to use, and the learned dialect (None if there is none).
    """
    mode = as_object(routed.body.get("promptools")).get("mode", routed.defaults.mode)
    if not routed.has_tools or mode in {"prompt", "harmony"}:  # these modes have their own format of calls
        return routed, None
    route, finding = yield from learn_format(state, routed.route, routed.body)
    return replace(routed, route=route), finding.own if finding else None


def _answer(state: ExchangeState, routed: RoutedRequest) -> Steps[list[Reply]]:
    """Forward a request if its body can be sent unchanged; otherwise make attempts at it."""
    if routed.unchanged_body is None or routed.is_reworded(state):
        return (yield from _serve(state, routed))
    return (yield from _forward(state, routed, routed.unchanged_body))


def _forward(state: ExchangeState, routed: RoutedRequest, payload: bytes) -> Steps[list[Reply]]:
    """Forward a request unchanged; retry it if the server loses the reply before any content was forwarded.

    The request is also retried if the server refuses something in it that can be reworded.
    """
    wire = state.client_api.wire
    assert wire is not None, "a request is forwarded only to a server with the client's own API"
    streamed, swallows = routed.body.get("stream") is True, routed.route.target.profile.swallows
    can_reword = partial(routed.can_reword, state)
    form = yield from routed.wants_form(state)
    if form is None:
        watch = PassthroughMonitor(streamed=streamed, swallows=swallows, wire=wire, can_reword=can_reword)
    else:
        limit = state.context.max_reply
        watch = FormMonitor(form, swallows=swallows, wire=wire, can_reword=can_reword, limit=limit)
    failure = yield from forward(state, payload, watch, routed.defaults.heartbeat)
    if failure is None:
        return []
    if isinstance(failure, TakenReply):
        return (yield from _serve_taken(state, routed, failure, watch))
    state.record("native", failure, None)
    if state.head_sent and not streamed and failure.error is not None:
        raise failure.error  # half a JSON body was sent: only the end of the connection can signal the error
    if watch.has_content or not watch.is_retried(failure) or not routed.body:
        yield from respond_failure(state, failure, "native")
        return []
    return (yield from _serve(state, routed, failure, watch))


def _serve(
    state: ExchangeState,
    routed: RoutedRequest,
    failure: Failure | None = None,
    monitor: PassthroughMonitor | None = None,
) -> Steps[list[Reply]]:
    """Serve a request with retries; return all its replies.

    If the request was forwarded before, `failure` says how that attempt failed, and `monitor` holds the server's reply.
    """
    request = yield from routed.parse(state)
    writer = state.client_api.response_writer(request, begun=state.head_sent)
    loop = RetryLoop(state, writer, strict=request.options.on_malformed == "error")
    if request.options.heartbeat and writer.heartbeat:
        state.heartbeat = Heartbeat(request.options.heartbeat, writer.heartbeat, loop.head)
    fatal = yield from _serve_choices(loop, routed, request, failure)
    if fatal is None:
        yield from loop.end(request)
        return loop.traced_replies()
    opened = failure.opened if failure else None
    if monitor and opened and fatal.kind == "swallowed" == (failure.kind if failure else ""):
        # the retry was as empty as the first reply: forward the first reply unchanged
        state.error_kind = "swallowed"
        head = ResponseHead(opened.status, opened.headers)
        yield from state.emit(monitor.held, lambda: head)
        return []
    if not (request.takes_calls or is_retried_by_sdk(fatal)):
        fatal = loop.lost_to_server or fatal  # no calls are expected: the client gets the server's own error
    refused, is_late = loop.first_refusal, state.policy.seconds_left(state.now) == 0
    if refused and fatal.verdict is None and fatal.kind != "overflow" and (is_late or not is_retried_by_sdk(fatal)):
        fatal = refused  # the later errors are about a reworded request, which the client did not make
    servers_own = not request.takes_calls or fatal is refused
    yield from respond_failure(state, fatal, loop.mode, servers_own=servers_own)
    lost = fatal.verdict.reply if fatal.verdict else fatal.partial_reply or Reply()
    return [*loop.traced_replies(), state.with_trace(lost, loop.mode)]


def _serve_taken(
    state: ExchangeState, routed: RoutedRequest, taken: TakenReply, monitor: PassthroughMonitor
) -> Steps[list[Reply]]:
    """Take over a reply that was being forwarded, and retry it if it fails the checks.

    If no attempt produces a reply that passes the checks, the first reply is forwarded after all, provided that it is
    not streamed and has a single choice.
    """
    request = yield from routed.parse(state)
    request = single_choice(request) if taken.choices == 1 else replace(request, n=taken.choices)
    writer = state.client_api.response_writer(request, begun=state.head_sent)
    if isinstance(writer, SseWriter):
        writer.resume(taken.forwarded)
    keeps_first = not request.stream and taken.choices == 1
    loop = RetryLoop(state, writer, keeps_first=keeps_first)
    if request.options.heartbeat and writer.heartbeat:
        state.heartbeat = Heartbeat(request.options.heartbeat, writer.heartbeat, loop.head)
    plan = AttemptPlan(request, modes_for(request, tools=False), routed.provider_model, loop.context, loop.now)
    opened = state.opened
    fatal = yield from loop.serve(plan, range(taken.choices), None, taken)
    if fatal is None:
        yield from loop.end(request)
        return loop.traced_replies()
    if keeps_first and opened is not None:
        head = ResponseHead(opened.status, opened.headers)
        yield from state.emit(monitor.held, lambda: head)
        return []
    yield from respond_failure(state, fatal, loop.mode, servers_own=True)
    lost = fatal.verdict.reply if fatal.verdict else fatal.partial_reply or Reply()
    return [*loop.traced_replies(), state.with_trace(lost, loop.mode)]


def _serve_choices(
    loop: RetryLoop, routed: RoutedRequest, request: ToolRequest, failure: Failure | None
) -> Steps[Failure | None]:
    """Serve all choices: in one request if the server supports `n`, else one by one. Return the remaining failure."""
    modes = modes_for(request, tools=routed.has_tools)
    if request.request_count == 1:
        plan = AttemptPlan(request, modes, routed.provider_model, loop.context, loop.now)
        return (yield from loop.serve(plan, range(request.n), failure))
    for index in range(request.n):
        plan = AttemptPlan(single_choice(request), modes, routed.provider_model, loop.context, loop.now)
        fatal = yield from loop.serve(plan, [index], failure)
        if fatal:
            return fatal
        failure = None
    return None


# Render the prompt of raw mode for a request that is not sent: `promptools render --mode raw` shows it.


@dataclass(frozen=True, slots=True)
class PromptPreview:
    """Holds the request that raw mode would send, with the rendered prompt."""

    prepared: PreparedRequest
    notes: tuple[str, ...]
    """What was changed or left out, as sentences."""


def preview_prompt(request: ClientRequest, context: Context) -> Steps[PromptPreview]:
    """Render the prompt of an attempt in raw mode, without generating anything.

    Raises `UsageError` if the server does not support raw mode or raw mode cannot express the request. Raises
    `UpstreamError` if the server does not answer, or refuses to render the prompt.
    """
    state = ExchangeState(request, context)
    routed = yield from open_request(state)
    state.url, state.headers = routed.route.url, routed.route.headers
    profile = routed.route.target.profile
    if state.seen is not None and not state.seen.answered and profile.chat_template is None:
        raise UpstreamError(f"no server answers at {without_credentials(api_base(routed.url))}")
    routed, learned = yield from _with_format(state, routed)
    previewing = _preview(state, routed)
    return (yield from (previewing if learned is None else knowing(learned, previewing, last=True)))


def _preview(state: ExchangeState, routed: RoutedRequest) -> Steps[PromptPreview]:
    context = state.context
    parsed = yield from routed.parse(state)
    parsed = replace(parsed, options=parsed.options.override({"mode": "raw"}))
    plan = AttemptPlan(parsed, modes_for(parsed, tools=routed.has_tools), routed.provider_model, context, state.now)
    prepare = yield from preparation(state, plan)
    if isinstance(prepare, Failure):
        status = "" if prepare.status is None else f" (HTTP {prepare.status})"
        raise UpstreamError(f"{without_credentials(api_base(routed.url))} rendered no prompt{status}: {prepare.why}")
    prepared = prepare()
    notes = (*routed.notes, *state.notes, *prepared.notes)
    return PromptPreview(prepared, tuple(dict.fromkeys(notes)))
