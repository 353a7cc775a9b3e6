r"""Beam's arguments: parameters between tags, in a Harmony message to the tool.

    <|start|>assistant to=get_weather<|channel|>analysis <|constrain|>xml<|message|><rfl:parameter name="city">
    Oslo
    </rfl:parameter><|call|>                                              (the header and the first tag in one line)

A value is on lines of its own, and nothing in it is escaped. Its closing tag is sometimes left out before the next
parameter, and only counts if another parameter or the end follows it. Source: the parser `beam` of SGLang 0.5.23.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final, NamedTuple

from promptools.dialects.calls.envelope import NotACall
from promptools.dialects.calls.resolve import Evidence, ParseOptions
from promptools.dialects.readers.key_value.field_call import FieldCall
from promptools.types import Call, Fix, Malformed

OPENER: Final = "<rfl:parameter name="
_TAG = re.compile(r'<rfl:parameter name="(?P<key>[^"<>\n]{1,256})">|</rfl:parameter>')
_GAP = re.compile(r"\s*")


class _Parameter(NamedTuple):
    """A value after its opening tag."""

    key: str
    text: str
    closed: bool


def read_parameters(name: str, text: str, rules: ParseOptions, place: Evidence, *, ended: bool) -> Call | Malformed:
    """Read the call of `name` whose parameters are `text`, cut off unless `ended`. O(n)."""
    call = FieldCall(rules, place, definite=False)
    call.set_name(name)
    call.fixes.append(Fix("marker", "its arguments were between tags"))
    for value in _values(text, call):
        if not value.key:
            call.error = "there is text between its parameters"
            continue
        if not value.closed:
            call.fixes.append(Fix("closer", f"the value of {value.key!r} had no closer"))
        call.add_text(value.key, value.text.removeprefix("\n").removesuffix("\n"))
    if not ended:
        return call.as_truncated()
    try:
        return call.resolve()
    except NotACall as no:
        return call.as_malformed(str(no))


def _values(text: str, call: FieldCall) -> Iterator[_Parameter]:
    """Yield the parameters in order; one without a key is text between them, or a value that never ends."""
    key, begin, outside = "", 0, 0
    for tag in _TAG.finditer(text):
        if not key:
            if text[outside : tag.start()].strip() or tag["key"] is None:
                yield _Parameter("", "", closed=False)
            key, begin = tag["key"] or "", tag.end()
        elif tag["key"] is None and _may_follow(text, tag.end()):
            yield _Parameter(key, text[begin : tag.start()], closed=True)
            key, outside = "", tag.end()
        elif tag["key"] is not None and tag["key"] != key and call.lacks(tag["key"]):
            yield _Parameter(key, text[begin : tag.start()], closed=False)
            key, begin = tag["key"], tag.end()
    if key or text[outside:].strip():
        yield _Parameter("", "", closed=False)


def _may_follow(text: str, at: int) -> bool:
    """Whether the text after a closing tag may follow a value: the next parameter, or the end."""
    gap = _GAP.match(text, at)
    assert gap is not None
    return gap.end() == len(text) or text.startswith(OPENER, gap.end())
