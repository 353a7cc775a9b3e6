"""Replies in Harmony as models and servers write them: what is read of each, whole and cut; and what holds of any."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import oracle
import pytest
from casebook import bare, cuts, feed, tiled
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from many_rows import every_row
from syrupy.assertion import SnapshotAssertion
from test_oracle import conversations

from promptools import parse
from promptools.errors import BadHeader, ModelError
from promptools.harmony import transcript as harmony
from promptools.harmony.bpe_vocabulary import load_decode, load_encode
from promptools.harmony.messages import Aside, ContentChunk, Item
from promptools.harmony.parser import ItemParser
from promptools.harmony.renderer import DeveloperContent, Message, content_text
from promptools.harmony.tokens import TOKEN_NAMES
from promptools.types import Reply

BOOK = tomllib.loads((Path(__file__).parent / "cases_malformed.toml").read_text(encoding="utf-8"))
REPLIES: list[dict[str, Any]] = [{"want": [], "malformed": [], "options": {}, **row} for row in BOOK["reply"]]
TOOLS = [
    {
        "name": name,
        "parameters": {
            "type": "object",
            "properties": {key: {"type": kind} for key, kind in keys.items()},
            "required": list(keys),
        },
    }
    for name, keys in BOOK["tools"].items()
]

# --- the corpus


def outcome(reply: Reply) -> list[str]:
    """Write down what a reply is, for a reader of the snapshot."""
    lines: list[str] = []
    for call in reply.calls:
        lines += [
            f"call     {call.name} {call.arguments_json}",
            *(["    flag unknown tool"] if call.unknown_tool else []),
        ]
        lines += [f"    fix  {fix.kind}: {fix.detail}" for fix in call.fixes]
    lines += [f"broken   {malformed.reason}: {malformed.message} {malformed.raw!r}" for malformed in reply.malformed]
    lines += [f"thought  {reply.reasoning!r}"] if reply.reasoning else []
    lines += [f"content  {reply.content!r}"] if reply.content else []
    return lines


def liberties(reply: Reply) -> list[str]:
    dropped = [f"dropped  {text.why}: {text.raw!r}" for text in reply.discarded if text.why != "space"]
    return dropped + [f"fix      {fix.detail}" for fix in reply.fixes]


def parsed_message(parsed: harmony.Parsed, text: str) -> list[str]:
    lines: list[str] = []
    for parsed_message in parsed.messages:
        message = parsed_message.message
        fields = [
            message.role,
            message.name,
            message.channel,
            message.recipient and f"to={message.recipient}",
            message.content_type,
        ]
        lines += [f"{' '.join(filter(None, fields))}, {parsed_message.ended}: {message.content!r}"]
        lines += [f"    repair  {repair}" for repair in parsed_message.repairs]
    return lines + [f"({kind}) {text[span.start : span.end]!r}" for span, kind in parsed.asides]


def page(row: dict[str, Any]) -> str:
    text = row["text"]
    reply = parse(text, TOOLS, **row["options"])
    asked = parse(text, TOOLS, dialect="harmony", **row["options"])
    lines = [*(f"| {line}" for line in text.split("\n")), "", *outcome(reply), *liberties(reply)]
    if outcome(asked) != outcome(reply):
        lines += ["", "where Harmony was asked for:", *outcome(asked), *liberties(asked)]
    return "\n".join([*lines, "", "harmony.parse:", *parsed_message(harmony.parse(text, "assistant"), text)])


@pytest.mark.parametrize("row", REPLIES, ids=lambda row: row["name"])
def test_reply(row: dict[str, Any], snapshot: SnapshotAssertion) -> None:
    reply = parse(row["text"], TOOLS, **row["options"])
    assert [call.name for call in reply.calls] == row["want"]
    assert [malformed.reason for malformed in reply.malformed] == row["malformed"]
    assert page(row) == snapshot


@pytest.mark.parametrize("dialect", [None, "harmony"])
@every_row(REPLIES, name=lambda row: row["name"], group=lambda row: "all")
def test_reply_is_the_same_however_it_is_cut(row: dict[str, Any], dialect: str | None) -> None:
    options = {**row["options"], "dialect": dialect}
    whole = bare(parse(row["text"], TOOLS, **options))
    finish_reason = options.pop("finish_reason", None)
    parsed = harmony.parse(row["text"], "assistant")
    for way, pieces in cuts(row["text"]):
        events, reply = feed(pieces, TOOLS, finish_reason, **options)
        assert bare(reply) == whole, way
        tiled(events, row["text"])
        parser = harmony.StreamParser("assistant")
        for piece in pieces:
            parser.feed(piece)
        parser.close()
        assert parser.parsed == parsed, way


def test_there_are_enough_of_them() -> None:
    assert len({row["name"] for row in REPLIES}) == len(REPLIES) >= 100
    assert all(row["why"] for row in REPLIES)


# --- a message


def test_a_message_knows_its_place_its_end_and_whether_it_is_whole() -> None:
    text = "<|channel|>analysis<|message|>Hm.<|end|>\n<|start|>assistant<|channel|>final<|message|>Fo"
    thought, answer = harmony.parse(text, "assistant").messages
    assert text[slice(*thought.span)] == "<|channel|>analysis<|message|>Hm.<|end|>"
    assert text[slice(*answer.span)] == "<|start|>assistant<|channel|>final<|message|>Fo"
    assert (thought.ended, thought.complete, answer.ended, answer.complete) == ("end", True, "cut", False)
    assert answer.message == Message("assistant", "Fo", "", "final")


def test_a_whole_conversation_begins_with_a_message() -> None:
    text = "<|start|>user<|message|>Hi<|end|><|start|>assistant<|channel|>final<|message|>Hello<|return|>"
    assert [parsed_message.message.role for parsed_message in harmony.parse(text, strict=True).messages] == [
        "user",
        "assistant",
    ]


def test_a_run_of_an_agent() -> None:
    """As a run on a repository writes it: a thought, then a call on `analysis` of type `code`, no stop token."""
    steps = [
        ("container.exec", '{"command": ["bash", "-lc", "ls"]}', "a.py\n"),
        ("repo_browser.search", '{"path": "", "query": "def f"}', "a.py:1:def f():\n"),
    ]
    text = "<|start|>user<|message|>Fix f.<|end|>"
    for number, (tool, arguments, result) in enumerate(steps):
        text += f"<|start|>assistant<|channel|>analysis<|message|>Step {number}.<|end|>"
        text += f"<|start|>assistant<|channel|>analysis to={tool} code<|message|>{arguments}<|call|>"
        text += f"<|start|>{tool} to=assistant<|channel|>analysis<|message|>{result}<|end|>"
    text += "<|start|>assistant<|channel|>final<|message|>Done.<|return|>"
    for strict in (True, False):
        parsed = harmony.parse(text, strict=strict)
        assert parsed.asides == ()
        assert [parsed_message.repairs for parsed_message in parsed.messages] == [()] * 8
        assert [parsed_message.message for parsed_message in parsed.messages][1:4] == [
            Message("assistant", "Step 0.", "", "analysis"),
            Message("assistant", steps[0][1], "", "analysis", "container.exec", "code"),
            Message("tool", "a.py\n", "container.exec", "analysis", "assistant"),
        ]
    for tool, arguments, _ in steps:
        beginning = (
            f"<|channel|>analysis<|message|>Look.<|end|><|start|>assistant<|channel|>analysis to={tool} code<|message|>"
        )
        for reply in (parse(beginning + arguments, TOOLS), parse(beginning + arguments, TOOLS, dialect="harmony")):
            (call,) = reply.calls
            assert (call.name, call.arguments_json, call.fixes, reply.reasoning) == (tool, arguments, (), "Look.")


# --- of any text

PIECES = [
    *(f"<|{name}|>" for name in TOKEN_NAMES),
    *(
        "assistant",
        "analysis",
        "commentary",
        "final",
        "system",
        "user",
        "tool",
        "functions.get_weather",
        "json",
        "code",
    ),
    *(" to=functions.get_weather", "to=", "to= ", " to=noop", '{"city": "Oslo"}', '{"a":1}', "{", "["),
    *(" ", "  ", "\n", ". ", ".", "?", "`", "```\n", "The ", "T", "t", "js", "a", "as", "é", "<", "<|", "<|en", "0"),
    *("x" * 60, "y" * 250, " " * 250),
]
mixed = st.lists(st.sampled_from(PIECES), max_size=12).map("".join)
texts = mixed | st.text(max_size=40)
cut_lists = st.lists(st.integers(0, 400), max_size=4)
some = settings(max_examples=300, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])


def cut(text: str, at: Iterable[int]) -> list[list[str]]:
    bounds = sorted({0, len(text), *(cut for cut in at if cut < len(text))})
    return [[text], list(text), [text[a:b] for a, b in pairwise(bounds)]]


def joined(items: Iterable[Item]) -> list[Item]:
    """Put pieces of one kind together: how many there are depends on the cut."""
    out: list[Item] = []
    for item in items:
        last = out[-1] if out else None
        if isinstance(item, ContentChunk) and isinstance(last, ContentChunk):
            out[-1] = ContentChunk(last.raw + item.raw)
        elif isinstance(item, Aside) and isinstance(last, Aside) and item.kind == last.kind:
            out[-1] = Aside(item.kind, last.raw + item.raw)
        else:
            out.append(item)
    return out


def items(chunks: Iterable[str], role: Any, strict: bool, known: Any) -> list[Item] | str:
    parser = ItemParser(role, strict=strict, known=known)
    items: list[Item] = []
    try:
        for chunk in chunks:
            items += parser.feed(chunk)
        items += parser.close()
    except ModelError as error:
        assert strict
        return str(error)
    return joined(items)


@some
@given(
    texts,
    cut_lists,
    st.sampled_from([None, "assistant"]),
    st.booleans(),
    st.sampled_from([None, {"functions.get_weather", "noop"}.__contains__]),
)
def test_items_tile_and_are_the_same_however_the_text_is_cut(text, at, role, strict, known):
    ways = [items(chunks, role, strict, known) for chunks in cut(text, at)]
    assert ways == [ways[0]] * 3
    if not isinstance(ways[0], str):
        assert "".join(item.raw for item in ways[0]) == text


@some
@given(
    texts,
    cut_lists,
    st.sampled_from([{}, {"dialect": "harmony"}, {"expect": "harmony"}]),
    st.sampled_from([None, "stop", "length"]),
)
def test_a_reply_is_the_same_however_it_is_cut(text, at, options, finish_reason):
    ways = [feed(chunks, TOOLS, finish_reason, **options) for chunks in cut(text, at)]
    for events, reply in ways:
        assert bare(reply) == bare(ways[0][1])
        tiled(events, text)
    assert bare(parse(text, TOOLS, finish_reason=finish_reason, **options)) == bare(ways[0][1])


# --- token ids


def ids_of(text: str) -> list[int]:
    oracle.library()
    return oracle.encoding().encode(text, allowed_special="all")


plain = texts.filter(lambda text: text.isprintable())  # a lone surrogate has no ids


@settings(some, max_examples=150)
@given(plain, st.sampled_from([None, "assistant"]), st.booleans())
@pytest.mark.oracle
def test_token_ids_say_what_the_text_says(text, role, strict):
    ids, decode = ids_of(text), load_decode(oracle.file())

    def read(parser: harmony.StreamParser, feeding: Any) -> Any:
        try:
            feeding(parser)
            parser.close()
        except ModelError as error:
            return str(error)
        return parser.parsed

    whole = read(harmony.StreamParser(role, strict=strict), lambda parser: parser.feed(text))
    assert read(harmony.StreamParser(role, strict=strict, decode=decode), lambda parser: parser.feed_ids(ids)) == whole
    one = harmony.StreamParser(role, strict=strict, decode=decode)
    assert read(one, lambda parser: [parser.feed_ids([token]) for token in ids]) == whole
    if not isinstance(whole, str):
        assert harmony.parse_ids(ids, decode, role, strict=strict) == whole


@pytest.mark.oracle
def test_text_that_looks_like_a_token_is_text_among_ids():
    decode = load_decode(oracle.file())
    encode = load_encode()
    ids = [200005, *encode("final"), 200008, *encode("<|end|> é"), 200002]
    (parsed_message,) = harmony.parse_ids(ids, decode, "assistant", strict=True).messages
    assert parsed_message.message.content == "<|end|> é"
    (cut_short,) = harmony.parse_ids(
        ids[:3] + list(encode("é"))[:1] + [200002], lambda _: b"\xc3", "assistant"
    ).messages
    assert str(cut_short.message.content).endswith("\ufffd")


def fields(message: Any) -> Message:
    """Give one of the library's messages as ours."""
    author = message.author
    text = message.content[0].text
    return Message(
        author.role, text, author.name or "", message.channel or "", message.recipient or "", message.content_type or ""
    )


@settings(some, max_examples=200)
@given(conversations)
@pytest.mark.oracle
def test_strictly_it_is_what_the_library_wrote(messages):
    """And what it reads, but for what it cannot read itself: a type without a recipient, and a user's name."""
    messages = [replace(message, recipient="assistant") if message.role == "tool" else message for message in messages]
    ids = oracle.ids_of(messages)
    written = [replace(message, content=content_text(message, functions=_functions(messages))) for message in messages]
    if any(message.role == "assistant" and not (message.channel or message.recipient) for message in messages):
        with pytest.raises(BadHeader, match="no channel"):
            harmony.parse_ids(ids, load_decode(oracle.file()), strict=True)
        return
    assert [
        parsed_message.message
        for parsed_message in harmony.parse_ids(ids, load_decode(oracle.file()), strict=True).messages
    ] == written
    if all(message.recipient or not (message.content_type or message.name) for message in messages):
        theirs = oracle.encoding().parse_messages_from_completion_tokens(ids)
        assert list(map(fields, theirs)) == written


def _functions(messages: list[Message]) -> bool:
    return any(isinstance(message.content, DeveloperContent) and message.content.functions for message in messages)
