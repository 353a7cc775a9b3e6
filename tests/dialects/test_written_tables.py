"""A dialect of the app's own, from a TOML table."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from casebook import bare, cuts, feed

from promptools import Tools, UsageError, dialects, parse
from promptools.types import Call, Result

TOOLS = [
    {"name": "add", "description": "Add", "parameters": {"type": "object", "properties": {"a": {"type": "number"}}}}
]
CALL = Call("1", "add", {"a": 1}, '{"a": 1}')

FULL = """
name = "acme"
models = "Acme 7B"
tier = "S"
shape = "list"
name_key = "fn"
arguments_key = "with"
also = ["<|acme_stop|>"]
space = "\\n"
tools = ["<|acme_tools|>", "<|/acme_tools|>"]
result = "<|acme_result|>{name}: {content}"
stop = ["<|acme_result|>"]

[openers]
"<|acme_call|>" = "<|/acme_call|>"
"""


@pytest.fixture
def table(tmp_path: Path) -> Iterator[Path]:
    before = dialects.names()
    yield tmp_path / "acme.toml"
    for name in set(dialects.names()) - set(before):
        dialects.unregister(name)


def test_a_table_is_a_dialect(table: Path) -> None:
    table.write_text(FULL.replace('name_key = "fn"\narguments_key = "with"\n', ""))
    acme = dialects.load(table)
    assert (acme.name, acme.models, acme.tier, acme.stop) == ("acme", "Acme 7B", "S", ("<|acme_result|>",))
    assert dialects.get("acme") is acme
    text = f"Well. {acme.render_calls([CALL, CALL])} Done."
    whole = parse(text, TOOLS)
    assert [(each.name, each.arguments, each.fixes, each.dialect) for each in whole.calls] == [
        ("add", {"a": 1}, (), "acme")
    ] * 2
    assert whole.content == "Well. Done."
    for way, pieces in cuts(text):
        assert bare(feed(pieces, TOOLS)[1]) == bare(whole), way


def test_the_family_writes_its_own_keys(table: Path) -> None:
    table.write_text(FULL)
    acme = dialects.load(table)
    written = '<|acme_call|>\n[{"fn": "add", "with": {"a": 1}}]\n<|/acme_call|>'
    assert acme.render_calls([CALL]) == written
    for tools in (TOOLS, None):
        (call,) = parse(written, tools).calls
        assert (call.name, call.arguments_json, call.fixes, call.dialect) == ("add", '{"a": 1}', (), "acme")
    assert parse(written.replace("with", "without"), TOOLS).calls == ()
    assert parse(written.replace('"add"', "7"), TOOLS).calls == ()
    assert acme.render_results([Result("1", "add", "{name} is 3")]) == "<|acme_result|>add: {name} is 3"
    told = acme.render_tools(Tools(TOOLS))
    assert told.index("<|acme_tools|>") < told.index('"name": "add"') < told.index("<|/acme_tools|>")


def test_two_lines_are_enough(table: Path) -> None:
    table.write_text('name = "tiny"\n[openers]\n"@@call" = ""\n')
    tiny = dialects.load(table)
    reply = parse('@@call{"name": "add", "arguments": {"a": 1}} So.', TOOLS)
    assert [(each.name, each.fixes, each.dialect) for each in reply.calls] == [("add", (), "tiny")]
    assert reply.content == "So."
    assert tiny.render_calls([CALL]) == '@@call{"name": "add", "arguments": {"a": 1}}'


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('[openers]\n"@@" = ""\n', "has no 'name'"),
        ('name = "acme"\n', "has no 'openers'"),
        ('name = "ac me"\n[openers]\n"@@" = ""\n', "'name' is 'ac me'; expected a name of letters"),
        ('name = "acme"\ncolour = "red"\n[openers]\n"@@" = ""\n', "has a key 'colour'; the keys are name, models"),
        ('name = "acme"\ntier = "X"\n[openers]\n"@@" = ""\n', "'tier' is 'X'; expected 'S', 'A' or 'B'"),
        ('name = "acme"\nshape = ["list"]\n[openers]\n"@@" = ""\n', "'shape' is"),
        ('name = "acme"\nspace = "x"\n[openers]\n"@@" = ""\n', "'space' is 'x'"),
        ('name = "acme"\nresult = "x"\n[openers]\n"@@" = ""\n', "a text with {content} or {json} in it"),
        ('name = "acme"\nstop = "x"\n[openers]\n"@@" = ""\n', "'stop' is 'x'"),
        ('name = "acme"\ntools = ["x"]\n[openers]\n"@@" = ""\n', "'tools' is"),
        ('name = "acme"\n[openers]\n', "'openers' is {}"),
        ('name = "acme"\nopeners = "@@"\n', "'openers' is '@@'"),
        ('name = "acme"\n[openers]\n"@" = ""\n', "'openers' is"),
        ('name = "acme"\n[openers]\n" @@" = ""\n', "'openers' is"),
        ('name = "acme"\n[openers]\n"@@" = 1\n', "'openers' is"),
        ('name = "json"\n[openers]\n"@@" = ""\n', "There is a dialect 'json' already"),
        ("name = ", "is not valid TOML"),
    ],
)
def test_what_is_wrong_is_named(table: Path, text: str, said: str) -> None:
    table.write_text(text)
    with pytest.raises(UsageError) as caught:
        dialects.load(table)
    assert said in str(caught.value)
    assert "json" in said or "acme.toml" in str(caught.value)


def test_a_file_that_is_not_there(table: Path) -> None:
    with pytest.raises(UsageError, match=r"acme\.toml' cannot be read"):
        dialects.load(table)
