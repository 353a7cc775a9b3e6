"""The parser's own edges: options, its end, long runs of white space, ids, and the length of its trace."""

from __future__ import annotations

from typing import Any

import pytest

from promptools import StreamParser, UsageError, parse
from promptools.parsing.events import CallArgs, CallEnd, Discarded, End, Event, Reasoning, Text, join
from promptools.types import Span

CALL = '{"tool": "add", "arguments": {"a": 1}}'
LONG = " " * 10_000


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"strictness": "loose"}, "strictness"),
        ({"new_id": "x"}, "new_id"),
        ({"expect": "yaml"}, "yaml"),
        ({"dialect": 5}, "5"),
    ],
    ids=str,
)
def test_bad_options_are_refused(options: dict[str, Any], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        StreamParser(**options)


def test_nothing_is_fed_after_the_end() -> None:
    parser = StreamParser()
    parser.feed("1")
    assert parser.close() == [End(None, Span(1, 1))]
    assert parser.close() == []
    with pytest.raises(UsageError, match="fed after close"):
        parser.feed("b")


def test_bytes_are_refused() -> None:
    with pytest.raises(UsageError, match="decode the reply"):
        StreamParser().feed(b"a")  # type: ignore[arg-type]


def test_an_empty_chunk_says_nothing() -> None:
    assert StreamParser().feed("") == []


def test_ids_come_from_the_caller() -> None:
    ids = iter("xyz")
    assert [call.id for call in parse(f"{CALL}\n{CALL}", new_id=lambda: next(ids)).calls] == ["x", "y"]


def test_ids_tell_the_same_call_apart() -> None:
    first, second = parse(f"{CALL}\n{CALL}").calls
    assert first.id != second.id
    assert parse(f"{CALL}\n{CALL}").calls[0].id == first.id


@pytest.mark.parametrize("size", [1, 4096, 4097, 10_000])
def test_a_long_run_of_spaces_between_words_is_kept(size: int) -> None:
    text = "a" + " " * size + "b"
    assert parse(text).content == text


def test_of_a_long_run_of_spaces_only_the_last_is_trimmed_before_a_call() -> None:
    reply = parse(f"a{LONG}{CALL}")
    assert len(reply.calls) == 1
    assert reply.content == "a" + " " * (len(LONG) - 4096)


def test_a_long_run_of_spaces_in_pieces_is_the_same() -> None:
    parser = StreamParser()
    for piece in ("a", *LONG, CALL):
        parser.feed(piece)
    parser.close()
    assert parser.reply.content == "a" + " " * (len(LONG) - 4096)


def test_the_trace_has_an_end() -> None:
    reply = parse('```json\n{"name": 1, "arguments": {}}\n```\nwords\n' * 300)
    assert reply.calls == ()
    assert 0 < len(reply.trace.tries) <= 256


def test_neighbours_of_one_kind_are_joined() -> None:
    call = parse(CALL).calls[0]
    events: list[Event] = [
        Reasoning("a", Span(0, 1)),
        Reasoning("b", Span(1, 2)),
        Text("c", Span(2, 3)),
        Text("d", Span(3, 4)),
        Text("f", Span(5, 6)),
        Discarded(" ", "space", Span(6, 7)),
        Discarded(" ", "space", Span(7, 8)),
        Discarded("<", "markup", Span(8, 9)),
        CallArgs(0, "{", Span(9, 9)),
        CallArgs(0, "}", Span(9, 9)),
        CallArgs(1, "{}", Span(9, 9)),
        CallEnd(1, call, Span(9, 10)),
    ]
    assert join(events) == [
        Reasoning("ab", Span(0, 2)),
        Text("cd", Span(2, 4)),
        Text("f", Span(5, 6)),
        Discarded("  ", "space", Span(6, 8)),
        Discarded("<", "markup", Span(8, 9)),
        CallArgs(0, "{}", Span(9, 9)),
        CallArgs(1, "{}", Span(9, 9)),
        CallEnd(1, call, Span(9, 10)),
    ]
    assert join([]) == []


@pytest.mark.parametrize(
    ("text", "outcomes"),
    [
        ('See {"tool": "ping", "arguments": {}} there.', ["text"]),
        ('See:\n\n```json\n{"tool": "ping", "arguments": {}}\n```\n\nSo it is done.', ["text"]),
        ('call = {"tool": "ping", "arguments": {}}', ["text"]),
        ('{"tool": "ping", "arguments": {}}', ["call"]),
        (
            '{"tool": "ping", "arguments": {}}\n<tool_call>{"name": "ping", "arguments": {}}</tool_call>\nand',
            ["text", "call"],
        ),
    ],
)
def test_the_trace_tells_what_became_of_a_candidate(text: str, outcomes: list[str]) -> None:
    assert [each.outcome for each in parse(text).trace.tries] == outcomes
