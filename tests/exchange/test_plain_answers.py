"""What is taken for a plain answer at a glance is one for the decoder, too."""

import json

import pytest

from promptools.exchange import Opened, passthrough
from promptools.exchange.passthrough import PassthroughMonitor

HI = {"role": "assistant", "content": "hi"}
OPENED = Opened(200, (), 0.0)


def reply(*messages, **extra):
    choices = [{"index": at, "message": message, "finish_reason": "stop"} for at, message in enumerate(messages)]
    return {"id": "c", "object": "chat.completion", "created": 1, "model": "m", "choices": choices, **extra}


BODIES = [
    reply(HI),
    reply(HI | {"content": ""}),
    reply(HI | {"content": " \n"}),
    reply(HI | {"content": None, "reasoning_content": "hm"}),
    reply(HI | {"content": [{"type": "text", "text": "hi"}]}),
    reply(HI | {"content": None, "tool_calls": [{"function": {"name": "f", "arguments": "{}"}}]}),
    reply(HI, HI),
    reply(),
    reply(HI, error={"message": "broken"}),
    reply(HI, message="broken"),
    reply(HI) | {"object": "error"},
    {"choices": [{"message": HI, "error": {"message": "broken"}, "finish_reason": "error"}]},
    {"choices": [HI]},
    {"choices": {"0": HI}},
    {"choices": "x"},
    [reply(HI)],
    "hi",
    None,
]


@pytest.mark.parametrize("body", BODIES)
def test_a_plain_answer_has_content_and_no_failure(body, monkeypatch):
    data = json.dumps(body).encode()

    def outcome():
        monitor = PassthroughMonitor(streamed=False, swallows=True)
        assert monitor.feed(data) == b""
        monitor.end()
        return monitor.has_content, monitor.failure(OPENED), monitor.held

    glanced = outcome()
    monkeypatch.setattr(passthrough, "_is_plain_answer", lambda _: False)
    assert outcome() == glanced


@pytest.mark.parametrize(
    "data", [b"", b"{", b"\xff", b"[" * 100_000, b'{"choices": [{"message": {"content": "\xff"}}]}']
)
def test_what_is_not_json_is_left_to_the_decoder(data):
    assert not passthrough._is_plain_answer(bytearray(data))


def test_the_usual_answer_is_plain():
    assert passthrough._is_plain_answer(bytearray(json.dumps(reply(HI)).encode()))
    assert not passthrough._is_plain_answer(bytearray(json.dumps(reply(HI, HI)).encode()))
