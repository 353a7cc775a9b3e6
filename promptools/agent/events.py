"""What a run of tools says as it goes, and what it leaves: the transcript."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

from promptools.errors import ModelError

if TYPE_CHECKING:
    from promptools.types import Call, Result


@dataclass(frozen=True, slots=True)
class TextEvent:
    """Words of the model for the user, as they come."""

    text: str


@dataclass(frozen=True, slots=True)
class ReasoningEvent:
    """Words that the model thought, as they come."""

    text: str


@dataclass(frozen=True, slots=True)
class CallEvent:
    """A tool is about to be called."""

    call: Call


@dataclass(frozen=True, slots=True)
class ResultEvent:
    """A tool has answered, or could not."""

    result: Result


@dataclass(frozen=True, slots=True)
class Transcript:
    """The whole conversation after a run; `messages` holds the ones given and all that came, ready to be sent again."""

    messages: list[dict[str, Any]]
    content: str = ""
    """The last reply's words."""
    reasoning: str = ""
    """The last reply's thoughts."""
    calls: tuple[Call, ...] = ()
    results: tuple[Result, ...] = ()
    iterations: int = 0
    """Replies asked for."""
    finish_reason: str | None = None
    usage: dict[str, Any] | None = None
    """Tokens summed over all replies."""


RunEvent: TypeAlias = TextEvent | ReasoningEvent | CallEvent | ResultEvent | Transcript
"""What a streamed run yields; the `Transcript` comes last."""


class IterationLimitError(ModelError):
    """The model still called tools when `max_iterations` was used up; `transcript` holds all that was said and done.

    The calls of the last reply were not run.
    """

    def __init__(self, message: str, *, transcript: Transcript) -> None:
        super().__init__(message)
        self.transcript = transcript
