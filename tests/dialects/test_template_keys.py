"""The keys of tables that are there for what chat templates write: it is written as they do, and read back."""

from __future__ import annotations

from typing import Any

import pytest

from promptools import StreamParser, dialects, parse
from promptools.dialects.table import make_dialect
from promptools.types import Call

TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "book",
            "parameters": {
                "type": "object",
                "properties": {"now": {"type": "boolean"}, "seats": {"type": "array"}, "for": {"type": "string"}},
            },
        },
    }
]
ARGUMENTS = {"now": True, "seats": ["a", "b"]}
CALLS = [
    Call("Ab1Cd2Ef3", "book", ARGUMENTS, '{"now": true, "seats": ["a", "b"]}'),
    Call("Gh4Ij5Kl6", "book", {"for": "me"}, '{"for": "me"}'),
]
NESTED = '{"id": "{id}", "function": {"name": {name}, "arguments": {text}}}'
PARAMETER = {"call": "<do={name}>{parameters}</do>", "parameter": "<arg={key}>{value}</arg>"}
TABLES: list[tuple[dict[str, Any], str]] = [
    (
        {"kind": "braces", "openers": {"<|go|>": "<|gone|>"}, "quote": "<escape>"},
        (
            "<|go|>call:book{now:true,seats:[<escape>a<escape>,<escape>b<escape>]}<|gone|>"
            "<|go|>call:book{for:<escape>me<escape>}<|gone|>"
        ),
    ),
    (
        {"openers": {"((": "))"}, "call": '{"arguments": {arguments}, "name": {name}, "n": {index}}', "separator": ""},
        (
            '(({"arguments": {"now": true, "seats": ["a", "b"]}, "name": "book", "n": 0}))'
            '(({"arguments": {"for": "me"}, "name": "book", "n": 1}))'
        ),
    ),
    (
        {"openers": {"<a>": "</a>"}, "call": NESTED, "separator": "", "wrapper": "<all>{calls}</all>"},
        (
            '<all><a>{"id": "Ab1Cd2Ef3", "function": {"name": "book", "arguments":'
            ' "{\\"now\\": true, \\"seats\\": [\\"a\\", \\"b\\"]}"}}</a>'
            '<a>{"id": "Gh4Ij5Kl6", "function": {"name": "book", "arguments": "{\\"for\\": \\"me\\"}"}}</a></all>'
        ),
    ),
    (
        {"kind": "named", "call": "<|to|>{name}:{index}<|with|>{arguments}<|sent|>"},
        '<|to|>book:0<|with|>{"now": true, "seats": ["a", "b"]}<|sent|>\n<|to|>book:1<|with|>{"for": "me"}<|sent|>',
    ),
    (
        {"kind": "named", "call": "[CALLS]{name}[CALL_ID]{id}[ARGS]{arguments}", "separator": ""},
        (
            '[CALLS]book[CALL_ID]Ab1Cd2Ef3[ARGS]{"now": true, "seats": ["a", "b"]}'
            '[CALLS]book[CALL_ID]Gh4Ij5Kl6[ARGS]{"for": "me"}'
        ),
    ),
    (
        {
            "kind": "named",
            "call": "<|a_call_begins_here|>{name}\n```json\n{arguments}\n```<|g|><|h|>",
            "wrapper": "<|b|>{calls}<|e|>",
        },
        (
            '<|b|><|a_call_begins_here|>book\n```json\n{"now": true, "seats": ["a", "b"]}\n```<|g|><|h|>\n'
            '<|a_call_begins_here|>book\n```json\n{"for": "me"}\n```<|g|><|h|><|e|>'
        ),
    ),
    (
        {"kind": "tags", **PARAMETER, "values": "constants"},
        '<do=book><arg=now>True</arg><arg=seats>["a", "b"]</arg></do>\n<do=book><arg=for>me</arg></do>',
    ),
    (
        {"kind": "tags", **PARAMETER, "values": "python"},
        "<do=book><arg=now>True</arg><arg=seats>['a', 'b']</arg></do>\n<do=book><arg=for>me</arg></do>",
    ),
    (
        {"kind": "python", "openers": {"<|py|>": "<|/py|>"}, "values": "json", "separator": ", "},
        '<|py|>book(now=true, seats=["a", "b"]), book(for="me")<|/py|>',
    ),
    (
        {"kind": "python", "openers": {"<|py|>": "<|/py|>"}, "values": "python", "separator": ", "},
        "<|py|>book(now=True, seats=['a', 'b']), book(for='me')<|/py|>",
    ),
    (
        {"kind": "python", "openers": {"": ""}, "spaces": ["[", "]"], "separator": ", "},
        '[book(now=True, seats=["a", "b"]), book(for="me")]',
    ),
    (
        {"kind": "braces", "openers": {"<|go|>": "<|gone|>"}, "quote": "<escape>", "values": "python"},
        (
            "<|go|>call:book{now:<escape>True<escape>,seats:<escape>['a', 'b']<escape>}<|gone|>"
            "<|go|>call:book{for:<escape>me<escape>}<|gone|>"
        ),
    ),
    (
        {
            "kind": "nested",
            "mark": "~@~",
            "wrapper": "{mark}<all>{calls}{mark}</all>",
            "call": '{mark}<do tool="{name}">{parameters}{mark}</do>',
            "item": "each",
            "separator": " ",
        },
        (
            '~@~<all>~@~<do tool="book">~@~<now>true~@~</now>~@~<seats>~@~<each>a~@~</each>~@~<each>b~@~</each>'
            '~@~</seats>~@~</do> ~@~<do tool="book">~@~<for>me~@~</for>~@~</do>~@~</all>'
        ),
    ),
    (
        {"kind": "nested", "mark": "<|@|>", "call": '{mark}<do tool="{name}">{parameters}{mark}</do>'},
        (
            '<|@|><do tool="book"><|@|><now>true<|@|></now><|@|><seats><|@|><item>a<|@|></item><|@|><item>b<|@|></item>'
            '<|@|></seats><|@|></do>\n<|@|><do tool="book"><|@|><for>me<|@|></for><|@|></do>'
        ),
    ),
    (
        {
            "kind": "tags",
            **PARAMETER,
            "wrapper": "<all>{call}</all>",
            "header": "to={name}<|with|>",
            "separator": "<|eom|>",
        },
        (
            'to=book<|with|><all><do=book><arg=now>true</arg><arg=seats>["a", "b"]</arg></do></all><|eom|>'
            "to=book<|with|><all><do=book><arg=for>me</arg></do></all>"
        ),
    ),
]


@pytest.mark.parametrize(("table", "text"), TABLES)
def test_it_is_written_and_read(table, text):
    dialect = make_dialect({"name": "acme", **table}, "acme.toml")
    assert dialect.render_calls(CALLS) == text
    with dialects.using(dialect):
        stream = StreamParser(TOOLS, expect="acme")
        for character in text:
            stream.feed(character)
        stream.close("stop")
        for reply in (parse(text, TOOLS, expect="acme"), stream.reply):
            assert [(call.name, call.arguments) for call in reply.calls] == [
                ("book", ARGUMENTS),
                ("book", {"for": "me"}),
            ]
            assert reply.content == ""
            assert {fix.kind for call in reply.calls for fix in call.fixes} <= {"json", "unwrap"}


def test_a_wrapper_alone_is_text():
    dialect = make_dialect({"name": "acme", "openers": {"<a>": "</a>"}, "wrapper": "<all>{calls}</all>"}, "acme.toml")
    with dialects.using(dialect):
        assert parse("We take <all> of them.", TOOLS).content == "We take <all> of them."


@pytest.mark.parametrize("separator", ["---", "\n---\n", "--- ", "\n\n"])
def test_white_space_around_the_text_between_calls_is_read_with_it(separator):
    table = {"name": "acme", "kind": "tags", **PARAMETER, "header": "to={name}<|with|>", "separator": separator}
    dialect = make_dialect(table, "acme.toml")
    with dialects.using(dialect):
        reply = parse(dialect.render_calls(CALLS), TOOLS)
    assert ([call.arguments for call in reply.calls], reply.content) == ([call.arguments for call in CALLS], "")


def test_a_header_alone_is_text():
    dialect = make_dialect({"name": "acme", "kind": "tags", **PARAMETER, "header": "to={name}<|with|>"}, "acme.toml")
    text = "Send it to=book, or write to=book<|with|> and then what it is."
    with dialects.using(dialect):
        stream = StreamParser(TOOLS)
        for character in text:
            stream.feed(character)
        stream.close("stop")
        assert parse(text, TOOLS).content == stream.reply.content == text


@pytest.mark.parametrize(
    "wrapper", [{}, {"wrapper": "<all>{call}</all>"}, {"wrapper": "<|all|>{call}<|/all|>", "tier": "S"}]
)
@pytest.mark.parametrize(("to", "content"), [("book", ""), ("my.book", ""), ("user", "to=user")])
def test_a_header_that_names_another_tool_is_text(wrapper, to, content):
    table = {"name": "acme", "kind": "tags", **PARAMETER, **wrapper, "header": "to={name}<|with|>"}
    dialect = make_dialect(table, "acme.toml")
    text = dialect.render_calls(CALLS[1:]).replace("to=book", f"to={to}")
    with dialects.using(dialect):
        stream = StreamParser(TOOLS)
        for character in text:
            stream.feed(character)
        stream.close("stop")
        for reply in (parse(text, TOOLS), stream.reply):
            assert ([call.arguments for call in reply.calls], reply.content) == ([{"for": "me"}], content)


@pytest.mark.parametrize(("bare", "without"), [("never", 0), ("line", 1), ("anywhere", 1)])
def test_a_header_is_as_good_as_a_wrapper(bare, without):
    call = {**PARAMETER, "call": '<do name="{name}">{parameters}</do>'}
    table = {"name": "acme", "kind": "tags", **call, "header": "to={name}<|with|>", "bare": bare}
    dialect = make_dialect(table, "acme.toml")
    text = dialect.render_calls(CALLS[1:])
    with dialects.using(dialect):
        assert parse(f"So: {text}", TOOLS).content == "So:"
        assert len(parse(text, TOOLS).calls) == 1
        assert len(parse(text.removeprefix("to=book<|with|>"), TOOLS).calls) == without


@pytest.mark.parametrize("call", [PARAMETER["call"], '<do name="{name}">{parameters}</do>'])
def test_at_the_beginning_of_a_line_the_format_s_own_calls_are_read(call):
    dialect = make_dialect({"name": "acme", "kind": "tags", **PARAMETER, "call": call, "bare": "line"}, "acme.toml")
    text = dialect.render_calls(CALLS[1:])
    with dialects.using(dialect):
        reply = parse(f"So:\n{text}", TOOLS)
        assert ([call.arguments for call in reply.calls], reply.content) == ([{"for": "me"}], "So:")
        assert parse(f"So: {text}", TOOLS).calls == ()


def test_a_list_of_the_tokens_is_not_a_call():
    table = {"name": "acme", "tier": "S", "kind": "named", "call": "[CALLS]{name}[ARGS]{arguments}"}
    text = "The tokens:\n- [CALLS]\n- [ARGS]\n"
    with dialects.using(make_dialect(table, "acme.toml")):
        for finish_reason in ("stop", "length"):
            reply = parse(text, TOOLS, finish_reason=finish_reason)
            assert (reply.content, reply.calls, reply.malformed) == (text, (), ())


CUT_OFF = [
    ({"kind": "named", "call": "<fn={name}>{arguments}</fn>"}, "<fn=book", "<fn=boo"),
    ({"kind": "braces", "openers": {"<fn>": "</fn>"}}, "<fn>call:book", "<fn>call:boo"),
    ({"kind": "nested", "mark": "~@~", "call": '{mark}<fn is="{name}">{parameters}{mark}</fn>'},
     '~@~<fn is="book', '~@~<fn is="boo'),
]  # fmt: skip


@pytest.mark.parametrize(("table", "named", "begun"), CUT_OFF)
def test_a_text_that_is_cut_off_after_a_tool_s_name_is_a_call_that_was_truncated(table, named, begun):
    with dialects.using(make_dialect({"name": "acme", **table}, "acme.toml")):
        cut = parse(named, TOOLS, finish_reason="length")
        assert ([failed.reason for failed in cut.malformed], cut.calls, cut.content) == (["truncated"], (), "")
        for text, finish_reason in ((named, "stop"), (begun, "length")):
            reply = parse(text, TOOLS, finish_reason=finish_reason)
            assert (reply.content, reply.calls, reply.malformed) == (text, (), ()), text
