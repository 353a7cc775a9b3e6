"""Whole transcripts, read strictly: as they are, and cut in every way that a stream may be cut."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from promptools import errors
from promptools.errors import BadHeader, MissingSentinel
from promptools.harmony import parse_trace

MARK = "<<<CHUNK>>>"
TRANSCRIPTS: list[dict[str, Any]] = tomllib.loads(
    (Path(__file__).parent / "cases_trace.toml").read_text(encoding="utf-8")
)["transcript"]


def ways(text: str) -> Iterator[tuple[str, list[str]]]:
    plain = text.replace(MARK, "")
    yield "whole", [plain]
    yield "where it is marked", text.split(MARK)
    yield "by character", list(plain)
    yield "by line", plain.splitlines(keepends=True)
    for at in range(1, len(plain)):
        yield f"at {at}", [plain[:at], plain[at:]]


def messages_of(chunks: list[str]) -> Any:
    try:
        return parse_trace(chunks)
    except errors.ModelError as error:
        return {"error": type(error).__name__, "message": str(error)}


@pytest.mark.parametrize("row", TRANSCRIPTS, ids=lambda row: row["name"])
def test_transcript(row: dict[str, Any]) -> None:
    expected = json.loads(row["expected"])
    whole = messages_of([row["text"].replace(MARK, "")])
    if isinstance(expected, dict):
        assert whole["error"] == expected["error"]
    else:
        assert whole == expected
    for way, chunks in ways(row["text"]):
        assert messages_of(chunks) == whole, way


def test_there_are_all_of_them() -> None:
    assert len(TRANSCRIPTS) == 7
    assert any(MARK in row["text"] for row in TRANSCRIPTS)


@pytest.mark.parametrize(
    ("text", "error", "message"),
    [
        ("hi", BadHeader, "text outside of messages, at character 0: a message begins with <|start|>"),
        (
            "<|start|>user<|message|>a<|end|> \n b<|start|>",
            BadHeader,
            "text outside of messages, at character 35: a message begins with <|start|>",
        ),
        ("<|channel|>final<|message|>", MissingSentinel, "<|channel|> at character 0, without the <|start|>"),
        (
            "<|start|>user<|message|>a<|end|><|end|>",
            MissingSentinel,
            "<|end|> at character 32, where no message is open",
        ),
        (
            "<|start|>user<|message|>a<|start|>assistant",
            MissingSentinel,
            "<|start|> at character 25, inside a message that has no <|end|>",
        ),
        (
            "<|start|>user<|message|>abc",
            MissingSentinel,
            "the text ends at character 27, inside a message that has no <|end|>",
        ),
        (
            "\n<|start|>assistant<|channel|>final",
            MissingSentinel,
            "the header '<|start|>assistant<|channel|>final' at character 1 has no <|message|>: the text ends",
        ),
        (
            "<|start|>assistant<|channel|>final<|end|>",
            MissingSentinel,
            "the header '<|start|>assistant<|channel|>final' at character 0 has no <|message|>: <|end|> follows",
        ),
        (
            f"<|start|>{'a' * 300}",
            MissingSentinel,
            "the header at character 0 has no <|message|> in 256 characters",
        ),
        (
            " <|start|>assistant<|channel|>fina<|message|>a<|end|>",
            BadHeader,
            "the header '<|start|>assistant<|channel|>fina<|message|>' at character 1: unexpected 'fina'; no channel",
        ),
        (
            "<|start|>assistantfinal<|message|>a<|end|>",
            BadHeader,
            "'assistant' glued to what follows; the channel 'final' in another place",
        ),
        (
            "<|start|>assistant<|channel|>commentary to= functions.f<|message|>{}<|call|>",
            BadHeader,
            "nothing directly after `to=`",
        ),
    ],
)
def test_an_error_says_what_and_where(text: str, error: type[Exception], message: str) -> None:
    with pytest.raises(error) as caught:
        parse_trace([text])
    assert message in str(caught.value)
    with pytest.raises(error) as again:
        parse_trace(list(text))
    assert str(again.value) == str(caught.value)


def test_what_is_left_out_of_a_message() -> None:
    text = (
        "<|start|>system<|message|>Obey.<|end|><|start|>user:ann<|message|>hi<|end|>"
        "<|start|>assistant to=functions.f<|channel|>commentary json<|message|>not JSON<|call|>"
        "<|start|>functions.f to=assistant<|channel|>commentary<|message|>[1]<|end|>"
    )
    assert parse_trace([text]) == [
        {"role": "system", "content": "Obey."},
        {"role": "user", "content": "hi"},
        {"role": "assistant", "channel": "commentary", "to": "functions.f", "constraint": "json", "args": "not JSON"},
        {"role": "tool", "name": "functions.f", "channel": "commentary", "content": [1]},
    ]


def test_arguments_too_deep_to_be_parsed_stay_text() -> None:
    deep = "[" * 100_000
    (message,) = parse_trace([f"<|start|>assistant<|channel|>commentary to=functions.f<|message|>{deep}<|call|>"])
    assert message["args"] == deep


def test_nothing_is_nothing() -> None:
    assert parse_trace([]) == []
    assert parse_trace(["", " \n"]) == []
