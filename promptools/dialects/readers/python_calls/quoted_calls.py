"""A list of strings, each of which is a Python call: `["get_weather(city='Oslo')", "ping()"]`."""

from __future__ import annotations

import json
import re
from typing import Final

from promptools.dialects.calls.parse_options import Evidence, ParseOptions
from promptools.dialects.calls.resolve import malformed_call
from promptools.dialects.contract import Head, trace_entry
from promptools.dialects.readers.literals.python_names import name_pattern
from promptools.dialects.readers.python_calls.python_parts import CallLayout
from promptools.dialects.readers.python_calls.python_reader import PythonCallReader
from promptools.jsontext.brackets import BracketScanner
from promptools.parsing.parts import NEED_MORE, CandidateBase, NeedMore, Part, TriedStrategy, add_fix
from promptools.schema.fitting.spelling import is_offered_name
from promptools.types import Fix

STRING_CALLEE: Final = name_pattern("[A-Za-z_]", r"[\w.-]", 63)
LIST_HEAD: Final = rf"\[\s{{0,64}}+(?:\Z|[\"'](?:\Z|{STRING_CALLEE}(?:\Z|\()))"
_LAYOUT = CallLayout(brackets=False)
_STRING = re.compile(r"\"(?:[^\"\\]|\\.)*+\"|'(?:[^'\\]|\\.)*+'", re.DOTALL)
_GAP = re.compile(r"\s*+(?:,\s*+)?+")
_NAMED = re.compile(r"\[\s*[\"']([^(]*)\(")
_FIX = Fix("unwrap", "the call was in a string")


def begins_string_list(text: str, start: int, end: int, *, fresh: bool, rules: ParseOptions) -> bool | NeedMore:
    """Return whether a list of strings begins here whose first one begins as a call of an offered tool."""
    match = _NAMED.fullmatch(text, start, end)
    if match is None:
        return NEED_MORE if rules.tools is not None and fresh else False
    return fresh and is_offered_name(match[1], rules.tools)


def string_list_head(labels: tuple[str | None, ...]) -> Head:
    """Return the head of such a list, which must be the whole reply; its marker is a quote."""
    return Head(
        ("[",),
        LIST_HEAD,
        body_starts="",
        gate=LIST_HEAD,
        begins=begins_string_list,
        alias='"',
        at_start=True,
        fence_labels=labels,
    )


class QuotedCallsReader(CandidateBase):
    """Reads a list from its bracket to its end: if all its strings are calls they are taken, else it is text."""

    def __init__(self, rules: ParseOptions, place: Evidence, *, definite: bool) -> None:
        super().__init__(definite=definite)
        self._rules = rules
        self._place = place
        self._extent = BracketScanner()
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
            self._reject(raw)
            return
        malformed = malformed_call("truncated", "the text ended inside it", self._place.dialect, None)
        self.parts = [Part("malformed", raw, malformed=malformed)]
        self.tries.append(trace_entry(self._place.dialect, len(raw), self.parts))

    def _reject(self, raw: str) -> None:
        self.parts = [Part("text", raw)]
        self.tries.append(TriedStrategy(self._place.dialect, "text", "a string of the list is no call", len(raw)))

    def _decide(self, raw: str) -> None:
        parts: list[Part] = []
        done, at, last = 0, len(raw) - len(raw[1:].lstrip()), len(raw) - 1
        while at < last:
            string = _STRING.match(raw, at)
            gap = _GAP.match(raw, string.end()) if string is not None else None
            call = self._call(string[0]) if string is not None else None
            if string is None or gap is None or call is None or (gap.end() < last and "," not in gap[0]):
                self._reject(raw)
                return
            call.raw = string[0]
            add_fix([call], _FIX)
            parts += [Part("markup", raw[done:at]), call]
            done, at = string.end(), gap.end()
        self.parts = [*parts, Part("markup", raw[done:])]
        self.tries.append(trace_entry(self._place.dialect, len(raw), self.parts))

    def _call(self, string: str) -> Part | None:
        """Read the one call that a string holds; None if it holds anything else."""
        inner = _unquote(string)
        block = PythonCallReader("", _LAYOUT, self._rules, self._place, definite=False)
        end = block.feed(inner, 0)
        if end is None:
            block.close(None)
        left = block.unread + inner[end if end is not None else len(inner) :]
        part = block.parts[0]
        whole = part.call is not None or (part.malformed is not None and part.malformed.reason != "truncated")
        return part if whole and len(block.parts) == 1 and not left.strip() else None


def _unquote(string: str) -> str:
    """Decode a string of the list: as JSON, else by removing its quotes and their escapes."""
    try:
        inner = json.loads(string, strict=False)
    except ValueError:
        quote = string[0]
        return string[1:-1].replace(f"\\{quote}", quote)
    assert isinstance(inner, str)
    return inner
