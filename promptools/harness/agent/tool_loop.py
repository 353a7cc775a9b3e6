"""The loop of model requests and tool calls, as a generator without I/O.

`RunLoop.run` yields effects (`loop_effects`) and is sent their results: an `AccumulatedReply` for `RequestReply`,
`Result`s for `RunTools`, and nothing for `Pause` and for events. It returns the `Transcript`. The sync and the async
driver (`drivers`) share the loop, and differ only in how they perform the effects.

A step is a usable reply (`ReplyRequester`) and what it leads to:

    calls               are run and their results sent, unless this was the last step that the limits allow
    an announced call   the model is asked to make the call, as many times as the limits allow
    anything else       the answer: the run ends
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Awaitable, Callable, Generator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from promptools.harness.agent.harness_errors import ExecutionTimeoutError, IterationLimitError, TerminatingError
from promptools.harness.agent.loop_effects import LoopEffect, LoopGenerator, RunTools
from promptools.harness.agent.reply_requests import ReplyRequester, RequestSettings
from promptools.harness.agent.run_events import CallEvent, ResultEvent, RetryEvent, StepEvent
from promptools.harness.agent.run_limits import LimitTracker
from promptools.harness.agent.toolbox import PreparedCall, RunContext, bind_context, error_result
from promptools.harness.toolsets.agent_tool import ToolTimeoutError

if TYPE_CHECKING:
    from promptools.harness.agent.conversation import Conversation
    from promptools.harness.agent.loop_effects import AccumulatedReply
    from promptools.harness.agent.run_limits import RunLimits
    from promptools.harness.agent.toolbox import Toolbox
    from promptools.types import Result


# Whether a reply announces a call that it does not make: "Let me look at the tests:".
#
# Only the last sentence counts, and it must say that the model itself acts now. Questions, offers and conditions count
# as answers. Mistaking an answer for an announcement costs a request, and the user loses a good answer.


NUDGE = "You announced a tool call, but made none. Make the call now, or give your final answer."
_ACTS = (
    "add|apply|call|change|check|continue|create|edit|examine|execute|explore|fetch|find|fix|inspect|invoke|list|look"
    "|modify|open|patch|query|read|rerun|review|run|search|start|test|try|update|use|verify|view|write"
)
_ANNOUNCED = re.compile(
    rf"^(?:(?:ok(?:ay)?|sure|now|next|first|then|so|great|good)\b[,.!]?\s+)*"
    rf"(?:let me|let[’']s|i[’']ll|i will|i[’']m going to|i am going to|we[’']ll|we will)\s+"
    rf"(?:(?:now|first|then|also|just|quickly|start by|begin by|go ahead and)\s+)*(?:{_ACTS})(?:ing)?\b",
    re.IGNORECASE,
)
_SENTENCE_END = re.compile(r"(?<=[.!?…])\s+|\n+")
_SEARCHED = 400
"""Number of characters at the end of a reply that are searched for the announcement of a call."""
_CONDITION = re.compile(r"\b(?:if|once|when|should|unless|after|whenever) (?:you|it|this|that|the)\b|\?", re.IGNORECASE)


def announces_call(content: str) -> bool:
    """Return whether the last sentence of `content` announces a tool call."""
    sentences = [part.strip(" \t*_>#-") for part in _SENTENCE_END.split(content[-_SEARCHED:].strip())]
    last = next((sentence for sentence in reversed(sentences) if sentence), "")
    return _ANNOUNCED.match(last) is not None and not _CONDITION.search(last)


# Time-outs of tools under the paper's policy: the model reads the observation of `ExecutionTimeoutError`.


SHOWN = 100
"""Maximum number of characters of a timed-out command's output that the model is shown. They are taken from the
beginning of the output."""


def with_execution_timeouts(work: Callable[[], Any]) -> Callable[[], Any]:
    """Wrap a tool's function so that it raises `ExecutionTimeoutError` instead of `ToolTimeoutError`."""

    def run() -> Any:
        try:
            value = work()
        except ToolTimeoutError as error:
            raise _execution_timeout(error) from error
        return _awaited(value) if inspect.isawaitable(value) else value

    return run


async def _awaited(value: Awaitable[Any]) -> Any:
    try:
        return await value
    except ToolTimeoutError as error:
        raise _execution_timeout(error) from error


def _execution_timeout(error: ToolTimeoutError) -> ExecutionTimeoutError:
    cut = "..." if len(error.output) > SHOWN else ""
    observation = (
        f"The last command timed out after {error.seconds:g} seconds and has been killed. The output of the command"
        f" was:\n<output>\n{error.output[:SHOWN]}{cut}\n</output>\nPlease try another command and make sure to avoid"
        " those requiring interactive input."
    )
    return ExecutionTimeoutError(str(error), observation=observation)


# The loop.


@dataclass(frozen=True, slots=True)
class LoopSettings:
    """The settings of a run."""

    requests: RequestSettings
    limits: RunLimits
    reasoning: bool = False
    """Whether the reasoning of replies with calls is sent back to the server."""
    state: Any = field(default=None, repr=False)
    """The app's `state`, which tools find in their `RunContext`."""

    @property
    def clock(self) -> Callable[[], float]:
        """The clock: a function that returns the time in seconds."""
        return self.requests.clock


class RunLoop:
    """The loop of one run: it requests replies and runs their calls, until a reply ends the run."""

    def __init__(self, settings: LoopSettings, conversation: Conversation, toolbox: Toolbox) -> None:
        self._settings = settings
        self.conversation = conversation
        self._toolbox = toolbox
        self._tracker = LimitTracker(settings.limits, settings.clock)
        self._requester = ReplyRequester(settings.requests, conversation, toolbox, self._tracker)

    def run(self) -> LoopGenerator:
        """Request replies and run their calls until a reply ends the run; return the transcript.

        Raises a `TerminatingError`, which holds the transcript so far, if the run ends without an answer.
        """
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
        """Run the calls of a reply, or take the reply as the answer. Return why the run ends, or "" if it goes on."""
        conversation = self.conversation
        before = list(conversation.messages)
        conversation.add_reply(reply, reasoning=self._settings.reasoning)
        if not reply.calls:
            return self._answer(reply)
        if conversation.iterations == self._settings.limits.steps:
            raise _limit_error(conversation)
        prepared = [self._checked(self._prepare(raw.id or "", raw.name, raw.arguments, before)) for raw in reply.calls]
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
        """Run calls concurrently if every call allows it, else one after the other."""
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
        """Return the call; if it was repeated too many times, return it with an error result, so that it is not run."""
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
