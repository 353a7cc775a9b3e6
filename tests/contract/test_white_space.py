"""White space beside a call: one rule for every dialect and for messages with headers; a server's own is kept.

What precedes the call is left out with it, and so is what follows it; between two texts one of the two is kept, that
after the call if there is any. See docs/why/decisions.md, "Text around calls".
"""

from __future__ import annotations

import itertools
import json

import pytest
from casebook import feed, tiled

from promptools import Tools, dialects, parse
from promptools.modes.native_mode import prepare_native
from promptools.modes.reply_reader import ReplyReader
from promptools.modes.tool_request import parse_request
from promptools.profiles import Profile
from promptools.types import Call
from promptools.wire.chat_decoder import Delta, ToolDelta

TOOL = {
    "name": "get_weather",
    "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
}
TOOLS = Tools.prepare([TOOL])
OSLO = Call("call00001", "get_weather", {"city": "Oslo"}, '{"city": "Oslo"}')
BEFORE = ["", "\n", "Hi.\n", "Hi.\n\n", "\n Hi. \n\t\n", "Hi.", "Hi. "]
AFTER = ["", "\n", " \n\n", "Bye.", "\nBye.\n", "\n\n Bye. "]
SURE = "SA"
"""Tiers whose calls may also begin inside a line."""


def content_of(before: str, after: str) -> str:
    """Return the content of a reply with these texts around a call."""
    first, last = before.rstrip(), after.lstrip()
    if not (first and last):
        return first or last
    space = after[: len(after) - len(last)] or before[len(first) :]
    return first + space + last


@pytest.mark.parametrize("name", dialects.names())
def test_text_around_a_call(name: str) -> None:
    dialect = dialects.get(name)
    call = dialect.render_calls([OSLO])
    text = expected = ""
    for before, after in itertools.product(BEFORE, AFTER):
        if before.strip() and "\n" not in before[len(before.rstrip()) :] and dialect.tier not in SURE:
            continue
        for calls in (call, f"{call}\n{call}") if "<" in call else (call,):
            text, expected = before + calls + after, content_of(before, after)
            reply = parse(text, TOOLS, expect=name, finish_reason="stop")
            assert {made.name for made in reply.calls} == {"get_weather"}, text
            assert reply.content == expected, text
    events, reply = feed([text[at : at + 5] for at in range(0, len(text), 5)], TOOLS, "stop", expect=name)
    assert reply.content == expected
    tiled(events, text)


@pytest.mark.parametrize("nothing", ["[TOOL_CALLS][]", "<|tool_calls_section_begin|><|tool_calls_section_end|>"])
def test_text_around_markers_that_call_nothing(nothing: str) -> None:
    for before, after in itertools.product(BEFORE, AFTER):
        text = before + nothing + after
        assert parse(text, TOOLS).content == content_of(before, after), text
        events, reply = feed(list(text), TOOLS, "stop")
        assert reply.content == content_of(before, after), text
        tiled(events, text)


HARMONY = (
    "<|channel|>commentary<|message|>{}<|end|><|start|>assistant",
    '<|channel|>commentary to=functions.get_weather <|constrain|>json<|message|>{"city": "Oslo"}<|call|>',
    "<|start|>assistant<|channel|>final<|message|>{}<|return|>",
)


@pytest.mark.parametrize(("before", "after"), [*itertools.product(BEFORE, AFTER)])
def test_messages_around_a_call(before: str, after: str) -> None:
    begin, call, end = HARMONY
    text = (begin.format(before) if before else "") + call + (end.format(after) if after else "")
    expected = content_of(before, after)
    if before.strip() and after.strip() and not (before[-1].isspace() or after[0].isspace()):
        expected = f"{before}\n{after}"  # two messages stay two
    for options in ({}, {"dialect": "harmony"}):
        events, reply = feed([text], TOOLS, "stop", **options)
        assert (len(reply.calls), reply.content) == (1, expected)
        tiled(events, text)
        assert feed([*text], TOOLS, "stop", **options)[1].content == expected


@pytest.mark.parametrize(("before", "after"), [*itertools.product(BEFORE, AFTER)])
def test_text_around_a_call_that_the_server_read(before: str, after: str) -> None:
    body = {"messages": [], "tools": [{"type": "function", "function": TOOL}], "stream": True}
    arguments = json.dumps(OSLO.arguments)
    for pieces in ((before,), tuple(before)):
        request = parse_request(body, Profile())
        reader = ReplyReader(request, prepare_native(request), lambda: "made")
        for delta in (
            *(Delta(content=piece) for piece in pieces if piece),
            Delta(tool_calls=(ToolDelta(0, "call0", "get_weather", ""),)),
            Delta(tool_calls=(ToolDelta(0, None, None, arguments),)),
            *(Delta(content=piece) for piece in after),
        ):
            reader.feed(delta)
        reader.close("tool_calls")
        assert (len(reader.reply.calls), reader.reply.content) == (1, before + after)


@pytest.mark.parametrize("before", BEFORE)
def test_a_whole_reply_with_a_call_that_the_server_read(before: str) -> None:
    body = {"messages": [], "tools": [{"type": "function", "function": TOOL}]}
    request = parse_request(body, Profile())
    reader = ReplyReader(request, prepare_native(request), lambda: "made")
    reader.feed(Delta(content=before, tool_calls=(ToolDelta(0, "call0", "get_weather", '{"city": "Oslo"}'),)))
    reader.close("tool_calls")
    assert (len(reader.reply.calls), reader.reply.content) == (1, before)


@pytest.mark.parametrize("text", ["Hi.\n\n", "\n\nHi. ", " \n"])
def test_without_a_call_it_stays(text: str) -> None:
    assert parse(text, TOOLS).content == text
    assert parse(f"<|channel|>final<|message|>{text}<|return|>", TOOLS).content == text
