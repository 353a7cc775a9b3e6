"""Read a reply that is only Python calls in quotes: `["get_weather(city='Oslo')", "ping()"]`, or just `'ping()'`.

Models lose and add quotes around calls: `['get_weather(city="Oslo")]`. So quotes do not show where a call in a list
ends. A call ends at a `)`, perhaps with a quote after it, if the list ends there or if a comma and another call follow.
Quotes around an element of a list are markup only if the element is a single call.
"""

from __future__ import annotations

import json
import re
from typing import Final, NamedTuple

from promptools.dialects.calls.parse_options import Evidence, ParseOptions
from promptools.dialects.calls.resolve import malformed_call
from promptools.dialects.contract import Head, trace_entry
from promptools.dialects.readers.marked_python import BARE_LIST
from promptools.dialects.readers.python_arguments import name_pattern
from promptools.dialects.readers.python_reader import CallLayout, PythonCallReader
from promptools.jsontext.brackets import BracketScanner
from promptools.parsing.parts import NEED_MORE, SPACE, CandidateBase, NeedMore, Part, TriedStrategy, add_fix
from promptools.patterns import lazy_pattern
from promptools.schema.spelling import is_offered_name
from promptools.types import Fix, Malformed

STRING_CALLEE: Final = name_pattern("[A-Za-z_]", r"[\w.-]", 63)
LIST_HEAD: Final = rf"\[\s{{0,64}}+(?:\Z|[\"'](?:\Z|{STRING_CALLEE}(?:\Z|\()))"
STRING_HEAD: Final = rf"(?:\Z|(?:\[\s{{0,64}}+)?+(?:\Z|{STRING_CALLEE}(?:\Z|\()))"
"""The pattern of what follows the opening quote of a reply in quotes."""
NO_PROGRAM: Final = r"(?<![\w=(,\[{{:\"']{})"
"""A cheap pattern that rules out most quotes in programs by the character before the quote.

Quotes in programs usually follow characters such as `=` or `(`. A quote at the beginning of a reply follows none.
"""
LIST_ALIAS: Final = '"'
STRING_ALIAS: Final = "'"
MAX_ENDS: Final = 16
"""The maximum number of closing brackets that are tried as the end of one call."""
_CALL = CallLayout(brackets=False)
_CALLS = CallLayout(brackets=False, in_row=True)
_END = lazy_pattern(rf"\)\s{{0,64}}+[\"']?+(\s{{0,64}}+(?:,\s{{0,64}}+(?:(?=[\"']?{STRING_CALLEE}\()|\Z)|\Z))")
_CLOSED = lazy_pattern(r"(\))\s{0,64}+\]")
_STRING = lazy_pattern(r"\"(?:[^\"\\]|\\.)*+\"|'(?:[^'\\]|\\.)*+'", re.DOTALL)
_NAMED = lazy_pattern(r"(?:\[\s*[\"']|[\"'](?:\[\s*)?)([^(]*)\(")
_FIX = Fix("unwrap", "the call was in a string")
# Small models lose the quote under BFCL's prompt.
_LOST_QUOTE = Fix("marker", "a quote around the call is missing")


def begins_in_quotes(text: str, start: int, end: int, *, fresh: bool, options: ParseOptions) -> bool | NeedMore:
    """Return whether the reply begins with a quoted call to an offered tool."""
    match = _NAMED.fullmatch(text, start, end)
    if match is None:
        return NEED_MORE if options.tools is not None and fresh else False
    return fresh and is_offered_name(match[1], options.tools)


def string_list_head(labels: tuple[str | None, ...]) -> Head:
    """Return a `Head` that finds a reply that is only a list of strings. The head's `alias` is a quote.

    `labels`: the labels of the code fences in which such a list is recognized. None in `labels` stands for text outside
    of fences.
    """
    return Head(
        ("[",),
        LIST_HEAD,
        body_starts="",
        gate=LIST_HEAD,
        begins=begins_in_quotes,
        alias=LIST_ALIAS,
        at_start=True,
        fence_labels=labels,
    )


def string_heads() -> tuple[Head, ...]:
    """Return the `Head` objects that find a reply of calls in one pair of quotes, one for each kind of quote."""
    return tuple(
        Head(
            (quote,),
            f"{quote}{STRING_HEAD}",
            body_starts="",
            gate=f"{quote}{NO_PROGRAM.format(quote)}{STRING_HEAD}",
            begins=begins_in_quotes,
            alias=STRING_ALIAS,
            at_start=True,
        )
        for quote in "\"'"
    )


class _Element(NamedTuple):
    """A call in the list, and the offsets at which the call with its quotes starts and ends."""

    call: Part
    start: int
    end: int


class _QuotedReader(CandidateBase):
    """Base class of the readers of calls in quotes. It collects the text, and reads single calls in the text."""

    def __init__(self, options: ParseOptions, evidence: Evidence, *, definite: bool) -> None:
        super().__init__(definite=definite)
        self._options = options
        self._evidence = evidence
        self._pieces: list[str] = []
        self._fault: Malformed | None = None
        """What is wrong with the call that was read last, if a value in it cannot be read; else None."""
        self._ends_open = False
        """Whether the text ended inside the call that was read last."""

    def _reject(self, raw: str, *, taken: int, shows: Malformed | None = None) -> None:
        """Turn the first `taken` characters into text; the characters after them are read again.

        `shows`: the malformed call in the text, if there is one, which is reported with the text.
        """
        self.parts = [Part("text", raw[:taken], malformed=shows)]
        self.unread = raw[taken:]
        self.tries.append(
            TriedStrategy(self._evidence.dialect, "text", "what is in the quotes is not a call", len(raw))
        )

    def _accept(self, raw: str, parts: list[Part]) -> None:
        self.parts = parts
        self.tries.append(trace_entry(self._evidence.dialect, len(raw), parts))

    def _read(self, inner: str, layout: CallLayout) -> list[Part]:
        """Return the calls in a text; empty if the text contains anything else."""
        block = PythonCallReader("", layout, self._options, self._evidence, definite=False)
        end = block.feed(inner, 0)
        if end is None:
            block.close(None)
        self._fault = block.parts[0].malformed if block.lacks_value else None
        self._ends_open = any(
            part.malformed is not None and part.malformed.reason == "truncated" for part in block.parts
        )
        left = block.unread + inner[end if end is not None else len(inner) :]
        whole = not self._ends_open and all(part.kind != "text" for part in block.parts)
        return block.parts if whole and not left.strip() else []

    def _call(self, element: str) -> Part | None:
        """Return the only call in a text, which may be in quotes; None if the text contains anything else."""
        quoted = len(element) > 1 and element[0] == element[-1] and element[0] in "\"'"
        bare = element[element[0] in "\"'" : len(element) - (element[-1] in "\"'")]
        for inner in (_unquote(element), bare) if quoted and "\\" in element else (bare,):
            calls = self._read(inner, _CALL)
            if len(calls) == 1:
                calls[0].raw = element
                add_fix(calls, _FIX if quoted else _LOST_QUOTE)
                return calls[0]
        return None

    def _elements(self, raw: str, at: int, end: int, *, faulty: bool = False) -> list[_Element]:
        """Return the calls in `raw[at:end]`, which commas separate; empty if the text contains anything else.

        If `faulty` is true, calls with values that cannot be read are included as malformed calls.
        """
        elements: list[_Element] = []
        begin, tries = at, 0
        for match in _END.finditer(raw, at, end):
            call = self._call(raw[begin : match.start(1)])
            if call is None and faulty and self._fault is not None:
                call = Part("malformed", raw[begin : match.start(1)], malformed=self._fault)
            tries += 1
            if call is not None:
                elements.append(_Element(call, begin, match.start(1)))
                begin, tries = match.end(), 0
            if tries == MAX_ENDS:
                break
        begun = {(raw[each.start] in "\"'", raw[each.end - 1] in "\"'") for each in elements}
        if {(True, False), (False, True)} <= begun:  # one string holds several calls
            return []
        return elements if begin == end else []


class QuotedCallsReader(_QuotedReader):
    """Reads a list of strings up to its closing bracket.

    If all strings are calls, the list is read as these calls; if not, the whole list is text.
    """

    def __init__(self, options: ParseOptions, evidence: Evidence, *, definite: bool) -> None:
        super().__init__(options, evidence, definite=definite)
        self._extent = BracketScanner()

    def feed(self, piece: str, start: int) -> int | None:
        """Read text up to the list's closing bracket; return the index just past it, or None if more text is needed."""
        end = self._extent.feed(piece, start)
        self._pieces.append(piece[start:end])
        if end is not None:
            raw = "".join(self._pieces)
            elements = self._list(raw)
            if elements:
                self._take(raw, elements)
            else:  # a list of strings may be the answer, even with calls in them
                self._reject(raw, taken=len(raw), shows=self._find_fault(raw))
        return end

    def close(self, finish_reason: str | None) -> None:
        """Decide on a list whose end was not found: a quote is missing, or the list was cut off."""
        raw = "".join(self._pieces)
        bare = raw.rstrip(SPACE)
        elements = self._list(bare) if bare.endswith("]") else []
        fault = self._find_fault(bare) if bare.endswith("]") and not elements else None
        if (elements or fault is not None) and finish_reason != "length":
            if fault is None:
                self._take(bare, elements)
            else:
                self._accept(bare, [Part("malformed", bare, malformed=fault)])
            self.unread = raw[len(bare) :]
        elif elements or fault is not None or self._is_cut(raw):
            malformed = malformed_call("truncated", "the text ended inside it", self._evidence.dialect, None)
            self._accept(raw, [Part("malformed", raw, malformed=malformed)])
        else:
            self._reject(raw, taken=1)

    def _is_cut(self, raw: str) -> bool:
        """Return whether a list without its closing bracket begins with a call, or was cut off in its first string."""
        at = len(raw) - len(raw[1:].lstrip())
        string, end, closed = _STRING.search(raw), _END.search(raw, at), _CLOSED.search(raw, at)
        if string is None:
            return closed is None or (self._call(raw[at : closed.end(1)]) is None and self._ends_open)
        first = [string[0]] if end is None else [string[0], raw[at : end.start(1)]]
        return any(map(self._call, first))

    def _list(self, raw: str, *, faulty: bool = False) -> list[_Element]:
        """Return the calls in a complete list; empty if the list contains anything else."""
        return self._elements(raw, len(raw) - len(raw[1:].lstrip()), len(raw) - 1, faulty=faulty)

    def _find_fault(self, raw: str) -> Malformed | None:
        """Return what is wrong with the first unreadable call in a complete list of calls; None if all can be read."""
        faults = (element.call.malformed for element in self._list(raw, faulty=True))
        return next((fault for fault in faults if fault is not None), None)

    def _take(self, raw: str, elements: list[_Element]) -> None:
        parts: list[Part] = []
        done = 0
        for element in elements:
            parts += [Part("markup", raw[done : element.start]), element.call]
            done = element.end
        self._accept(raw, [*parts, Part("markup", raw[done:])])


class QuotedReplyReader(_QuotedReader):
    """Reads a reply to its end.

    If the reply consists of calls in one pair of quotes, it is read as these calls; if not, the reply is text.
    """

    def feed(self, piece: str, start: int) -> int | None:
        """Collect the text; return None, because the reply is read to its end."""
        self._pieces.append(piece[start:])
        return None

    def close(self, finish_reason: str | None) -> None:
        """Decide at the end of the reply. The closing quote, not `finish_reason`, shows whether it is complete."""
        del finish_reason
        raw = "".join(self._pieces)
        bare = raw.rstrip(SPACE)
        inner = bare[1:-1]
        if bare[-1] == bare[0] and len(bare) > 1:
            if "\\" in inner:
                call = self._call(bare)
                calls = [call] if call is not None else []
            else:
                calls = self._read(inner, BARE_LIST if inner.lstrip()[:1] == "[" else _CALLS)
                for call in calls:
                    add_fix([call], _FIX)
                calls = [Part("markup", bare[0]), *calls, Part("markup", bare[0])] if calls else []
            if calls:
                self._accept(bare, calls)
                self.unread = raw[len(bare) :]
                return
        self._reject(raw, taken=1)


def _unquote(string: str) -> str:
    """Decode a string as JSON. If the string is not JSON, remove its quotes and unescape the same quotes inside it."""
    try:
        inner = json.loads(string, strict=False)
    except ValueError:
        quote = string[0]
        return string[1:-1].replace(f"\\{quote}", quote)
    assert isinstance(inner, str)
    return inner
