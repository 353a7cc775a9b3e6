"""Replies to requests with very many tools: read as with few, by patterns that do not grow with the names."""

import sys
from re import _compiler as sre

import pytest

from promptools import StreamParser, parse
from promptools.engine import scan_plan
from promptools.engine.scan_plan import default_plan
from promptools.parsing import scanner
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


LINES = [
    "get_weather(city='Oslo')",
    "GET-weather",
    "gets",
    "ge",
    "ls",
    "lsof",
    "<get_weather>",
    "</get_weather>",
    "<a>",
    "functions.x",
    "Default_API:x",
    "Tool call",
    "Action: get_weather",
    "<use_mcp_tool>",
    "the rest",
    "_x",
    "\u017fearch",
    "\u212aelvin",
    "straße",
    "łódź",
    "> quoted",
    "",
]


@pytest.mark.parametrize(
    "names", [("get_weather", "search_files", "kelvin"), ("ls", "get_weather"), ("łódź_tool", "get"), (), None]
)
def test_a_pattern_of_the_tools_finds_the_lines_that_are_looked_up(names, monkeypatch):
    words = default_plan(None).scanners_for(names).first_words
    text = "".join(f"\n{indent}{line}" for indent in ("", "  ", "\t") for line in LINES)

    def found(words):
        at, places = 0, []
        while (at := words.search(text, at, len(text))) >= 0:
            places.append(at)
            at += 1
        return places

    looked_up = found(words)
    monkeypatch.setattr(scan_plan, "WORTH_A_PATTERN", -1)
    fresh = scan_plan.FirstWords(default_plan(None).line_heads.first_word_patterns(), names)
    fresh.search(text, len(text) - 1, len(text))
    assert found(fresh) == looked_up
    assert len(looked_up) < len(LINES) * 3 or names is None


def test_a_pattern_is_compiled_once_it_is_worth_it():
    text = "\nNo call begins here." * 1000
    words = default_plan(None).scanners_for(("worth_it", "a_pattern")).first_words
    patterns = []
    for _ in range(8):
        assert words.search(text, 0, len(text)) == -1
        patterns.append(words._own_line)
    assert patterns[:4] == [None] * 4
    assert patterns[-1] is not None


NAMES = [f"{first}{second}_{number}" for first in "abcxyz" for second in "mnopq" for number in range(10)]


def test_a_list_of_tools_that_was_never_seen_compiles_no_pattern(monkeypatch):
    """Compiling one takes longer than reading a reply, and agents come with other tools each time."""
    text = "Let me look.\nget_weather(city='Oslo')\n\n" + "\n".join(NAMES)

    def read(number):
        offered = tools(["get_weather", *NAMES[number : number + 3], f"another_{number}"])
        parse(text, tools=offered)
        parser = StreamParser(tools=offered)
        for at in range(0, len(text), 5):
            parser.feed(text[at : at + 5])
        parser.close()

    monkeypatch.setattr(scanner, "OFTEN", sys.maxsize)  # those of the formats, which are the same for all tools
    for number in (0, 1, 41, 58):
        read(number)
    compiled = []
    compile_pattern = sre.compile
    monkeypatch.setattr(sre, "compile", lambda *given: compiled.append(given) or compile_pattern(*given))
    for number in range(2, 40):
        read(number)
    assert compiled == []
