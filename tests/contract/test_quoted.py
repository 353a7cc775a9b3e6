"""A call that is quoted from the conversation is text, in every dialect; another call is a call as ever."""

from __future__ import annotations

import html
import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from casebook import bare, feed, tiled

from promptools import UsageError, dialects, parse
from promptools.dialects.sample import CALL, TOOL
from promptools.parsing.quotable_texts import MAX_SEARCHES, QuotableTexts
from promptools.types import Call, Reply, Trace

OTHER = Call("call00002", "get_weather", {"city": "Bergen", "days": 3}, '{"city": "Bergen", "days": 3}')

AMID = {
    "amid prose": "The page says:\n\n{}\n\nThat is all it says, and I did nothing.",
    "amid a line": "The page says {} and no more.",
    "in a block quote": "The page says:\n\n{quote}\n",
    "in a block quote before words": "{quote}\n\nThat is what it says.",
    "as the last thing": "The page says:\n\n{}",
    "in a fence at the end": "The page says:\n\n```\n{}\n```",
    "in a fence amid prose": "The page says:\n\n```xml\n{}\n```\n\nThat is all.",
    "as the first thing": "{}\n\nis what the page says.",
    "indented": "The page says:\n\n{indented}\n",
    "between reasoning and words": "<think>Let me see.</think>\n\n{}\n\nis what the page says.",
}
WHOLE = {
    "as the whole reply": "{}",
    "behind reasoning as the whole reply": "<think>Let me see.</think>\n\n{}",
}
SOURCES: dict[str, Callable[[str], str]] = {
    "as it is": lambda text: f"Page:\n{text}\nend",
    "in JSON": lambda text: json.dumps({"page": f"<p>\n{text}\n"}),
    "in JSON in JSON": lambda text: json.dumps({"out": json.dumps({"page": text})}),
    "in HTML": lambda text: html.escape(f"x {text} y"),
}


def filled(form: str, call: str) -> str:
    quote = "\n".join(f"> {line}" for line in call.split("\n"))
    indented = "\n".join(f"    {line}" for line in call.split("\n"))
    return form.replace("{quote}", quote).replace("{indented}", indented).replace("{}", call)


def written(name: str) -> tuple[str, str]:
    dialect = dialects.get(name)
    return dialect.render_calls([CALL]), dialect.render_calls([OTHER])


def is_text(reply: Reply, text: str) -> None:
    said = text.removeprefix("<think>Let me see.</think>")
    assert reply.calls == ()
    assert reply.malformed == ()
    ended = "".join(piece.raw for piece in reply.discarded if piece.why == "debris")
    assert reply.content.strip() + ended.strip() == said.strip()


@pytest.mark.parametrize("asked", [False, True])
@pytest.mark.parametrize("name", dialects.names())
def test_a_quoted_call_is_text(name: str, asked: bool) -> None:
    options: dict[str, Any] = {"expect": name} if asked else {}
    call, _ = written(name)
    for number, form in enumerate(AMID.values()):
        text = filled(form, call)
        reply = parse(text, [TOOL], sources=[SOURCES["as it is"](call)], **options)
        is_text(reply, text)
        size = (1, 7)[(number + len(name) + asked) % 2]  # each form in both, for each dialect
        pieces = [text[at : at + size] for at in range(0, len(text), size)]
        events, pieced = feed(pieces, [TOOL], sources=[SOURCES["as it is"](call)], **options)
        assert bare(pieced) == bare(reply), (form, size)
        tiled(events, text)


@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize("name", dialects.names())
def test_escapes_of_the_source_hide_nothing(name: str, source: str) -> None:
    call, _ = written(name)
    text = filled(AMID["as the last thing"], call)
    is_text(parse(text, [TOOL], sources=["Hello.", SOURCES[source](call)]), text)


@pytest.mark.parametrize("name", dialects.names())
def test_a_call_that_is_the_whole_reply_is_one(name: str) -> None:
    call, _ = written(name)
    for form in WHOLE.values():
        text = filled(form, call)
        reply = parse(text, [TOOL], sources=[f"Say exactly {call}"], expect=name)
        assert [(each.name, each.arguments) for each in reply.calls] == [(CALL.name, CALL.arguments)], form
        usual = parse(text, [TOOL], expect=name)
        assert replace(reply, trace=Trace()) == replace(usual, trace=Trace())  # only the trace says that it is quoted
        for size in (1, 5, 17):
            pieces = [text[at : at + size] for at in range(0, len(text), size)]
            assert bare(feed(pieces, [TOOL], sources=[call], expect=name)[1]) == bare(reply), (form, size)


@pytest.mark.parametrize("name", dialects.names())
def test_another_call_is_read_as_ever(name: str) -> None:
    call, other = written(name)
    for form in (*AMID.values(), *WHOLE.values()):
        text = filled(form, other)
        for asked in (None, name):
            usual = parse(text, [TOOL], expect=asked)
            assert bare(parse(text, [TOOL], sources=[call], expect=asked)) == bare(usual), form
            pieces = [text[at : at + 5] for at in range(0, len(text), 5)]
            assert bare(feed(pieces, [TOOL], sources=[call], expect=asked)[1]) == bare(usual), form


HERMES = '<tool_call>{"name": "get_weather", "arguments": {"city": "Oslo", "days": 2}}</tool_call>'


def test_a_call_behind_a_quotation_is_made() -> None:
    mine = HERMES.replace("Oslo", "Bergen")
    reply = parse(f"The page says:\n{HERMES}\nI do as I was told:\n{mine}", [TOOL], sources=[HERMES])
    assert [call.arguments["city"] for call in reply.calls] == ["Bergen"]
    assert reply.content == f"The page says:\n{HERMES}\nI do as I was told:"


def test_a_quotation_inside_reasoning_that_never_closes_is_not_a_call() -> None:
    text = f"<think>The page says:\n{HERMES}"
    assert len(parse(text, [TOOL]).calls) == 1
    reply = parse(text, [TOOL], sources=[HERMES])
    assert reply.calls == ()
    assert reply.reasoning == text.removeprefix("<think>")


def test_a_quoted_call_that_does_not_fit_is_not_a_malformed_one() -> None:
    broken = HERMES.replace('"city": "Oslo", ', "")
    assert parse(f"It says:\n{broken}", [TOOL]).malformed
    is_text(parse(f"It says:\n{broken}", [TOOL], sources=[broken]), f"It says:\n{broken}")


def test_a_call_that_was_cut_is_told_of_though_the_conversation_holds_its_beginning() -> None:
    reply = parse(f"I look.\n{HERMES[:60]}", [TOOL], finish_reason="length", sources=[HERMES])
    assert [failed.reason for failed in reply.malformed] == ["truncated"]


def test_a_call_whose_words_are_in_the_conversation_and_whose_markers_are_not_is_made() -> None:
    inner = HERMES.removeprefix("<tool_call>").removesuffix("</tool_call>")
    assert len(parse(f"I look.\n{HERMES}", [TOOL], sources=[inner]).calls) == 1


def test_a_fence_around_a_quotation_is_the_models_own() -> None:
    inner = HERMES.removeprefix("<tool_call>").removesuffix("</tool_call>")
    text = f"The log says:\n```json\n{inner}\n```"
    assert len(parse(text, [TOOL]).calls) == 1
    is_text(parse(text, [TOOL], sources=[inner]), text)


def test_a_call_that_may_be_quoted_does_not_go_out_before_it_is_known() -> None:
    from promptools import StreamParser
    from promptools.parsing.events import CallStart

    def started(source: str) -> list[bool]:
        parser = StreamParser([TOOL], expect="hermes", sources=[source])
        text = f"Look: \n{HERMES} there."
        return [any(isinstance(each, CallStart) for each in parser.feed(text[at : at + 4])) for at in range(0, 99, 4)]

    assert not any(started(HERMES))
    assert any(started(HERMES.replace("Oslo", "Bergen")))
    assert any(started("nothing of the kind"))


def test_long_beginnings_are_compared_up_to_a_bound() -> None:
    long = HERMES.replace("Oslo", "x" * 2000)
    other = HERMES.replace("Oslo", "x" * 2000 + "y")
    pieces = [other[at : at + 3] for at in range(0, len(other), 3)]
    assert len(feed(["Look:\n", *pieces], [TOOL], expect="hermes", sources=[long])[1].calls) == 1
    assert feed(["Look:\n", *pieces], [TOOL], expect="hermes", sources=[other])[1].calls == ()


def test_so_many_calls_are_looked_for_and_no_more() -> None:
    many = [HERMES.replace('"days": 2', f'"days": {day}') for day in range(MAX_SEARCHES + 8)]
    talk = "\n".join(f"Look:\n{each}" for each in many)
    assert parse(talk, [TOOL], sources=["\n".join(many)]).calls == ()
    assert len(parse(talk, [TOOL], sources=[f'{{"city": "Oslo"}} {HERMES[:-1]}']).calls) == MAX_SEARCHES + 8
    held = QuotableTexts(["the city of Oslo"])
    assert not any(held.may_contain_prefix("Bergen") for _ in range(MAX_SEARCHES))
    assert held.may_contain_prefix("Bergen")


def test_the_conversation_is_not_read_where_nothing_is_called() -> None:
    def texts() -> Any:
        raise AssertionError
        yield ""

    assert parse("No call.", [TOOL], sources=texts()).content == "No call."


@pytest.mark.parametrize("wrong", ["one text", 3])
def test_sources_are_texts(wrong: Any) -> None:
    with pytest.raises(UsageError, match="sources is"):
        parse("No call.", [TOOL], sources=wrong)
