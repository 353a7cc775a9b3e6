"""A server's structured calls: put together from deltas of any looseness, then read like calls in text.

Seen in the wild: every parallel call at index 0 (ollama#15457), no index at all (ollama#7881), ids repeated on each
delta (lmdeploy#3412), the name in every chunk (vllm#13078), two objects glued into one call's arguments
(litellm#33678).
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
"""The dialect of a call that the server itself took out of the model's text."""
PLACE = Place(NATIVE, wrapped=True, expected=True)


@dataclass(slots=True)
class Slot:
    """One call as it comes."""

    index: int | None
    id: str | None = None
    name: str = ""
    pieces: list[str] = field(default_factory=list[str])
    whole: bool = False
    """The brackets of the arguments are closed."""
    number: int | None = None
    """Its place among the server's calls, once it has one."""
    live: PartialArguments | None = None
    """What lets its arguments out as they come."""
    _extent: Extent | None = None

    def extend(self, text: str) -> None:
        """Take a piece of the arguments. O(n) in its length."""
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
    """Sort deltas into calls. `known` tells whether a name is that of an offered tool."""

    def __init__(self, known: Callable[[str], bool]) -> None:
        self._known = known
        self._read = 0
        self.slots: list[Slot] = []

    def add(self, delta: ToolDelta) -> Slot:
        """Put `delta` where it belongs: to a call that is there, or to a new one."""
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
        """Find the call that a delta goes on with; None when it begins one."""
        near = (slot for slot in reversed(self.slots) if delta.index is None or slot.index == delta.index)
        last = next(near, None)
        if last is None or (delta.id and delta.id == last.id):
            return last
        if delta.id and last.id:
            return next((slot for slot in near if slot.id == delta.id), None)
        return None if delta.name and self._begins(delta.name, last) else last

    def _begins(self, name: str, last: Slot) -> bool:
        """Tell whether a name without an id of its own begins a call, or is the last one's, said again or in pieces."""
        if last.whole:
            return True
        if name == last.name or not last.name:
            return False
        return bool(last.pieces) or self._known(name)

    def complete(self) -> list[Slot]:
        """Give the calls, from the front, that are whole and have another behind them; each once."""
        start = self._read
        while self._read < len(self.slots) - 1 and self.slots[self._read].whole:
            self._read += 1
        return self.slots[start : self._read]

    def rest(self) -> list[Slot]:
        """Give the calls that are left when the reply is over."""
        start, self._read = self._read, len(self.slots)
        return self.slots[start:]
