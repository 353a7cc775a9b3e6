"""The events of a tool loop, and its result, the transcript."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

from promptools.errors import ModelError

if TYPE_CHECKING:
    from promptools.types import Call, Result


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
class Transcript:
    """The conversation after a run; `messages` holds the ones passed in and all new ones, ready to be sent again."""

    messages: list[dict[str, Any]]
    content: str = ""
    """The last reply's text."""
    reasoning: str = ""
    """The last reply's reasoning."""
    calls: tuple[Call, ...] = ()
    results: tuple[Result, ...] = ()
    iterations: int = 0
    """Number of replies requested."""
    finish_reason: str | None = None
    usage: dict[str, Any] | None = None
    """Tokens summed over all replies."""


RunEvent: TypeAlias = TextEvent | ReasoningEvent | CallEvent | ResultEvent | Transcript
"""What a streamed run yields; the last one is the `Transcript`."""


class IterationLimitError(ModelError):
    """The model still called tools after `max_iterations` replies; `transcript` holds the conversation so far.

    The calls of the last reply were not run.
    """

    def __init__(self, message: str, *, transcript: Transcript) -> None:
        super().__init__(message)
        self.transcript = transcript
