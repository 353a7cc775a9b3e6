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

from promptools.dialects.settle import Place
from promptools.parsing.extent import Extent

if TYPE_CHECKING:
    from promptools.modes.partial import PartialArguments
    from promptools.wire.chat import ToolDelta

NATIVE = "native"
"""The dialect of a call that the server itself parsed from the model's text."""
PLACE = Place(NATIVE, wrapped=True, expected=True)


@dataclass(slots=True)
class Slot:
    """One call while it arrives."""

    index: int | None
    id: str | None = None
    name: str = ""
    pieces: list[str] = field(default_factory=list[str])
    whole: bool = False
    """Whether the brackets of the arguments are closed."""
    number: int | None = None
    """Its position among the reply's structured calls, once assigned."""
    live: PartialArguments | None = None
    """The streamer of its arguments, where they are streamed."""
    _extent: Extent | None = None

    def extend(self, text: str) -> None:
        """Add a fragment of the arguments. O(n) in its length."""
        self.pieces.append(text)
        if self.whole:
            return
        start = 0
        if self._extent is None:
            start = len(text) - len(text.lstrip())
            if start == len(text) or text[start] not in "{[":
                return
            self._extent = Extent()
        self.whole = self._extent.feed(text, start) is not None

    @property
    def text(self) -> str:
        """The arguments so far."""
        return "".join(self.pieces)


class Assembler:
    """Sort deltas into calls. `known` returns whether a name is that of an offered tool."""

    def __init__(self, known: Callable[[str], bool]) -> None:
        self._known = known
        self._read = 0
        self.slots: list[Slot] = []

    def add(self, delta: ToolDelta) -> Slot:
        """Add `delta` to the call that it continues, or to a new one, and return that call."""
        slot = self._slot(delta)
        if slot is None:
            slot = Slot(delta.index)
            self.slots.append(slot)
        if delta.id and slot.id is None:
            slot.id = delta.id
        if delta.name and delta.name != slot.name and not slot.pieces:
            slot.name += delta.name
        if delta.arguments:
            slot.extend(delta.arguments)
        return slot

    def _slot(self, delta: ToolDelta) -> Slot | None:
        """Return the call that a delta continues; None when it begins one."""
        candidates = (slot for slot in reversed(self.slots) if delta.index is None or slot.index == delta.index)
        last = next(candidates, None)
        if last is None or (delta.id and delta.id == last.id):
            return last
        if delta.id and last.id:
            return next((slot for slot in candidates if slot.id == delta.id), None)
        return None if delta.name and self._begins(delta.name, last) else last

    def _begins(self, name: str, last: Slot) -> bool:
        """Return whether a name without a new id begins a call, or repeats or continues the last call's name."""
        if last.whole:
            return True
        if name == last.name or not last.name:
            return False
        return bool(last.pieces) or self._known(name)

    def complete(self) -> list[Slot]:
        """Return the calls, in order and each once, that are complete and followed by another."""
        start = self._read
        while self._read < len(self.slots) - 1 and self.slots[self._read].whole:
            self._read += 1
        return self.slots[start : self._read]

    def rest(self) -> list[Slot]:
        """Return the remaining calls at the end of the reply."""
        start, self._read = self._read, len(self.slots)
        return self.slots[start:]
