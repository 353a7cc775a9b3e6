"""How far a reply follows the format: each deviation, and what strict parsing says."""

import tomllib
from pathlib import Path

import pytest

from promptools.errors import BadHeader, MissingSentinel
from promptools.harmony import examine, parse

REPLIES = tomllib.loads((Path(__file__).parent / "cases_malformed.toml").read_text("utf-8"))["reply"]
CALL = '<|channel|>commentary to=functions.f <|constrain|>json<|message|>{"a": 1}<|call|>'
FINAL = "<|channel|>final<|message|>Yes."


def fields(message):
    return message.role, message.channel, message.recipient, message.content_type, message.content


def strict_error(text):
    try:
        parse(text, "assistant", strict=True)
    except (BadHeader, MissingSentinel) as error:
        return error
    return None


def test_a_good_reply():
    reply = examine(f"<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant{CALL}")
    assert [fields(parsed.message) for parsed in reply.messages] == [
        ("assistant", "analysis", "", "", "Hm."),
        ("assistant", "commentary", "functions.f", "<|constrain|>json", '{"a": 1}'),
    ]
    assert [parsed.complete for parsed in reply.messages] == [True, True]
    assert (reply.deviations, reply.error) == ((), None)
    assert [parsed.complete for parsed in examine(FINAL).messages] == [
        False
    ]  # the server left the end out, or it is cut


@pytest.mark.parametrize(
    ("text", "whats"),
    [
        ("<|channel|>analysis<|message|>a<|end|>assistant<|channel|>final<|message|>b", ["no <|start|>"]),
        ("<|channel|>commentary to= functions.f json<|message|>{}", ["nothing directly after `to=`"]),
        ("<|channel|>commentary to=functions.f <|constrain|> json<|message|>{}", ["a space after <|constrain|>"]),
        ('<|channel|>commentary to=functions.f json{"a": 1}<|call|>', ["no <|message|>"]),
        (f"{FINAL}<|return|>Bye", ["text outside of messages"]),
        (f"{FINAL}<|return|><|return|>", ["'<|return|>' begins and ends nothing"]),
        (f"{FINAL}<|end|><|start|>assistant", ["'<|start|>assistant' begins and ends nothing"]),
        (
            "<|channel|>final json json<|message|>a<|return|><|return|>",
            ["2 types", "'<|return|>' begins and ends nothing"],
        ),
        ("", ["the header '' at character 0 has no <|message|>: the text ends"]),
    ],
)
def test_each_deviation_is_named(text, whats):
    reply = examine(text)
    assert [deviation.what for deviation in reply.deviations] == whats
    assert str(reply.error) == str(strict_error(text))


def test_several_deviations():
    text = "<|channel|>analysis analysis<|message|>a<|end|>\nHm <|start|>assistantfinal<|message|>b<|end|>x"
    spans = [deviation.span for deviation in examine(text).deviations]
    assert len(spans) > 2
    assert spans == sorted(spans)


def test_what_strict_parsing_allows():
    turn = examine(f"{FINAL}<|end|><|start|>user<|message|>And?<|end|>")
    assert [deviation.what for deviation in turn.deviations] == [
        "somebody else's turn after it",
        "messages of somebody else",
    ]
    assert turn.error is None
    assert [parsed.message.role for parsed in turn.messages] == ["assistant", "user"]


@pytest.mark.parametrize(
    ("text", "channels", "error"),
    [
        ("<|message|>hi", [""], False),
        (" to=functions.f<|message|>{}", [""], False),
        (f"<|message|>hi<|end|><|start|>assistant{FINAL}", ["", "final"], False),
        ("<|message|>hi<|end|><|start|>assistantfinal<|message|>x", ["", "final"], True),
    ],
)
def test_a_message_without_a_channel_is_not_an_error(text, channels, error):
    reply = examine(text)
    assert [parsed.message.channel for parsed in reply.messages] == channels
    assert isinstance(reply.error, BadHeader) == error


@pytest.mark.parametrize("text", [row["text"] for row in REPLIES if "text" in row])
def test_nothing_that_strict_parsing_refuses_is_without_a_deviation(text):
    reply, error = examine(text), strict_error(text)
    assert error is None or reply.deviations
    assert reply.error is None or error is not None
    if reply.error is None and error is not None:
        assert error.deviations == ("no channel",)
