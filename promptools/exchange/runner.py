"""The exchange itself: one client request from start to end, as a generator."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, TypeAlias

from promptools.errors import UsageError
from promptools.exchange.downstream.error_responses import respond_bad_request, respond_failure
from promptools.exchange.downstream.response_writer import SseWriter
from promptools.exchange.effects import Effect, EffectResult, Head
from promptools.exchange.exchange_state import ExchangeState, Heartbeat
from promptools.exchange.retry.attempt_plan import AttemptPlan
from promptools.exchange.retry.mode_registry import modes_for
from promptools.exchange.retry.retry_loop import RetryLoop, is_retried_by_sdk, single_choice
from promptools.exchange.routed_request import open_request
from promptools.exchange.upstream.form_monitor import FormMonitor
from promptools.exchange.upstream.passthrough import PassthroughMonitor, TakenReply, forward
from promptools.types import Reply

if TYPE_CHECKING:
    from promptools.exchange.context import ClientRequest, Context
    from promptools.exchange.exchange_state import Steps
    from promptools.exchange.routed_request import RoutedRequest
    from promptools.exchange.upstream.failure import Failure
    from promptools.modes.requests.tool_request import ToolRequest

Exchange: TypeAlias = Generator[Effect, EffectResult, Reply | None]


def run(request: ClientRequest, context: Context) -> Exchange:
    """Run one request: yield effects, receive their results, and return the reply (None: no reply was read).

    Of several choices the first is returned; `context.on_reply` is called with each. Raises only what a driver passed
    in as `Failed.error`, and only before anything was emitted, or in the middle of a JSON body that is forwarded.
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
        state.heartbeat = None  # it refers to what refers to the state
    if context.on_reply:
        for reply in replies:
            context.on_reply(reply)
    return replies[0] if replies else None


def _run(state: ExchangeState) -> Steps[list[Reply]]:
    """Route the request, and serve or forward it; an invalid one is refused."""
    try:
        routed = yield from open_request(state)
        state.url, state.headers = routed.route.url, routed.route.headers
        state.provider_model = routed.provider_model
        state.notes.extend((*routed.route.notes, *routed.notes))
        if routed.unchanged_body is None or routed.is_reworded(state):
            return (yield from _serve(state, routed))
        return (yield from _forward(state, routed, routed.unchanged_body))
    except UsageError as error:
        yield from respond_bad_request(state, error)
        return []


def _forward(state: ExchangeState, routed: RoutedRequest, payload: bytes) -> Steps[list[Reply]]:
    """Forward a request unchanged; retry it if the server loses the reply before any content was forwarded.

    Or if it refuses something that can be said otherwise.
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
        raise failure.error  # half a JSON body was sent: no error can follow it but the end of the connection
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
    """Serve a request with retries, beginning after `failure` if it was forwarded first; return all its replies."""
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
        # the retry was as empty as the first reply: then that reply is forwarded unchanged
        state.error_kind = "swallowed"
        head = Head(opened.status, opened.headers)
        yield from state.emit(monitor.held, lambda: head)
        return []
    if not (request.takes_calls or is_retried_by_sdk(fatal)):
        fatal = loop.lost_to_server or fatal  # as without us: there is no call that a further attempt was made for
    refused, is_late = loop.first_refusal, state.policy.seconds_left(state.now) == 0
    if refused and fatal.verdict is None and fatal.kind != "overflow" and (is_late or not is_retried_by_sdk(fatal)):
        fatal = refused  # as without us: the later errors are about a request that the client did not make
    servers_own = not request.takes_calls or fatal is refused
    yield from respond_failure(state, fatal, loop.mode, servers_own=servers_own)
    lost = fatal.verdict.reply if fatal.verdict else fatal.partial_reply or Reply()
    return [*loop.traced_replies(), state.with_trace(lost, loop.mode)]


def _serve_taken(
    state: ExchangeState, routed: RoutedRequest, taken: TakenReply, monitor: PassthroughMonitor
) -> Steps[list[Reply]]:
    """Go on with a reply that was forwarded so far; a whole one is forwarded if nothing better can be had."""
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
        head = Head(opened.status, opened.headers)
        yield from state.emit(monitor.held, lambda: head)
        return []
    yield from respond_failure(state, fatal, loop.mode, servers_own=True)
    lost = fatal.verdict.reply if fatal.verdict else fatal.partial_reply or Reply()
    return [*loop.traced_replies(), state.with_trace(lost, loop.mode)]


def _serve_choices(
    loop: RetryLoop, routed: RoutedRequest, request: ToolRequest, failure: Failure | None
) -> Steps[Failure | None]:
    """Serve every choice: all in one request if the server supports `n`, else one by one. Return a final failure."""
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
