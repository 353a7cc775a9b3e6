"""The events of a run, and the transcript, which is the run's result."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from promptools.harness.agent.harness_errors import IterationLimitError as IterationLimitError  # noqa: PLC0414  re-exported

if TYPE_CHECKING:
    from promptools.types import Call, Result

CompactionStage: TypeAlias = Literal["reasoning", "results", "summary", "latest results", "images"]
"""What was made shorter: old reasoning, old results, old turns (by a summary), results of the latest turns, or images
that the model or its server does not accept."""


@dataclass(frozen=True, slots=True)
class TextEvent:
    """A piece of the model's text for the user."""

    text: str


@dataclass(frozen=True, slots=True)
class ReasoningEvent:
    """A piece of the model's reasoning."""

    text: str


@dataclass(frozen=True, slots=True)
class CallEvent:
    """A tool is about to be called."""

    call: Call


@dataclass(frozen=True, slots=True)
class ResultEvent:
    """A tool has returned, or failed."""

    result: Result


@dataclass(frozen=True, slots=True)
class RetryEvent:
    """A reply is not usable, and another one is requested.

    Text that was streamed since the last step must be discarded.
    """

    attempt: int
    """The number of the failed attempt at this step, counted from 1."""
    error: str
    """Class name of the exception that says why the reply is not usable, such as `LongGeneration`."""
    message: str
    usage: dict[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class CompactionEvent:
    """The conversation was made shorter. Its size before and after is in characters."""

    stage: CompactionStage
    before: int
    after: int


@dataclass(frozen=True, slots=True)
class StepEvent:
    """A step is complete: a reply, and the results of its calls."""

    number: int
    """The number of the step, counted from 1."""
    finish_reason: str | None = None
    usage: dict[str, Any] | None = None
    """Token usage of the reply alone, without the failed attempts before it."""
    retries: tuple[RetryEvent, ...] = ()
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class Transcript:
    """The conversation after a run. `messages` holds the initial and all new messages, ready to be sent again."""

    messages: list[dict[str, Any]]
    content: str = ""
    """The last reply's text."""
    reasoning: str = ""
    """The last reply's reasoning."""
    calls: tuple[Call, ...] = ()
    results: tuple[Result, ...] = ()
    iterations: int = 0
    """Number of steps, which is the number of replies that were used."""
    finish_reason: str | None = None
    usage: dict[str, Any] | None = None
    """Token usage of all replies together, including retries and summaries made by compaction."""
    ended: str = "answer"
    """Why the run ended. `answer`: the model answered. `announced`: the answer announces a call but makes none. In the
    transcript that an exception holds, this is the name of the limit, such as `steps`, or the name of the exception."""
    steps: tuple[StepEvent, ...] = field(default=(), repr=False)

    @property
    def retries(self) -> int:
        """The number of replies that were not usable and were requested again, in all steps together."""
        return sum(len(step.retries) for step in self.steps)


RunEvent: TypeAlias = (
    TextEvent | ReasoningEvent | CallEvent | ResultEvent | RetryEvent | CompactionEvent | StepEvent | Transcript
)
"""An event that a streamed run yields; the last event is the `Transcript`."""
