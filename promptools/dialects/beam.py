r"""Beam's arguments: parameters between tags, in a message of Harmony's to the tool.

    <|start|>assistant to=get_weather<|channel|>analysis <|constrain|>xml<|message|><rfl:parameter name="city">
    Oslo
    </rfl:parameter><|call|>                                              (the header and the first tag in one line)

A value stands on lines of its own, and nothing in it is escaped. Its closer is left out now and then before the next
parameter. Source: the parser `beam` of SGLang 0.5.23.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final, NamedTuple

from promptools.dialects.envelope import NoCall
from promptools.dialects.fields.gathered import Gathered
from promptools.dialects.settle import Place, Rules
from promptools.types import Call, Fix, Malformed

OPENER: Final = "<rfl:parameter name="
_TAG = re.compile(r'<rfl:parameter name="(?P<key>[^"<>\n]{1,256})">|</rfl:parameter>')
_GAP = re.compile(r"\s*")


class _Value(NamedTuple):
    """What stands behind an opener."""

    key: str
    text: str
    closed: bool


def read_parameters(name: str, text: str, rules: Rules, place: Place, *, ended: bool) -> Call | Malformed:
    """Read the call of `name` whose parameters are `text`; not `ended`: they are cut off. O(n)."""
    call = Gathered(rules, place, firm=False)
    call.take_name(name)
    call.fixes.append(Fix("marker", "its arguments stood between tags"))
    for value in _values(text, call):
        if not value.key:
            call.wrong = "words stand between its parameters"
            continue
        if not value.closed:
            call.fixes.append(Fix("closer", f"the value of {value.key!r} had no closer"))
        call.add(value.key, value.text.removeprefix("\n").removesuffix("\n"))
    if not ended:
        return call.truncated()
    try:
        return call.outcome()
    except NoCall as no:
        return call.broken(str(no))


def _values(text: str, call: Gathered) -> Iterator[_Value]:
    """Yield the parameters in their order; one without a key is what stands beside them, or never ends."""
    key, begin, outside = "", 0, 0
    for tag in _TAG.finditer(text):
        if not key:
            if text[outside : tag.start()].strip() or tag["key"] is None:
                yield _Value("", "", closed=False)
            key, begin = tag["key"] or "", tag.end()
        elif tag["key"] is None and _may_follow(text, tag.end()):
            yield _Value(key, text[begin : tag.start()], closed=True)
            key, outside = "", tag.end()
        elif tag["key"] is not None and tag["key"] != key and call.is_new(tag["key"]):
            yield _Value(key, text[begin : tag.start()], closed=False)
            key, begin = tag["key"], tag.end()
    if key or text[outside:].strip():
        yield _Value("", "", closed=False)


def _may_follow(text: str, at: int) -> bool:
    """Tell whether what stands behind a closer may follow a value: the next parameter, or nothing more."""
    gap = _GAP.match(text, at)
    assert gap is not None
    return gap.end() == len(text) or text.startswith(OPENER, gap.end())
