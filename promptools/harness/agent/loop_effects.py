"""The effects of an agent's loop: what the loop yields to ask its driver for a reply, for tool calls or for a pause.

The loop also yields events, which the driver passes to the app. A reply is collected from the chunks of a stream, or
from a whole completion. The reply's text is passed on as it arrives; its calls are passed on only when they are
complete.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

from promptools.harness.agent.run_events import ReasoningEvent, RunEvent, TextEvent, Transcript
from promptools.modes.structured_calls import CollectedChoice

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from promptools.harness.agent.toolbox import PreparedCall
    from promptools.wire.chat_decoder import Delta


@dataclass(frozen=True, slots=True)
class RequestReply:
    """Request a reply from the model by sending the request body `body`.

    The result is an `AccumulatedReply`. If the client raises an exception, the exception is thrown into the loop.
    """

    body: dict[str, Any]
    quiet: bool = False
    """Whether the text of the reply is left out of the run's events."""


@dataclass(frozen=True, slots=True)
class RunTools:
    """Run the called tools concurrently; the result is the list of their `Result`s, in the order of the calls."""

    calls: tuple[PreparedCall, ...]


@dataclass(frozen=True, slots=True)
class Pause:
    """Wait for this many seconds."""

    seconds: float


LoopEffect: TypeAlias = RequestReply | RunTools | Pause | RunEvent
LoopGenerator: TypeAlias = Generator[LoopEffect, Any, Transcript]
"""A generator that runs the loop: it yields effects, is sent their results, and returns the transcript."""


# One reply, collected.


@dataclass(slots=True)
class AccumulatedReply(CollectedChoice):
    """A reply that is collected from its parts. If the server sends several choices, only the first is used."""

    usage: dict[str, Any] | None = None
    written: str = ""
    """The text of the reply as the model wrote it, in harmony mode; empty in other modes."""

    def feed(self, deltas: Iterable[Delta]) -> Iterator[TextEvent | ReasoningEvent]:
        """Add parts of the reply, and yield their text and reasoning as events."""
        for delta in deltas:
            self.usage = delta.usage or self.usage
            if delta.index not in (0, None):
                continue
            self.add(delta)
            if delta.reasoning:
                yield ReasoningEvent(delta.reasoning)
            if delta.content or delta.refusal:
                yield TextEvent(delta.content + delta.refusal)

    def message(self, *, reasoning: bool) -> dict[str, Any]:
        """Return the reply as an assistant message for the conversation.

        If `reasoning` is true, a message with calls keeps the model's reasoning. A message without calls never keeps
        it.
        """
        if not self.calls:
            return {"role": "assistant", "content": self.content}
        calls = [
            {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments or "{}"}}
            for call in self.calls
        ]
        thought = {"reasoning_content": self.reasoning} if reasoning and self.reasoning else {}
        return {"role": "assistant", "content": self.content or None, "tool_calls": calls, **thought}
