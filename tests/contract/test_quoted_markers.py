"""Markers in a string are text: those of every family, in a call of every dialect, however the reply came.

A model writes a page about calls into a file. If it escapes the quotes, the call is the one that it made, with all of
the page. If it does not, the call is that one or none: no call of the page is made, and no file is half a page.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable
from typing import Any

import pytest
from casebook import bare, feed, tiled
from shared_cases import Written

from promptools import Tools, dialects, parse
from promptools.parsing.events import Event, join
from promptools.types import Call, Reply

TOOLS = Tools(
    [
        {
            "name": "write_file",
            "parameters": {
                "type": "object",
                "properties": {"path": {"type": "string"}, "content": {"type": "string"}},
                "required": ["path", "content"],
            },
        },
        {"name": "get_time", "parameters": {"type": "object", "properties": {"zone": {"type": "string"}}}},
    ]
)
PAGES = [
    'A call is "{call}" and so on.',
    "See:\n{call}\nThat is all.",
    'It ends with "{closer}", as in "{call}".',
    "{opener} begins it, {closer} ends it.",
    '{"a": {closer}"b"}',
]
Share = Callable[[Iterable[Any]], list[Any]]


def call(name: str, arguments: dict[str, str]) -> Call:
    return Call("a1b2c3d4e", name, arguments, json.dumps(arguments, ensure_ascii=False))


def page(number: int, family: str) -> str:
    """Return a page about a family's calls."""
    written = Written(dialects.get(family))
    text = dialects.get(family).render_calls([call("get_time", {"zone": "CET"})])
    opener, closer = ("<|start|>assistant", "<|call|>") if family == "harmony" else (written.opener, written.closer)
    said = PAGES[number % len(PAGES)].replace("{opener}", opener).replace("{closer}", closer)
    return said.replace("{call}", text)


def with_page(name: str, content: str, *, escaped: bool) -> str | None:
    """Return a call that writes the page; None if there are no quotes to escape."""
    dialect = dialects.get(name)
    text = dialect.render_calls([call("write_file", {"path": "a.md", "content": "PAGE"})])
    if not re.search(r'[:=] ?"PAGE"', text):
        return dialect.render_calls([call("write_file", {"path": "a.md", "content": content})]) if escaped else None
    string = json.dumps(content, ensure_ascii=False)[1:-1]
    if escaped:
        return text.replace("PAGE", string)
    return text.replace("PAGE", string.replace('\\"', '"')) if '\\"' in string else None


@pytest.mark.parametrize("escaped", [True, False], ids=["escaped", "not escaped"])
@pytest.mark.parametrize("name", dialects.names())
def test_markers_in_a_string_are_text(name: str, escaped: bool, share: Share) -> None:
    asked = Written(dialects.get(name)).asked
    families = list(enumerate(dialects.names(), len(name)))  # other pages for each dialect
    for number, family in share(families[dialects.names().index(name) % 2 :: 2]):
        content = page(number, family)
        text = with_page(name, content, escaped=escaped)
        if text is None:
            continue
        expect = name if asked or number % 2 else None
        events, reply = feed([text], TOOLS, expect=expect)
        made = [(each.name, each.arguments) for each in reply.calls]
        right = [("write_file", {"path": "a.md", "content": content})]
        assert made == right if escaped else made in ([], right), text
        assert not (escaped and (reply.content or reply.malformed)), text
        tiled(events, text)
        same_however_cut(text, number, events, reply, expect=expect)


def same_however_cut(text: str, number: int, events: list[Event], reply: Reply, **options: Any) -> None:
    assert parse(text, TOOLS, **options) == reply
    place = 1 + number * 37 % (len(text) - 1)
    for cut in ([text[:place], text[place:]], [text[at : at + 5] for at in range(0, len(text), 5)]):
        pieced_events, pieced = feed(cut, TOOLS, **options)
        assert join(pieced_events) == join(events), text
        assert bare(pieced) == bare(reply), text


HEADER = "<|start|>assistant<|channel|>commentary to=functions.get_time <|constrain|>json<|message|>"


@pytest.mark.parametrize("said", ['I write "{}" to it.', 'So {"content": "{}"} it is.', "The line `{}` it is."])
def test_markers_that_a_thought_quotes_are_text(said: str, share: Share) -> None:
    for number, family in share(enumerate(dialects.names())):
        quoted = page(number, family) if "`" not in said else page(3, family)
        if "`" in said and ("`" in quoted or "\n" in quoted):
            continue
        thought = said.replace("{}", quoted.replace("\n\n", "\n"))
        text = f'<|channel|>analysis<|message|>{thought}<|end|>{HEADER}{{"zone": "UTC"}}<|call|>'
        events, reply = feed([text], TOOLS)
        assert [(each.name, each.arguments) for each in reply.calls] == [("get_time", {"zone": "UTC"})], text
        assert (reply.reasoning, reply.content) == (thought, "")
        same_however_cut(text, number, events, reply)
