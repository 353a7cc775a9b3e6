"""What was said in a conversation, as it is kept: one row of `transcripts.jsonl`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from benchmarks.models.score import CallMade


@dataclass(frozen=True, slots=True)
class Said:
    """One reply of the model, as the app got it."""

    calls: list[CallMade] = field(default_factory=list[CallMade])
    content: str = ""
    printed: bool = False
    """Whether promptools finds a call in the content."""
    echoed: bool = False
    """Whether the content is a piece of the prompt that the app did not write."""


@dataclass(frozen=True, slots=True)
class TurnHeld:
    """The replies to one message of the user. After an error of the server, there are no more replies."""

    replies: list[Said] = field(default_factory=list[Said])
    error: str = ""

    @property
    def calls(self) -> list[CallMade]:
        """All calls of the turn, in order."""
        return [call for said in self.replies for call in said.calls]

    @property
    def final(self) -> Said | None:
        """The answer: a reply without calls, which ends the turn; None if the app gave up before."""
        return self.replies[-1] if self.replies and not self.replies[-1].calls and not self.error else None


@dataclass(frozen=True, slots=True)
class Transcript:
    """One conversation with one model, asked in one way."""

    model: str
    way: str
    words: str
    """Digest of what is sent upstream for a sample conversation: see `words.py`."""
    conversation: str
    digest: str
    turns: list[TurnHeld]
    modes: list[str] = field(default_factory=list[str])
    """The modes in which requests were sent."""
    requests: int = 0
    """Requests to the server, corrections included."""
    prompt_tokens: int = 0
    """Tokens of the prompt of the first request."""
    read_tokens: int = 0
    """Tokens of the prompts of all requests."""
    written_tokens: int = 0
    seconds: float = 0.0
    """Seconds of all requests, when they were first answered."""

    @classmethod
    def from_dict(cls, row: Mapping[str, Any]) -> Transcript:
        turns = [TurnHeld([Said(**said) for said in turn["replies"]], turn["error"]) for turn in row["turns"]]
        return cls(**{**row, "turns": turns})
