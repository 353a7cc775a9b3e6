"""Further attributes in a tag, with and without white space or the tag's bracket: the cut changes nothing."""

from __future__ import annotations

import json
import re
from itertools import product

import pytest
from casebook import bare, feed, tiled
from many_rows import every_row

from promptools import Tools, dialects, parse
from promptools.parsing.events import join
from promptools.types import Call

ARGUMENTS = {"query": "x"}
TOOLS = Tools([{"name": "search", "parameters": {"type": "object", "properties": {"query": {"type": "string"}}}}])
RENDERED = {
    name: dialects.get(name).render_calls([Call("c", "search", ARGUMENTS, json.dumps(ARGUMENTS))])
    for name in dialects.names()
}
NAMED = re.compile(r"<(?:[\w:｜]*)(?:function|invoke|parameter|param)(?: name=\"\w+\"|=\w+)")
"""The opening tag of a call or a parameter, up to the end of its name."""
FORMATS = sorted(name for name, text in RENDERED.items() if NAMED.search(text))
SPACES = ("", " ", "\n", "\n  ", "\n" + 8 * " ", "\t")
FURTHER = ('note="ab"', "note='ab'", "note=“ab”", "note=ab", 'note = "a b"', 'a="1"b="2"', 'note="a>b"', "note=ab/")
BROKEN_OFF = ('note="', "note=", "note", "/", "a=b=c")
ALL = (*FURTHER, *BROKEN_OFF)


def test_the_formats_with_attributes_are_known() -> None:
    wanted = {"anthropic", "dsml", "minicpm", "minimax", "minimax_m3", "muse", "qwen3_coder", "seed_oss", "step3"}
    assert wanted <= set(FORMATS)


@every_row(
    product(FORMATS, SPACES, ALL, (">", "")),
    name=lambda row: f"{row[1]!r} {row[2]!r} {'with' if row[3] else 'without'} its bracket",
    group=lambda row: row[0],
)
def test_the_cut_does_not_matter(row: tuple[str, str, str, str]) -> None:
    name, space, further, bracket = row
    written = RENDERED[name]
    for tag, found in enumerate(NAMED.finditer(written)):
        at = found.end()
        text = written[:at] + space + further + written[at:].replace(">", bracket, 1)
        events, reply = feed([text], TOOLS)
        tiled(events, text)
        assert bare(parse(text, TOOLS)) == bare(reply)
        # at every other place: the row without the bracket is cut at the others
        first = at + (tag + SPACES.index(space) + len(bracket)) % 2
        inside = range(first, at + len(space + further) + 2, 2)
        for pieces in (list(text), *([text[:cut], text[cut:]] for cut in inside)):
            pieced, other = feed(pieces, TOOLS)
            assert (join(pieced), bare(other)) == (join(events), bare(reply)), pieces


@pytest.mark.parametrize("expect", [None, "anthropic", "dsml", "granite"])
def test_attributes_without_a_space_between_them_are_read_wherever_the_text_is_cut(expect: str | None) -> None:
    text = '<invoke name="search"note="ab"><parameter name="query">x</parameter></invoke>'
    for pieces in ([text], list(text), *([text[:cut], text[cut:]] for cut in range(1, len(text)))):
        _, reply = feed(pieces, TOOLS, expect=expect)
        assert [(call.name, call.arguments) for call in reply.calls] == [("search", ARGUMENTS)], pieces


@pytest.mark.parametrize("expect", [None, "qwen3_coder"])
def test_assignments_on_the_line_after_a_name_without_its_bracket_are_its_value(expect: str | None) -> None:
    text = "<tool_call>\n<function=search>\n<parameter=query\nx = 1\ny = 2\n</parameter>\n</function>\n</tool_call>"
    for pieces in ([text], list(text)):
        _, reply = feed(pieces, TOOLS, expect=expect)
        assert [call.arguments for call in reply.calls] == [{"query": "x = 1\ny = 2"}]


@pytest.mark.parametrize("begin", ["<invoke ", '<invoke name="search"', "<function=search "])
def test_values_without_quotes_in_a_row_cost_no_more_than_others(begin: str) -> None:
    """Each part of a value could be the name of the next attribute: once 200 characters took a minute."""
    text = begin + "a=" + ("b" * 41 + "=") * 6 + "<"
    reply = parse(text, TOOLS)
    assert (reply.content, reply.calls) == (text, ())
