"""The exchange itself: one client request from start to end, as a generator."""

from __future__ import annotations

from collections.abc import Generator
from typing import TYPE_CHECKING, TypeAlias

from promptools.errors import UsageError
from promptools.exchange.answers import conclude, refuse
from promptools.exchange.case import open_case
from promptools.exchange.effects import Effect, Happening, Head
from promptools.exchange.ledger import Heartbeat, Ledger
from promptools.exchange.plan import Plan
from promptools.exchange.registry import modes_for
from promptools.exchange.serve import Service, single
from promptools.exchange.untouched import Watch, pass_on
from promptools.types import Reply

if TYPE_CHECKING:
    from promptools.exchange.case import Case
    from promptools.exchange.context import ClientRequest, Context
    from promptools.exchange.failure import Failure
    from promptools.exchange.ledger import Steps
    from promptools.modes.ask import Ask

Exchange: TypeAlias = Generator[Effect, Happening, Reply | None]


def run(request: ClientRequest, context: Context) -> Exchange:
    """Run one request: yield effects, receive their results, and return the reply (None: no reply was read).

    Of several choices the first is returned; `context.on_reply` is called with each. Raises only what a shell passed in
    as `Failed.error`, and only before anything was emitted.
    """
    state = Ledger(request, context)
    try:
        routed = yield from open_case(state)
        state.url, state.headers = routed.route.url, routed.route.headers
        state.place = routed.place
        state.notes.extend(routed.notes)
        replies = yield from _touch(state, routed) if routed.payload is None else _pass(state, routed, routed.payload)
    except UsageError as error:
        yield from refuse(state, error)
        return None
    if context.on_reply:
        for reply in replies:
            context.on_reply(reply)
    return replies[0] if replies else None


def _pass(ledger: Ledger, case: Case, payload: bytes) -> Steps[list[Reply]]:
    """Forward a request unchanged; if the server loses the reply before any content was forwarded, retry it."""
    streamed, swallows = case.body.get("stream") is True, case.route.target.profile.swallows
    watch = Watch(streamed=streamed, swallows=swallows, wire=ledger.front.wire)
    failure = yield from pass_on(ledger, payload, watch)
    if failure is None:
        return []
    ledger.record("native", failure, None)
    if watch.said or failure.kind in {"connect", "timeout"} or not case.body:
        yield from conclude(ledger, failure, "native")
        return []
    return (yield from _touch(ledger, case, failure, watch))


def _touch(
    ledger: Ledger, case: Case, failure: Failure | None = None, watch: Watch | None = None
) -> Steps[list[Reply]]:
    """Serve a request with retries, beginning after `failure` if it was forwarded first; return all its replies."""
    request = yield from case.ask(ledger)
    writer = ledger.front.outlet(request, begun=ledger.head_sent)
    loop = Service(ledger, writer, strict=request.options.on_malformed == "error")
    if request.options.heartbeat and writer.heartbeat:
        ledger.heartbeat = Heartbeat(request.options.heartbeat, writer.heartbeat, loop.head)
    fatal = yield from _choices(loop, case, request, failure)
    if fatal is None:
        yield from loop.end(request)
        return loop.traced()
    opened = failure.opened if failure else None
    if watch and opened and fatal.kind == "swallowed" == (failure.kind if failure else ""):
        # the retry was as empty as the first reply: then that reply is forwarded unchanged
        head = Head(opened.status, opened.headers)
        yield from ledger.emit(watch.rest, lambda: head)
        return []
    yield from conclude(ledger, fatal, loop.mode)
    lost = fatal.verdict.reply if fatal.verdict else fatal.part or Reply()
    return [*loop.traced(), ledger.traced(lost, loop.mode)]


def _choices(service: Service, case: Case, ask: Ask, failure: Failure | None) -> Steps[Failure | None]:
    """Serve every choice: all in one request if the server supports `n`, else one by one. Return a final failure."""
    modes = modes_for(ask, tools=case.tools)
    if ask.sends == 1:
        plan = Plan(ask, modes, case.place, service.context, service.now)
        return (yield from service.serve(plan, range(ask.n), failure))
    for index in range(ask.n):
        plan = Plan(single(ask), modes, case.place, service.context, service.now)
        fatal = yield from service.serve(plan, [index], failure)
        if fatal:
            return fatal
        failure = None
    return None
