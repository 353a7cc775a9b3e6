r"""Read the arguments of Beam's calls: parameters between tags, in a Harmony message to the tool.

    <|start|>assistant to=get_weather<|channel|>analysis <|constrain|>xml<|message|><rfl:parameter name="city">
    Oslo
    </rfl:parameter><|call|>                                              (the header and the first tag in one line)

A value is on separate lines, and nothing in it is escaped. Its closing tag is sometimes left out before the next
parameter. Source: the parser `beam` of SGLang 0.5.23.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from promptools.dialects.calls.parse_options import Evidence, ParseOptions
from promptools.dialects.calls.resolve import malformed_call
from promptools.dialects.readers.markup_call import MarkupGrammar
from promptools.dialects.readers.markup_reader import MarkupReader
from promptools.dialects.readers.tags import TagNames
from promptools.patterns import lazy_pattern
from promptools.types import Call, Fix, Malformed

OPENER: Final = "<rfl:parameter name="
_GRAMMAR: Final = MarkupGrammar(
    canonical=lazy_pattern(r'<rfl:parameter name="[^"<>\n]{1,256}">|</rfl:parameter>'),
    wrapper=("", ""),
    closers=("", "</rfl:parameter>"),
    trim="line",
    unwrapped=True,
    names=TagNames(wrappers=(), calls=(), params=("rfl:parameter",), naming_elements=frozenset()),
)


def read_parameters(
    name: str, text: str, options: ParseOptions, evidence: Evidence, *, ended: bool
) -> Call | Malformed:
    """Read a call to the tool `name`, whose parameters are written between tags in `text`. O(n).

    `ended` is False if the text was cut off.
    """
    reader = MarkupReader(_GRAMMAR, options, evidence._replace(sentinel=True), definite=False)
    reader.begin_call(name)
    if reader.feed(text, 0) is None:
        reader.close("stop" if ended else "length")
    if reader.unread or len(reader.parts) != 1:
        return malformed_call("invalid_json", "there is text between its parameters", evidence.dialect, name)
    (part,) = reader.parts
    if part.call is not None:
        return replace(part.call, fixes=(Fix("marker", "its arguments were between tags"), *part.call.fixes))
    assert part.malformed is not None
    if ended and part.malformed.reason == "truncated":
        return malformed_call("invalid_json", "there is text between its parameters", evidence.dialect, name)
    return part.malformed
