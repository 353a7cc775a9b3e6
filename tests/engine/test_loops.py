"""A model that calls over and over inside a thought that it never ends: nothing is lost, and nothing recurses."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from casebook import feed, tiled
from counted import functions_called

from promptools import StreamParser, dialects, parse
from promptools.dialects.reply_markers import reply_markers
from promptools.dialects.sample import TOOL, sample_text
from promptools.engine.reasoning import MAX_STANDALONE_PARSES

pytestmark = pytest.mark.exhaustive

OPENERS = (*reply_markers().reasoning_tags, "<think:6124c78e>")
WRITTEN = [name for name in dialects.names() if dialects.get(name).heads or dialects.get(name).channels]
REASONS = (None, "stop", "length")
FRAMES = 160
"""Frames of the interpreter that a parser may take: a recursion over as many calls takes more."""
COUNT = 60
"""Calls in a text for which that many frames are not enough where each takes some."""
MANY = 1_000
PING = {"name": "ping", "parameters": {"type": "object", "properties": {"host": {"type": "string"}}}}
CALL = '<tool_call>\n{"name": "ping", "arguments": {"host": "a"}}\n</tool_call>\n'


@contextmanager
def few_frames() -> Iterator[None]:
    """Let nothing recurse deeper than `FRAMES` from here."""
    depth, frame = 0, sys._getframe()
    while frame is not None:
        depth, frame = depth + 1, frame.f_back
    before = sys.getrecursionlimit()
    sys.setrecursionlimit(depth + FRAMES)
    try:
        yield
    finally:
        sys.setrecursionlimit(before)


def pieces(text: str, step: int | None) -> list[str]:
    return [text] if step is None else [text[at : at + step] for at in range(0, len(text), step)]


@pytest.mark.parametrize(("place", "name"), list(enumerate(WRITTEN)))
def test_no_pair_of_a_zone_and_a_dialect_recurses(name: str, place: int) -> None:
    """A sixth of the pairs, each zone with a sixth of the dialects: `make fuzz` mixes all of them."""
    call = sample_text(dialects.get(name))
    parse(f"{OPENERS[0]}{call}", [TOOL])  # what is made once may be made deep inside
    for number, opener in list(enumerate(OPENERS))[place % 6 :: 6]:
        for unit, before in ((f"{opener}{call}", ""), (f"{call}\n", opener))[: 2 - number % 2]:
            text = before + unit * COUNT
            reason = REASONS[(number // 3 + place) % 3]
            with few_frames():
                events, _ = feed(pieces(text, (None, 1000, 97)[(number // 3 + place // 3) % 3]), [TOOL], reason)
            tiled(events, text)


@pytest.mark.parametrize(("step", "reason"), [(None, "stop"), (61, None), (1000, "length")])
@pytest.mark.parametrize(("number", "name"), list(enumerate(WRITTEN[:: len(WRITTEN) // 3])))
def test_thousands_of_calls_and_of_zones(name: str, number: int, step: int | None, reason: str | None) -> None:
    text = (OPENERS[number % len(OPENERS)] + sample_text(dialects.get(name))) * MANY
    events, _ = feed(pieces(text, step), [TOOL], reason)
    tiled(events, text)


@pytest.mark.parametrize("unit", [f"<think>{CALL}", CALL, f"<think:a>{CALL}", f"<think>{CALL}<thinking>hm{CALL}"])
def test_what_is_held_is_not_read_again_for_each_call(unit: str) -> None:
    def cost(count: int) -> int:
        return functions_called(lambda: parse("<think>" + unit * count, [PING]))

    few, many = cost(100), cost(800)
    assert many <= 8 * few * 1.1


def test_suffixes_of_tags_that_are_all_different_are_no_more_work() -> None:
    def cost(count: int) -> int:
        text = "".join(f"<think:{number:04}>{CALL}</think:{number:04}>" for number in range(count))
        return functions_called(lambda: parse(text, [PING]))

    few, many = cost(100), cost(800)
    assert many <= 8 * few * 1.1


@pytest.mark.parametrize("count", [1, 2, 3, 7])
@pytest.mark.parametrize("step", [None, 1])
def test_calls_in_zones_of_which_none_closes_are_all_meant(count: int, step: int | None) -> None:
    text = f"<think>{CALL}" * count
    events, reply = feed(pieces(text, step), [PING])
    assert [call.arguments for call in reply.calls] == [{"host": "a"}] * count
    assert (reply.content, reply.reasoning) == ("", "")
    tiled(events, text)


@pytest.mark.parametrize("step", [None, 1])
def test_words_behind_the_last_of_them_make_thoughts_of_those_in_that_zone_alone(step: int | None) -> None:
    text = f"<think>{CALL}<thinking>{CALL}So."
    events, reply = feed(pieces(text, step), [PING])
    assert [call.arguments for call in reply.calls] == [{"host": "a"}]
    assert reply.reasoning == f"{CALL}So."
    tiled(events, text)


def test_a_reply_that_was_cut_makes_thoughts_of_all() -> None:
    text = f"<think>{CALL}" * 3
    reply = parse(text, [PING], finish_reason="length")
    assert reply.calls == ()
    assert reply.reasoning == text.removeprefix("<think>").rstrip()


@pytest.mark.parametrize("step", [None, 1, 5])
def test_a_zone_with_a_suffix_ends_at_its_own_closer(step: int | None) -> None:
    text = f"<think:a1>No </think:b2> and </think: no\n{CALL}</think:a1>Yes."
    events, reply = feed(pieces(text, step), [PING])
    assert reply.calls == ()
    assert reply.content == "Yes."
    assert reply.reasoning == f"No </think:b2> and </think: no\n{CALL}".rstrip()
    tiled(events, text)


@pytest.mark.parametrize("step", [None, 1, 5])
def test_the_beginning_of_another_closer_at_the_end_is_a_thought(step: int | None) -> None:
    text = "<think:a1>No </think:b"
    _, reply = feed(pieces(text, step), [PING])
    assert reply.reasoning == "No </think:b"


def test_a_rescued_call_and_a_zone_in_it_that_never_closes_tile() -> None:
    text = f"<think>{CALL}<thinking>{CALL}</think>\n"
    for options in ({"rescue": True}, {}):
        events, reply = feed([text], [PING], **options)
        tiled(events, text)
        assert len(reply.calls) == 2 * bool(options)


NESTED = ("[", "{", '{"a":', "[{", "<a>", "(", '{"name": "ping", "arguments": ', "ping(", "-")


@pytest.mark.parametrize(("number", "name"), list(enumerate(WRITTEN)))
def test_values_nested_in_thousands_raise_nothing(name: str, number: int) -> None:
    """A third of the units for each dialect."""
    call = sample_text(dialects.get(name))
    place = call.find("Oslo")
    for unit in NESTED[number % 3 :: 3]:
        for text in (call[:place] + unit * 4_000, call[:place] + unit * 4_000 + call[place:]):
            for reason in (None, "stop"):
                parser = StreamParser([TOOL], expect=name if reason else None)
                tiled([*parser.feed(text), *parser.close(reason)], text)


ECHO = (
    "<scratch_pad><tool_call>get_weather<tool_sep><arg_key>city</arg_key><arg_value>Oslo</arg_value></tool_call>"
    "<tool_call><tool_call><|start_header_id|>user"
)


@pytest.mark.parametrize("count", [1, 8, 20])
def test_the_echo_of_a_call_is_followed_by_what_follows_a_call(count: int) -> None:
    """A made-up turn after it is one: else each zone after it would be read alone once more."""
    text = '<<function>>get_weather(city="Oslo")' + ECHO * count + f"<think>{sample_text(dialects.get('hermes'))}"
    events, reply = feed([text], [TOOL])
    tiled(events, text)
    assert [call.dialect for call in reply.calls] == ["gorilla"]
    assert (reply.content, reply.reasoning) == ("", "")
    assert [each.why for each in reply.discarded][-3:] == ["repeat", "markup", "result"]


FRAMED = f"[/THINK]<|START_RESPONSE|><thinking>{CALL}<|END_RESPONSE|><|im_start|>user"


@pytest.mark.parametrize("step", [None, 50])
@pytest.mark.parametrize("count", [1, MAX_STANDALONE_PARSES, MAX_STANDALONE_PARSES + 1, 40])
def test_calls_that_mean_something_else_alone_are_read_alone_a_few_times(count: int, step: int | None) -> None:
    text, calls = FRAMED * count, min(count, MAX_STANDALONE_PARSES)
    events, reply = feed(pieces(text, step), [PING])
    tiled(events, text)
    assert [call.arguments for call in reply.calls] == [{"host": "a"}] * calls
    assert reply.reasoning.count("<tool_call>") == count - calls
