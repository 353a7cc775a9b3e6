"""The loop of model requests and tool calls, as a generator without I/O.

`RunLoop.run` yields effects and is sent their results: `RequestReply` (request a reply; gets an `AccumulatedReply`),
`RunTools` (run tools; gets their `Result`s), `Pause`, and events, which get nothing. It returns the `Transcript`. The
sync and the async driver (`promptools.agent.loop.drivers`) share it, and differ only in how they perform the effects.

A step is a reply that can be used (`ReplyRequester`) and what follows from it:

    calls               run, and their results sent, unless it was the last step that the limits allow
    an announced call   the model is asked to make it, as often as the limits allow
    anything else       the answer: the run ends
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from promptools.agent.functions.run_context import RunContext, bind_context
from promptools.agent.functions.toolbox import PreparedCall, error_result
from promptools.agent.harness_errors import IterationLimitError, TerminatingError
from promptools.agent.limits.run_limits import LimitTracker
from promptools.agent.loop.loop_effects import LoopEffect, LoopGenerator, RunTools
from promptools.agent.loop.reply_requests import ReplyRequester, RequestSettings
from promptools.agent.policies.announced_calls import NUDGE, announces_call
from promptools.agent.policies.execution_timeouts import with_execution_timeouts
from promptools.agent.run_events import CallEvent, ResultEvent, RetryEvent, StepEvent

if TYPE_CHECKING:
    from promptools.agent.functions.toolbox import Toolbox
    from promptools.agent.limits.run_limits import RunLimits
    from promptools.agent.loop.conversation import Conversation
    from promptools.agent.loop.reply_collector import AccumulatedReply
    from promptools.types import Result


@dataclass(frozen=True, slots=True)
class LoopSettings:
    """How a run goes."""

    requests: RequestSettings
    limits: RunLimits
    reasoning: bool = False
    """Whether the reasoning of replies with calls is sent back to the server."""
    state: Any = field(default=None, repr=False)
    """What tools get in their context."""

    @property
    def clock(self) -> Callable[[], float]:
        """Return the time in seconds."""
        return self.requests.clock


class RunLoop:
    """One run."""

    def __init__(self, settings: LoopSettings, conversation: Conversation, toolbox: Toolbox) -> None:
        self._settings = settings
        self.conversation = conversation
        self._toolbox = toolbox
        self._tracker = LimitTracker(settings.limits, settings.clock)
        self._requester = ReplyRequester(settings.requests, conversation, toolbox, self._tracker)

    def run(self) -> LoopGenerator:
        """Request replies and run their calls until a reply holds none; raise `TerminatingError`s with transcripts."""
        try:
            while True:
                began = self._settings.clock()
                reply, retries = yield from self._requester.request()
                try:
                    ended = yield from self._finish_step(reply)
                finally:
                    step = self._end_step(reply, retries, began)
                yield step
                if ended:
                    return self.conversation.transcript(ended)
        except TerminatingError as error:
            error.transcript = self.conversation.transcript(getattr(error, "limit", type(error).__name__))
            raise

    def _finish_step(self, reply: AccumulatedReply) -> Generator[LoopEffect, Any, str]:
        """Use a reply; return why the run ends with it, or an empty text."""
        conversation = self.conversation
        before = list(conversation.messages)
        conversation.add_reply(reply, reasoning=self._settings.reasoning)
        if not reply.calls:
            return self._answer(reply)
        if conversation.iterations == self._settings.limits.steps:
            raise _limit_error(conversation)
        prepared = [self._checked(self._prepare(raw.id, raw.name, raw.arguments, before)) for raw in reply.calls]
        conversation.calls += (entry.call for entry in prepared)
        yield from self._run_calls(prepared)
        self._requester.relax_tool_choice()
        return ""

    def _answer(self, reply: AccumulatedReply) -> str:
        if self._settings.requests.policy.checks != "default" or not self._toolbox.tools:
            return "answer"
        if not announces_call(reply.content):
            return "answer"
        last = self.conversation.iterations == self._settings.limits.steps
        if last or not self._tracker.take_nudge():
            return "announced"
        self.conversation.messages.append({"role": "user", "content": NUDGE})
        return ""

    def _prepare(self, call_id: str, name: str, arguments: str, before: list[dict[str, Any]]) -> PreparedCall:
        prepared = self._toolbox.prepare_call(call_id, name, arguments)
        if prepared.work is None:
            return prepared
        context = RunContext(prepared.call, self.conversation.iterations, before, self._settings.state)
        work = bind_context(prepared.work, context)
        if self._settings.requests.policy.checks == "paper":
            work = with_execution_timeouts(work)
        return PreparedCall(prepared.call, work, parallel=prepared.parallel)

    def _run_calls(self, prepared: list[PreparedCall]) -> Generator[LoopEffect, Any, None]:
        """Run calls one after the other, or all at once where each allows it."""
        together = len(prepared) > 1 and all(entry.parallel or entry.work is None for entry in prepared)
        for batch in [prepared] if together else [[entry] for entry in prepared]:
            for entry in batch:
                yield CallEvent(entry.call)
            runnable = tuple(entry for entry in batch if entry.work is not None)
            results: list[Result] = list((yield RunTools(runnable)) if runnable else ())
            results.reverse()
            for entry in batch:
                result = entry.result if entry.work is None else results.pop()
                assert result is not None
                self.conversation.add_result(result)
                yield ResultEvent(result)
                self._tracker.add_result(result)
        self._tracker.check_failures()

    def _checked(self, entry: PreparedCall) -> PreparedCall:
        """Return the call, or one that is not run if it was repeated too often."""
        why = self._tracker.check_call(entry.call)
        return entry if why is None else PreparedCall(entry.call, None, error_result(entry.call, why))

    def _end_step(self, reply: AccumulatedReply, retries: tuple[RetryEvent, ...], began: float) -> StepEvent:
        conversation = self.conversation
        step = StepEvent(
            conversation.iterations, reply.finish_reason, reply.usage, retries, self._settings.clock() - began
        )
        conversation.steps.append(step)
        return step


def _limit_error(conversation: Conversation) -> IterationLimitError:
    names = ", ".join(repr(call.name) for call in conversation.last.calls) if conversation.last else ""
    return IterationLimitError(
        f"the model still calls tools ({names}) after {conversation.iterations} replies; raise the limit"
        " (max_iterations, or RunLimits.steps), or look at the error's transcript for why it goes round"
    )
