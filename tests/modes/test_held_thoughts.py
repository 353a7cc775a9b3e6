"""Reasoning in a field of its own: shown as it comes, without the calls that it ends with, however it is cut."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from promptools import StreamParser
from promptools.modes.native_mode import prepare_native
from promptools.modes.reply_reader import ReplyReader, Thoughts
from promptools.modes.tool_request import parse_request
from promptools.parsing.events import Reasoning
from promptools.profiles import Profile
from promptools.wire.chat_decoder import Delta, ToolDelta

TOOL = {
    "type": "function",
    "function": {"name": "get_weather", "parameters": {"type": "object", "properties": {"city": {"type": "string"}}}},
}
CALL = '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Oslo"}}\n</tool_call>'
XML = "<tool_call>\n<function=get_weather>\n<parameter=city>\nOslo\n</parameter>\n</function>\n</tool_call>"
KIMI = (
    '<|tool_calls_section_begin|><|tool_call_begin|>functions.get_weather:0<|tool_call_argument_begin|>{"city": "Oslo"}'
    "<|tool_call_end|><|tool_calls_section_end|>"
)
HARMONY = '<|channel|>commentary to=functions.get_weather <|constrain|>json<|message|>{"city": "Oslo"}<|call|>'
BARE = '{"name": "get_weather", "arguments": {"city": "Oslo"}}'
CALLS = [CALL, XML, KIMI, HARMONY, BARE, f"```json\n{BARE}\n```", f"{CALL}\n{CALL}", f"{CALL}<|im_end|>"]


def read(*deltas, finish="stop", stream=True):
    request = parse_request({"messages": [], "tools": [TOOL], "stream": stream}, Profile())
    reader = ReplyReader(request, prepare_native(request), lambda: "made")
    events = [event for delta in deltas for event in reader.feed(delta)]
    before = "".join(event.text for event in events if isinstance(event, Reasoning))
    events += reader.close(finish)
    shown = "".join(event.text for event in events if isinstance(event, Reasoning))
    assert shown == reader.reply.reasoning
    return reader.reply, before


@pytest.mark.parametrize("size", [1, 7, 1000])
@pytest.mark.parametrize("call", CALLS)
def test_the_markup_of_a_call_that_is_read_is_not_shown(call, size):
    text = f"I need the weather.\n{call}"
    for ending in ("", "\n"):
        deltas = [Delta(reasoning=(text + ending)[at : at + size]) for at in range(0, len(text + ending), size)]
        reply, _ = read(*deltas)
        assert [made.arguments for made in reply.calls] == [{"city": "Oslo"}] * (1 + (call == f"{CALL}\n{CALL}"))
        assert reply.reasoning == "I need the weather.\n"


@pytest.mark.parametrize("size", [1, 7, 1000])
@pytest.mark.parametrize("call", CALLS[:4])
@pytest.mark.parametrize(
    ("more", "finish"),
    [
        ([Delta(reasoning=" Or not.")], "stop"),
        ([Delta(content="It rains.")], "stop"),
        ([Delta(tool_calls=(ToolDelta(0, "a", "get_weather", "{}"),))], "tool_calls"),
        ([], "length"),
        ([], None),
    ],
    ids=["more thoughts", "an answer", "a call", "a cut", "a break"],
)
def test_a_draft_is_shown(call, size, more, finish):
    text = f"I need it.\n{call}"
    reply, _ = read(*(Delta(reasoning=text[at : at + size]) for at in range(0, len(text), size)), *more, finish=finish)
    assert reply.reasoning == text + "".join(delta.reasoning for delta in more)
    assert len(reply.calls) == len([delta for delta in more if delta.tool_calls])


def test_only_what_may_be_a_call_is_held():
    deltas = [Delta(reasoning=piece) for piece in ("I need", " it. ", "Or a < b? ", "Hm.\n", CALL[:20])]
    _, before = read(*deltas)
    assert before == "I need it. Or a < b? Hm.\n"


TEXTS = st.lists(st.sampled_from([CALL, BARE, "I need it. ", "\n", "<", "`", "```\n", "</think>", "<think>", "{", "a"]))


@given(TEXTS, st.integers(1, 9))
def test_all_that_is_not_a_call_is_shown_however_it_is_cut(texts, size):
    text = "".join(texts)
    whole = read(Delta(reasoning=text))[0] if text else None
    if whole is None:
        return
    cut = read(*(Delta(reasoning=text[at : at + size]) for at in range(0, len(text), size)))[0]
    assert (cut.reasoning, cut.calls) == (whole.reasoning, whole.calls)
    assert text.startswith(whole.reasoning)
    assert whole.calls or whole.reasoning == text


def test_a_long_call_that_is_held_costs_its_length():
    parser = StreamParser([TOOL], strictness="lenient")
    thoughts = Thoughts(parser)
    assert thoughts.feed("Hm. ") == "Hm. "
    assert {
        thoughts.feed(piece) for piece in ('<tool_call>{"name": "get_weather", "arguments": {"city": "', *["x"] * 999)
    } == {""}
    assert thoughts.stop().endswith("xxx")
