"""The plan of one request, as a generator."""

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
    """Carry one request out: yields effects, is sent happenings, returns the reply (None: there was none to read).

    Of several choices the first is returned; `context.on_reply` receives each. Raises only what a shell handed in as
    `Failed.error`, and only before anything was emitted.
    """
    ledger = Ledger(request, context)
    try:
        case = yield from open_case(ledger)
        ledger.url, ledger.headers = case.route.url, case.route.headers
        ledger.place = case.place
        ledger.notes.extend(case.notes)
        replies = yield from _touch(ledger, case) if case.payload is None else _pass(ledger, case, case.payload)
    except UsageError as error:
        yield from refuse(ledger, error)
        return None
    if context.on_reply:
        for reply in replies:
            context.on_reply(reply)
    return replies[0] if replies else None


def _pass(ledger: Ledger, case: Case, payload: bytes) -> Steps[list[Reply]]:
    """Pass a request untouched; the fallback takes over where the server lost the reply before any of it went on."""
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
    """Serve a request, from a `failure` on when it came back that way; gives its replies, a failed one too."""
    ask = yield from case.ask(ledger)
    outlet = ledger.front.outlet(ask, begun=ledger.head_sent)
    service = Service(ledger, outlet, strict=ask.options.on_malformed == "error")
    if ask.options.heartbeat and outlet.heartbeat:
        ledger.heartbeat = Heartbeat(ask.options.heartbeat, outlet.heartbeat, service.head)
    fatal = yield from _choices(service, case, ask, failure)
    if fatal is None:
        yield from service.end(ask)
        return service.traced()
    opened = failure.opened if failure else None
    if watch and opened and fatal.kind == "swallowed" == (failure.kind if failure else ""):
        # it stayed as empty as it was: then that is the answer, and it goes on as it came
        head = Head(opened.status, opened.headers)
        yield from ledger.emit(watch.rest, lambda: head)
        return []
    yield from conclude(ledger, fatal, service.mode)
    lost = fatal.verdict.reply if fatal.verdict else fatal.part or Reply()
    return [*service.traced(), ledger.traced(lost, service.mode)]


def _choices(service: Service, case: Case, ask: Ask, failure: Failure | None) -> Steps[Failure | None]:
    """Serve every choice: together where the server heeds `n`, else one by one."""
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
