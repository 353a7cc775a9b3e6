"""Tokens of a conversation: exact ones are the library's, estimated ones are near."""

import json
import re

import oracle
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from test_harmony_text import CONVERSATIONS, ROUND

from promptools.harmony.bpe_vocabulary import load_encode
from promptools.harmony.renderer import (
    DeveloperContent,
    Message,
    Part,
    SystemContent,
    count_messages,
    estimate_tokens,
    exact_counter,
    render_messages,
)


def counted(messages, measure=len, then="assistant"):
    return count_messages(render_messages(messages, reply_role=then), measure)


@pytest.mark.parametrize("name", CONVERSATIONS)
@pytest.mark.parametrize("then", ["assistant", None])
def test_every_message_is_a_part(name, then):
    messages = CONVERSATIONS[name]
    parts = counted(messages, then=then)
    assert len(parts) == len(messages) + (then is not None)
    controls = re.findall(r"<\|[a-z]+\|>", render_messages(messages, reply_role=then))
    text = re.sub(r"<\|[a-z]+\|>", "", render_messages(messages, reply_role=then))
    assert sum(part.tokens for part in parts) == len(controls) + len(text)


def test_nothing_takes_nothing():
    assert count_messages("", len) == ()


def test_headers_are_as_they_are_written():
    headers = [part.header for part in counted(ROUND)]
    assert headers == [
        "system",
        "developer",
        "user",
        "assistant<|channel|>analysis",
        "assistant<|channel|>commentary",
        "assistant to=functions.get_weather<|channel|>commentary json",
        "functions.get_weather to=assistant<|channel|>commentary",
        "assistant<|channel|>final",
        "user",
        "assistant",
    ]


def test_control_tokens_are_one_each_and_text_is_measured_as_it_was_said():
    messages = [Message("user", "Hi.<|end|>")]
    assert counted(messages) == (Part("user", 3 + 4 + 10), Part("assistant", 1 + 9))
    constrained = Message("assistant", "x", channel="final", content_type="<|constrain|>json")
    assert counted([constrained], then=None) == (
        Part("assistant<|channel|>final <|constrain|>json", 5 + 9 + 6 + 4 + 1),
    )


def test_what_is_said_in_the_model_s_name_belongs_to_the_reply():
    text = render_messages([Message("user", "Hi.")]) + "<|channel|>analysis<|message|>"
    assert count_messages(text, len)[-1] == Part("assistant<|channel|>analysis", 1 + 9 + 1 + 8 + 1)


@pytest.mark.parametrize("name", [name for name in CONVERSATIONS if name != "forms of the answer"])
@pytest.mark.oracle
def test_exact_counts_are_the_library_s(name):
    theirs = oracle.ids_of(CONVERSATIONS[name], "assistant")
    assert sum(part.tokens for part in counted(CONVERSATIONS[name], exact_counter(load_encode()))) == len(theirs)


def test_no_text_is_not_measured():
    assert exact_counter(lambda text: pytest.fail("measured"))("") == 0


JSON = json.dumps([{"id": at, "name": f"item {at}", "price": at * 1.25, "sold": at % 3 == 0} for at in range(40)])
PROSE = "Let me see what the weather does in the next days, since the trip depends on it. Rain is likely, though. "
LANGUAGES = {
    "English": PROSE,
    "JSON": JSON,
    "Python": 'def greet(name: str) -> str:\n    """Say hello."""\n    return f"it\'s {name}"\n',
    "a prompt": render_messages(
        [message for message in ROUND if isinstance(message.content, SystemContent | DeveloperContent)]
    ),
    "a log": "2026-11-21T17:05:33.000123Z INFO worker-3 GET /v1/items/7919 200 3.7ms\n",
    "German": "Die Verordnung verlangt besondere Rücksicht gegenüber Fußgängern und Radfahrern. ",
    "Chinese": "今天的天气很好，我们去公园散步吧。你想吃什么？",
    "Russian": "Сегодня хорошая погода, пойдём гулять в парк. ",
    "Arabic": "الطقس جميل اليوم، دعنا نذهب للمشي في الحديقة. ",
}


@pytest.mark.parametrize("language", LANGUAGES)
@pytest.mark.oracle
def test_an_estimate_is_near(language):
    oracle.library()
    text = LANGUAGES[language] * 10
    assert 0.95 <= estimate_tokens(text) / len(load_encode()(text)) <= 1.5


@settings(deadline=None)
@given(st.text())
def test_nothing_is_overlooked(text):
    assert (estimate_tokens(text) > 0) == (text != "")
