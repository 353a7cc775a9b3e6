"""Formats of the kinds `tags` and `key_value` that no family writes, from tables alone: they keep all rules."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from casebook import bare, cuts, feed

from promptools import Tools, UsageError, dialects, parse
from promptools.dialects.contract import Dialect
from promptools.types import Call, Reply, Result

SCHEMA = {
    "type": "object",
    "properties": {"path": {"type": "string"}, "text": {"type": "string"}, "count": {"type": "integer"}},
    "required": ["path"],
}
TOOLS: list[dict[str, Any]] = [
    {"name": "write", "description": "Write", "parameters": SCHEMA},
    {"name": "add", "description": "Add", "parameters": {"type": "object", "properties": {"a": {"type": "number"}}}},
    {"name": "ping", "description": "Ping", "parameters": {"type": "object", "properties": {}}},
]
CALLS = [
    Call("1", "write", {"path": "a.txt", "text": "one\n two", "count": 2}, ""),
    Call("2", "ping", {}, "{}"),
    Call("3", "write", {"path": "", "text": "\n"}, '{"path": "", "text": "\\n"}'),
]

ATTRIBUTES = """
kind = "tags"
name = "acme"
wrapper = "<acme:calls>\\n{calls}\\n</acme:calls>"
call = '<acme:do tool="{name}">{parameters}</acme:do>'
parameter = '<acme:arg k="{key}">{value}</acme:arg>'
"""
ELEMENTS = """
kind = "tags"
name = "acme"
call = "<run>\\n<what>{name}</what>\\n{parameters}</run>"
parameter = "<{key}>{value}</{key}>\\n"
"""
EQUALS = """
kind = "tags"
name = "acme"
tier = "S"
wrapper = "<|acme|>{call}<|/acme|>"
call = "<use={name}>\\n{parameters}</use>"
parameter = "<with={key}>\\n{value}\\n</with>\\n"
"""
ANGLES = """
kind = "key_value"
name = "acme"
call = "<<call>>{name}{arguments}<</call>>"
argument = "<<k>>{key}<<v>>{value}<</v>>"
"""
BRACKETS = """
kind = "key_value"
name = "acme"
wrapper = "[calls]\\n{calls}\\n[/calls]"
call = "[call]{name}[args]\\n{arguments}\\n[/call]"
argument = "[k]{key}[/k] [t]{type}[/t] [v]{value}[/v]"
"""
FORMATS = {
    "attributes": (ATTRIBUTES, "</acme:arg>"),
    "elements": (ELEMENTS, "</text>"),
    "equals": (EQUALS, "</with>"),
    "angles": (ANGLES, "<</v>>"),
    "brackets": (BRACKETS, "[/v]"),
}
"""Each format, and the closing tag of its last value."""


TAGS = 'kind = "tags"\nname = "a"\n'
PAIRS = 'kind = "key_value"\nname = "a"\n'


@pytest.fixture(params=FORMATS)
def form(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def closer(form: str) -> str:
    return FORMATS[form][1]


@pytest.fixture
def acme(form: str, tmp_path: Path) -> Iterator[Dialect]:
    table = tmp_path / "acme.toml"
    table.write_text(FORMATS[form][0])
    yield dialects.load(table)
    dialects.unregister("acme")


def read(text: str) -> Reply:
    """Return the reply, which is the same however the text is cut."""
    whole = parse(text, TOOLS)
    for way, pieces in cuts(text):
        assert bare(feed(pieces, TOOLS)[1]) == bare(whole), way
    return whole


def calls_of(reply: Reply) -> list[tuple[str, object]]:
    return [(call.name, call.arguments) for call in reply.calls]


def written(acme: Dialect, text: str) -> str:
    """Return a call whose last value is `text`."""
    return acme.render_calls([Call("1", "write", {"path": "p", "text": text}, "")])


@pytest.mark.parametrize("call", CALLS, ids=lambda call: call.id)
def test_what_is_written_is_read_back(acme: Dialect, call: Call) -> None:
    reply = read(f"Well.\n{acme.render_calls([call])}\nDone.")
    assert calls_of(reply) == [(call.name, call.arguments)]
    assert (reply.content, reply.calls[0].fixes, reply.calls[0].dialect) == ("Well.\nDone.", (), "acme")


def test_calls_follow_one_another(acme: Dialect) -> None:
    reply = read(acme.render_calls(CALLS))
    assert calls_of(reply) == [(call.name, call.arguments) for call in CALLS]
    assert (reply.content, reply.malformed) == ("", ())


SHOWN = {
    "attributes": '<acme:calls>\n<acme:do tool="write"><acme:arg k="path">(path)</acme:arg></acme:do>\n</acme:calls>',
    "elements": "<run>\n<what>write</what>\n<path>(path)</path>\n</run>",
    "equals": "<|acme|><use=write>\n<with=path>\n(path)\n</with>\n</use><|/acme|>",
    "angles": "<<call>>write<<k>>path<<v>>(path)<</v>><</call>>",
    "brackets": "[calls]\n[call]write[args]\n[k]path[/k] [t]string[/t] [v](path)[/v]\n[/call]\n[/calls]",
}
"""The call that the prompt shows, as each format writes it."""


def test_the_prompt_shows_the_format(acme: Dialect, form: str) -> None:
    told = acme.render_tools(Tools(TOOLS))
    assert '"name": "write"' in told
    assert SHOWN[form] in told
    assert acme.render_results([Result("1", "add", "3")]) == "<tool_response>\n3\n</tool_response>"


def test_a_call_quoted_in_a_value_is_part_of_it(acme: Dialect) -> None:
    quoted = acme.render_calls([Call("2", "add", {"a": 1}, '{"a": 1}')])
    text = written(acme, "see QUOTED there").replace("QUOTED", quoted)
    assert calls_of(read(text)) == [("write", {"path": "p", "text": f"see {quoted} there"})]


def test_a_text_that_mentions_the_markers_is_text(acme: Dialect) -> None:
    for marker in (*acme.closers, *(literal for head in acme.heads for literal in head.literals)):
        text = f"Write `{marker}` and then a name, as the manual says."
        reply = read(text)
        assert (reply.calls, reply.malformed) == ((), ())
        assert reply.content == text


@pytest.mark.parametrize("share", [0.5, 0.6, 0.7, 0.8, 0.9])
def test_a_call_that_was_cut_off_is_not_a_call(acme: Dialect, share: float) -> None:
    text = written(acme, "a long text, so that it is cut off in the middle of the last value, wherever that may be")
    whole = parse(text[: int(len(text) * share)], TOOLS, finish_reason="length")
    assert whole.calls == ()


def test_without_the_closing_tag_of_the_last_value(acme: Dialect, closer: str) -> None:
    before, _, after = written(acme, "END").rpartition(closer)
    (call,) = read(before + after).calls
    assert (call.name, call.arguments) == ("write", {"path": "p", "text": "END"})
    assert "closer" in {fix.kind for fix in call.fixes}


def test_a_closing_tag_in_a_value_is_part_of_it(acme: Dialect, closer: str) -> None:
    text = written(acme, "one SPOT two").replace("SPOT", closer)
    assert calls_of(read(text)) == [("write", {"path": "p", "text": f"one {closer} two"})]


def test_an_unknown_tool_is_not_a_call_in_prose(acme: Dialect) -> None:
    text = f"Well.\n{written(acme, 'x').replace('write', 'nothing')}\nDone."
    reply = parse(text, TOOLS)
    assert all(call.unknown_tool for call in reply.calls)


@pytest.mark.parametrize(
    ("table", "said"),
    [
        (TAGS, "has no 'call'"),
        (TAGS + 'call = "<x={name}>"\nparameter = "<y={key}>{value}</y>"', "a tag with {name}"),
        (TAGS + 'call = "<x>{parameters}</x>"\nparameter = "<y={key}>{value}</y>"', "a tag with {name}"),
        (TAGS + 'call = "<x={name}>{parameters}</x>"\nparameter = "<y>{value}</y>"', "a tag with {key}"),
        (TAGS + 'call = "<x={name}>{parameters}</x>"\nparameter = "<y={key}>{value}</z>"', "a tag with {key}"),
        (TAGS + 'call = "<x={name}>{parameters}</x>"\nparameter = 1', "'parameter' is 1"),
        (f'{ATTRIBUTES}trim = "all"', "'trim' is 'all'"),
        (f"{ATTRIBUTES}prefixes = []", "'prefixes' is []"),
        (f'{ATTRIBUTES}wrappers = ["calls"]', "'wrappers' is ['calls']"),
        (f'{ATTRIBUTES}argument = "x"', "has a key 'argument'"),
        (PAIRS + 'call = "<x>{name}{arguments}</x>"\n', "has no 'argument'"),
        (PAIRS + 'call = "{name}{arguments}</x>"\nargument = "<k>{key}<v>{value}</v>"', "'call' is"),
        (PAIRS + 'call = "<x>{name}{arguments}</x>"\nargument = "<k>{key}{value}</v>"', "'argument' is"),
        (f'{ANGLES}wrapper = "<x>"', "'wrapper' is"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_named(tmp_path: Path, table: str, said: str) -> None:
    path = tmp_path / "a.toml"
    path.write_text(table)
    with pytest.raises(UsageError) as caught:
        dialects.load(path)
    assert said in str(caught.value)


def test_an_odd_wrapper_counts_only_before_a_call_as_the_family_writes_it() -> None:
    """`<tool_calls>` is a fix of Qwen3-Coder's wrapper; around `<invoke>` it is another family's call."""
    invoke = '<tool_calls>\n<invoke name="ping">\n</invoke>\n</tool_calls>'
    function = "<tool_calls>\n<function=ping>\n</function>\n</tool_calls>"
    assert [call.dialect for text in (invoke, function) for call in parse(text, TOOLS).calls] == [
        "anthropic",
        "qwen3_coder",
    ]


@pytest.mark.parametrize("text", ["<tool_call>ping</tool_c", "<iquest_tool_call>ping</iquest_tool_c"])
def test_a_call_without_arguments_may_end_in_half_a_closer(text: str) -> None:
    assert [(call.name, call.arguments) for call in parse(text, TOOLS).calls] == [("ping", {})]


def test_the_first_marker_of_a_named_call_is_not_a_call_yet() -> None:
    """`<toolcall>` alone may be prose: Goose's call begins with the name after it."""
    assert parse("Hi.\n<toolcall>", TOOLS).content == "Hi.\n<toolcall>"
