"""Assemble a server's structured calls from the deltas of a stream.

Deltas should carry an index, and the id and name once. Seen in practice: every parallel call at index 0 (ollama#15457),
no index at all (ollama#7881), ids repeated on each delta (lmdeploy#3412), the name in every chunk (vllm#13078), two
objects glued into one call's arguments (litellm#33678).

So a delta continues the last call of its index (of any index where it has none), with two exceptions. With another id
it belongs to the call of that id, or begins one. With a name it begins a call if the last one's arguments are complete,
or if the name differs and either the last one's arguments have begun or the name is that of an offered tool. A call is
ready when its brackets are closed and another call follows, the others at the end of the reply.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from promptools.dialects.calls.parse_options import Evidence
from promptools.jsontext.brackets import BracketScanner

if TYPE_CHECKING:
    from promptools.dialects.calls.argument_stream import ArgumentStream
    from promptools.wire.chat_decoder import ToolDelta

NATIVE = "native"
"""The dialect of a call that the server itself parsed from the model's text."""
NATIVE_EVIDENCE = Evidence(NATIVE, wrapped=True, expected=True)


@dataclass(slots=True)
class PendingCall:
    """One call while it arrives."""

    index: int | None
    id: str | None = None
    name: str = ""
    pieces: list[str] = field(default_factory=list[str])
    complete: bool = False
    """Whether the brackets of the arguments are closed."""
    number: int | None = None
    """Its position among the reply's structured calls, once assigned."""
    streamer: ArgumentStream | None = None
    """The streamer of its arguments, where they are streamed."""
    is_thought: bool = False
    """Whether the server took it out of a thought that was open in the content."""
    _extent: BracketScanner | None = None

    def add_arguments(self, text: str) -> None:
        """Add a fragment of the arguments. O(n) in its length."""
        self.pieces.append(text)
        if self.complete:
            return
        start = 0
        if self._extent is None:
            start = len(text) - len(text.lstrip())
            if start == len(text) or text[start] not in "{[":
                return
            self._extent = BracketScanner()
        self.complete = self._extent.feed(text, start) is not None

    @property
    def arguments(self) -> str:
        """The arguments so far."""
        return "".join(self.pieces)


class ToolCallAssembler:
    """Sort deltas into calls. `is_offered` returns whether a name is that of an offered tool."""

    def __init__(self, is_offered: Callable[[str], bool]) -> None:
        self._is_offered = is_offered
        self._taken = 0
        self.calls: list[PendingCall] = []

    def add(self, delta: ToolDelta) -> PendingCall:
        """Add `delta` to the call that it continues, or to a new one, and return that call."""
        slot = self._continued_call(delta)
        if slot is None:
            slot = PendingCall(delta.index)
            self.calls.append(slot)
        if delta.id and slot.id is None:
            slot.id = delta.id
        if delta.name and delta.name != slot.name and not slot.pieces:
            slot.name += delta.name
        if delta.arguments:
            slot.add_arguments(delta.arguments)
        return slot

    def _continued_call(self, delta: ToolDelta) -> PendingCall | None:
        """Return the call that a delta continues; None when it begins one."""
        candidates = (slot for slot in reversed(self.calls) if delta.index is None or slot.index == delta.index)
        last = next(candidates, None)
        if last is None or (delta.id and delta.id == last.id):
            return last
        if delta.id and last.id:
            return next((slot for slot in candidates if slot.id == delta.id), None)
        return None if delta.name and self._begins_call(delta.name, last) else last

    def _begins_call(self, name: str, last: PendingCall) -> bool:
        """Whether a name without a new id begins a call, or repeats or continues the last call's name."""
        if last.complete:
            return True
        if name == last.name or not last.name:
            return False
        return bool(last.pieces) or self._is_offered(name)

    def take_complete(self) -> list[PendingCall]:
        """Return the calls, in order and each once, that are complete and followed by another."""
        start = self._taken
        while self._taken < len(self.calls) - 1 and self.calls[self._taken].complete:
            self._taken += 1
        return self.calls[start : self._taken]

    def take_rest(self) -> list[PendingCall]:
        """Return the remaining calls at the end of the reply."""
        start, self._taken = self._taken, len(self.calls)
        return self.calls[start:]
