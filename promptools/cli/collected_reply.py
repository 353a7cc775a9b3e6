"""Collect a reply from the official client, with the trace that promptools added to the reply."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from promptools.harness.agent.loop_effects import AccumulatedReply
from promptools.harness.agent.run_events import ReasoningEvent, TextEvent
from promptools.wire.chat_decoder import decode_chunk, decode_reply


@dataclass(slots=True)
class CollectedReply:
    """A reply that is collected from its chunks."""

    reply: AccumulatedReply = field(default_factory=AccumulatedReply)
    trace_report: dict[str, Any] = field(default_factory=dict[str, Any])
    """The value of the response's `promptools` key; empty if the response has no such key."""

    def add(self, chunk: Any) -> Iterator[TextEvent | ReasoningEvent]:
        """Add a chunk, or a completion that is not streamed; return its text and its reasoning as events."""
        data: dict[str, Any] = chunk.model_dump(warnings=False)
        self.trace_report = data.get("promptools") or self.trace_report
        read = decode_chunk if data.get("object") == "chat.completion.chunk" else decode_reply
        return self.reply.feed(read(data))

    @property
    def attempts(self) -> list[dict[str, Any]]:
        """The attempts listed in the trace."""
        return list(self.trace_report.get("trace", self.trace_report).get("attempts", ()))
