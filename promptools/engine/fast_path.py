"""A fast path for the most frequent reply with a call: text, and after it one call in its plainest form.

    I will look it up.

    ```json
    {"tool": "get_weather", "arguments": {"city": "Oslo"}}
    ```

It uses the engine's scanner to find the first marker, `json` to decode the arguments and the tool's schema to check
them, and repairs nothing. Its result equals the engine's, in a quarter of the time; any text that it cannot be sure of
is left to the engine. The tests parse every text that takes this path with the engine, too.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from promptools.engine.mention import CONTEXT, may_be_mentioned
from promptools.jsontext.strict import FEW_KEYS, MAX_HOOKED_LENGTH, exceeds_max_depth, read_strict_value
from promptools.parsing.emitter import SPACE, first_call_id
from promptools.types import Call, Discarded, DiscardWhy, ParseAttempt, Reply, Span, Trace

if TYPE_CHECKING:
    from promptools.engine.scan_plan import ScanPlan
    from promptools.schema import Tools

EXPECTED_DIALECTS = frozenset((None, "json", "hermes"))
"""Expected dialects that allow this path: the calls of any other may begin with the same brace."""
_GAP = r"[ \t\r\n]{0,64}+"
_ENVELOPE = re.compile(
    rf'\{{{_GAP}"(?:tool|name)"{_GAP}:{_GAP}"([^"\\{{}}\x00-\x1f]{{1,256}}+)"{_GAP},'
    rf'{_GAP}"(?:arguments|parameters)"{_GAP}:{_GAP}(?=\{{)'
)
_OPENER = re.compile(r"(?:```(?:json)?\n|(<tool_call>)\n?)\Z")
_LONGEST_OPENER = len("<tool_call>\n")
_LEADING_SPACE = re.compile(f"[{SPACE}]*+")
_MAX_SPACE = 256
"""Characters of white space that may precede the text."""
_QUOTING_SUFFIXES = (">", '":', "':", "=", "(")
"""Text before an object that is quoted, or a value in a larger structure."""


class _Delimiters(NamedTuple):
    """The delimiters around the object."""

    dialect: str
    group: str
    """The scanner group of its head."""
    closer: re.Pattern[str]
    """What follows the arguments: the object's brace, the closing marker, and white space to the end of the text."""


def _closer(marker: str) -> re.Pattern[str]:
    return re.compile(rf"({_GAP}\}})({marker}){_GAP}\Z")


_BARE = _Delimiters("json", "json_0", _closer(""))
_FENCED = _Delimiters("json", "json_0", _closer(rf"{_GAP}```"))
_TAGGED = _Delimiters("hermes", "hermes_0", _closer(rf"{_GAP}</tool_call>"))


def parse_plain(text: str, tools: Tools, plan: ScanPlan, finish_reason: str | None) -> Reply | None:
    """Return the parsed reply, or None to leave it to the engine. O(n) in characters."""
    brace = text.find("{")
    envelope = _ENVELOPE.match(text, brace) if brace >= 0 else None
    if envelope is None:
        return None
    at = envelope.end()
    if len(text) - at > MAX_HOOKED_LENGTH and text.count('":', at, at + MAX_HOOKED_LENGTH) >= FEW_KEYS:
        return None  # many objects: decoding dominates, and would be done twice if they are broken
    opener = _OPENER.search(text, max(0, brace - _LONGEST_OPENER), brace)
    form = _BARE if opener is None else _TAGGED if opener[1] else _FENCED
    start = opener.start() if opener is not None else brace
    if not _is_first_marker(text, start, brace, form, tools, plan):
        return None
    try:
        arguments, end = read_strict_value(text, at)
    except (ValueError, StopIteration, RecursionError):
        return None
    closer = form.closer.match(text, end)
    name = envelope[1]
    if closer is None or not tools.fits(name, arguments) or exceeds_max_depth([arguments], text, brace, end):
        return None
    content = text[:start].rstrip(SPACE)
    done, over = closer.end(1), closer.end(2)
    call = Call(first_call_id(content), name, arguments, text[at:end], (), Span(brace, done), form.dialect)
    discarded: tuple[tuple[DiscardWhy, int, int], ...] = (
        ("space", len(content), start),
        ("markup", start, brace),
        ("markup", done, over),
        ("space", over, len(text)),
    )
    return Reply(
        calls=(call,),
        content=content,
        discarded=tuple([Discarded(text[a:b], why, Span(a, b)) for why, a, b in discarded if a < b]),
        finish_reason=finish_reason,
        trace=Trace((ParseAttempt(form.dialect, Span(start, over), "call", name, over - start),)),
    )


def _is_first_marker(text: str, start: int, brace: int, form: _Delimiters, tools: Tools, plan: ScanPlan) -> bool:
    """Whether the first marker of the text is at `start`, and begins a call of this form."""
    sought = plan.scanners_for(tools.names)
    lead = _LEADING_SPACE.match(text)
    assert lead is not None
    first = lead.end()
    if first > _MAX_SPACE or sought.first_word.match(text, first) is not None:
        return False
    if first == start:
        marker = sought.full.before_text.match(text, start)
    else:
        before = text[max(first, start - CONTEXT) : start]
        stripped = before.rstrip(SPACE)
        if not stripped or stripped.endswith(_QUOTING_SUFFIXES) or may_be_mentioned(before):
            return False
        scanner = (sought.full if plan.rare_words.occurs_in(text) else sought.common).before_text
        marker = scanner.search(text, first)
    if marker is None or marker.start() != start:
        return False
    if form is _FENCED:
        marker = sought.full.before_text.match(text, brace)
    return marker is not None and marker.lastgroup == form.group
