"""Chat to Harmony, to text or token ids, and back to messages: nothing changes but what `convert` says."""

import json
from itertools import count

import oracle
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from promptools import Tools
from promptools.harmony import StreamParser, parse, parse_ids
from promptools.harmony.bpe_vocabulary import load_decode, load_encode
from promptools.harmony.conversation import Options, convert
from promptools.harmony.renderer import encode_messages, render_messages
from promptools.harmony.tokens import CONTROL_MARKUP

words = st.text(min_size=1, max_size=12).filter(lambda text: CONTROL_MARKUP.escape(text) == text)
tools = ["get_weather", "container.exec", "get-weather", "a"]
arguments = st.dictionaries(words, words | st.integers() | st.none(), max_size=2).map(json.dumps)


def ids():
    numbers = count(1)
    return lambda: f"call_{next(numbers)}"


@st.composite
def chats(draw):
    """A conversation in the form that reading one back gives."""
    chat, new_id = [], ids()
    for _ in range(draw(st.integers(1, 4))):
        chat.append({"role": "user", "content": draw(words)})
        for _ in range(draw(st.integers(0, 2))):
            calls = [
                {"id": new_id(), "type": "function", "function": {"name": name, "arguments": draw(arguments)}}
                for name in draw(st.lists(st.sampled_from(tools), min_size=1, max_size=3))
            ]
            chat.append(
                {"role": "assistant", **thoughts(draw), "content": draw(st.none() | words), "tool_calls": calls}
            )
            chat += [
                {"role": "tool", "tool_call_id": call["id"], "name": call["function"]["name"], "content": draw(words)}
                for call in calls
            ]
        if draw(st.booleans()):
            chat.append({"role": "assistant", **thoughts(draw), "content": draw(words)})
    return chat


def thoughts(draw):
    reasoning = draw(st.none() | words)
    return {} if reasoning is None else {"reasoning": reasoning, "reasoning_content": reasoning}


STEADY = settings(max_examples=150, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
KEEP = Options(thoughts="keep")
OFFERED = Tools([{"name": name} for name in tools])


@STEADY
@given(chats(), st.data())
def test_a_chat_comes_back(chat, data):
    converted = convert(chat, OFFERED, options=KEEP)
    text = render_messages(converted.messages, reply_role=None)
    parser = StreamParser(strict=True)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=6)))
    for start, end in zip([0, *cuts], [*cuts, len(text)], strict=True):
        parser.feed(text[start:end])
    parser.close()
    read = [parsed.message for parsed in parser.parsed.messages]
    assert [parsed.repairs for parsed in parser.parsed.messages] == [()] * len(read)
    assert read[2:] == [*converted.messages[2:]]


@STEADY
@given(chats())
@pytest.mark.oracle
def test_it_comes_back_from_token_ids(chat):
    decode = load_decode(oracle.file())
    converted = convert(chat, OFFERED, options=KEEP)
    read = parse_ids(encode_messages(converted.messages, load_encode(), reply_role=None), decode, strict=True).messages
    assert read == parse(render_messages(converted.messages, reply_role=None), strict=True).messages
    assert [parsed.message for parsed in read][2:] == [*converted.messages[2:]]
