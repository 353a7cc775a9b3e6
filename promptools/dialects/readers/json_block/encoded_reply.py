"""A whole reply that is one JSON string with a call inside: some chat templates encode a reply once more."""

from __future__ import annotations

import json
import re
from dataclasses import replace

from promptools.dialects.calls.envelope import NotACall
from promptools.dialects.calls.json_body import read_calls
from promptools.dialects.calls.parse_options import Evidence, ParseOptions
from promptools.dialects.contract import trace_entry
from promptools.parsing.parts import CandidateBase, Part, TriedStrategy, total_length
from promptools.patterns import lazy_pattern
from promptools.types import Fix

_INSIDE = lazy_pattern(r'[^"\\]*(?:\\.[^"\\]*)*', re.DOTALL)

_CHARACTER = r"(?s:\\u[dD][89abAB]..\\u[dD][c-fC-F]..|\\u....|\\.|.)"
"""One character of the string as written: escaped, a surrogate pair, or plain; compiled only when needed."""
_FIX = Fix("unwrap", "the whole call was encoded as a string")


class EncodedReplyReader(CandidateBase):
    """A JSON string from its opening quote to its closing one."""

    def __init__(self, rules: ParseOptions, place: Evidence, *, definite: bool) -> None:
        super().__init__(definite=definite)
        self._rules = rules
        self._place = place
        self._pieces: list[str] = []
        self._open = False
        self._escaped = False

    def feed(self, piece: str, start: int) -> int | None:
        """Consume text up to the closing quote; see `Candidate`."""
        at = start
        if not self._open:
            self._open, at = True, start + 1
        if self._escaped and at < len(piece):
            self._escaped, at = False, at + 1
        inside = _INSIDE.match(piece, at)
        end = inside.end() if inside else at
        if end < len(piece) and piece[end] == '"':
            self._pieces.append(piece[start : end + 1])
            self._decide()
            return end + 1
        self._escaped = end < len(piece)  # the match stops elsewhere only at a trailing backslash
        self._pieces.append(piece[start:])
        return None

    def close(self, finish_reason: str | None) -> None:
        """Return a string that was never closed as text."""
        del finish_reason
        self._reject("the string never closed")

    def _decide(self) -> None:
        raw = "".join(self._pieces)
        try:
            inner: str = json.loads(raw, strict=False)
            parts = read_calls(inner.strip(), self._rules, self._place)
        except (ValueError, RecursionError, NotACall) as error:
            self._reject(str(error))
            return
        if total_length(parts) < len(inner.strip()):
            self._reject("text follows the call inside the string")
            return
        self._restore_raw(parts, raw, len(inner) - len(inner.lstrip()))
        self.parts = parts
        self.tries.append(trace_entry("quoted", len(raw), parts))

    def _restore_raw(self, parts: list[Part], raw: str, at: int) -> None:
        """Set the raw text of each part as escaped in the string; the first begins at decoded character `at`."""
        offsets = [match.start() for match in re.compile(_CHARACTER).finditer(raw, 1)]
        begin = 0
        for part in parts:
            at += len(part.raw)
            end = len(raw) if part is parts[-1] else offsets[at]
            part.raw, begin = raw[begin:end], end
            if part.call:
                part.call = replace(part.call, fixes=(_FIX, *part.call.fixes))

    def _reject(self, why: str) -> None:
        raw = "".join(self._pieces)
        self.parts = [Part("text", raw)]
        self.tries.append(TriedStrategy("quoted", "text", why, len(raw)))
