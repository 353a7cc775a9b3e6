"""Replies to requests with very many tools: read as with few, by patterns that do not grow with the names."""

import pytest

from promptools import StreamParser, parse
from promptools.engine.scan_plan import default_plan
from promptools.schema import Tools

PARAMETERS = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}


def tools(names):
    return Tools([{"name": name, "parameters": PARAMETERS} for name in names])


OTHERS = [f"{first}{second}x_tool" for first in "abcdefghijklmnopqrst" for second in "uvwxy"]
HUNDREDS = [f"{first}{second}{third}" for first in "abcdefghij" for second in "abcdefghij" for third in "wxyz"]
LISTS = {
    "few": tools(["get_weather", "x.y z"]),
    "many": tools(["get_weather", *OTHERS]),
    "spaces": tools(["get_weather", "get the news", *OTHERS]),
    "hundreds": tools(["get_weather", *HUNDREDS]),
}
REPLIES = [
    'get_weather({"city": "Oslo"})',
    "Let me look.\n\nget_weather(city='Oslo')",
    'get-weather {"city": "Oslo"}',
    'functions.get_weather:0{"city": "Oslo"}',
    'getWeather({"city": "Oslo"})',
    "<get_weather><city>Oslo</city></get_weather>",
    "Getting the weather takes a while\nauxiliary words follow\nget",
    "get the news\n",
    "get_wea",
]


@pytest.mark.parametrize("offered", LISTS.values(), ids=LISTS)
@pytest.mark.parametrize("text", REPLIES)
def test_a_reply_is_read_alike_however_many_tools_there_are_and_however_it_is_cut(text, offered):
    alone = parse(text, tools=LISTS["few"])
    whole = parse(text, tools=offered)
    assert [(call.name, call.arguments) for call in whole.calls] == [
        (call.name, call.arguments) for call in alone.calls
    ]
    assert whole.content == alone.content
    for step in (1, 3):
        parser = StreamParser(tools=offered)
        for at in range(0, len(text), step):
            parser.feed(text[at : at + step])
        parser.close()
        found = parser.reply
        assert [(call.name, call.arguments) for call in found.calls] == [
            (call.name, call.arguments) for call in whole.calls
        ]
        assert found.content == whole.content


@pytest.mark.parametrize("letters", ["abcdefghijklmnopqrstuvwxyz", "x"])
def test_the_patterns_for_a_reply_do_not_grow_with_the_names(letters):
    size = len(letters)
    names = tuple(
        f"{letters[n % size]}{letters[n // size % size]}{letters[n // size**2 % size]}_{n}_{'long' * 50}"
        for n in range(10_000)
    )
    assert len(default_plan(None).scanners_for(names).first_word.pattern) < 30_000
