"""Make attempts at one request until one succeeds.

After a failure, calls in the failed reply are recovered if possible; otherwise the plan decides what to send next.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from promptools.errors import UsageError
from promptools.exchange.attempt import AttemptRunner, preparation
from promptools.exchange.effects import ResponseHead
from promptools.exchange.failures import Failure, failure_of_live_call, failure_of_verdict
from promptools.exchange.response_writer import Summary, response_headers
from promptools.exchange.salvage import recover_calls, recover_text
from promptools.fallback import REFUSAL_KINDS
from promptools.modes.structured_calls import NATIVE
from promptools.wire.chat_decoder import Envelope
from promptools.wire.chat_encoder import CUT_OFF_REASONS, finish_reason

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from promptools.exchange.context import Context
    from promptools.exchange.passthrough import TakenReply
    from promptools.exchange.plan import AttemptPlan
    from promptools.exchange.response_writer import ResponseWriter
    from promptools.exchange.state import ExchangeState, Steps
    from promptools.fallback import FailureKind
    from promptools.modes.tool_request import ToolRequest
    from promptools.modes.verdict import Verdict
    from promptools.types import Malformed, Reply


_LOST_KINDS: frozenset[FailureKind] = frozenset({"server_parser", "harmony", "crashed"})
"""Kinds of failures in which the server sent an error in place of the reply."""


class RetryLoop:
    """Makes attempts until each choice of a request has a reply, or nothing is left to try.

    If a reply's calls remain invalid, the client gets an error if `strict` is true, and the invalid reply if not.
    `keeps_first` says that the caller keeps the bytes of the first reply, and forwards them if no attempt succeeds.
    """

    def __init__(
        self, state: ExchangeState, writer: ResponseWriter, *, strict: bool = False, keeps_first: bool = False
    ) -> None:
        self._state = state
        self._writer = writer
        self._strict = strict
        self._keeps_first = keeps_first
        self.replies: dict[int, Reply] = {}
        self.mode = ""
        self.lost_to_server: Failure | None = None
        """The first failure in which the server lost a reply and reported an error for it."""
        self.first_refusal: Failure | None = None
        """The server's refusal of the client's own request, if the request was then reworded and sent again."""
        self._last_presentable: dict[int, Failure] = {}
        self._attempt: AttemptRunner | None = None

    @property
    def context(self) -> Context:
        """The context that all requests share."""
        return self._state.context

    @property
    def now(self) -> float:
        """The current time of the exchange's clock, in seconds."""
        return self._state.now

    def head(self) -> ResponseHead:
        """Return the status and headers of the response, with headers about the current attempt, if there is one."""
        if self._attempt is not None:
            return self._attempt.head()
        sends = len(self._state.attempts)
        mode, notes = self._state.attempts[-1].mode, len(self._state.notes)
        return ResponseHead(200, response_headers((), self._writer.content_type, mode, sends, notes))

    def traced_replies(self) -> list[Reply]:
        """Return the replies in the order of their choices, with attempts and notes in their traces."""
        return [self._state.with_trace(self.replies[index], self.mode) for index in sorted(self.replies)]

    def end(self, request: ToolRequest) -> Steps[None]:
        """End the response to the client."""
        assert self._attempt is not None
        sends, unfit = len(self._state.attempts), self._state.unfit_calls
        report = _trace_report(self.traced_replies(), request) if request.options.trace else None
        comment = f"promptools mode={self.mode} attempts={sends}" + (f" unfit={unfit}" if unfit else "")
        phases = self._state.phases(whole=not request.stream)
        summary = Summary(self._state.usage, report, comment, self._state.seconds, phases)
        size = sum(map(_size, self.replies.values()))
        data = yield from self._state.compute(partial(self._writer.end, summary), size)
        yield from self._state.emit(data, self._attempt.head)

    def serve(
        self,
        plan: AttemptPlan,
        indices: Sequence[int],
        failure: Failure | None = None,
        taken: TakenReply | None = None,
    ) -> Steps[Failure | None]:
        """Make attempts at these choices; return the failure that remains, or None if each choice has a reply.

        `failure` is the failure of an earlier attempt, which is handled first. `taken` is a forwarded reply that the
        first attempt takes over.
        """
        while True:
            if failure is None:
                outcome = yield from self._run_attempt(plan, indices, taken)
                taken = None
                if not isinstance(outcome, Failure):
                    return (yield from self._serve_singly(plan, outcome))
                failure = outcome
            again = yield from self._handle_failure(plan, indices, failure)
            if not again:
                return None if all(index in self.replies for index in indices) else failure
            failure = None

    def _run_attempt(
        self, plan: AttemptPlan, indices: Sequence[int], taken: TakenReply | None = None
    ) -> Steps[Failure | dict[int, Failure | None]]:
        """Make an attempt; return its failure or, if it did not fail as a whole, the choices that still lack a reply.

        Each of these choices is mapped to its failure, or to None if the server never sent the choice. If the attempt
        is for a single choice, the failure of the choice is the failure of the attempt.
        """
        attempt = yield from self._prepare_attempt(plan, indices)
        self.mode = plan.mode
        if isinstance(attempt, Failure):  # nothing was generated: no stop policy counts it
            self._state.record(plan.mode, attempt, None)
            return attempt
        self._attempt = attempt
        outcome = yield from attempt.run(taken)
        if not isinstance(outcome, Failure) or (outcome.status == 200 and outcome.server_error is None):
            plan.record_accepted(self.now)
        if isinstance(outcome, Failure):
            self._state.record(plan.mode, outcome, attempt.decoder.usage, attempt.written)
            return replace(outcome, prepared=attempt.prepared)
        failed = yield from self._finish_good(attempt, outcome, plan.request)
        first = next(iter(failed.values()), None)
        self._state.record(plan.mode, first, attempt.decoder.usage, attempt.written)
        if first is None:
            plan.record_success(self.now)
        if first and len(indices) == 1:
            return first
        # Ollama, LM Studio and `transformers serve` send one choice, whatever `n` and the profile say.
        if len(outcome) < len(indices):
            note = f"the server sent {len(outcome)} of {len(indices)} choices: the others were asked for one by one"
            self._state.notes.append(note)
        return {index: failed.get(index) for index in indices if index in failed or index not in outcome}

    def _prepare_attempt(self, plan: AttemptPlan, indices: Sequence[int]) -> Steps[AttemptRunner | Failure]:
        """Prepare an attempt in the first mode that can express the request.

        If no mode can express the request, raises `UsageError`, but only if no attempt was made before. After earlier
        attempts, returns a failure instead, because an earlier attempt may have left a usable answer.
        """
        while True:
            try:
                prepare = yield from preparation(self._state, plan)
                if isinstance(prepare, Failure):
                    return prepare
                begin = partial(AttemptRunner, self._state, plan, prepare, self._writer, indices)
                return (yield from self._state.compute(begin))
            except UsageError as error:
                if plan.skip_mode(str(error), self.now):
                    continue
                if not self._state.attempts:
                    raise
                return Failure("tool_media", str(error))

    def _finish_good(
        self, attempt: AttemptRunner, verdicts: Mapping[int, Verdict], request: ToolRequest
    ) -> Steps[dict[int, Failure]]:
        """Finish the choices whose replies passed the checks, and return the failures of the others."""
        failed: dict[int, Failure] = {}
        opened = self._state.opened
        assert opened is not None
        for index, verdict in verdicts.items():
            live = self._writer.failed_live_call(index) or self._cut_live_call(index, verdict.reply)
            if live:
                failed[index] = failure_of_live_call(live, verdict.reply, opened)
            elif verdict.ok:
                reply = self._note_left_out(request, verdict.reply) if verdict.reply.calls else verdict.reply
                yield from self._finish_choice(index, reply, valid=True)
            else:
                failed[index] = failure_of_verdict(verdict, opened, call_signalled=attempt.call_signalled(index))
        return failed

    def _cut_live_call(self, index: int, reply: Reply) -> Malformed | None:
        """Return a partly sent call that was cut off; None if there is none, or if the finish reason shows the cut."""
        if not self._writer.has_open_call(index) or finish_reason(reply) in CUT_OFF_REASONS:
            return None
        return next((call for call in reply.malformed if call.reason == "truncated"), None)

    def _serve_singly(self, plan: AttemptPlan, failed: Mapping[int, Failure | None]) -> Steps[Failure | None]:
        """Make separate attempts at each choice that failed or was never sent; return the first remaining failure."""
        for index, failure in failed.items():
            fatal = yield from self.serve(plan.for_single_choice(single_choice(plan.request)), [index], failure)
            if fatal:
                return fatal
        return None

    def _handle_failure(self, plan: AttemptPlan, indices: Sequence[int], failure: Failure) -> Steps[bool]:
        """Handle a failure; return whether to make another attempt. If so, the plan says what to send."""
        if failure.kind in _LOST_KINDS and failure.server_error and self.lost_to_server is None:
            self.lost_to_server = failure
        if len(indices) == 1 and not self._writer.has_open_call(indices[0]):
            recover = partial(recover_calls, plan, failure, self._state.context.new_id)
            reply = yield from self._state.compute(recover, failure.size)
            if reply:
                self._state.note_remedy(failure, reply.trace.notes[-1])
                yield from self._finish_choice(indices[0], reply, valid=True)
                return False
        if any(self._writer.committed(index) for index in indices):
            plan.record_failure(failure, self.now)
            self._state.note_remedy(failure, "too much has gone to the client to begin again")
            yield from self._finish_with_failed(plan.request, indices, failure)
            return False
        if not plan.request.takes_calls:
            failure = yield from self._state.compute(partial(recover_text, plan, failure), failure.size)
        if self._may_show(failure, plan.request):
            self._last_presentable |= {index: failure for index in indices if not self._is_worse(index, failure)}
        remedy = plan.plan_next(failure, self._state.now)
        pause = self._state.policy.next_wait(self._state.now) if remedy else None
        if remedy and isinstance(pause, float):
            self._state.note_remedy(failure, remedy)
            if failure.kind in REFUSAL_KINDS and failure.server_error and self.first_refusal is None:
                self.first_refusal = failure
            for index in indices:
                self._writer.discard_attempt(index, plan.request.corrections)
            yield from self._state.wait(pause)
            return True
        self._state.note_remedy(failure, pause if isinstance(pause, str) else "nothing is left to try")
        shown = self._last_presentable.get(indices[0], failure)
        if is_retried_by_sdk(failure) and shown.kind != "format":  # an answer in the wrong format is still an answer
            shown = failure
        yield from self._finish_with_failed(plan.request, indices, shown)
        return False

    def _finish_with_failed(self, request: ToolRequest, indices: Sequence[int], failure: Failure) -> Steps[None]:
        """Finish the choice with its failed reply, if there is only one choice and the client may see the reply.

        In all other cases, do nothing. Also do nothing if only the format of the answer is wrong and the caller can
        still forward the first reply, which the caller keeps (`keeps_first`).
        """
        verdict = failure.verdict
        if verdict is None or len(indices) > 1 or not self._may_show(failure, request):
            return
        if self._keeps_first and failure.kind == "format" and not self._writer.committed(indices[0]):
            return
        reply = verdict.reply.with_trace(notes=(*verdict.reply.trace.notes, f"{failure.kind}: {failure.why}"))
        self._state.unfit_calls += len(reply.calls)
        if not reply.calls:
            reply = self._note_lost_calls(request, reply)
        yield from self._finish_choice(indices[0], reply, valid=bool(reply.calls))

    def _is_worse(self, index: int, failure: Failure) -> bool:
        """Return whether a failed reply offers the client less than the last failed reply that could be shown.

        It offers less in two cases: it has no calls, but the earlier reply has some; or it has neither calls nor text,
        but the earlier reply has text. A reply that has only reasoning may be complete, so the second case leaves out
        those that are `swallowed`.
        """
        earlier = self._last_presentable.get(index)
        if earlier is None or earlier.verdict is None or failure.verdict is None:
            return False
        before, now = earlier.verdict.reply, failure.verdict.reply
        loses_text = failure.kind != "swallowed" and bool(before.content.strip()) and not now.content.strip()
        return not now.calls and (bool(before.calls) or loses_text)

    def _note_lost_calls(self, request: ToolRequest, reply: Reply) -> Reply:
        """Note in the trace and the log that calls from the server are returned as text, without quoting the model."""
        lost = [failed for failed in reply.malformed if failed.dialect == NATIVE]
        for failed in lost:
            name = repr(failed.name) if request.tools.get(failed.name or "") is not None else "a tool"
            note = f"the server's call of {name} is returned as text: {failed.reason}"
            reply = reply.with_trace(notes=(*reply.trace.notes, note))
            self._state.warn(note)
        return reply

    def _note_left_out(self, request: ToolRequest, reply: Reply) -> Reply:
        """Count the invalid calls that are passed on with valid ones; note in the trace those that are left out."""
        given = {call.id for call in reply.calls}
        for failed in reply.malformed:
            if failed.call is not None and failed.call.id in given:
                self._state.unfit_calls += 1
                continue
            name = repr(failed.name) if request.tools.get(failed.name or "") is not None else "a tool"
            whose = "the server's call" if failed.dialect == NATIVE else "a call"
            note = f"{whose} of {name} is left out beside valid ones: {failed.reason}"
            reply = reply.with_trace(notes=(*reply.trace.notes, note))
            if failed.dialect == NATIVE:
                self._state.warn(note)
        return reply

    def _may_show(self, failure: Failure, request: ToolRequest) -> bool:
        """Return whether the content of a failed reply may be sent to the client as the answer."""
        verdict = failure.verdict
        if verdict is None:
            return False
        presentable = _presentable(failure, verdict, strict=self._strict)
        if request.takes_calls:
            return presentable
        if verdict.reply.content.strip() or verdict.reply.calls:
            return presentable or failure.kind == "swallowed" or failure.kind in _LOST_KINDS
        # thoughts alone may be the whole reply, unless the server said that it lost something
        return presentable and failure.kind == "swallowed" and self.lost_to_server is None

    def _finish_choice(self, index: int, reply: Reply, *, valid: bool) -> Steps[None]:
        """End a choice with its reply."""
        attempt = self._attempt
        envelope = attempt.envelope(index) if attempt else Envelope()
        tail = attempt.decoder.last_extra if attempt else {}
        finish = finish_reason(reply)
        self.replies[index] = reply if reply.finish_reason == finish else replace(reply, finish_reason=finish)
        work = partial(self._writer.finish, index, reply, envelope, tail, valid=valid)
        data = yield from self._state.compute(work, _size(reply))
        if data and attempt:
            yield from self._state.emit(data, attempt.head)


def _size(reply: Reply) -> int:
    """Return the number of characters that the model wrote in a reply."""
    return len(reply.content) + len(reply.reasoning) + sum(len(call.arguments_json) for call in reply.calls)


def is_retried_by_sdk(failure: Failure) -> bool:
    """Return whether the client's SDK retries a request after this failure, if the SDK is sent the error."""
    return failure.kind in {"connect", "timeout"} or failure.error_status in {408, 409, 429}


def _presentable(failure: Failure, verdict: Verdict, *, strict: bool) -> bool:
    """Return whether a failed reply to a request with tools has content that may be sent as the answer."""
    if failure.kind in {"malformed", "truncated", "unknown_tool"}:
        return not strict
    if failure.kind == "swallowed":  # reasoning without content: poor, but it may be the complete reply
        return bool(verdict.reply.reasoning) and not failure.call_signalled
    return failure.kind in {"choice", "empty_calls", "format"}


def single_choice(request: ToolRequest) -> ToolRequest:
    """Return a copy of a request that asks for a single choice."""
    return replace(request, n=1, body={key: value for key, value in request.body.items() if key != "n"})


def _trace_report(replies: Sequence[Reply], request: ToolRequest) -> dict[str, Any]:
    """Return the value of the `promptools` key: mode, attempts and notes, and the fixes of each choice."""
    trace = replies[0].trace
    return {
        "mode": trace.mode,
        "attempts": [attempt.to_dict() for attempt in trace.attempts],
        "healing": trace.healing.to_dict(),
        "notes": list(trace.notes),
        "seen": trace.seen.to_dict() if trace.seen else None,
        "choices": [
            {
                "index": index,
                "fixes": {call.id: [fix.to_dict() for fix in call.fixes] for call in reply.calls},
                "dialects": {call.id: call.dialect for call in reply.calls},
                "malformed": [call.to_dict() for call in reply.malformed],
                "tries": [attempt.to_dict() for attempt in reply.trace.tries],
                **_healed_answer(reply),
                **(_undeclared(reply) if request.options.takes_undeclared else {}),
            }
            for index, reply in enumerate(replies)
        ],
    }


def _healed_answer(reply: Reply) -> dict[str, Any]:
    """Return the fixes of a formatted answer, and the text that was removed around it; empty if there are no fixes."""
    if not reply.fixes or reply.calls:
        return {}
    cut = [text.raw for text in reply.discarded if text.why == "around"]
    return {"answer": {"fixes": [fix.to_dict() for fix in reply.fixes], "cut": cut}}


def _undeclared(reply: Reply) -> dict[str, Any]:
    """Return the ids of calls to tools that the request does not declare; empty if there are none."""
    ids = [call.id for call in reply.calls if call.unknown_tool]
    return {"undeclared": ids} if ids else {}
