"""Tokens of a conversation: exact ones are the library's, estimated ones are near."""

import json
from dataclasses import replace

import oracle
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from test_harmony_text import CONVERSATIONS, ROUND, WEATHER

from promptools.harmony.count import Count, Part, count, estimate, exact
from promptools.harmony.render import Developer, Message, Namespace, System, render, render_ids
from promptools.harmony.vocabulary import load_encode

SPACES = (Namespace("container", (WEATHER,), "A box."),)


def letters(text):
    return len(text)


@pytest.mark.parametrize("name", CONVERSATIONS)
@pytest.mark.parametrize("then", ["assistant", None])
def test_the_parts_are_the_whole(name, then):
    said = CONVERSATIONS[name]
    counted = count(said, letters, then=then)
    assert counted.whole == len(render_ids(said, lambda text: [0] * len(text), then=then))
    assert [part.tokens for part in counted.parts[: len(said)]] == [
        count([*heads_of(said, each), each], letters, then=None).parts[-1].tokens for each in said
    ]
    assert len(counted.parts) == len(said) + (then is not None)


def heads_of(said, message):
    """What a system message needs beside it: it has a line more when functions are declared."""
    return [each for each in said if message.role == "system" and each.role == "developer"]


def test_headers_are_as_they_are_written():
    headers = [part.header for part in count(ROUND, letters).parts]
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


def test_control_tokens_are_one_each_and_text_is_measured():
    said = [Message("user", "Hi.<|end|>")]
    assert count(said, letters) == Count((Part("user", 3 + 4 + 10), Part("assistant", 1 + 9)))
    assert count(
        [Message("assistant", "x", channel="final", content_type="<|constrain|>json")], letters, then=None
    ) == (Count((Part("assistant<|channel|>final <|constrain|>json", 5 + 9 + 6 + 4 + 1),)))


@pytest.mark.parametrize(
    "head",
    [
        [Message("system", System()), Message("developer", Developer("Be brief.", (WEATHER,), (), SPACES))],
        [Message("system", System()), Message("developer", Developer("", (WEATHER,)))],
        [Message("system", System(namespaces=SPACES)), Message("developer", Developer("Be brief."))],
    ],
    ids=["developer", "developer who says nothing else", "system"],
)
def test_tools_are_what_declaring_them_adds(head):
    bare = [
        replace(
            each,
            content=replace(each.content, namespaces=(), **({"functions": None} if each.role == "developer" else {})),
        )
        for each in head
    ]
    bare = [each for each in bare if each.content != Developer()]
    said = [Message("user", "Hi.")]
    assert count([*head, *said], letters).tools == (
        count([*head, *said], letters).whole - count([*bare, *said], letters).whole
    )


@pytest.mark.parametrize("head", [[], [Message("system", System()), Message("developer", Developer())]])
def test_without_tools_they_add_nothing(head):
    assert count([*head, Message("developer", "Raw words."), Message("user", "Hi.")], letters).tools == 0


@pytest.mark.parametrize("name", [name for name in CONVERSATIONS if name != "forms of the answer"])
def test_exact_counts_are_the_library_s(name):
    theirs = oracle.ids_of(CONVERSATIONS[name], "assistant")
    assert count(CONVERSATIONS[name], exact(load_encode())).whole == len(theirs)


def test_no_text_is_not_measured():
    assert exact(lambda text: pytest.fail("measured"))("") == 0


JSON = json.dumps([{"id": at, "name": f"item {at}", "price": at * 1.25, "sold": at % 3 == 0} for at in range(40)])
PROSE = "Let me see what the weather does in the next days, since the trip depends on it. Rain is likely, though. "
LANGUAGES = {
    "English": PROSE,
    "JSON": JSON,
    "Python": 'def greet(name: str) -> str:\n    """Say hello."""\n    return f"it\'s {name}"\n',
    "a prompt": render([message for message in ROUND if isinstance(message.content, System | Developer)]),
    "a log": "2026-11-21T17:05:33.000123Z INFO worker-3 GET /v1/items/7919 200 3.7ms\n",
    "German": "Die Verordnung verlangt besondere Rücksicht gegenüber Fußgängern und Radfahrern. ",
    "Chinese": "今天的天气很好，我们去公园散步吧。你想吃什么？",
    "Russian": "Сегодня хорошая погода, пойдём гулять в парк. ",
    "Arabic": "الطقس جميل اليوم، دعنا نذهب للمشي في الحديقة. ",
}


@pytest.mark.parametrize("language", LANGUAGES)
def test_an_estimate_is_near(language):
    oracle.library()
    text = LANGUAGES[language] * 10
    assert 0.95 <= estimate(text) / len(load_encode()(text)) <= 1.5


@settings(deadline=None)
@given(st.text())
def test_nothing_is_overlooked(text):
    assert (estimate(text) > 0) == (text != "")
