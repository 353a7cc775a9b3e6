"""Requests that come in on Anthropic's Messages API: converted for every server, answered in its events and errors."""

import json
from dataclasses import replace

import pytest
from scripted import WEATHER, Answer, call, error, reply, stream, target
from scripted import event as encode_event
from scripted import play as play_chat

from promptools.exchange import Failed
from promptools.exchange.messages_api import MESSAGES_API, count_message_tokens, serve_message
from promptools.exchange.state import api_base

MESSAGES = "http://server/v1/messages"
CHAT = "http://server/v1/chat/completions"
TOOL = {"name": "get_weather", "input_schema": WEATHER["function"]["parameters"]}
SAID = [{"role": "user", "content": "Weather in Oslo?"}]
OSLO = {"type": "tool_use", "id": "call00001", "name": "get_weather", "input": {"city": "Oslo"}}
FENCED = '```json\n{"tool": "get_weather", "arguments": {"city": "Oslo"}}\n```'
NDJSON = (("content-type", "application/x-ndjson"),)
HARMONY = "unexpected tokens remaining in message header"


def ask(*tools, **more):
    body = {"model": "m", "max_tokens": 100, "messages": SAID, **more}
    return body | {"tools": list(tools)} if tools else body


def play(body, answers, **keys):
    return play_chat(body, answers, **{"url": CHAT, "front": MESSAGES_API, "begin": serve_message, **keys})


def events(seen):
    """The events of a stream, with a check of its frame and of the order of its blocks."""
    told = []
    for part in seen.body.decode().removesuffix("\n\n").split("\n\n"):
        if part.startswith(": "):
            continue
        name, _, data = part.partition("\n")
        event = json.loads(data.removeprefix("data: "))
        assert name == f"event: {event['type']}"
        told.append(event)
    kinds = [event["type"] for event in told if event["type"] != "ping"]
    assert kinds[0] == "message_start"
    assert kinds.count("message_start") == 1
    if kinds[-1] != "error":
        assert kinds[-2:] == ["message_delta", "message_stop"]
        blocks = [kind for kind in kinds if kind.startswith("content_block")]
        assert blocks.count("content_block_start") == blocks.count("content_block_stop")
        assert not blocks or blocks[-1] == "content_block_stop"
    return [event for event in told if event["type"] != "ping"]


def said(seen):
    """The blocks of a stream, joined."""
    blocks = []
    for event in events(seen):
        match event["type"]:
            case "content_block_start":
                blocks.append({**event["content_block"], "json": ""})
            case "content_block_delta":
                delta = event["delta"]
                for key in ("text", "thinking"):
                    if key in delta:
                        blocks[-1][key] += delta[key]
                blocks[-1]["json"] += delta.get("partial_json", "")
    for block in blocks:
        text = block.pop("json")
        if block["type"] == "tool_use":
            block["input"] = json.loads(text)
    return blocks


# --- answers


def test_a_whole_answer():
    seen = play(ask(TOOL), [reply("Look:", reasoning="Hm.", calls=[("get_weather", {"city": "Oslo"})])])
    assert [request.url for request in seen.sent] == [CHAT]
    assert seen.bodies[0]["tools"][0]["function"]["parameters"] == WEATHER["function"]["parameters"]
    assert seen.json == {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": "m",
        "content": [
            {"type": "thinking", "thinking": "Hm.", "signature": "promptools"},
            {"type": "text", "text": "Look:"},
            OSLO,
        ],
        "stop_reason": "tool_use",
        "stop_sequence": None,
        "usage": {
            "input_tokens": 10,
            "cache_creation_input_tokens": 0,
            "cache_read_input_tokens": 0,
            "output_tokens": 9,
        },
    }
    assert seen.headers["content-type"] == "application/json"


def test_a_stream():
    answer = stream(
        {"reasoning_content": "Hm."},
        "Let me look at it.",
        {"tool_calls": [{"index": 0, **call("get_weather", {"city": "Oslo"})}]},
        finish="tool_calls",
        usage={"prompt_tokens": 10, "completion_tokens": 9, "prompt_tokens_details": {"cached_tokens": 4}},
    )
    seen = play(ask(TOOL, stream=True), [answer])
    assert seen.headers["content-type"].startswith("text/event-stream")
    assert seen.bodies[0]["stream_options"] == {"include_usage": True}
    assert said(seen) == [
        {"type": "thinking", "thinking": "Hm.", "signature": ""},
        {"type": "text", "text": "Let me look at it."},
        OSLO,
    ]
    *_, last, _ = events(seen)
    assert last["delta"] == {"stop_reason": "tool_use", "stop_sequence": None}
    assert (last["usage"]["input_tokens"], last["usage"]["cache_read_input_tokens"]) == (6, 4)
    assert last["usage"]["output_tokens"] == 9


@pytest.mark.parametrize("cut", [1, 7, 0])
def test_a_streamed_call_is_streamed(cut):
    text = json.dumps({"city": "Oslo" * 40})
    cuts = [text[at : at + 20] for at in range(0, len(text), 20)]
    pieces = [{"tool_calls": [{"index": 0, "function": {"arguments": piece}}]} for piece in cuts]
    head = {"tool_calls": [{"index": 0, "id": "call00001", "function": {"name": "get_weather", "arguments": ""}}]}
    seen = play(ask(TOOL, stream=True), [stream(head, *pieces, finish="tool_calls", cut=cut)])
    assert said(seen) == [{**OSLO, "input": {"city": "Oslo" * 40}}]
    assert len([event for event in events(seen) if event["type"] == "content_block_delta"]) > 2


@pytest.mark.parametrize("streamed", [True, False])
def test_a_call_in_the_text_of_a_reply(streamed):
    answer = stream(FENCED) if streamed else reply(FENCED)
    seen = play(ask(TOOL, stream=streamed, promptools={"trace": True}), [answer])
    (block,) = said(seen) if streamed else seen.json["content"]
    assert (block["name"], block["input"]) == ("get_weather", {"city": "Oslo"})
    last = events(seen)[-2] if streamed else seen.json
    assert last["promptools"]["mode"] == "native"
    assert (last["delta"] if streamed else last)["stop_reason"] == "tool_use"


@pytest.mark.parametrize("streamed", [True, False])
@pytest.mark.parametrize("before", ["", "Look:"])
def test_white_space_between_calls_is_not_a_block(before, streamed):
    """Anthropic's API refuses such a block when it is sent back."""
    said_calls = [("get_weather", {"city": "Oslo"}, "call00000"), ("get_weather", {"city": "Rome"}, "call00001")]
    first, second = ({"tool_calls": [{"index": index, **call(*one)}]} for index, one in enumerate(said_calls))
    pieces = ({"content": before}, first, {"content": "\n"}, second, {"content": " "})
    whole = reply(f"{before}\n ", calls=said_calls, finish="tool_calls")
    seen = play(ask(TOOL, stream=streamed), [stream(*pieces, finish="tool_calls") if streamed else whole])
    kinds = [item["type"] for item in (said(seen) if streamed else seen.json["content"])]
    assert kinds == [*(["text"] if before else []), *["tool_use", "tool_use"]]


@pytest.mark.parametrize("streamed", [True, False])
def test_an_answer_of_white_space_alone_is_one(streamed):
    seen = play(ask(TOOL, stream=streamed), [stream("\n") if streamed else reply("\n")], target=target(swallows=False))
    (block,) = said(seen) if streamed else seen.json["content"]
    assert (block["type"], block["text"]) == ("text", "\n")


@pytest.mark.parametrize(
    ("finish", "extra", "sent"),
    [
        ("stop", {}, ("end_turn", None)),
        ("length", {}, ("max_tokens", None)),
        ("content_filter", {}, ("refusal", None)),
        ("stop", {"stop_reason": "###"}, ("stop_sequence", "###")),
    ],
)
def test_why_it_ended(finish, extra, sent):
    whole = play(ask(stop_sequences=["###"]), [reply("Hi", finish=finish, **extra)]).json
    assert whole["content"] == [{"type": "text", "text": "Hi"}]
    streamed = play(ask(stop_sequences=["###"], stream=True), [stream("Hi there.", finish=finish, **extra)])
    for told in (whole, events(streamed)[-2]["delta"]):
        assert (told["stop_reason"], told["stop_sequence"]) == sent


def test_reasoning_alone():
    seen = play(ask(stream=True), [stream({"reasoning_content": "Hm."})] * 2, spare=True)
    assert said(seen) == [{"type": "thinking", "thinking": "Hm.", "signature": ""}] * 2, "it was asked twice"
    assert events(seen)[-2]["delta"]["stop_reason"] == "end_turn"


def test_a_call_that_the_limit_cut_off():
    head = {"tool_calls": [{"index": 0, "id": "c", "function": {"name": "get_weather", "arguments": '{"city": "'}}]}
    more = {"tool_calls": [{"index": 0, "function": {"arguments": "Oslo " * 40}}]}
    seen = play(ask(TOOL, stream=True), [stream(head, more, finish="length")])
    assert events(seen)[-2]["delta"]["stop_reason"] == "max_tokens"


# --- servers and modes


def test_an_ollama():
    lines = [
        {"model": "m", "message": {"role": "assistant", "content": "", "thinking": "Hm."}, "done": False},
        {
            "model": "m",
            "message": {
                "role": "assistant",
                "content": "",
                "tool_calls": [{"function": {"name": "get_weather", "arguments": {"city": "Oslo"}}}],
            },
            "done": False,
        },
        {
            "model": "m",
            "message": {"role": "assistant", "content": ""},
            "done": True,
            "done_reason": "stop",
            "prompt_eval_count": 10,
            "eval_count": 4,
        },
    ]
    body = b"".join(json.dumps(line).encode() + b"\n" for line in lines)
    place = target(kind="ollama", wire="ollama")
    seen = play(ask(TOOL, stream=True, thinking={"type": "disabled"}), [Answer(200, body, NDJSON)], target=place)
    assert [request.url for request in seen.sent] == ["http://server/api/chat"]
    assert seen.bodies[0]["think"] is False
    thoughts, found = said(seen)
    assert thoughts["thinking"] == "Hm."
    assert found["input"] == {"city": "Oslo"}
    assert events(seen)[-2]["usage"]["input_tokens"] == 10


def test_prompt_mode():
    seen = play(ask(TOOL, promptools={"mode": "prompt"}), [reply(FENCED)])
    assert "get_weather" in seen.bodies[0]["messages"][0]["content"]
    assert "tools" not in seen.bodies[0]
    assert seen.json["stop_reason"] == "tool_use"


def test_the_next_mode_after_a_failure():
    seen = play(ask(TOOL, stream=True), [error(HARMONY), stream(FENCED)])
    (block,) = said(seen)
    assert block["input"] == {"city": "Oslo"}
    assert seen.headers["x-promptools-attempts"] == "2"


@pytest.mark.parametrize("cut", [0, 7])
def test_each_attempt_has_a_thinking_block_of_its_own(cut):
    failed = stream(
        {"reasoning_content": "I use the tool."}, encode_event({"error": {"message": HARMONY}}), finish=None
    )
    second = stream({"reasoning_content": "The user "}, {"reasoning_content": "wants it."}, FENCED)
    seen = play(ask(TOOL, stream=True), [replace(answer, cut=cut) for answer in (failed, second)])
    assert [block.get("thinking") for block in said(seen)] == ["I use the tool.", "The user wants it.", None]
    sent = events(seen)
    starts = [event["index"] for event in sent if event["type"] == "content_block_start"]
    stops = [event["index"] for event in sent if event["type"] == "content_block_stop"]
    assert starts == stops == [0, 1, 2]

    blocks = said(seen)
    for event in sent:
        if event.get("delta", {}).get("type") == "signature_delta":
            blocks[event["index"]]["signature"] = event["delta"]["signature"]
    result = {"type": "tool_result", "tool_use_id": blocks[2]["id"], "content": "5 C"}
    history = [*SAID, {"role": "assistant", "content": blocks}, {"role": "user", "content": [result]}]
    continued = play(ask(TOOL, messages=history), [reply("Cold.")])
    assert continued.bodies[0]["messages"][1]["reasoning_content"] == "The user wants it."


def test_the_results_of_tools_in_native_mode():
    image = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "iVBORw0KGgo="}}
    result = {"type": "tool_result", "tool_use_id": "call00001", "content": [image], "is_error": True}
    history = [*SAID, {"role": "assistant", "content": [OSLO]}, {"role": "user", "content": [result]}]
    seen = play(ask(TOOL, messages=history), [reply("Rain.")])
    _, _, tool, images = seen.bodies[0]["messages"]
    assert tool == {
        "role": "tool",
        "tool_call_id": "call00001",
        "content": "(The images of this result follow in the next message.)",
    }
    assert images["content"][0]["type"] == "image_url"


def test_thoughts_go_back_to_the_server():
    said_before = [{"type": "thinking", "thinking": "Hm.", "signature": "promptools"}, OSLO]
    result = {"type": "tool_result", "tool_use_id": "call00001", "content": "rain"}
    history = [*SAID, {"role": "assistant", "content": said_before}, {"role": "user", "content": [result]}]
    seen = play(ask(TOOL, messages=history), [reply("Rain.")], target=target(reasoning_field="reasoning"))
    assert seen.bodies[0]["messages"][1]["reasoning"] == "Hm."


# --- headers


@pytest.mark.parametrize(
    ("given", "sent"),
    [
        ((("x-api-key", "k"),), "Bearer k"),
        ((("X-Api-Key", "k"), ("Authorization", "Bearer a")), "Bearer a"),
        ((("authorization", "Bearer a"),), "Bearer a"),
        ((), None),
    ],
)
def test_headers(given, sent):
    own = (("anthropic-version", "2023-06-01"), ("anthropic-beta", "any-2030"), ("user-agent", "claude-cli"))
    seen = play(ask(), [reply("Hi")], headers=(*own, *given))
    fields = {name.lower(): value for name, value in seen.sent[0].headers}
    assert fields == {"user-agent": "claude-cli", **({"authorization": sent} if sent else {})}


def test_the_base_url():
    assert api_base(f"{MESSAGES}?beta=true") == api_base(f"{MESSAGES}/count_tokens") == "http://server/v1"


# --- errors


def test_errors_of_the_server():
    seen = play(ask(), [error("no such model", 404)])
    assert seen.head.status == 404
    assert seen.json == {"type": "error", "error": {"type": "not_found_error", "message": "no such model"}}


def test_a_prompt_that_is_too_long():
    text = "request (9000 tokens) exceeds the available context size (8192 tokens), try increasing it"
    seen = play(ask(), [error(text, 400)] * 3, spare=True)
    assert seen.head.status == 400
    assert seen.json["error"]["type"] == "invalid_request_error"
    assert seen.json["error"]["message"].startswith("prompt is too long: ")


@pytest.mark.parametrize("body", [b"{", b"[]", b'"text"', b'{"model": "m"}', b'{"messages": [7]}'])
def test_what_is_not_a_request(body):
    seen = play(body, [])
    assert seen.head.status == 400
    assert seen.json["error"]["type"] == "invalid_request_error"


def test_a_stream_that_breaks_off():
    broken = Failed("closed", "peer closed the connection", 0.0, OSError("closed"))
    answer = stream("Let me look at it. ", finish=None, done=False)
    answer.broken = broken
    seen = play(ask(TOOL, stream=True), [answer])
    *_, last = events(seen)
    assert last["type"] == "error"
    assert last["error"]["type"] == "api_error"


def test_a_live_call_that_fails():
    text = '```json\n{"tool": "get_weather", "arguments": {"city": "Oslo", "days": "many"}}\n```'
    body = ask(TOOL, stream=True, promptools={"arguments": "live", "mode": "prompt"})
    last = events(play(body, [stream(*text)]))[-1]
    assert last["error"]["type"] == "api_error"


def test_pings_while_nothing_can_be_shown():
    answer = stream("Hi there.")
    answer.takes = 30.0
    seen = play(ask(TOOL, stream=True), [answer], tick=1.0)
    assert seen.body.count(b'event: ping\ndata: {"type":"ping"}\n\n') == 5
    assert [block["text"] for block in said(seen)] == ["Hi there."]


# --- the number of tokens


def count(body, **keys):
    return play(body, [], begin=count_message_tokens, **keys)


def test_tokens_are_estimated():
    seen = count(ask(TOOL, system="Be brief."))
    assert seen.head.status == 200
    number = seen.json["input_tokens"]
    assert 40 < number < 120
    image = {"type": "image", "source": {"type": "url", "url": "https://example.org/a.png"}}
    more = ask(TOOL, system="Be brief.", messages=[{"role": "user", "content": [image, {"type": "text", "text": "x"}]}])
    assert count(more).json["input_tokens"] > number + 1000


def test_a_count_of_what_cannot_be_sent_is_refused():
    for body in (b"{", {"model": "m"}, ask(messages=[{"role": "user", "content": 7}])):
        seen = count(body)
        assert seen.head.status == 400
        assert seen.json["type"] == "error"


@pytest.mark.parametrize(
    ("body", "message"), [(b"{}", "no messages"), (b"[]", "must be a JSON object"), (b"{", "must be a JSON object")]
)
def test_a_refused_count_says_what_is_wrong(body, message):
    assert message in count(body).json["error"]["message"]
