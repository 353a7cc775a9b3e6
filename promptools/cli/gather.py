"""An answer as the official client gives it, whole or in chunks, with the trace that promptools put into it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from promptools.agent.events import ReasoningEvent, TextEvent
from promptools.agent.reply import Gathered
from promptools.wire.chat import read_chunk, read_reply


@dataclass(slots=True)
class Answer:
    """One answer so far."""

    reply: Gathered = field(default_factory=Gathered)
    report: dict[str, Any] = field(default_factory=dict[str, Any])
    """The `promptools` key of the answer; empty where there was none."""

    def take(self, part: Any) -> Iterator[TextEvent | ReasoningEvent]:
        """Take a chunk or a whole completion of the SDK's, giving its words."""
        data: dict[str, Any] = part.model_dump(warnings=False)
        self.report = data.get("promptools") or self.report
        read = read_chunk if data.get("object") == "chat.completion.chunk" else read_reply
        return self.reply.feed(read(data))

    @property
    def attempts(self) -> list[dict[str, Any]]:
        """Give the attempts that the trace tells of."""
        return list(self.report.get("trace", self.report).get("attempts", ()))
