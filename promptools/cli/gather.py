"""Collect a reply from the official client, whole or in chunks, with the trace that promptools added to it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from promptools.agent.events import ReasoningEvent, TextEvent
from promptools.agent.reply import Gathered
from promptools.wire.chat import read_chunk, read_reply


@dataclass(slots=True)
class Answer:
    """The reply so far."""

    reply: Gathered = field(default_factory=Gathered)
    report: dict[str, Any] = field(default_factory=dict[str, Any])
    """The `promptools` key of the response; empty if there is none."""

    def take(self, part: Any) -> Iterator[TextEvent | ReasoningEvent]:
        """Add a chunk or a whole completion of the SDK; return its text and reasoning as events."""
        data: dict[str, Any] = part.model_dump(warnings=False)
        self.report = data.get("promptools") or self.report
        read = read_chunk if data.get("object") == "chat.completion.chunk" else read_reply
        return self.reply.feed(read(data))

    @property
    def attempts(self) -> list[dict[str, Any]]:
        """The attempts in the trace."""
        return list(self.report.get("trace", self.report).get("attempts", ()))
