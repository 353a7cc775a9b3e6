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

from promptools.parsing.engine.mention import LINE, may_be_mentioned
from promptools.parsing.output import SPACE, first_id
from promptools.parsing.strict import FEW, HOOKED, decode, too_deep
from promptools.types import Call, Discarded, DiscardWhy, Reply, Span, Trace, Try

if TYPE_CHECKING:
    from promptools.parsing.engine.plan import Plan
    from promptools.schema import Tools

EXPECTED = frozenset((None, "json", "hermes"))
"""Expected dialects that allow this path: the calls of any other may begin with the same brace."""
_GAP = r"[ \t\r\n]{0,64}+"
_ENVELOPE = re.compile(
    rf'\{{{_GAP}"(?:tool|name)"{_GAP}:{_GAP}"([^"\\{{}}\x00-\x1f]{{1,256}}+)"{_GAP},'
    rf'{_GAP}"(?:arguments|parameters)"{_GAP}:{_GAP}(?=\{{)'
)
_OPENER = re.compile(r"(?:```(?:json)?\n|(<tool_call>)\n?)\Z")
_LONGEST = len("<tool_call>\n")
_LEAD = re.compile(f"[{SPACE}]*+")
_SPACE = 256
"""Characters of white space that may precede the text."""
_TALKED_ABOUT = (">", '":', "':", "=", "(")
"""Text before an object that is quoted, or a value in a larger structure."""


class _Form(NamedTuple):
    """The delimiters around the object."""

    dialect: str
    group: str
    """The scanner group of its head."""
    closer: re.Pattern[str]
    """What follows the arguments: the object's brace, the closing marker, and white space to the end of the text."""


def _closer(marker: str) -> re.Pattern[str]:
    return re.compile(rf"({_GAP}\}})({marker}){_GAP}\Z")


_BARE = _Form("json", "json_0", _closer(""))
_FENCED = _Form("json", "json_0", _closer(rf"{_GAP}```"))
_TAGGED = _Form("hermes", "hermes_0", _closer(rf"{_GAP}</tool_call>"))


def read(text: str, tools: Tools, plan: Plan, finish_reason: str | None) -> Reply | None:
    """Return the parsed reply, or None to leave it to the engine. O(n) in characters."""
    brace = text.find("{")
    envelope = _ENVELOPE.match(text, brace) if brace >= 0 else None
    if envelope is None:
        return None
    at = envelope.end()
    if len(text) - at > HOOKED and text.count('":', at, at + HOOKED) >= FEW:
        return None  # many objects: decoding dominates, and would be done twice if they are broken
    opener = _OPENER.search(text, max(0, brace - _LONGEST), brace)
    form = _BARE if opener is None else _TAGGED if opener[1] else _FENCED
    start = opener.start() if opener is not None else brace
    if not _begins(text, start, brace, form, tools, plan):
        return None
    try:
        arguments, end = decode(text, at)
    except (ValueError, StopIteration, RecursionError):
        return None
    closer = form.closer.match(text, end)
    name = envelope[1]
    if closer is None or not tools.fits(name, arguments) or too_deep([arguments], text, brace, end):
        return None
    content = text[:start].rstrip(SPACE)
    done, over = closer.end(1), closer.end(2)
    call = Call(first_id(content), name, arguments, text[at:end], (), Span(brace, done), form.dialect)
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
        trace=Trace((Try(form.dialect, Span(start, over), "call", name, over - start),)),
    )


def _begins(text: str, start: int, brace: int, form: _Form, tools: Tools, plan: Plan) -> bool:
    """Whether the first marker of the text is at `start`, and begins a call of this form."""
    sought = plan.sought(tools.names)
    lead = _LEAD.match(text)
    assert lead is not None
    first = lead.end()
    if first > _SPACE or sought.first.match(text, first) is not None:
        return False
    if first == start:
        marker = sought.every.now.match(text, start)
    else:
        before = text[max(first, start - LINE) : start]
        stripped = before.rstrip(SPACE)
        if not stripped or stripped.endswith(_TALKED_ABOUT) or may_be_mentioned(before):
            return False
        scanner = (sought.every if plan.rare.stands_in(text) else sought.here).now
        marker = scanner.search(text, first)
    if marker is None or marker.start() != start:
        return False
    if form is _FENCED:
        marker = sought.every.now.match(text, brace)
    return marker is not None and marker.lastgroup == form.group
