"""Errors that are longer than any should be: little of them is read, and the client gets their start."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scripted import NOW, SSE, WEATHER, Answer, ask, call, error, event, play, reply, stream

from promptools.exchange import failures, salvage
from promptools.exchange.client_api import CHAT_API
from promptools.exchange.failures import CLIPPED, MAX_ERROR, SHOWN_ERROR, clip_error, quoting_message
from promptools.exchange.messages_api import MESSAGES_API
from promptools.exchange.ollama_api import OLLAMA_API
from promptools.exchange.responses_api import RESPONSES_API
from promptools.exchange.state import LARGE_WORK
from promptools.wire.chat_decoder import error_of

WORDS = "much of it "
LONG = WORDS * (2 * MAX_ERROR // len(WORDS))
CUT = 100_000
CITY = {"city": "Paris", "days": 3}
FRONTS = {
    "chat": (CHAT_API, ask()),
    "messages": (MESSAGES_API, {**ask(), "max_tokens": 9}),
    "ollama": (OLLAMA_API, {**ask(), "stream": False}),
    "responses": (RESPONSES_API, {"model": "m", "input": "Weather in Paris?"}),
}


def read(answer):
    """Count the bytes that are taken of an answer."""
    answer.taken = 0

    def pieces():
        for start in range(0, len(answer.body), CUT):
            answer.taken += len(answer.body[start : start + CUT])
            yield answer.body[start : start + CUT]

    answer.pieces = pieces
    return answer


@pytest.mark.parametrize("name", FRONTS)
@pytest.mark.parametrize("tools", [False, True], ids=["plain", "tools"])
def test_the_client_gets_the_start_of_a_long_error_in_its_own_api(name, tools):
    front, body = FRONTS[name]
    if tools:
        offered = {"messages": {"name": "now", "input_schema": {"type": "object"}}, "responses": NOW["function"]}
        tool = {"type": "function", **offered[name]} if name == "responses" else offered.get(name, NOW)
        body = {**body, "tools": [tool]}
    answer = read(error(LONG, 400))
    seen = play(body, [answer], front=front)
    assert seen.head.status == 400
    assert answer.taken <= MAX_ERROR + CUT
    assert seen.abandoned == 1
    text = error_of(seen.json).message
    assert text.endswith(CLIPPED)
    assert text.startswith(WORDS)
    assert SHOWN_ERROR * 0.9 < len(seen.body) < SHOWN_ERROR + 2 * len(CLIPPED)
    assert f"longer than {MAX_ERROR:,} bytes" in text


@pytest.mark.parametrize("tools", [(), (WEATHER,)], ids=["plain", "tools"])
@pytest.mark.parametrize("size", [10, SHOWN_ERROR + 1, MAX_ERROR - 100])
def test_any_other_error_reaches_the_client_byte_for_byte(tools, size):
    answer = error("x" * size, 400)
    seen = play(ask(*tools), [answer])
    assert seen.body == answer.body
    assert seen.abandoned == 0


def test_a_long_error_keeps_no_field_that_describes_all_of_it():
    answer = error(LONG, 400)
    length = ("Content-Length", str(len(answer.body)))
    answer.headers = (*answer.headers, length, ("ETag", '"1"'), ("x-request-id", "7"))
    seen = play(ask(), [answer])
    assert seen.headers == {"content-type": "application/json", "x-request-id": "7"}


def test_an_error_that_cannot_be_read_passes_whole():
    answer = Answer(500, b"\x1b" * 2 * MAX_ERROR, (*error("").headers, ("content-encoding", "br")), cut=CUT)
    seen = play(ask(), [answer])
    assert seen.body == answer.body


@pytest.mark.parametrize(
    "said",
    [
        {"error": LONG},
        {"error": {"message": LONG, "code": 400}},
        {"error": {"code": 400, "message": LONG}},
        {"object": "error", "message": LONG},
        {"detail": LONG},
        [{"error": {"message": LONG}}],
    ],
)
def test_json_stays_json_of_the_same_shape(said):
    data = json.dumps(said).encode()
    short = json.loads(clip_error(data))
    assert type(short) is type(said)
    message = error_of(short).message
    assert message.startswith(WORDS)
    assert message.endswith(CLIPPED)
    assert set(short if isinstance(short, dict) else short[0]) == set(said if isinstance(said, dict) else said[0])


@pytest.mark.parametrize("data", [b"<html>" + b"x" * MAX_ERROR, b"[" * 2 * MAX_ERROR, b"\xff" * 2 * MAX_ERROR])
def test_any_other_text_gets_the_mark_at_its_end(data):
    short = clip_error(data)
    assert short.decode("utf-8", "replace").endswith(CLIPPED)
    assert short.startswith(data[:5])


@pytest.mark.parametrize("before", range(8))
def test_no_character_is_cut_in_two(before):
    text = "a" * before + "日本🙂" * SHOWN_ERROR
    assert "\ufffd" not in clip_error(json.dumps({"error": text}, ensure_ascii=False).encode()).decode()
    assert "\ufffd" not in clip_error(text.encode()).decode()
    assert error_of(json.loads(clip_error(json.dumps({"error": text}).encode()))).message.startswith(text[:1000])


@pytest.mark.parametrize("rest", ["", LONG], ids=["short", "long"])
def test_what_a_long_error_says_at_its_start_decides_what_is_done_about_it(rest):
    words = "registry.ollama.ai/library/m does not support tools"
    seen = play(ask(WEATHER), [error(words + rest, 400), reply("Sunny.")])
    assert seen.reply.content == "Sunny."
    assert [attempt.outcome for attempt in seen.reply.trace.attempts] == ["no_native_tools", "answered"]


def test_a_traceback_of_any_length_names_its_exception_last():
    text = f"Traceback (most recent call last):\n{LONG[: MAX_ERROR // 2]}\nopenai_harmony.HarmonyError: odd tokens"
    seen = play(ask(WEATHER), [error(text), reply("Sunny.")])
    assert seen.reply.trace.attempts[0].outcome == "harmony"


# -- under HTTP 200


@pytest.mark.parametrize("streamed", [False, True])
def test_a_long_error_under_200_is_clipped_too(streamed):
    said = {"error": {"message": LONG, "code": 400}}
    answer = Answer(200, event(said), SSE) if streamed else Answer(200, json.dumps(said).encode())
    seen = play(ask(WEATHER, stream=streamed), [answer])
    assert len(seen.body) < SHOWN_ERROR + 3 * len(CLIPPED)
    assert error_of(seen.json).message.endswith(CLIPPED)


def test_a_long_reply_is_not_an_error():
    content = json.dumps({"error": LONG})
    assert play(ask(WEATHER), [reply(content)]).reply.content == content


# -- calls inside


def crashed(arguments, end="', err=invalid character"):
    return f"error parsing tool call: raw='{arguments}{end}"


def padded(size):
    """Arguments of so many characters."""
    return json.dumps({**CITY, "city": ('Paris \n"quoted" \\ 日本🙂 ' * size)[:size]}, ensure_ascii=False)


@pytest.mark.parametrize("size", [1_000, MAX_ERROR - 2_000, MAX_ERROR, 3 * MAX_ERROR])
@pytest.mark.parametrize("where", ["status", "whole", "stream", "ollama"])
def test_a_call_inside_an_error_of_any_length_is_read(size, where):
    arguments = padded(size)
    said = {"error": {"message": crashed(arguments), "type": "api_error"}}
    answer = Answer(500, json.dumps(said).encode(), cut=CUT)
    if where == "whole":
        answer = Answer(200, json.dumps(said).encode())
    if where == "stream":
        answer = Answer(200, event(said), SSE, cut=CUT)
    if where == "ollama":
        answer = Answer(500, json.dumps({"error": said["error"]["message"]}, ensure_ascii=False).encode(), cut=CUT)
    seen = play(ask(WEATHER, stream=where == "stream"), [answer])
    (found,) = seen.reply.calls
    assert found.arguments == json.loads(arguments)
    assert found.name == "get_weather"


def test_a_reply_inside_a_long_error_is_read_with_all_its_calls():
    calls = [{"name": "get_weather", "arguments": {"city": f"{number} " * 5_000}} for number in range(200)]
    text = "".join(f"<tool_call>\n{json.dumps(each)}\n</tool_call>\n" for each in calls)
    assert len(text) > MAX_ERROR
    seen = play(ask(WEATHER), [error(f"Failed to parse input at pos 0: {text}")])
    assert [found.arguments for found in seen.reply.calls] == [each["arguments"] for each in calls]


@pytest.mark.parametrize("kind", ["arguments", "reply"])
def test_nothing_is_read_out_of_an_error_that_is_longer_than_a_reply_may_be(kind):
    text = crashed(padded(3 * MAX_ERROR))
    if kind == "reply":  # its first calls would look whole
        one = json.dumps({"name": "get_weather", "arguments": {"city": "x" * 1_000}})
        text = "Failed to parse input at pos 0: " + f"<tool_call>\n{one}\n</tool_call>\n" * 3_000
    answer = read(error(text))
    seen = play(ask(WEATHER), [answer, reply("Sunny.")], max_reply=2 * MAX_ERROR)
    assert answer.taken <= 2 * MAX_ERROR + 2 * CUT
    assert not seen.reply.calls
    assert seen.reply.content == "Sunny."


def test_more_of_an_error_is_read_only_where_a_call_may_be():
    answer = read(error(LONG * 3))
    play(ask(WEATHER), [answer, reply("Sunny.")])
    assert answer.taken <= MAX_ERROR + CUT


def test_arguments_that_would_hold_the_interpreter_are_not_read(monkeypatch):
    monkeypatch.setattr(salvage, "MAX_VALUES", 100)
    few, many = ({"city": "x", "list": [0] * number} for number in (90, 110))
    assert play(ask(WEATHER), [error(crashed(json.dumps(few)))]).reply.calls
    assert not play(ask(WEATHER), [error(crashed(json.dumps(many))), reply("Sunny.")]).reply.calls


@given(st.text(), st.integers(1, 9), st.booleans())
def test_a_message_is_decoded_in_slices_as_in_one(text, size, ascii_only):
    message = crashed(text)
    for said in ({"error": {"type": "x", "message": message, "code": 1}}, {"error": message}, {"message": message}):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(failures, "_SLICE", size + 11)  # a pair of surrogates is never cut
            patch.setattr(failures, "_COMPARED", 5)
            data = json.dumps(said, ensure_ascii=ascii_only)
            lone = any(0xD800 <= ord(character) <= 0xDFFF for character in text)
            assert quoting_message(data) == ("" if lone and ascii_only else message)
            assert quoting_message(data[: data.rindex("err=")]) == ""  # it does not end


# -- where it is done


def test_what_is_long_is_left_to_the_shell_and_what_is_short_is_not():
    short = "x" * (LARGE_WORK // 2)
    assert play(ask(WEATHER), [error(short, 400)]).computed == 0
    assert play(ask(), [error(short, 400)]).computed == 0
    assert play(ask(WEATHER), [error(2 * short, 400)]).computed == 2  # what kind it is, and calls in it
    assert play(ask(), [error(2 * short, 400)]).computed == 1


@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize("native", [False, True])
def test_a_long_reply_is_read_and_written_by_the_shell(streamed, native):
    def said(size):
        arguments = json.dumps({"city": "x" * size})
        if native:
            message = {"tool_calls": [{"index": 0, **call("get_weather", arguments)}]}
        else:
            message = {"content": f'<tool_call>\n{{"name": "get_weather", "arguments": {arguments}}}\n</tool_call>'}
        choice = {"index": 0, "delta" if streamed else "message": message, "finish_reason": "stop"}
        body = {"id": "c", "object": "o", "created": 7, "model": "m", "choices": [choice]}
        return Answer(200, event(body), SSE, cut=4096) if streamed else Answer(200, json.dumps(body).encode(), cut=4096)

    body = ask(WEATHER, stream=streamed)
    assert play(body, [said(1_000)]).computed == 0
    seen = play(body, [said(2 * LARGE_WORK)])
    assert seen.reply.calls[0].arguments == {"city": "x" * 2 * LARGE_WORK}
    assert seen.computed == 4  # read, judged, written, ended


def test_a_stream_of_words_is_read_at_once_however_long_it_is():
    seen = play(ask(WEATHER, stream=True), [stream(*["some words "] * (LARGE_WORK // 4), cut=4096)])
    assert seen.computed <= 3  # at its end
