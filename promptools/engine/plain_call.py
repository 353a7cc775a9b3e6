"""The fast path for a whole reply that is text followed by one call in its plainest form.

    I will look it up.

    ```json
    {"tool": "get_weather", "arguments": {"city": "Oslo"}}
    ```

This is the most frequent form of a reply with a call. The scanner finds the text's first marker, `json` decodes the
arguments and the tool's schema checks them; nothing is repaired. Any text that is not certainly of this form is left to
the engine. For a text of this form, the engine returns the same result (the tests check this), but takes more than
twice the time. `explain` does not take this path, so that its trace shows every attempt.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from promptools.engine.mention import CONTEXT, may_be_mentioned
from promptools.jsontext.strict import FEW_KEYS, MAX_HOOKED_LENGTH, exceeds_max_depth, read_strict_value
from promptools.parsing.emitter import LINE_START, begins_block_quote
from promptools.parsing.parts import SPACE, Part
from promptools.patterns import lazy_pattern
from promptools.types import Call, ParseAttempt, Span

if TYPE_CHECKING:
    from promptools.dialects.calls.parse_options import ParseOptions
    from promptools.engine.scan_plan import ScanPlan
    from promptools.parsing.emitter import Emitter
    from promptools.schema.tools import Tools


EXPECTED_DIALECTS = frozenset((None, "json", "hermes"))
"""The fast path is taken only if the expected dialect is one of these (None: no dialect is expected).

If any other dialect is expected, the brace of a plain call may begin a call of that dialect.
"""
_GAP = r"[ \t\r\n]{0,64}+"
_ENVELOPE = lazy_pattern(
    rf'\{{{_GAP}"(?:tool|name)"{_GAP}:{_GAP}"([^"\\{{}}\x00-\x1f]{{1,256}}+)"{_GAP},'
    rf'{_GAP}"(?:arguments|parameters)"{_GAP}:{_GAP}(?=\{{)'
)
_OPENER = lazy_pattern(r"(?:```(?:json)?\n|(<tool_call>)\n?)\Z")
_LONGEST_OPENER = len("<tool_call>\n")
_LEADING_SPACE = lazy_pattern(f"[{SPACE}]*+")
_MAX_SPACE = 256
"""Maximum number of characters of white space before the text."""
_QUOTING_SUFFIXES = ('":', "':", "=", "(")
"""If the text before an object ends with one of these, the object is quoted, or is a value in a larger structure."""


class _Delimiters(NamedTuple):
    """The delimiters around the JSON object of a call, and the dialect that they indicate."""

    dialect: str
    group: str
    """The scanner's regex group of the marker, or of the brace, that begins a call with these delimiters."""
    closer: re.Pattern[str]
    """Matches the text after the arguments: the object's brace, the closing marker, and white space to the end."""


def _closer(marker: str) -> re.Pattern[str]:
    return lazy_pattern(rf"({_GAP}\}})({marker}){_GAP}\Z")


_BARE = _Delimiters("json", "json_0", _closer(""))
_FENCED = _Delimiters("json", "json_0", _closer(rf"{_GAP}```"))
_TAGGED = _Delimiters("hermes", "hermes_0", _closer(rf"{_GAP}</tool_call>"))


class PlainCall(NamedTuple):
    """A call in its plainest form, and the offsets of its markers and its object in the text."""

    dialect: str
    name: str
    arguments: dict[str, object]
    arguments_json: str
    opener: int
    start: int
    end: int
    closer_end: int


def write_plain_call(options: ParseOptions, plan: ScanPlan, out: Emitter, text: str) -> bool:
    """Write `text`, a whole reply, to `out` if it ends in one plain call; return whether it was written."""
    call = find_plain_call(options, plan, text) if _is_allowed(options) else None
    if call is None:
        return False
    opener, start, end, closer_end = call[4:]
    written = Call("", call.name, call.arguments, call.arguments_json, (), Span(start, end), call.dialect)
    parts = [Part("call", text[start:end], call=written)]
    if opener < start:
        parts.insert(0, Part("markup", text[opener:start]))
    if end < closer_end:
        parts.append(Part("markup", text[end:closer_end]))
    out.add_text(text[:opener])
    out.add_parts(parts, definite=True)
    out.add_text(text[closer_end:])
    whole = Span(opener, closer_end)
    out.record.add_try(ParseAttempt(call.dialect, whole, "call", call.name, closer_end - opener))
    return True


def _is_allowed(options: ParseOptions) -> bool:
    """Return whether the options allow the fast path: under them, every text of the plain form must be a call."""
    return (
        options.expect in EXPECTED_DIALECTS
        and options.strictness == "balanced"
        and options.accept is None
        and options.sources is None
        and not options.json_answer
    )


def find_plain_call(options: ParseOptions, plan: ScanPlan, text: str) -> PlainCall | None:
    """Return the plain call at the end of the text; None if the first marker of the text does not begin one. O(n)."""
    brace = text.find("{")
    envelope = _ENVELOPE.match(text, brace) if brace >= 0 else None
    if envelope is None or not options.tools:
        return None
    at = envelope.end()
    if len(text) - at > MAX_HOOKED_LENGTH and text.count('":', at, at + MAX_HOOKED_LENGTH) >= FEW_KEYS:
        return None  # many objects: decoding dominates, and would be done twice if they are broken
    opener = _OPENER.search(text, max(0, brace - _LONGEST_OPENER), brace)
    form = _BARE if opener is None else _TAGGED if opener[1] else _FENCED
    start = opener.start() if opener is not None else brace
    if not _is_first_marker(plan, options.tools, text, start, brace, form):
        return None
    try:
        arguments, end, _ = read_strict_value(text, at)
    except (ValueError, StopIteration, RecursionError):
        return None
    closer = form.closer.match(text, end)
    name = envelope[1]
    fits = closer is not None and options.tools.fits(name, arguments)
    if closer is None or not fits or exceeds_max_depth([arguments], text, brace, end):
        return None
    return PlainCall(form.dialect, name, arguments, text[at:end], start, brace, closer.end(1), closer.end(2))


def _is_first_marker(plan: ScanPlan, tools: Tools, text: str, start: int, brace: int, form: _Delimiters) -> bool:
    """Return whether the first marker of the text is at `start`, and begins a call of this form."""
    sought = plan.scanners_for(tools.all_names)
    lead = _LEADING_SPACE.match(text)
    assert lead is not None
    first = lead.end()
    if first > _MAX_SPACE or sought.first_words.begins(text, first):
        return False
    if first == start:
        marker = sought.full.before_text.match(text, start)
    else:
        before = text[max(first, start - CONTEXT) : start]
        stripped = before.rstrip(SPACE)
        if not stripped or stripped.endswith(_QUOTING_SUFFIXES) or may_be_mentioned(before):
            return False
        line = text.rfind("\n", 0, start) + 1
        if begins_block_quote(text[line : min(start, line + LINE_START)]):
            return False
        scanner = (sought.full if plan.rare_words.occurs_in(text) else sought.common).before_text
        marker = scanner.search(text, first)
    if marker is None or marker.start() != start:
        return False
    if form is _FENCED:
        marker = sought.full.before_text.match(text, brace)
    return marker is not None and marker.lastgroup == form.group
