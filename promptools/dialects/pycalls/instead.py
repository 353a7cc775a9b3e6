"""Calls in Python's syntax where their dialect has another."""

from __future__ import annotations

from promptools.dialects.pycalls.calls import CallBlock
from promptools.dialects.pycalls.parts import Layout
from promptools.dialects.settle import Place, Rules
from promptools.parsing.parts import note
from promptools.types import Fix

INSTEAD = Fix("json", "the arguments stood in a Python call")


class InsteadBlock(CallBlock):
    """Reads calls and records that fix on each, so that none is emitted before its end."""

    def __init__(self, head: str, layout: Layout, rules: Rules, place: Place, *, firm: bool) -> None:
        super().__init__(head, layout, rules, place, firm=firm)
        self._goes_live = False

    def feed(self, piece: str, start: int) -> int | None:
        """Read more text; see `Candidate`."""
        end = super().feed(piece, start)
        if end is not None:
            self._note_all()
        return end

    def close(self, finish_reason: str | None) -> None:
        """Decide at the end of the text."""
        super().close(finish_reason)
        self._note_all()

    def _note_all(self) -> None:
        for part in self.parts:
            note([part], INSTEAD)
