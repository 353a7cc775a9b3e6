"""The short way: words, and behind them one call in its plainest form. Most replies that call are no more than that.

    I will look it up.

    ```json
    {"tool": "get_weather", "arguments": {"city": "Oslo"}}
    ```

It is no other parser: the scanner says where the first marker stands, `json` reads the arguments, the tool's schema
checks them, and no liberty is taken. What it gives is what the machine gives, in a quarter of the time; what it is not
sure of it leaves to the machine. Every text of the tests that goes this way is read the other way too.
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
"""Dialects that the request may have asked for: the calls of others may begin with the same brace."""
_GAP = r"[ \t\r\n]{0,64}+"
_ENVELOPE = re.compile(
    rf'\{{{_GAP}"(?:tool|name)"{_GAP}:{_GAP}"([^"\\{{}}\x00-\x1f]{{1,256}}+)"{_GAP},'
    rf'{_GAP}"(?:arguments|parameters)"{_GAP}:{_GAP}(?=\{{)'
)
_OPENER = re.compile(r"(?:```(?:json)?\n|(<tool_call>)\n?)\Z")
_LONGEST = len("<tool_call>\n")
_LEAD = re.compile(f"[{SPACE}]*+")
_SPACE = 256
"""Characters of white space before words, and before a call, that are looked at."""
_TALKED_ABOUT = (">", '":', "':", "=", "(")
"""What stands before an object that is quoted, or a value in something larger."""


class _Form(NamedTuple):
    """What stands around the object."""

    dialect: str
    group: str
    """The scanner's name of its head."""
    closer: re.Pattern[str]
    """What stands behind the arguments: the object's bracket, its marker, and white space to the end of the text."""


def _closer(marker: str) -> re.Pattern[str]:
    return re.compile(rf"({_GAP}\}})({marker}){_GAP}\Z")


_BARE = _Form("json", "json_0", _closer(""))
_FENCED = _Form("json", "json_0", _closer(rf"{_GAP}```"))
_TAGGED = _Form("hermes", "hermes_0", _closer(rf"{_GAP}</tool_call>"))


def read(text: str, tools: Tools, plan: Plan, finish_reason: str | None) -> Reply | None:
    """Read a whole reply, if it goes this way. O(n) in characters."""
    brace = text.find("{")
    envelope = _ENVELOPE.match(text, brace) if brace >= 0 else None
    if envelope is None:
        return None
    at = envelope.end()
    if len(text) - at > HOOKED and text.count('":', at, at + HOOKED) >= FEW:
        return None  # many objects: to read them costs so much that little is saved, and twice that if they are broken
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
    places: tuple[tuple[DiscardWhy, int, int], ...] = (
        ("space", len(content), start),
        ("markup", start, brace),
        ("markup", done, over),
        ("space", over, len(text)),
    )
    return Reply(
        calls=(call,),
        content=content,
        discarded=tuple([Discarded(text[a:b], why, Span(a, b)) for why, a, b in places if a < b]),
        finish_reason=finish_reason,
        trace=Trace((Try(form.dialect, Span(start, over), "call", name, over - start),)),
    )


def _begins(text: str, start: int, brace: int, form: _Form, tools: Tools, plan: Plan) -> bool:
    """Tell whether the first marker of the text stands at `start`, and begins a call of this form."""
    sought = plan.sought(tools.names)
    lead = _LEAD.match(text)
    assert lead is not None
    first = lead.end()
    if first > _SPACE or sought.first.match(text, first) is not None:
        return False
    if first == start:
        found = sought.every.now.match(text, start)
    else:
        before = text[max(first, start - LINE) : start]
        said = before.rstrip(SPACE)
        if not said or said.endswith(_TALKED_ABOUT) or may_be_mentioned(before):
            return False
        scanner = (sought.every if plan.rare.stands_in(text) else sought.here).now
        found = scanner.search(text, first)
    if found is None or found.start() != start:
        return False
    if form is _FENCED:
        found = sought.every.now.match(text, brace)
    return found is not None and found.lastgroup == form.group
