"""The retry loop: attempt after attempt until each choice has a reply, or nothing is left to try.

One attempt covers all choices of the request. The good ones are finished at once; if one of several failed, each failed
choice is served on its own from then on, by a copy of the plan. For a failure `_recover` takes the first option that
applies:

    1. the error's text contains a valid call       the choice is finished with it, and nothing is sent again
    2. a choice is past its commit point            no retry: finish with what there is, else fail
    3. the plan and the retry policy allow it       drop what is held, wait, and make another attempt
    4. nothing is left to try                       finish with the last reply that may be shown, else fail

A choice is done when it is in `replies`; `serve` returns the failure that left one without a reply.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from promptools.errors import UsageError
from promptools.exchange.effects import Head
from promptools.exchange.failure import Failure, of_live, of_verdict
from promptools.exchange.outlet import Account, own_headers
from promptools.exchange.recover import recover
from promptools.exchange.sending import Sending
from promptools.wire.chat import Envelope
from promptools.wire.chunks import CUT, finish_reason

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from promptools.exchange.context import Context
    from promptools.exchange.ledger import Ledger, Steps
    from promptools.exchange.outlet import Outlet
    from promptools.exchange.plan import Plan
    from promptools.modes.ask import Ask
    from promptools.modes.checks import Verdict
    from promptools.types import Malformed, Reply


class Service:
    """Serves the choices of one request; with `strict`, calls that remain invalid are an error, not content."""

    def __init__(self, ledger: Ledger, outlet: Outlet, *, strict: bool = False) -> None:
        self._ledger = ledger
        self._outlet = outlet
        self._strict = strict
        self.replies: dict[int, Reply] = {}
        self.mode = ""
        self._last: dict[int, Failure] = {}
        self._sending: Sending | None = None

    @property
    def context(self) -> Context:
        """What is shared from request to request."""
        return self._ledger.context

    @property
    def now(self) -> float:
        """The shell's clock."""
        return self._ledger.now

    def head(self) -> Head:
        """Return the head of the response, of the current attempt if there is one."""
        if self._sending is not None:
            return self._sending.head()
        sends = len(self._ledger.attempts)
        return Head(200, own_headers((), self._outlet.content_type, self._ledger.attempts[-1].mode, sends))

    def traced(self) -> list[Reply]:
        """Return the replies in the order of their choices, with attempts and notes in their traces."""
        return [self._ledger.traced(self.replies[index], self.mode) for index in sorted(self.replies)]

    def end(self, ask: Ask) -> Steps[None]:
        """End the response to the client."""
        assert self._sending is not None
        sends = len(self._ledger.attempts)
        report = _report(self.traced()) if ask.options.trace else None
        comment = f"promptools mode={self.mode} attempts={sends}"
        data = self._outlet.end(Account(self._ledger.usage, report, comment, self._ledger.seconds))
        yield from self._ledger.emit(data, self._sending.head)

    def serve(self, plan: Plan, indices: Sequence[int], failure: Failure | None = None) -> Steps[Failure | None]:
        """Serve these choices, beginning after `failure` if there was one; return the final failure, if any."""
        while True:
            if failure is None:
                outcome = yield from self._send(plan, indices)
                if not isinstance(outcome, Failure):
                    return (yield from self._singly(plan, outcome))
                failure = outcome
            again = yield from self._recover(plan, indices, failure)
            if not again:
                return None if all(index in self.replies for index in indices) else failure
            failure = None

    def _send(self, plan: Plan, indices: Sequence[int]) -> Steps[Failure | dict[int, Failure | None]]:
        """Make one attempt; return its failure, or with several choices the failure of each that failed.

        A choice that the server never sent is in the mapping with None.
        """
        self._sending = attempt = yield from self._ledger.compute(partial(self._written, plan, indices))
        self.mode = plan.mode
        outcome = yield from attempt.run()
        if isinstance(outcome, Failure):
            self._ledger.record(plan.mode, outcome, attempt.intake.usage)
            return outcome
        failed = yield from self._settle(attempt, outcome)
        first = next(iter(failed.values()), None)
        self._ledger.record(plan.mode, first, attempt.intake.usage)
        if first is None:
            plan.worked(self.now)
        if first and len(indices) == 1:
            return first
        if len(outcome) < len(indices):  # some servers send one choice whatever `n` is, even if the profile disagrees
            note = f"the server sent {len(outcome)} of {len(indices)} choices: the others were asked for one by one"
            self._ledger.notes.append(note)
        return {index: failed.get(index) for index in indices if index in failed or index not in outcome}

    def _written(self, plan: Plan, indices: Sequence[int]) -> Sending:
        """Prepare the attempt in the first mode that can express the request; raise `UsageError` if none can."""
        while True:
            try:
                return Sending(self._ledger, plan, self._outlet, indices)
            except UsageError as error:
                if not plan.pass_over(str(error), self.now):
                    raise

    def _settle(self, sending: Sending, verdicts: Mapping[int, Verdict]) -> Steps[dict[int, Failure]]:
        """Finish the choices that are good, and return the failures of the others."""
        failed: dict[int, Failure] = {}
        opened = self._ledger.opened
        assert opened is not None
        for index, verdict in verdicts.items():
            live = self._outlet.broken(index) or self._left_open(index, verdict.reply)
            if live:
                failed[index] = of_live(live, verdict.reply, opened)
            elif verdict.ok:
                yield from self._finish(index, verdict.reply, good=True)
            else:
                failed[index] = of_verdict(verdict, opened, lost=sending.lost(index))
        return failed

    def _left_open(self, index: int, reply: Reply) -> Malformed | None:
        """Return the call that was sent in part and cut off, unless the finish reason tells the client so."""
        if not self._outlet.unfinished(index) or finish_reason(reply) in CUT:
            return None
        return next((call for call in reply.malformed if call.reason == "truncated"), None)

    def _singly(self, plan: Plan, failed: Mapping[int, Failure | None]) -> Steps[Failure | None]:
        """Serve each choice that failed, or was never sent, on its own; return the first final failure."""
        for index, failure in failed.items():
            fatal = yield from self.serve(plan.single(single(plan.ask)), [index], failure)
            if fatal:
                return fatal
        return None

    def _recover(self, plan: Plan, indices: Sequence[int], failure: Failure) -> Steps[bool]:
        """Handle a failure; return whether to make another attempt, for which the plan is then ready."""
        if len(indices) == 1 and not self._outlet.unfinished(indices[0]):
            reply = recover(plan, failure, self._ledger.context.new_id)
            if reply:
                self._ledger.amend(failure, reply.trace.notes[-1])
                yield from self._finish(indices[0], reply, good=True)
                return False
        if any(self._outlet.committed(index) for index in indices):
            plan.failed(failure, self.now)
            self._ledger.amend(failure, "too much has gone to the client to begin again")
            yield from self._hand_over(indices, failure)
            return False
        if self._may_show(failure):
            self._last |= dict.fromkeys(indices, failure)
        remedy = plan.after(failure, self._ledger.now)
        pause = self._ledger.policy.again(self._ledger.now) if remedy else None
        if remedy and isinstance(pause, float):
            self._ledger.amend(failure, remedy)
            for index in indices:
                self._outlet.drop(index)
            yield from self._ledger.wait(pause)
            return True
        self._ledger.amend(failure, pause if isinstance(pause, str) else "nothing is left to try")
        yield from self._hand_over(indices, failure if _passing(failure) else self._last.get(indices[0], failure))
        return False

    def _hand_over(self, indices: Sequence[int], failure: Failure) -> Steps[None]:
        """Finish a choice with the content of a failed reply, if that may be shown; else leave it unfinished."""
        verdict = failure.verdict
        if verdict is None or len(indices) > 1 or not self._may_show(failure):
            return
        reply = verdict.reply.with_trace(notes=(*verdict.reply.trace.notes, f"{failure.kind}: {failure.why}"))
        yield from self._finish(indices[0], reply, good=bool(reply.calls))

    def _may_show(self, failure: Failure) -> bool:
        return failure.verdict is not None and _presentable(failure, failure.verdict, strict=self._strict)

    def _finish(self, index: int, reply: Reply, *, good: bool) -> Steps[None]:
        """End a choice with its reply."""
        attempt = self._sending
        envelope = attempt.intake.envelope if attempt else Envelope()
        tail = attempt.intake.tail if attempt else {}
        self.replies[index] = replace(reply, finish_reason=finish_reason(reply))
        data = self._outlet.finish(index, reply, envelope, tail, good=good)
        if data and attempt:
            yield from self._ledger.emit(data, attempt.head)


def _passing(failure: Failure) -> bool:
    """Whether the SDK should see the failure, so that it retries the whole request."""
    return failure.kind in {"connect", "timeout"} or failure.status in {408, 409, 429}


def _presentable(failure: Failure, verdict: Verdict, *, strict: bool) -> bool:
    """Whether the content of a failed reply may be sent to the client as the answer."""
    if failure.kind in {"malformed", "truncated", "unknown_tool"}:
        return not strict
    if failure.kind == "swallowed":  # reasoning without content: poor, but it may be the complete reply
        return bool(verdict.reply.reasoning) and not failure.lost
    return failure.kind in {"choice", "empty_calls", "format"}


def single(ask: Ask) -> Ask:
    """Return a copy of a request for one choice alone."""
    return replace(ask, n=1, body={key: value for key, value in ask.body.items() if key != "n"})


def _report(replies: Sequence[Reply]) -> dict[str, Any]:
    """Return the value of the `promptools` key: mode, attempts and notes, and the fixes of each choice."""
    trace = replies[0].trace
    return {
        "mode": trace.mode,
        "attempts": [attempt.to_dict() for attempt in trace.attempts],
        "notes": list(trace.notes),
        "seen": trace.seen.to_dict() if trace.seen else None,
        "choices": [
            {
                "index": index,
                "fixes": {call.id: [fix.to_dict() for fix in call.fixes] for call in reply.calls},
                "dialects": {call.id: call.dialect for call in reply.calls},
                "malformed": [call.to_dict() for call in reply.malformed],
                "tries": [attempt.to_dict() for attempt in reply.trace.tries],
            }
            for index, reply in enumerate(replies)
        ],
    }
