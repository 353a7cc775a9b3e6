"""Messages with headers, on their way to events: what goes out when, and what becomes of each kind of message."""

import pytest

from promptools import StreamParser, parse
from promptools.dialects import get
from promptools.dialects.calls.parse_options import Evidence, ParseOptions
from promptools.parsing.events import CallArgs, CallEnd, CallStart, Event, Reasoning, Text, WasReasoning, join
from promptools.types import Discarded, Malformed, Span

WEATHER = {
    "name": "get_weather",
    "parameters": {
        "type": "object",
        "properties": {"city": {"type": "string"}, "days": {"type": "integer"}},
        "required": ["city"],
    },
}
TOOLS = [WEATHER, {"name": "ping", "parameters": {"type": "object", "properties": {}}}]
HEADER = "<|channel|>commentary to=functions.get_weather <|constrain|>json<|message|>"


def events(*chunks: str, finish_reason: str | None = "stop", **options: object) -> list[Event]:
    parser = StreamParser(TOOLS, **{"dialect": "harmony", **options})  # type: ignore[arg-type]
    return [event for chunk in chunks for event in parser.feed(chunk)] + parser.close(finish_reason)


def told(found: list[Event]) -> list[str]:
    out: list[str] = []
    for event in found:
        match event:
            case Text(text) | Reasoning(text) | CallArgs(fragment=text):
                out.append(f"{type(event).__name__} {text}")
            case CallStart(name=name):
                out.append(f"CallStart {name}")
            case Discarded(raw, why):
                out.append(f"{why} {raw}")
            case Malformed(reason=reason):
                out.append(f"Malformed {reason}")
            case _:
                out.append(type(event).__name__)
    return out


# --- calls


def test_arguments_go_out_while_they_come():
    parser = StreamParser(TOOLS, dialect="harmony")
    assert parser.feed(HEADER) == []
    assert told(parser.feed('{"city": "Os')) == [f"markup {HEADER}", "CallStart get_weather"]
    assert told(parser.feed('lo", ')) == ['CallArgs {"city": "Oslo"']
    assert told(parser.feed('"days": 2}')) == ['CallArgs , "days": 2']
    assert told(parser.feed("<|call|>")) == ["CallArgs }", "CallEnd", "markup <|call|>"]


def test_what_has_gone_out_is_the_beginning_of_the_call():
    found = events(HEADER, '{"city": "Oslo",', ' "days": "2",}', "<|call|>")
    sent = "".join(event.fragment for event in found if isinstance(event, CallArgs))
    (end,) = [event for event in found if isinstance(event, CallEnd)]
    assert sent == end.call.arguments_json == '{"city": "Oslo", "days": 2}'


def test_nothing_goes_out_early_of_a_call_that_nobody_asked_for():
    parser = StreamParser(TOOLS)
    assert told([*parser.feed(HEADER), *parser.feed('{"city": "Oslo", ')]) == [f"markup {HEADER}"]
    assert "CallStart get_weather" in told(StreamParser(TOOLS, expect="harmony").feed(HEADER + '{"city": "Oslo", '))


def test_a_call_that_went_out_and_then_failed():
    assert told(events(HEADER, '{"city": "Oslo", "days"', finish_reason="length"))[1:] == [
        "CallStart get_weather",
        'CallArgs {"city": "Oslo"',
        "Malformed truncated",
        "End",
    ]


@pytest.mark.parametrize(
    ("text", "finish_reason", "malformed"),
    [
        ('{"city": "Oslo"', "stop", ""),
        ('{"city": "Oslo"', "tool_calls", ""),
        ('{"city": "Oslo"', "length", "truncated"),
        ('{"city": "Oslo"', None, "truncated"),
        ('{"city": "Oslo"}', None, ""),
        ('{"city": "Os', "stop", "invalid_json"),
    ],
)
def test_a_missing_end_token_is_the_servers_or_a_cut(text, finish_reason, malformed):
    """A model that was done has ended its call, and asks for it again; one that was cut off has not."""
    reply = parse(HEADER + text, TOOLS, finish_reason=finish_reason)
    assert [call.name for call in reply.calls] == ([] if malformed else ["get_weather"])
    assert [each.reason for each in reply.malformed] == ([malformed] if malformed else [])


@pytest.mark.parametrize("finish_reason", ["stop", "length", None])
def test_a_header_without_a_body_is_not_a_call(finish_reason):
    reply = parse("<|channel|>commentary to=functions.ping", TOOLS, finish_reason=finish_reason)
    assert [(each.reason, each.name) for each in reply.malformed] == [("truncated", "ping")]
    assert reply.malformed[0].raw == "<|channel|>commentary to=functions.ping"


def test_a_call_without_arguments_has_its_header_for_a_place():
    text = "<|channel|>commentary to=functions.ping<|message|><|call|>"
    (call,) = parse(text, TOOLS).calls
    assert (call.arguments, call.span) == ({}, Span(0, len(text) - len("<|call|>")))


def test_glued_calls_have_places_of_their_own():
    text = HEADER + '{"city": "Oslo"} {"city": "Rome"}{"city": "Rome"}\n Well.<|call|>'
    first, second = (reply := parse(text, TOOLS)).calls
    assert text[slice(*first.span)] == '{"city": "Oslo"} '
    assert text[slice(*second.span)] == '{"city": "Rome"}{"city": "Rome"}\n '
    assert reply.content == "Well."
    assert [fix.kind for fix in first.fixes] == []
    assert sorted(fix.kind for fix in second.fixes) == ["duplicate", "json"]


def test_the_fixes_of_a_header_are_those_of_its_calls():
    reply = parse('<|start|>assistantcommentary to=functions.ping {"a": 1}{"b": 2}<|call|>', TOOLS)
    assert all(any("glued to what follows" in fix.detail for fix in call.fixes) for call in reply.calls)
    assert len(reply.calls) == 2


def test_each_call_is_told_in_the_trace():
    text = f'{HEADER}{{"city": "Oslo"}}<|call|><|start|>assistant<|channel|>commentary to=functions.nope<|message|>{{}}'
    first, second = parse(text, TOOLS, finish_reason="stop").trace.tries
    assert (first.strategy, first.outcome, first.why, text[slice(*first.span)]) == (
        "harmony", "call", "get_weather", '{"city": "Oslo"}'
    )  # fmt: skip
    assert (second.outcome, second.why, text[slice(*second.span)]) == ("call", "nope", "{}")


# --- words


def test_words_before_an_answer_were_thoughts():
    rest = "<|end|><|start|>assistant<|channel|>final<|message|>Four.<|return|>"
    found = events("Hm. ", rest)
    assert told(found)[0] == "Reasoning Hm."  # it waited for the header that told it
    reply = parse(f"Hm. {rest}", TOOLS, dialect="harmony")
    assert (reply.reasoning, reply.content) == ("Hm.", "Four.")
    found = events("Hm. ", rest, dialect=None)  # nobody knew that a header would come
    assert told(found)[0] == "Text Hm."
    assert "space  " in told(found)
    assert any(isinstance(event, WasReasoning) for event in found)
    reply = parse(f"Hm. {rest}", TOOLS)
    assert (reply.reasoning, reply.content) == ("Hm.", "Four.")


@pytest.mark.parametrize(
    ("rest", "kind"),
    [
        ("<|channel|>analysis<|message|>So.<|end|>", "Text"),
        ("<|channel|>commentary<|message|>So.<|end|>", "Text"),
        ("<|channel|>final<|message|>Four.<|return|>", "Reasoning"),
        ('<|channel|>commentary to=functions.ping<|message|>{}<|call|>', "Text"),
        ("", "Text"),
    ],
)  # fmt: skip
def test_words_before_the_first_header_wait_for_it(rest, kind):
    parser = StreamParser(TOOLS, dialect="harmony")
    assert parser.feed("Hm, ") == parser.feed("so ") == []
    found = [*parser.feed(rest), *parser.close("stop")]
    assert told(join(found))[0].split(",")[0] == f"{kind} Hm"
    assert parser.reply == parse(f"Hm, so {rest}", TOOLS, dialect="harmony", finish_reason="stop")


def test_what_has_a_header_waits_for_nothing():
    parser = StreamParser(TOOLS, dialect="harmony")
    assert told(parser.feed("<|channel|>final<|message|>Fo"))[-1] == "Text Fo"
    assert told(parser.feed("ur"))[-1] == "Text ur"


def test_a_line_break_is_between_two_messages():
    text = (
        "<|channel|>commentary<|message|>I look.<|end|><|start|>assistant<|channel|>analysis<|message|>A<|end|>"
        "<|start|>assistant<|channel|>analysis<|message|>B<|end|><|start|>assistant<|channel|>final<|message|>"
    )
    reply = parse(f"{text}Four.<|return|>", TOOLS, dialect="harmony")
    assert (reply.reasoning, reply.content) == ("A\nB", "I look.\nFour.")
    assert parse(f"{text}\n Four.<|return|>", TOOLS, dialect="harmony").content == "I look.\n Four."
    assert parse(f"{text}<|return|>", TOOLS, dialect="harmony").content == "I look."
    found = events(*f"{text}Four.<|return|>")
    (broken,) = [event for event in found if isinstance(event, Text) and event.text == "\n"]
    assert broken.span.start == broken.span.end == text.index("final<|message|>") + len("final<|message|>")


@pytest.mark.parametrize(
    ("before", "reasoning", "content"),
    [
        ("<|channel|>analysis<|message|>Hm.<|end|>", "Hm.", "Four."),
        ("<|channel|>commentary<|message|>Hm.<|end|>", "", "Hm.\nFour."),
        ("<|channel|>final<|message|>Hm.<|end|>", "", "Hm.\nFour."),
        ("<|message|>Hm.<|end|>", "Hm.", "Four."),
        ("<|channel|>commentary<|message|>So.<|end|><|message|>Hm.<|end|>", "", "So.\nHm.\nFour."),
        ('<|channel|>commentary to=functions.ping<|message|>{}<|call|>Hm.<|end|>', "Hm.", "Four."),
    ],
)  # fmt: skip
def test_what_was_announced_stays_what_it_is(before, reasoning, content):
    reply = parse(f"{before}<|start|>assistant<|channel|>final<|message|>Four.<|return|>", TOOLS)
    assert (reply.reasoning, reply.content) == (reasoning, content)


def test_calls_of_other_formats_are_read_in_words_alone():
    said = '<tool_call>{"name": "ping", "arguments": {}}</tool_call>'
    thought = f"<|channel|>analysis<|message|>{said}<|end|>"
    reply = parse(f"{thought}<|start|>assistant<|channel|>final<|message|>{said}<|return|>", TOOLS, dialect="harmony")
    assert ([call.dialect for call in reply.calls], reply.reasoning) == (["hermes"], said)


def test_words_are_cut_where_their_message_is():
    text = '<|channel|>final<|message|>{"name": "ping", "arguments": {}<|end|>'
    assert [call.name for call in parse(text, TOOLS, finish_reason="length").calls] == ["ping"]
    assert [each.reason for each in parse(text.removesuffix("<|end|>"), TOOLS, finish_reason="length").malformed] == [
        "truncated"
    ]


# --- others


def test_what_somebody_else_says_first_is_left_out():
    reply = parse(
        "<|start|>user<|message|>Hi<|end|><|start|>assistant<|channel|>final<|message|>Hello<|return|>", TOOLS
    )
    assert reply.content == "Hello"
    assert [each.why for each in reply.discarded if each.raw == "Hi"] == ["debris"]
    assert "harmony: a message of somebody else's was left out" in [fix.detail for fix in reply.fixes]


@pytest.mark.parametrize("before", ["", "<|channel|>analysis<|message|>Look.<|end|>"])
def test_a_made_up_result_is_on_record(before):
    reply = parse(f'{before}<|start|>functions.get_weather<|message|>{{"city": "Oslo"}}<|end|>', TOOLS)
    assert (reply.content, reply.calls) == ("", ())
    assert [each.why for each in reply.discarded if "Oslo" in each.raw] == ["result"]
    assert "harmony: a made-up result of 'functions.get_weather' was left out" in [fix.detail for fix in reply.fixes]


def test_what_follows_somebody_else_was_said_to_nobody():
    rest = "<|start|>user<|message|>And now?<|end|><|start|>assistant<|channel|>final<|message|>Five.<|return|>"
    reply = parse(f"<|channel|>final<|message|>Four.<|end|>{rest}", TOOLS)
    assert reply.content == "Four."
    assert [(each.why, each.raw) for each in reply.discarded][-1] == ("result", rest)


# --- notes


@pytest.mark.parametrize(
    ("options", "fixes"),
    [
        (
            {},
            ["the markers around reasoning were taken out", "the markers around content were taken out", "no <|end|>"],
        ),
        ({"expect": "harmony"}, ["no <|end|>"]),
        ({"dialect": "harmony"}, ["no <|end|>"]),
    ],
)
def test_markers_are_a_liberty_only_where_nobody_asked_for_them(options, fixes):
    text = "<|channel|>analysis<|message|>Hm.<|start|>assistant<|channel|>final<|message|>Four.<|return|>"
    assert [fix.detail for fix in parse(text, TOOLS, **options).fixes] == [f"harmony: {each}" for each in fixes]


def test_notes_have_an_end():
    text = "<|start|>assistant<|channel|>analysis<|message|>Hm.<|end|>" * 300
    reply = parse(text, TOOLS)
    assert reply.reasoning == "\n".join(["Hm."] * 300)
    assert 0 < len(reply.fixes) <= 256


def test_no_head_of_it_stands_alone():
    evidence = Evidence("harmony", wrapped=True, expected=True)
    with pytest.raises(NotImplementedError, match="read by its channels"):
        get("harmony").candidate(
            "", ParseOptions(None, "balanced", None, json_answer=False, anchors=frozenset()), evidence, definite=True
        )
