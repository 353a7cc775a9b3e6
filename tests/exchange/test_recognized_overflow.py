"""An error for a prompt that is too long is recognized by the software that recognizes the server's own.

`RECOGNIZERS` are looked up in the programs themselves, November 2026. The real litellm is asked in
`tests/integrations/test_recognized_errors.py`.
"""

import json
import re
import tomllib
from pathlib import Path

import pytest
from scripted import SSE, WEATHER, Answer, error, event, play

from promptools.exchange.client_api import CHAT_API
from promptools.exchange.messages_api import MESSAGES_API, serve_message
from promptools.exchange.ollama_api import OLLAMA_API
from promptools.exchange.responses_api import RESPONSES_API, serve_response
from promptools.exchange.runner import run

SAID = [
    row["text"]
    for row in tomllib.loads((Path(__file__).parents[1] / "fallback" / "overflow.toml").read_text("utf-8"))["said"]
]
RECOGNIZERS = {
    # litellm_core_utils/exception_mapping_utils.py, is_error_str_context_window_exceeded
    "litellm 1.106.2": re.compile(
        r"exceed context limit|this model's maximum context length is|is longer than the model's context length"
        r"|exceeds the available context size|model's maximum context limit",
        re.IGNORECASE,
    ),
    "opencode 1.18.33": re.compile(
        r"maximum context length is \d+ tokens|exceeds the available context size|greater than the context length"
        r"|prompt is too long|reduce the length of the messages|context_length_exceeded",
        re.IGNORECASE,
    ),
    # chat_models/base.py, _handle_openai_bad_request: the whole error as text
    "langchain-openai 1.7.3": re.compile("context_length_exceeded"),
}
BODIES = {
    "chat": (CHAT_API, run, "/v1/chat/completions", "messages"),
    "responses": (RESPONSES_API, serve_response, "/v1/responses", "input"),
    "messages": (MESSAGES_API, serve_message, "/v1/messages", "messages"),
    "ollama": (OLLAMA_API, run, "/api/chat", "messages"),
}


def played(front, answer, *, streamed=False, tools=True):
    api, begin, path, key = BODIES[front]
    function = WEATHER["function"]
    nested = {"responses": {"type": "function", **function}, "messages": {"name": "f", "input_schema": {}}}
    body = {"model": "m", key: [{"role": "user", "content": "hi"}], "stream": streamed}
    body |= {"tools": [nested.get(front, WEATHER)]} if tools else {}
    body |= {"max_tokens": 9} if front == "messages" else {}
    return play(body, [answer] * 4, spare=True, front=api, begin=begin, url=f"http://server{path}")


def message_of(front, body):
    return body["error"] if front == "ollama" else body["error"]["message"]


@pytest.mark.parametrize("tools", [True, False], ids=["tools", "plain"])
@pytest.mark.parametrize("streamed", [True, False], ids=["streamed", "whole"])
@pytest.mark.parametrize("front", BODIES)
@pytest.mark.parametrize("said", SAID, ids=range(len(SAID)))
def test_what_recognizes_the_servers_error_recognizes_ours(said, front, streamed, tools):
    alone = error(said, 400)
    seen = played(front, alone, streamed=streamed, tools=tools)
    assert seen.head.status == 400
    assert said in message_of(front, seen.json)
    assert "The conversation does not fit: " in message_of(front, seen.json)
    for name, recognizer in RECOGNIZERS.items():
        if recognizer.search(alone.body.decode()):
            assert recognizer.search(seen.body.decode()), name
    if front in {"chat", "responses"}:
        assert (seen.json["error"]["type"], seen.json["error"]["code"]) == ("server_error", "context_length_exceeded")
    if front == "messages":
        assert seen.json["error"]["type"] == "invalid_request_error"
        assert seen.json["error"]["message"].startswith("prompt is too long: ")


@pytest.mark.parametrize("front", BODIES)
def test_inside_a_stream(front):
    said = "Context size has been exceeded."
    late = Answer(200, event({"error": {"message": said, "code": 500}}), SSE)
    seen = played(front, late, streamed=True)
    assert said in seen.body.decode()
    assert "The conversation does not fit: " in seen.body.decode()


def test_a_type_is_kept_or_is_openais():
    typed = error(SAID[0], 400)
    assert played("chat", typed).json["error"]["type"] == "server_error"
    bare = Answer(400, json.dumps({"error": SAID[0]}).encode())
    assert played("chat", bare).json["error"]["type"] == "invalid_request_error"


def test_of_a_long_text_the_beginning_is_kept():
    said = SAID[1] + " " + "x" * 100_000
    message = played("chat", error(said, 400)).json["error"]["message"]
    assert message.startswith(SAID[1])
    assert len(message) < 3000
