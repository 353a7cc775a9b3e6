"""An app's own dialect declares the markers of its family too, and registering it is enough."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

import pytest
from casebook import bare, cuts, feed, tiled

from promptools import dialects, parse
from promptools.dialects import Closers, Head, JsonBlockReader, Textual
from promptools.dialects.contract import NAME_GATE
from promptools.dialects.table import make_dialect

OPENER, CLOSER = "<|acme_call|>", "<|/acme_call|>"
TOOL: dict[str, Any] = {
    "name": "get_weather",
    "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
}
CALL = f'{OPENER}{{"name": "get_weather", "arguments": {{"city": "Oslo"}}}}{CLOSER}'
HERMES = '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Oslo"}}\n</tool_call>'


class Acme(Textual):
    """A family with markers of its own for everything."""

    name = "acme"
    tier = "S"
    heads = (Head((OPENER,), r"<\|acme_call\|>"),)
    closers = (CLOSER,)
    reasoning_tags: Mapping[str, str] = {
        "<|acme_think|>": "<|/acme_think|>",
        "<acme-think:{suffix}>": "</acme-think:{suffix}>",
        "<|acme_channel|>": "<|/acme_channel|>",
        "<|acme_channel|>plan\n": "<|/acme_channel|>",
    }
    answer_tags: Mapping[str, str] = {"<|acme_answer|>": "<|/acme_answer|>"}
    result_openers = ("<|acme_result|>", "Acme says:")
    end_tokens = ("<|acme_end|>",)
    tokens_before_text = (OPENER,)
    rescues = True

    def candidate(self, head: str, options: Any, evidence: Any, *, definite: bool) -> JsonBlockReader:
        closers = Closers(right=(CLOSER,), wrong=(), openers=(OPENER,))
        return JsonBlockReader(head, closers, options, evidence, definite=definite)


@pytest.fixture(autouse=True)
def acme() -> Iterator[None]:
    parse(CALL, [TOOL])  # what is cached for the dialects without it is not used with it
    dialects.register(Acme())
    yield
    dialects.unregister("acme")


def called(text: str, **options: Any) -> Any:
    """Return the reply, which is the same however the text is cut."""
    reason = options.pop("finish_reason", None)
    events, whole = feed([text], [TOOL], reason, **options)
    tiled(events, text)
    assert bare(parse(text, [TOOL], finish_reason=reason, **options)) == bare(whole)
    for _, pieces in cuts(text):
        events, reply = feed(pieces, [TOOL], reason, **options)
        tiled(events, text)
        assert bare(reply) == bare(whole)
    return whole


@pytest.mark.parametrize("call", [CALL, HERMES])
@pytest.mark.parametrize("expect", [None, "acme", "hermes"])
def test_its_reasoning_its_answer_and_its_end(call: str, expect: str | None) -> None:
    text = f"<|acme_think|>Hm.<|/acme_think|><|acme_answer|>I look.<|/acme_answer|>{call}<|acme_end|>"
    reply = called(text, expect=expect)
    assert (reply.reasoning, reply.content) == ("Hm.", "I look.")
    assert [call.arguments for call in reply.calls] == [{"city": "Oslo"}]
    assert [each.raw for each in reply.discarded if each.why == "debris"] == ["<|acme_end|>"]


def test_its_markers_count_if_another_dialect_is_pinned() -> None:
    reply = called(f"<|acme_think|>Hm.<|/acme_think|>{HERMES}<|acme_end|>", dialect="hermes")
    assert (reply.reasoning, reply.content, len(reply.calls)) == ("Hm.", "", 1)


def test_a_lone_closer_ends_its_reasoning() -> None:
    reply = called("Hm.<|/acme_think|>Yes.")
    assert (reply.reasoning, reply.content) == ("Hm.", "Yes.")


def test_its_tags_may_have_a_suffix() -> None:
    reply = called("<acme-think:a1>Hm.</acme-think:b2></acme-think:a1>Yes.")
    assert (reply.reasoning, reply.content) == ("Hm.</acme-think:b2>", "Yes.")


@pytest.mark.parametrize(
    ("text", "reasoning", "content"),
    [
        ("<|acme_channel|>plan\nHm.<|/acme_channel|>Yes.", "Hm.", "Yes."),
        ("<|acme_channel|>Hm.<|/acme_channel|>Yes.", "Hm.", "Yes."),
        ("Yes.<|acme_channel|>Hm.", "", "Yes.Hm."),
        ("<|acme_channel|> is a token.", "", "<|acme_channel|> is a token."),
    ],
)
def test_an_opener_that_begins_another_counts_at_the_start(text: str, reasoning: str, content: str) -> None:
    reply = called(text)
    assert (reply.reasoning, reply.content) == (reasoning, content)


@pytest.mark.parametrize("opener", ["<|acme_result|>", "Acme says:"])
@pytest.mark.parametrize("call", [CALL, HERMES])
def test_its_made_up_result_is_left_out(call: str, opener: str) -> None:
    reply = called(f"{call}\n{opener} 21 degrees.\nIt is warm.")
    assert (len(reply.calls), reply.content) == (1, "")
    assert [each.raw for each in reply.discarded if each.why == "result"] == [f"{opener} 21 degrees.\nIt is warm."]
    assert called(f"It is so. {opener} 21 degrees.").content == f"It is so. {opener} 21 degrees."


def test_its_call_at_the_end_of_the_reasoning_is_rescued() -> None:
    text = f"<think>I look it up.\n{CALL}</think>"
    assert [call.dialect for call in called(text).calls] == ["acme"]
    assert called(text, rescue=False).calls == ()
    assert called(f"<think>I look it up.\n{HERMES}</think>").calls == ()


def test_its_token_before_a_program_is_a_part_of_the_text() -> None:
    assert called(f"Well.\n{OPENER}import math").content == f"Well.\n{OPENER}import math"
    assert called(f"Well.{OPENER}").content == "Well."


def test_nothing_of_it_is_left_once_it_is_removed() -> None:
    text = "<|acme_think|>Hm.<|/acme_think|>Yes.<|acme_end|>"
    assert called(text).content == "Yes."
    dialects.unregister("acme")
    try:
        assert called(text).content == text
    finally:
        dialects.register(Acme())


class Sigil(Textual):
    """A dialect whose marker begins like a line of code."""

    name = "sigil"

    def __init__(self, opener: str, closer: str) -> None:
        self.heads = (Head((opener,), re.escape(opener)),)
        self.closers = (closer,)

    def candidate(self, head: str, options: Any, evidence: Any, *, definite: bool) -> JsonBlockReader:
        closers = Closers(right=self.closers, wrong=(), openers=self.heads[0].literals)
        return JsonBlockReader(head, closers, options, evidence, definite=definite)


@pytest.mark.parametrize(
    ("opener", "closer"),
    [("((calls))", "((/calls))"), ("@calls", "@end"), ("$calls$", "$end$"), ("#calls", "#end"), ("/calls", "/end")],
)
def test_its_marker_in_a_fence_may_begin_like_code(opener: str, closer: str) -> None:
    dialects.register(Sigil(opener, closer))
    try:
        reply = called(f'```\n{opener}{{"name": "get_weather", "arguments": {{"city": "Oslo"}}}}{closer}\n```\n')
        assert [call.dialect for call in reply.calls] == ["sigil"]
        assert called(f"```\n{opener} is it.\n```\nDone.").calls == ()
    finally:
        dialects.unregister("sigil")


class Noted(Textual):
    """A dialect whose head is a call only if a note after its marker says so."""

    name = "noted"

    def __init__(self, undecided: Any) -> None:
        self._undecided = undecided
        self.heads = (Head(("~call~",), r"~call~[a-z]*+", begins=self._begins),)

    def _begins(self, text: str, start: int, end: int, *, fresh: bool, options: Any) -> Any:
        del fresh, options
        return self._undecided if end == len(text) else text[start:end] == "~call~now" and text[end] == "{"

    def candidate(self, head: str, options: Any, evidence: Any, *, definite: bool) -> JsonBlockReader:
        closers = Closers(right=("~end~",), wrong=(), openers=("~call~now",))
        return JsonBlockReader(head, closers, options, evidence, definite=definite)


@pytest.mark.parametrize("undecided", [dialects.NEED_MORE, None])
def test_a_head_waits_for_more_text(undecided: Any) -> None:
    """None is read as NEED_MORE."""
    assert not dialects.NEED_MORE
    dialects.register(Noted(undecided))
    try:
        call = '{"name": "get_weather", "arguments": {"city": "Oslo"}}~end~'
        assert [call.dialect for call in called(f"Yes. ~call~now{call}").calls] == ["noted"]
        for text in (f"Yes. ~call~later{call}", "Yes. ~call~now"):
            assert not any(call.dialect == "noted" for call in called(text).calls)
    finally:
        dialects.unregister("noted")


class Run(Textual):
    """A dialect whose calls begin a line with a word before the tool's name."""

    name = "run"
    tier = "B"

    def __init__(self) -> None:
        pattern = r"r(?:u(?:n)?)?\Z|run:(?:[a-z_]{1,40}+)?(?:\Z|(?=\{))"
        head = Head((), pattern, gate=NAME_GATE, begins=self._begins, at_line_start=True, first_words=("run:",))
        self.heads = (head,)

    def _begins(self, text: str, start: int, end: int, *, fresh: bool, options: Any) -> Any:
        del fresh, options
        return dialects.NEED_MORE if end == len(text) else text[start:end] == "run:get_weather"

    def candidate(self, head: str, options: Any, evidence: Any, *, definite: bool) -> JsonBlockReader:
        closers = Closers(right=(), wrong=(), openers=(), required=False)
        return JsonBlockReader(head, closers, options, evidence, definite=definite, name=head.removeprefix("run:"))


def test_a_line_may_begin_with_a_word_before_the_name() -> None:
    dialects.register(Run())
    try:
        reply = called('I will look it up.\nrun:get_weather{"city": "Oslo"}')
        assert [(call.name, call.dialect) for call in reply.calls] == [("get_weather", "run")]
        assert called("I will look it up.\nrun:time or run:get_weather, whichever is best.").calls == ()
    finally:
        dialects.unregister("run")


def test_a_marker_of_letters_hides_no_other():
    """Muse Glimmer's headers have `to=` as well: a text without it is searched for all other markers of letters."""
    relay = make_dialect({"name": "relay", "kind": "named", "call": "to={name}<|with|>{arguments}<|sent|>"}, "a.toml")
    text = 'Action: ```json\n[{"tool_name": "get_weather", "parameters": {"city": "Oslo"}}]\n```'
    with dialects.using(relay):
        reply = parse(text, [TOOL])
    assert ([call.arguments for call in reply.calls], reply.content) == ([{"city": "Oslo"}], "")
