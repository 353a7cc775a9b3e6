"""Structured calls as servers send them; each case names where it was seen."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from promptools.dialects.calls.json_body import read_arguments
from promptools.dialects.calls.parse_options import ParseOptions
from promptools.modes.structured_calls import NATIVE_EVIDENCE, CollectedChoice, ToolCallAssembler
from promptools.schema import Tools
from promptools.types import Call, Malformed
from promptools.wire.chat_decoder import Delta, ToolDelta


def tool(name, required=(), **properties):
    schema = {"type": "object", "properties": properties, "required": list(required)}
    return {"type": "function", "function": {"name": name, "parameters": schema}}


TEXT, INT = {"type": "string"}, {"type": "integer"}
TOOLS = Tools([
    tool("get_weather", ["city"], city=TEXT, days=INT),
    tool("shell", ["command"], command=TEXT),
    tool("grep", ["needle"], needle=TEXT, deep={"type": "boolean"}),
    tool("ping"),
    tool("wipe", ["disk"], disk=TEXT),
], marks={"wipe": {"dangerous": True}})  # fmt: skip
OPTIONS = ParseOptions(TOOLS, "balanced", None, False, TOOLS.all_keys)


# --- assembling


def slots(*deltas):
    assembler = ToolCallAssembler(lambda name: TOOLS.get(name) is not None)
    for delta in deltas:
        assembler.add(delta)
    return [(slot.id, slot.name, slot.arguments) for slot in assembler.calls]


D = ToolDelta
ONE = ("a", "ping", "{}")


@pytest.mark.parametrize(
    ("deltas", "calls"),
    [
        pytest.param([D(0, "a", "shell", ""), D(0, None, None, '{"x"'), D(0, None, None, ":1}")],
                     [("a", "shell", '{"x":1}')], id="as specified"),
        pytest.param([D(0, "a", "ping", "{}"), D(1, "b", "shell", "{}")],
                     [ONE, ("b", "shell", "{}")], id="two by index"),
        pytest.param([D(0, "a", "ping"), D(1, "b", "ping"), D(0, None, None, "{}"), D(1, None, None, "{}")],
                     [ONE, ("b", "ping", "{}")], id="interleaved"),
        pytest.param([D(0, "a", "ping", "{}"), D(0, "b", "shell", "{}")],
                     [ONE, ("b", "shell", "{}")], id="every call at index 0: ollama#15457"),
        pytest.param([D(None, None, "ping", "{}"), D(None, None, "shell", "{}")],
                     [(None, "ping", "{}"), (None, "shell", "{}")], id="no index, no id: ollama#7881"),
        pytest.param([D(0, None, "ping"), D(0, None, "shell")],
                     [(None, "ping", ""), (None, "shell", "")], id="no arguments either"),
        pytest.param([D(0, "0", "shell", "{"), D(0, "0", None, '"x":1}'), D(0, "1", "ping", "{}"), D(0, "0", "", " ")],
                     [("0", "shell", '{"x":1} '), ("1", "ping", "{}")], id="ids on every delta: lmdeploy#3412"),
        pytest.param([D(0, "a", "shell", '{"x"'), D(0, "a", "shell", ":1}")],
                     [("a", "shell", '{"x":1}')], id="name in every chunk: vllm#13078"),
        pytest.param([D(0, None, "shell", '{"x"'), D(0, None, "shell", ":1}")],
                     [(None, "shell", '{"x":1}')], id="name in every chunk, no id"),
        pytest.param([D(0, "a", "get_"), D(0, None, "weather", "{}")],
                     [("a", "get_weather", "{}")], id="a name in pieces"),
        pytest.param([D(0, None, "shell", '{"x"'), D(0, None, "ping", "{}")],
                     [(None, "shell", '{"x"'), (None, "ping", "{}")], id="another name, the first call broken off"),
        pytest.param([D(0, None, None, '{"x":'), D(0, "a", "shell", "1}")],
                     [("a", "", '{"x":1}')], id="arguments before the name"),
        pytest.param([D(0, "a", "shell", "  "), D(0, None, None, "ls")], [("a", "shell", "  ls")], id="no JSON"),
        pytest.param([D(None, "a", "ping", "{}"), D(None, None, None, " ")], [("a", "ping", "{} ")], id="no index"),
    ],
)  # fmt: skip
def test_deltas_are_sorted_into_calls(deltas, calls):
    assert slots(*deltas) == calls


def test_a_call_is_given_once_it_is_whole_and_another_begins():
    assembler = ToolCallAssembler(lambda _: False)
    assembler.add(D(0, "a", "f", '{"x": [1'))
    assert assembler.take_complete() == []
    assembler.add(D(0, None, None, "]}"))
    assert assembler.take_complete() == []
    assembler.add(D(1, "b", "g", "{"))
    assert [slot.id for slot in assembler.take_complete()] == ["a"]
    assembler.add(D(2, "c", "h", "{}"))
    assert assembler.take_complete() == []
    assert [slot.id for slot in assembler.take_rest()] == ["b", "c"]
    assert assembler.take_rest() == assembler.take_complete() == []


def test_a_choice_is_put_together_as_it_came():
    choice, other = CollectedChoice(), CollectedChoice()
    for delta in (
        Delta(reasoning="H"),
        Delta(reasoning="m.", content="Look"),
        Delta(content=": ", refusal="no"),
        Delta(tool_calls=(D(0, "a", "f", '{"x":'), D(0, None, None, " 1}"), D(0, "b", "f", "{}"))),
        Delta(finish_reason="tool_calls"),
        Delta(),
    ):
        choice.add(delta)
    assert (choice.reasoning, choice.content, choice.finish_reason) == ("Hm.", "Look: no", "tool_calls")
    calls = [(call.id, call.name, call.arguments) for call in choice.calls]
    assert calls == [("a", "f", '{"x": 1}'), ("b", "f", "{}")], "two calls at one index, as Ollama sends them"
    assert other.calls == [], "nothing is shared"


# --- reading


def read(name, text, *, ended=True, options=OPTIONS):
    return read_arguments(name, text, options, NATIVE_EVIDENCE, ended=ended).calls


def fixes(outcome):
    return [fix.kind for fix in outcome.fixes]


@pytest.mark.parametrize(
    ("name", "text", "call", "kinds"),
    [
        ("get_weather", ' {"city":  "Oslo"} ', ("get_weather", {"city": "Oslo"}), []),
        ("ping", "", ("ping", {}), []),
        ("ping", "null", ("ping", {}), ["coerce"]),
        ("ping", '""', ("ping", {}), ["coerce"]),
        ("get_weather<|channel|>commentary", '{"city": "Oslo"}', ("get_weather", {"city": "Oslo"}), ["name"]),
        ("functions.get_weather", '{"city": "Oslo"}', ("get_weather", {"city": "Oslo"}), ["name"]),
        ("shell", '{"command=ls": ""}', ("shell", {"command": "ls"}), ["split"]),  # speculative decoding
        ("shelljson", '{"command": "ls"}', ("shell", {"command": "ls"}), ["name"]),
        ("assistant<|channel|>analysis", '{"command": "./test"}', ("shell", {"command": "./test"}), ["infer"]),
        ("", '{"needle": "x"}', ("grep", {"needle": "x"}), ["infer"]),
        ("", '{"name": "ping", "arguments": {}}', ("ping", {}), []),
        ("get_weather", '"{\\"city\\": \\"Oslo\\"}"', ("get_weather", {"city": "Oslo"}), ["unwrap"]),
        ("get_weather", '{"location": "Oslo", "days": "2"}', ("get_weather", {"city": "Oslo", "days": 2}),
         ["alias", "coerce"]),
        ("get_weather", '{"name": "get_weather", "arguments": {"city": "Oslo"}}', ("get_weather", {"city": "Oslo"}),
         ["unwrap"]),
        ("get_weather", '{"city": "Oslo"}]', ("get_weather", {"city": "Oslo"}), ["closer"]),
        ("get_weather", '{"city": "Oslo"}<|call|>', ("get_weather", {"city": "Oslo"}), ["marker"]),
        ("get_weather", '{"city": "Oslo"', ("get_weather", {"city": "Oslo"}), ["closer"]),
        ("get_weather", "{'city': 'Oslo'}", ("get_weather", {"city": "Oslo"}), ["json"]),
        ("get_weather", 'We need the city. {"city": "Oslo"}', ("get_weather", {"city": "Oslo"}), ["marker"]),
        ("shell", "ls -R\n", ("shell", {"command": "ls -R"}), ["unwrap"]),
        ("shell", "echo {x}", ("shell", {"command": "echo {x}"}), ["unwrap"]),
        ("shell", "a {} b {'c'} d}", ("shell", {"command": "a {} b {'c'} d}"}), ["unwrap"]),
        ("get_weather", '{"city": "Oslo"}{"city": "Oslo"}', ("get_weather", {"city": "Oslo"}), ["duplicate"]),
    ],
)  # fmt: skip
def test_calls_are_read_and_every_liberty_is_recorded(name, text, call, kinds):
    (outcome,) = read(name, text)
    assert isinstance(outcome, Call), outcome
    assert (outcome.name, outcome.arguments) == call
    assert json.loads(outcome.arguments_json) == outcome.arguments
    assert fixes(outcome) == kinds
    assert outcome.dialect == "native"
    if not kinds and outcome.arguments:
        assert outcome.arguments_json == text.strip()


def test_glued_arguments_are_calls_of_their_own():
    outcomes = read("get_weather", '{"city": "a.rs"}\n{"city": "b.rs"}{"city": 1')
    assert [type(each) for each in outcomes] == [Call, Call, Malformed]
    assert [each.arguments["city"] for each in outcomes[:2]] == ["a.rs", "b.rs"]
    assert fixes(outcomes[1]) == ["json"]


@pytest.mark.parametrize(
    ("name", "text", "ended", "reason"),
    [
        ("get_weather", "{", False, "truncated"),
        ("get_weather", "{", True, "truncated"),
        ("get_weather", '{"city": "Oslo"', False, "truncated"),
        ("get_weather", '{"city": "Os', True, "truncated"),
        ("get_weather", '{"city": "Oslo", "days": 1', True, "truncated"),
        ("get_weather", "你好", True, "invalid_json"),
        ("get_weather", '{"city": Oslo}', True, "invalid_json"),
        ("get_weather", '{"city": "Oslo"} is it', True, "invalid_json"),
        ("shell", '{"command": "X"{"command": "X"}', True, "invalid_json"),
        ("get_weather", "words {x} and }", True, "invalid_json"),
        ("get_weather", "[1]", True, "not_an_object"),
        ("shell", '"ls -R"', True, "not_an_object"),
        ("get_weather", '"Oslo"', True, "not_an_object"),
        ("shell", '"[1]"', True, "not_an_object"),
        ("shell", "Infinity", True, "invalid_json"),
        ("shell", "-Infinity", True, "invalid_json"),
        ("shell", "NaN", True, "invalid_json"),
        ("shell", "12", True, "not_an_object"),
        ("shell", "true", True, "not_an_object"),
        ("get_weather", '{"days": "many"}', True, "invalid_arguments"),
        ("get_weather", '{"type": "object", "properties": {"city": {"type": "string"}}}', True, "invalid_arguments"),
        ("nope", "12", True, "unknown_tool"),
        ("assistant<|channel|>analysis", '{"what": 1}', True, "unknown_tool"),
        ("", '{"disk": "a"}', True, "unknown_tool"),
        ("", "[]", True, "unknown_tool"),
        ("ping", "[" * 5000, True, "limit"),
    ],
)
def test_what_cannot_be_used_says_why(name, text, ended, reason):
    (outcome,) = read(name, text, ended=ended)
    assert isinstance(outcome, Malformed)
    assert outcome.reason == reason
    assert outcome.message


def test_a_call_of_an_unknown_tool_is_flagged():
    (call,) = read("nope", '{"city": "Oslo"}')
    assert (call.name, call.arguments, call.unknown_tool) == ("nope", {"city": "Oslo"}, True)


def test_without_known_tools_every_plausible_name_is_one():
    loose = ParseOptions(None, "balanced", None, False, frozenset())
    (call,) = read("anything", '{"a": 1}', options=loose)
    assert (call.name, call.arguments) == ("anything", {"a": 1})
    (broken,) = read("", '{"a": 1}', options=loose)
    assert (broken.reason, broken.call) == ("unknown_tool", None)


@given(st.text(), st.text(), st.booleans())
def test_nothing_raises(name, text, ended):
    assert read(name, text, ended=ended)
    assert read("shell", text, ended=ended)


@given(st.dictionaries(st.sampled_from(["city", "x", "y"]), st.text(), min_size=1))
def test_strict_arguments_come_back_as_they_are(arguments):
    arguments |= {"city": "x"}
    text = json.dumps(arguments)
    (call,) = read("get_weather", text)
    assert (call.arguments, call.arguments_json, call.fixes) == (arguments, text, ())
