"""An answer of the official client, streamed or whole, gathered into a message for the history."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

REASONING = "reasoning"
CONTENT = "content"


class Gathered:
    """One answer, put together from the chunks of a stream or taken whole."""

    def __init__(self) -> None:
        self.content = ""
        self.calls: list[dict[str, Any]] = []
        self.finish_reason: str | None = None
        self.trace: Any = None

    def take(self, chunk: Any) -> Iterator[tuple[str, str]]:
        """Add one chunk; gives the text in it, each with what it is."""
        self.trace = getattr(chunk, "promptools", None) or self.trace
        for choice in chunk.choices:
            self.finish_reason = choice.finish_reason or self.finish_reason
            yield from self._parts(choice.delta)
            for call in choice.delta.tool_calls or ():
                self._add(call.index, call)

    def take_whole(self, completion: Any) -> Iterator[tuple[str, str]]:
        """Add a whole answer."""
        self.trace = getattr(completion, "promptools", None)
        choice = completion.choices[0]
        self.finish_reason = choice.finish_reason
        for index, call in enumerate(choice.message.tool_calls or ()):
            self._add(index, call)
        return iter(list(self._parts(choice.message)))

    def _parts(self, said: Any) -> Iterator[tuple[str, str]]:
        reasoning = getattr(said, "reasoning", None) or getattr(said, "reasoning_content", None)
        if reasoning:
            yield reasoning, REASONING
        if said.content:
            self.content += said.content
            yield said.content, CONTENT

    def _add(self, index: int, delta: Any) -> None:
        while len(self.calls) <= index:
            self.calls.append({"id": "", "type": "function", "function": {"name": "", "arguments": ""}})
        call = self.calls[index]
        call["id"] = delta.id or call["id"]
        if delta.function:
            call["function"]["name"] += delta.function.name or ""
            call["function"]["arguments"] += delta.function.arguments or ""

    def message(self) -> dict[str, Any]:
        """Give the answer as a message for the history."""
        message: dict[str, Any] = {"role": "assistant", "content": self.content or None}
        if self.calls:
            message["tool_calls"] = self.calls
        return message


def attempts_of(trace: Any) -> list[dict[str, Any]]:
    """Give the attempts in the `promptools` key of an answer; none where there is no such key."""
    data: dict[str, Any] = dict(trace or {})
    inner: dict[str, Any] = data.get("trace") or data
    return list(inner.get("attempts") or ())
