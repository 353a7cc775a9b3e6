"""Calls in Python's syntax where their dialect has another."""

from __future__ import annotations

from promptools.dialects.calls.parse_options import Evidence, ParseOptions
from promptools.dialects.readers.python_calls.python_parts import CallLayout
from promptools.dialects.readers.python_calls.python_reader import PythonCallReader
from promptools.parsing.parts import add_fix
from promptools.types import Fix

PYTHON_FIX = Fix("json", "the arguments were in a Python call")


class PythonFallbackReader(PythonCallReader):
    """Reads calls and records that fix on each, so that none is emitted before its end."""

    def __init__(self, head: str, layout: CallLayout, rules: ParseOptions, place: Evidence, *, definite: bool) -> None:
        super().__init__(head, layout, rules, place, definite=definite)
        self._streams = False

    def feed(self, piece: str, start: int) -> int | None:
        """Read more text; see `Candidate`."""
        end = super().feed(piece, start)
        if end is not None:
            self._record_fixes()
        return end

    def close(self, finish_reason: str | None) -> None:
        """Decide at the end of the text."""
        super().close(finish_reason)
        self._record_fixes()

    def _record_fixes(self) -> None:
        for part in self.parts:
            add_fix([part], PYTHON_FIX)
