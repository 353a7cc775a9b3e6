"""Before and after raw mode: where it is tried, what happens where nothing is rendered, and where it cannot be."""

import json
from itertools import count

import pytest
from raw_servers import (
    CALL,
    END,
    FACTS,
    FENCED,
    PARIS,
    PROMPT,
    SERVERS,
    TEMPLATE,
    modes,
    paths,
    prompt_of,
    rendered,
    said,
    server,
    streamed,
)
from scripted import NOW, URL, WEATHER, Answer, ask, error, event, play, reply, stream
from tenacity import stop_after_attempt

from promptools.exchange.effects import Failed
from promptools.fallback import Breaker, BreakerKey


@pytest.fixture(params=FACTS)
def kind(request):
    return request.param


IMAGE = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA"}}


# --- from mode to mode


ORDER = ("native", "raw", "prompt")
NATIVE_FAILURES = {
    "its parser": error("Failed to parse input at pos 12: <tool_call>"),
    "its parser, EOF": error("EOF"),
    "crashed": error("boom"),
    "swallowed": reply("", usage={"prompt_tokens": 1, "completion_tokens": 40, "total_tokens": 41}),
    "calls that are not there": reply("", finish="tool_calls"),
    "malformed": reply(calls=[("get_weather", '{"city": ')], finish="tool_calls"),
    "no tools": error("m does not support tools", 400),
    "garbled": Answer(200, b"<html>"),
}


@pytest.mark.parametrize("how", NATIVE_FAILURES)
def test_where_native_mode_fails_raw_mode_is_tried(how):
    options = {"corrections": 0}
    answers = [NATIVE_FAILURES[how], *rendered("llamacpp"), said("llamacpp")]
    seen = play(ask(WEATHER, promptools=options), answers, target=server(modes=ORDER))
    assert [request.url for request in seen.sent] == [
        URL, "http://server/apply-template", "http://server/completion"
    ]  # fmt: skip
    assert seen.message["tool_calls"][0]["function"] == PARIS
    assert [mode for mode, _ in modes(seen)] == ["native", "raw"]
    assert seen.headers["x-promptools-attempts"] == "2"


def test_an_error_inside_a_stream_is_not_seen():
    broken = stream({"reasoning": "Hm. "}, event({"error": {"message": "EOF", "code": 500}}), finish=None)
    seen = play(
        ask(WEATHER, stream=True), [broken, *rendered("tokenize"), streamed("tokenize")],
        target=server("tokenize", modes=ORDER),
    )  # fmt: skip
    assert seen.choice().finish == ["tool_calls"]
    assert {key: seen.choice().calls[0][key] for key in PARIS} == PARIS


def test_after_raw_mode_comes_prompt_mode():
    answers = [error("EOF"), *rendered("llamacpp"), error("out of memory"), reply(FENCED)]
    seen = play(ask(WEATHER), answers, target=server(modes=ORDER))
    assert modes(seen) == [("native", "server_parser"), ("raw", "crashed"), ("prompt", "answered")]
    assert paths(seen)[-1] == "/v1/chat/completions"


def test_where_native_mode_answers_nothing_is_rendered():
    seen = play(ask(WEATHER), [reply("Sunny.")], target=server(modes=ORDER))
    assert paths(seen) == ["/v1/chat/completions"]


REFUSALS = {
    "404": error("not found", 404),
    "403": error("forbidden", 403),
    "405": Answer(405, b""),
    "500": error("boom", 500),
    "501": error("not supported", 501),
    "template": error("Jinja Exception: no such variable", 500),
    "no tools": error("m does not support tools", 400),
    "not JSON": Answer(200, b"<html>hello</html>"),
    "no object": Answer(200, b"[1]"),
    "no prompt": Answer(200, b'{"prompt": null, "tokens": [], "_debug_info": {}}'),
    "a chat": reply("Sunny."),
    "cut": Answer(200, b'{"prompt": "<|im', broken=Failed("closed", "gone", 0.0)),
    "lost": Answer(0, broken=Failed("connect", "refused", 0.0)),
    "too slow": Answer(0, broken=Failed("timeout", "no answer", 0.0)),
}


@pytest.mark.parametrize("how", REFUSALS)
@pytest.mark.parametrize("name", SERVERS)
@pytest.mark.parametrize("order", [ORDER, ("raw", "prompt")])
def test_where_the_prompt_is_not_rendered_the_next_mode_is_tried(name, how, order):
    first = [error("EOF")] if order is ORDER else []
    seen = play(ask(WEATHER), [*first, REFUSALS[how], reply(FENCED)], target=server(name, order, wire="chat"))
    assert [mode for mode, _ in modes(seen)] == list(order)
    assert modes(seen)[-1] == ("prompt", "answered")
    assert seen.message["tool_calls"][0]["function"] == PARIS
    assert int(seen.headers["x-promptools-attempts"]) == len(order)


def test_a_connection_that_the_server_closed_is_opened_again():
    lost = Answer(0, broken=Failed("closed", "gone", 0.0))
    seen = play(
        ask(WEATHER), [error("boom"), lost, *rendered("llamacpp"), said("llamacpp")], target=server(modes=ORDER)
    )
    assert modes(seen) == [("native", "crashed"), ("raw", "answered")]
    assert any("had closed the connection" in note for note in seen.reply.trace.notes)


def test_what_native_mode_left_is_answered_where_nothing_else_can_be_tried():
    wrong = reply("I cannot.")
    body = ask(WEATHER, tool_choice="required", promptools={"corrections": 0})
    seen = play(body, [wrong, error("not found", 404), wrong], target=server(modes=("native", "raw")), spare=True)
    assert seen.message["content"] == "I cannot."


def test_where_nothing_renders_and_another_sample_may_succeed_native_mode_is_asked_once_more():
    answers = [error("EOF"), error("not found", 404), reply("Sunny.")]
    seen = play(ask(WEATHER), answers, target=server(modes=("native", "raw")))
    assert modes(seen) == [("native", "server_parser"), ("raw", "no_raw"), ("native", "answered")]


def test_after_the_deadline_nothing_is_tried():
    slow = Answer(0, broken=Failed("timeout", "no answer", 0.0), takes=5.0)
    seen = play(ask(WEATHER), [slow], target=server(modes=("raw", "prompt")), deadline=5.0)
    assert seen.head.status == 502
    assert seen.json["error"]["code"] == "timeout"
    assert seen.timeouts == [5.0]


def test_what_is_not_rendered_does_not_count_for_a_stop_policy():
    answers = [error("EOF"), error("not found", 404), reply(FENCED)]
    seen = play(ask(WEATHER), answers, target=server(modes=ORDER), stop=stop_after_attempt(2))
    assert modes(seen) == [("native", "server_parser"), ("raw", "no_raw"), ("prompt", "answered")]
    assert seen.headers["x-promptools-attempts"] == "3", "as in the trace"


def test_the_breaker_remembers_a_server_that_does_not_render():
    breaker, clock = Breaker(), count(100)
    for _ in range(3):
        play(ask(WEATHER), [error("not found", 404), reply(FENCED)], target=server(modes=("raw", "prompt")),
             breaker=breaker, at=next(clock))  # fmt: skip
    seen = play(ask(WEATHER), [reply(FENCED)], target=server(modes=("raw", "prompt")), breaker=breaker, at=next(clock))
    assert any(note.startswith("raw mode was skipped: it failed lately") for note in seen.reply.trace.notes)


def only_raw_is_closed():
    breaker = Breaker()
    for mode in ("native", "prompt"):
        breaker.record_failure(BreakerKey("local", "m", mode), 100.0, why="cut", lasting=True)
    return breaker


@pytest.mark.parametrize("how", ["404", "a chat"])
def test_a_mode_that_failed_lately_serves_where_no_other_is_possible(how):
    answers = [REFUSALS[how], reply(FENCED)]
    seen = play(ask(WEATHER), answers, target=server(modes=ORDER, wire="chat"), breaker=only_raw_is_closed())
    assert modes(seen) == [("raw", "no_raw"), ("native", "answered")]
    assert seen.message["tool_calls"][0]["function"] == PARIS


def test_a_mode_that_failed_lately_serves_where_no_other_can_render_the_request():
    media = {"role": "user", "content": [IMAGE]}
    body = {**ask(WEATHER), "messages": [media]}
    seen = play(body, [reply(FENCED)], target=server(modes=ORDER), breaker=only_raw_is_closed())
    assert modes(seen) == [("native", "answered")]
    assert any("raw mode was passed over" in note for note in seen.reply.trace.notes)


def test_the_template_does_not_show_the_tools(kind, tmp_path):
    facts, hidden = without_tools(kind, tmp_path)
    seen = play(ask(WEATHER), [*hidden, reply(FENCED)], target=server(kind, ("raw", "prompt"), **facts, wire="chat"))
    assert modes(seen) == [("raw", "no_native_tools"), ("prompt", "answered")]
    assert "does not show it the tools" in seen.reply.trace.attempts[0].why


def without_tools(kind, tmp_path):
    """Facts of a template that shows no tools, and what the server answers to it."""
    if kind != "file":
        return {}, rendered(kind, PROMPT.replace("get_weather", ""))
    file = tmp_path / "plain.jinja"
    file.write_text("{% for message in messages %}{{ message.content }}{% endfor %}", encoding="utf-8")
    return {"chat_template": str(file)}, []


@pytest.mark.parametrize("how", ["pinned", "the only mode"])
def test_the_template_does_not_show_the_tools_and_no_other_mode_is_wanted(kind, how, tmp_path):
    facts, answers = without_tools(kind, tmp_path)
    pinned, modes = ({"promptools": {"mode": "raw"}}, ORDER) if how == "pinned" else ({}, ("raw",))
    seen = play(ask(WEATHER, **pinned), answers, target=server(kind, modes, **facts, wire="chat"))
    assert (seen.head.status, seen.json["error"]["type"]) == (400, "UsageError")
    said = seen.json["error"]["message"]
    assert said.startswith("the model's template does not show it the tools, so raw mode is not possible: leave `mode`")


def test_an_ollama_that_refuses_tools_where_raw_mode_is_pinned():
    refusal = error("registry.ollama.ai/library/m:latest does not support tools", 400)
    seen = play(ask(WEATHER, promptools={"mode": "raw"}), [refusal], target=server("ollama", ORDER))
    assert (seen.head.status, seen.json["error"]["type"]) == (400, "UsageError")
    assert "m:latest does not support tools" in seen.json["error"]["message"]
    assert "raw mode is not possible" in seen.json["error"]["message"]


def test_one_of_several_names_shows_the_tools():
    seen = play(ask(NOW, WEATHER), [*rendered("llamacpp"), said("llamacpp")], target=server())
    assert modes(seen) == [("raw", "answered")]


def test_ids_alone_are_continued_unseen():
    blind = json.loads(rendered("tokenize")[0].body)
    del blind["token_strs"]
    answer = said("tokenize", "<think>\nHm.\n</think>\n\n" + CALL)
    seen = play(ask(WEATHER), [Answer(200, json.dumps(blind).encode()), answer], target=server("tokenize"))
    assert seen.message["tool_calls"][0]["function"] == PARIS
    assert "stop" not in seen.bodies[1] or END not in seen.bodies[1]["stop"]


# --- where it cannot be


def with_image(**more):
    body = ask(WEATHER, **more)
    body["messages"] = [{"role": "user", "content": [{"type": "text", "text": "What is this?"}, IMAGE]}]
    return body


def test_images_are_passed_over(kind):
    seen = play(with_image(), [reply("A cat.")], target=server(kind, ("raw", "prompt"), wire="chat"))
    assert modes(seen) == [("prompt", "answered")]
    assert any(note.startswith("raw mode was passed over: a prompt cannot hold") for note in seen.reply.trace.notes)


def test_images_after_a_failure_of_native_mode():
    seen = play(with_image(), [error("EOF"), reply("A cat.")], target=server(modes=ORDER))
    assert modes(seen) == [("native", "server_parser"), ("prompt", "answered")]
    seen = play(with_image(), [error("EOF"), reply("A cat.")], target=server(modes=("native", "raw")))
    assert modes(seen) == [("native", "server_parser"), ("raw", "tool_media"), ("native", "answered")]


def test_images_where_raw_mode_is_pinned():
    seen = play(with_image(promptools={"mode": "raw"}), [], target=server(modes=ORDER))
    assert (seen.head.status, seen.json["error"]["type"]) == (400, "UsageError")
    assert "a prompt cannot hold" in seen.json["error"]["message"]
    seen = play(with_image(), [], target=server())
    assert seen.head.status == 400


def test_an_image_does_not_count_against_raw_mode():
    breaker, clock = Breaker(), count(100)
    for _ in range(5):
        play(with_image(), [reply("A cat.")], target=server(modes=("raw", "prompt")), breaker=breaker, at=next(clock))
    seen = play(ask(WEATHER), [*rendered("llamacpp"), said("llamacpp")], target=server(modes=("raw", "prompt")),
                breaker=breaker, at=next(clock))  # fmt: skip
    assert modes(seen) == [("raw", "answered")]


def test_pinned(kind):
    pinned = ask(WEATHER, promptools={"mode": "raw"})
    seen = play(pinned, [*rendered(kind), said(kind)], target=server(kind, ORDER))
    assert modes(seen) == [("raw", "answered")]
    plain = play(ask(promptools={"mode": "raw"}), [*rendered(kind), said(kind, "Hi.")], target=server(kind, ORDER))
    assert (plain.message["content"], plain.headers["x-promptools-mode"]) == ("Hi.", "raw")


@pytest.mark.parametrize("facts", [{"raw": None}, {"template_endpoint": None}])
def test_pinned_where_it_is_impossible(facts):
    seen = play(ask(WEATHER, promptools={"mode": "raw"}), [], target=server(modes=ORDER, **facts))
    assert (seen.head.status, seen.json["error"]["type"]) == (400, "UsageError")
    assert "raw mode needs a server that renders its chat template" in seen.json["error"]["message"]
    seen = play(ask(WEATHER), [reply("Sunny.")], target=server(modes=("raw", "native"), **facts))
    assert modes(seen) == [("native", "answered")]


def test_pinned_where_the_server_does_not_render():
    pinned = ask(WEATHER, promptools={"mode": "raw"})
    seen = play(pinned, [error("File Not Found", 404)], target=server(modes=ORDER))
    assert (seen.head.status, seen.json["error"]["message"]) == (404, "File Not Found")
    seen = play(pinned, [Answer(200, b"<html>")], target=server(modes=ORDER))
    assert seen.head.status == 502
    assert "the server's answer holds no rendered prompt" in seen.json["error"]["message"]
    gone = OSError("gone")
    with pytest.raises(OSError, match="gone"):
        play(pinned, [Answer(0, broken=Failed("connect", "refused", 0.0, gone))], target=server(modes=ORDER))


def test_a_template_file_that_is_missing(tmp_path):
    missing = str(tmp_path / "nowhere.jinja")
    seen = play(ask(WEATHER), [reply(FENCED)], target=server("file", ("raw", "prompt"), chat_template=missing))
    assert modes(seen) == [("prompt", "answered")]
    assert any("nowhere.jinja' cannot be read" in note for note in seen.reply.trace.notes)
    pinned = ask(WEATHER, promptools={"mode": "raw"})
    seen = play(pinned, [], target=server("file", chat_template=missing))
    assert (seen.head.status, seen.json["error"]["type"]) == (400, "UsageError")


def test_a_template_file_goes_before_the_servers_own():
    seen = play(ask(WEATHER), [said("llamacpp")], target=server(chat_template=str(TEMPLATE)))
    assert paths(seen) == ["/completion"]
    assert prompt_of(seen) == PROMPT


def test_a_conversation_that_ollamas_api_has_no_place_for():
    body = ask(WEATHER)
    body["messages"] = []
    seen = play(body, [reply(FENCED)], target=server("ollama", ("raw", "prompt"), wire="chat"))
    assert modes(seen) == [("prompt", "answered")]
    assert any("has no place for a part of the conversation" in note for note in seen.reply.trace.notes)


def test_a_request_without_tools_is_not_rendered():
    seen = play(ask(), [reply("Hi.")], target=server(modes=ORDER))
    assert paths(seen) == ["/v1/chat/completions"]
    assert seen.bodies[0] == ask()


# --- nothing of raw mode is left in the mode after it


def test_a_reply_in_the_mode_after_it_is_checked_for_text_that_the_server_dropped():
    usage = {"prompt_tokens": 10, "completion_tokens": 90, "total_tokens": 100}
    answers = [*rendered("tokenize"), error("out of memory"), stream("Let me look.", usage=usage)]
    target = server("tokenize", modes=("raw", "native"), cuts_streams=True)
    seen = play(ask(WEATHER, stream=True), answers, target=target)
    assert modes(seen) == [("raw", "crashed"), ("native", "empty_calls")]
    assert seen.choice().finish == ["length"]


def test_the_text_of_an_error_is_read_where_no_prompt_was_rendered():
    failed = error("Failed to parse input at pos 0: It is sunny.")
    seen = play(ask(), [failed, *rendered("llamacpp"), error("out of memory")], target=server())
    assert seen.message["content"] == "It is sunny."
