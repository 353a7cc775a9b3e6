"""A list of strings, each of which is a Python call: `["get_weather(city='Oslo')", "ping()"]`."""

from __future__ import annotations

import json
import re
from typing import Final

from promptools.dialects.base import Head, tried
from promptools.dialects.pycalls.calls import CallBlock
from promptools.dialects.pycalls.names import is_offered, name_of
from promptools.dialects.pycalls.parts import Layout
from promptools.dialects.settle import Place, Rules, broken
from promptools.parsing.extent import Extent
from promptools.parsing.parts import Part, Tried, Undecided, note
from promptools.types import Fix

NAME: Final = name_of("[A-Za-z_]", r"[\w.-]", 63)
HEAD: Final = rf"\[\s{{0,64}}+(?:\Z|[\"'](?:\Z|{NAME}(?:\Z|\()))"
_LAYOUT = Layout(brackets=False)
_STRING = re.compile(r"\"(?:[^\"\\]|\\.)*+\"|'(?:[^'\\]|\\.)*+'", re.DOTALL)
_GAP = re.compile(r"\s*+(?:,\s*+)?+")
_NAMED = re.compile(r"\[\s*[\"']([^(]*)\(")
_FIX = Fix("unwrap", "the call stood in a string")


def begins(text: str, start: int, end: int, *, fresh: bool, rules: Rules) -> bool | None:
    """Return whether a list of strings begins here whose first one begins as a call of an offered tool."""
    match = _NAMED.fullmatch(text, start, end)
    if match is None:
        return None if rules.tools is not None and fresh else False
    return fresh and is_offered(match[1], rules)


def head(labels: tuple[str | None, ...]) -> Head:
    """Return the head of such a list, which must be the whole reply; its marker is a quote."""
    return Head(("[",), HEAD, opens="", gate=HEAD, begins=begins, alias='"', first=True, labels=labels)


class QuotedCalls(Undecided):
    """Reads a list from its bracket to its end: if all its strings are calls they are taken, else it is text."""

    def __init__(self, rules: Rules, place: Place, *, firm: bool) -> None:
        super().__init__(firm=firm)
        self._rules = rules
        self._place = place
        self._extent = Extent()
        self._pieces: list[str] = []

    def feed(self, piece: str, start: int) -> int | None:
        """Consume text up to the list's closing bracket; see `Candidate`."""
        end = self._extent.feed(piece, start)
        self._pieces.append(piece[start:end])
        if end is not None:
            self._decide("".join(self._pieces))
        return end

    def close(self, finish_reason: str | None) -> None:
        """Report a list that never ended as one call that was cut off."""
        del finish_reason
        raw = "".join(self._pieces)
        first = _STRING.search(raw)
        if first is not None and self._call(first[0]) is None:
            self._refuse(raw)
            return
        malformed = broken("truncated", "the text ended inside it", self._place.dialect, None)
        self.parts = [Part("malformed", raw, malformed=malformed)]
        self.tries.append(tried(self._place.dialect, len(raw), self.parts))

    def _refuse(self, raw: str) -> None:
        self.parts = [Part("text", raw)]
        self.tries.append(Tried(self._place.dialect, "text", "a string of the list is no call", len(raw)))

    def _decide(self, raw: str) -> None:
        parts: list[Part] = []
        done, at, last = 0, len(raw) - len(raw[1:].lstrip()), len(raw) - 1
        while at < last:
            string = _STRING.match(raw, at)
            gap = _GAP.match(raw, string.end()) if string is not None else None
            call = self._call(string[0]) if string is not None else None
            if string is None or gap is None or call is None or (gap.end() < last and "," not in gap[0]):
                self._refuse(raw)
                return
            call.raw = string[0]
            note([call], _FIX)
            parts += [Part("markup", raw[done:at]), call]
            done, at = string.end(), gap.end()
        self.parts = [*parts, Part("markup", raw[done:])]
        self.tries.append(tried(self._place.dialect, len(raw), self.parts))

    def _call(self, string: str) -> Part | None:
        """Read the one call that a string holds; None if it holds anything else."""
        inner = _unquoted(string)
        block = CallBlock("", _LAYOUT, self._rules, self._place, firm=False)
        end = block.feed(inner, 0)
        if end is None:
            block.close(None)
        left = block.rest + inner[end if end is not None else len(inner) :]
        part = block.parts[0]
        whole = part.call is not None or (part.malformed is not None and part.malformed.reason != "truncated")
        return part if whole and len(block.parts) == 1 and not left.strip() else None


def _unquoted(string: str) -> str:
    """Decode a string of the list: as JSON, else by removing its quotes and their escapes."""
    try:
        inner = json.loads(string, strict=False)
    except ValueError:
        quote = string[0]
        return string[1:-1].replace(f"\\{quote}", quote)
    assert isinstance(inner, str)
    return inner
