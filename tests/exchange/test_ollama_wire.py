"""An upstream that is spoken to in Ollama's own API: what is sent where, what comes of it, and the context it gets."""

import json

import pytest
from scripted import JSON, NOW, WEATHER, Answer, ask, error, play, reply, stream, target

from promptools.exchange import Failed, Route
from promptools.exchange.effects import Opened
from promptools.exchange.passthrough import PassthroughMonitor
from promptools.fallback import Breaker, ContextSizes

NDJSON = (("content-type", "application/x-ndjson"),)
FENCED = '```json\n{"tool": "get_weather", "arguments": {"city": "Lima"}}\n```'
CALL = {"id": "call_1", "function": {"index": 0, "name": "get_weather", "arguments": {"city": "Oslo"}}}
DIED = b'{"error":"an error was encountered while running the model: unexpected EOF"}\n'


def ollama(**facts):
    weak = {"tool_choice": frozenset({"auto"}), "n": False, "parallel_tool_calls": False}
    return target(**{"wire": "ollama", **weak, **facts})


def said(content="", *, done=None, **more):
    body = {"model": "m", "created_at": "2026-11-21T08:02:00Z", "message": {"role": "assistant", "content": content}}
    body["message"] |= more
    if done is None:
        return body | {"done": False}
    return body | {"done": True, "done_reason": done, "prompt_eval_count": 10, "eval_count": 9}


def whole(content="", *, done="stop", **more):
    return Answer(200, json.dumps(said(content, done=done, **more)).encode(), JSON)


def lines(*given, cut=0):
    """Write a stream: strings are pieces of content, dicts lines, bytes go in as they are."""
    made = [said(each) if isinstance(each, str) else each for each in given]
    body = b"".join(each if isinstance(each, bytes) else json.dumps(each).encode() + b"\n" for each in made)
    return Answer(200, body, NDJSON, cut)


def too_long(prompt, context):
    inner = {"code": 400, "message": f"request ({prompt} tokens) exceeds the available context size ({context} tokens)"}
    return Answer(400, json.dumps({"error": json.dumps({"error": inner})}).encode(), JSON)


def outcomes(seen):
    return [(each.mode, each.outcome) for each in seen.reply.trace.attempts]


# --- what is sent where


@pytest.mark.parametrize(
    ("base", "root"),
    [
        ("http://box:11434/v1", "http://box:11434"),
        ("http://box:11434", "http://box:11434"),
        ("https://gate/v1/ollama/v1", "https://gate/v1/ollama"),
        ("https://gate/v1x", "https://gate/v1x"),
    ],
)
def test_the_route_is_below_the_servers_root(base, root):
    where = Route(ollama(), url=f"{base}/chat/completions")
    seen = play(ask(WEATHER), [whole(tool_calls=[CALL])], route=lambda model, provider: where)
    assert [each.url for each in seen.sent] == [f"{root}/api/chat"]


def test_a_request_without_tools_is_converted_too():
    body = {"model": "m", "messages": [{"role": "user", "content": "Hi"}], "max_tokens": 5, "user": "u"}
    seen = play(body, [whole("Hello")], target=ollama())
    assert seen.bodies == [
        {
            "model": "m",
            "messages": [{"role": "user", "content": "Hi"}],
            "stream": False,
            "truncate": False,
            "options": {"num_predict": 5},
        }
    ]
    assert seen.message["content"] == "Hello"
    assert seen.json["usage"] == {"prompt_tokens": 10, "completion_tokens": 9, "total_tokens": 19}
    assert seen.reply.trace.notes == ("not sent: user; it is for OpenAI's own accounts",)


def test_what_cannot_be_carried_goes_by_v1_and_is_read_as_that():
    image = {"type": "image_url", "image_url": {"url": "https://pictures.example/a.png"}}
    body = {**ask(WEATHER), "messages": [{"role": "user", "content": [{"type": "text", "text": "What?"}, image]}]}
    seen = play(body, [reply("A cat.")], target=ollama())
    assert seen.sent[0].url == "http://server/v1/chat/completions"
    assert seen.bodies[0]["messages"] == body["messages"]
    assert seen.message["content"] == "A cat."
    assert any(
        note.startswith("sent by /v1/chat/completions: /api/chat has no place") for note in seen.reply.trace.notes
    )


def test_a_config_can_go_back_to_v1():
    seen = play(ask(WEATHER), [reply("Hi")], target=ollama(wire="chat"))
    assert seen.sent[0].url == "http://server/v1/chat/completions"
    assert "truncate" not in seen.bodies[0]


def test_calls_and_results_of_the_past_go_in_ollamas_form_in_both_modes():
    past = [
        {"role": "user", "content": "Weather?"},
        {
            "role": "assistant",
            "content": None,
            "reasoning_content": "Look it up.",
            "tool_calls": [{"id": "c1", "function": {"name": "get_weather", "arguments": '{"city": "Oslo"'}}],
        },
        {"role": "tool", "tool_call_id": "c1", "content": "4 C"},
    ]  # fmt: skip
    seen = play({**ask(WEATHER), "messages": past}, [whole(), whole("It is 4 C.")], target=ollama())
    native, prompt = (each["messages"] for each in seen.bodies)
    assert native[1] == {
        "role": "assistant",
        "content": "",
        "thinking": "Look it up.",
        "tool_calls": [{"id": "c1", "function": {"name": "get_weather", "arguments": {"city": "Oslo"}}}],
    }
    assert native[2] == {"role": "tool", "content": "4 C", "tool_name": "get_weather", "tool_call_id": "c1"}
    assert "tools" not in seen.bodies[1]
    assert [each["role"] for each in prompt] == ["system", "user", "assistant", "user"]
    assert outcomes(seen) == [("native", "swallowed"), ("prompt", "answered")]


def test_a_forced_call_is_constrained_by_the_format():
    forced = ask(WEATHER, tool_choice="required")
    words = [whole("No."), whole("No."), whole('{"tool": "get_weather", "arguments": {"city": "Oslo"}}')]
    seen = play(forced, words, target=ollama(constrained="response_format"))
    assert seen.bodies[2]["format"]["properties"]["tool"] == {"const": "get_weather"}
    assert seen.message["tool_calls"][0]["function"]["name"] == "get_weather"


def test_choices_are_asked_for_one_by_one():
    seen = play(ask(WEATHER, n=2), [whole(tool_calls=[CALL]), whole("Cold.")], target=ollama())
    assert [each["finish_reason"] for each in seen.json["choices"]] == ["tool_calls", "stop"]
    assert len(seen.sent) == 2


# --- what comes of it


@pytest.mark.parametrize("cut", [0, 1, 5])
def test_a_stream_of_lines_is_a_stream_of_events(cut):
    pieces = [said(thinking="Hm."), "It is ", "cold.", said(tool_calls=[CALL]), said(done="stop")]
    seen = play(
        ask(WEATHER, stream=True, stream_options={"include_usage": True}), [lines(*pieces, cut=cut)], target=ollama()
    )
    one = seen.choice()
    assert (one.reasoning, one.content, one.finish) == ("Hm.", "It is cold.", ["tool_calls"])
    assert one.calls == {0: {"id": "call_1", "name": "get_weather", "arguments": '{"city": "Oslo"}'}}
    assert seen.events[0]["model"] == "m"
    assert seen.events[0]["created"] == 1795248120
    assert seen.events[0]["id"].startswith("chatcmpl-")
    assert seen.events[-1]["usage"] == {"prompt_tokens": 10, "completion_tokens": 9, "total_tokens": 19}
    assert seen.done
    assert "stream_options" not in seen.bodies[0]


def test_parallel_calls_that_all_say_index_0_stay_apart():
    other = {"function": {"index": 0, "name": "now", "arguments": {}}}
    pieces = [said(tool_calls=[CALL]), said(tool_calls=[other]), said(tool_calls=[other]), said(done="stop")]
    seen = play(ask(WEATHER, NOW, stream=True), [lines(*pieces)], target=ollama())
    assert [each["name"] for each in seen.choice().calls.values()] == ["get_weather", "now", "now"]


@pytest.mark.parametrize("end", [b"", DIED, b'{"error":"EOF"}', b"not json\n"])
@pytest.mark.parametrize("before", [(), ("  ",), (said(thinking="Hm."),)])
def test_a_stream_that_breaks_off_before_content_is_asked_for_again(before, end):
    again = lines(FENCED, said(done="stop"))
    seen = play(ask(WEATHER, stream=True), [lines(*before, end), again], target=ollama())
    assert [name for name, _ in outcomes(seen)] == ["native", "prompt"]
    assert seen.choice().calls[0]["arguments"] == '{"city": "Lima"}'
    assert seen.done


@pytest.mark.parametrize(("end", "kind"), [(b"", "cut"), (DIED, "cut"), (b'{"error":"EOF"}\n', "server_parser")])
def test_a_stream_that_breaks_off_after_content_is_an_error_and_no_answer(end, kind):
    seen = play(ask(WEATHER, stream=True), [lines("Well,", end)], target=ollama())
    assert seen.choice().content == "Well,"
    assert seen.events[-1]["error"]["code"] == kind
    assert not seen.done


def test_a_request_without_tools_is_asked_for_once_more_when_the_runner_died():
    body = {"model": "m", "messages": [{"role": "user", "content": "Hi"}], "stream": True}
    seen = play(body, [lines(DIED), lines("Hello", said(done="stop"))], target=ollama())
    assert seen.choice().content == "Hello"
    assert outcomes(seen) == [("native", "cut"), ("native", "answered")]


def test_a_stream_that_was_not_asked_for_is_read_all_the_same():
    seen = play(ask(WEATHER), [lines("It is ", "cold.", said(done="stop"))], target=ollama())
    assert seen.message["content"] == "It is cold."
    broken = play(ask(WEATHER), [lines("It is "), lines("It is cold.", said(done="stop"))], target=ollama())
    assert outcomes(broken) == [("native", "cut"), ("prompt", "answered")]


def test_a_model_that_was_only_loaded_says_nothing():
    seen = play(
        ask(WEATHER),
        [Answer(200, json.dumps(said("") | {"done": True, "done_reason": "load"}).encode(), JSON)],
        target=ollama(swallows=False),
    )
    assert seen.json["choices"][0]["finish_reason"] == "stop"  # fmt: skip


@pytest.mark.parametrize(
    ("status", "text", "kind"),
    [
        (404, "model 'nope' not found", "not_found_error"),
        (400, "model is required", "invalid_request_error"),
        (503, "server busy, please try again.  maximum pending requests exceeded", "api_error"),
    ],
)
@pytest.mark.parametrize("streamed", [False, True])
def test_an_error_of_the_server_is_written_as_openais(status, text, kind, streamed):
    refusal = Answer(
        status, json.dumps({"error": text}).encode(), (("content-type", "application/json; charset=utf-8"),)
    )
    seen = play(ask(WEATHER, stream=streamed), [refusal], target=ollama())
    assert seen.head.status == status
    assert seen.headers["content-type"] == "application/json"
    assert seen.json == {"error": {"message": text, "type": kind, "param": None, "code": None}}


def test_a_page_that_is_not_there_is_told_as_it_was():
    missing = Answer(404, b"404 page not found", (("content-type", "text/plain"),))
    seen = play(ask(WEATHER), [missing], target=ollama())
    assert seen.json["error"]["message"] == "404 page not found"


def test_a_connection_that_broke_is_the_shells_to_raise():
    gone = ConnectionError("refused")
    with pytest.raises(ConnectionError):
        play(ask(WEATHER), [Answer(0, broken=Failed("connect", "refused", 0, gone))], target=ollama())


# --- the context


@pytest.mark.parametrize("streamed", [False, True])
def test_a_prompt_that_is_too_long_raises_the_context_to_fit(streamed):
    good = lines(said(tool_calls=[CALL]), said(done="stop")) if streamed else whole(tool_calls=[CALL])
    seen = play(ask(WEATHER, stream=streamed), [too_long(30352, 4096), good], target=ollama())
    assert [each.get("options") for each in seen.bodies] == [None, {"num_ctx": 34 * 1024}]
    assert outcomes(seen) == [("native", "overflow"), ("native", "answered")]
    assert seen.reply.trace.attempts[0].why.endswith("sent again with a context that holds the prompt (num_ctx 34816)")
    assert seen.reply.calls[0].name == "get_weather"


def test_the_answer_gets_the_room_that_the_request_names():
    seen = play(ask(WEATHER, max_tokens=100), [too_long(30352, 4096), whole("Cold.")], target=ollama())
    assert seen.bodies[1]["options"] == {"num_predict": 100, "num_ctx": 30 * 1024}


def test_an_app_without_tools_gets_it_too():
    body = {"model": "m", "messages": [{"role": "user", "content": "Hi"}]}
    seen = play(body, [too_long(5000, 4096), whole("Hello")], target=ollama())
    assert seen.bodies[1]["options"] == {"num_ctx": 9 * 1024}
    assert seen.message["content"] == "Hello"


@pytest.mark.parametrize(
    ("facts", "more"),
    [
        ({"num_ctx_limit": 30_000}, {}),
        ({"num_ctx": "server"}, {}),
        ({"num_ctx": 4096}, {}),
        ({"wire": "chat"}, {}),
        ({}, {"options": {"num_ctx": 4096}}),
    ],
)
@pytest.mark.parametrize("streamed", [False, True])
def test_a_prompt_that_cannot_be_fitted_is_a_clear_error(facts, more, streamed):
    seen = play(ask(WEATHER, stream=streamed, **more), [too_long(30352, 4096)], target=ollama(**facts))
    assert seen.head.status == 400
    assert seen.headers["x-should-retry"] == "false"
    told = seen.json["error"]
    assert (told["type"], told["code"]) == ("invalid_request_error", "context_length_exceeded")
    limit = "; it may be raised to 30000 (num_ctx_limit)" if "num_ctx_limit" in facts else ""
    assert told["message"].startswith(
        "request (30352 tokens) exceeds the available context size (4096 tokens)"
        f" The conversation does not fit: the prompt has 30352 tokens, and the context holds 4096{limit}. Shorten it,"
    )
    assert told["message"].endswith("Tried: 1. native mode: overflow")


def test_a_context_that_is_named_is_asked_for_from_the_start():
    seen = play(ask(WEATHER), [whole("Cold.")], target=ollama(num_ctx=16384))
    assert seen.bodies[0]["options"] == {"num_ctx": 16384}


def test_a_context_that_the_model_was_not_made_for_is_raised_once():
    answers = [too_long(30352, 4096), too_long(30352, 8192)]
    seen = play(ask(WEATHER), answers, target=ollama())
    assert seen.head.status == 400
    assert "the prompt has 30352 tokens, and the context holds 8192" in seen.json["error"]["message"]
    assert [each["outcome"] for each in seen.json["error"]["attempts"]] == ["overflow", "overflow"]


def test_prompt_mode_may_need_another_context():
    answers = [too_long(5000, 4096), whole(), too_long(9000, 9216), whole(FENCED)]
    seen = play(ask(WEATHER), answers, target=ollama())
    assert [(each.get("options") or {}).get("num_ctx") for each in seen.bodies] == [None, 9216, 9216, 13312]
    assert seen.reply.calls[0].arguments == {"city": "Lima"}


def test_what_fitted_once_is_asked_for_again():
    windows, breaker = ContextSizes(), Breaker()
    shared = {"target": ollama(), "context_sizes": windows, "breaker": breaker}
    play(ask(WEATHER), [too_long(5000, 4096), whole("Cold.")], **shared)
    seen = play(ask(WEATHER, n=2), [whole("Cold."), whole("Cold.")], at=200.0, **shared)
    assert [each["options"] for each in seen.bodies] == [{"num_ctx": 9216}] * 2
    assert seen.reply.trace.notes[0].startswith("num_ctx 9216 was asked for: an earlier request needed it")
    other = play(ask(WEATHER, model="other"), [whole("Cold.")], at=200.0, **shared)
    assert "options" not in other.bodies[0]
    late = play(ask(WEATHER), [whole("Cold.")], at=600.0, **shared)
    assert "options" not in late.bodies[0]


PICTURE = {"type": "image_url", "image_url": {"url": "http://box/cat.png"}}


@pytest.mark.parametrize(
    "body",
    [
        ask(WEATHER, options={"num_ctx": 4096}),
        ask(WEATHER, messages=[{"role": "user", "content": [PICTURE]}]),  # goes by /v1, which cannot set the context
    ],
)
def test_a_context_is_told_of_only_where_it_was_asked_for(body):
    windows = ContextSizes()
    windows.put(("local", "m"), 9216, 99.0)
    content = {"role": "assistant", "content": "Cold."}
    v1 = {"choices": [{"index": 0, "message": content, "finish_reason": "stop"}]}
    answer = whole("Cold.") if "options" in body else Answer(200, json.dumps(v1).encode(), JSON)
    seen = play(body, [answer], target=ollama(), context_sizes=windows)
    assert seen.message["content"] == "Cold."
    assert not [note for note in seen.reply.trace.notes if "num_ctx" in note]


def test_the_context_is_not_raised_where_it_cannot_be_set():
    body = ask(WEATHER, messages=[{"role": "user", "content": [PICTURE]}])
    seen = play(body, [too_long(5000, 4096)], target=ollama())
    assert len(seen.bodies) == 1
    assert seen.json["error"]["code"] == "context_length_exceeded"
    assert "num_ctx_limit)." not in seen.json["error"]["message"]


@pytest.mark.parametrize("nested", [False, True])
def test_numbers_beside_the_words_are_read(nested):
    message = "the request exceeds the available context size, try increasing it"
    inner = {"code": 400, "message": message, "type": "exceed_context_size_error", "n_prompt_tokens": 5000}
    inner |= {"n_ctx": 4096}
    refused = {"error": json.dumps({"error": inner}) if nested else inner}
    answer = Answer(400, json.dumps(refused).encode(), JSON)
    told = play(ask(WEATHER), [answer]).json["error"]
    assert told["code"] == "context_length_exceeded"
    assert "does not fit: the prompt has 5000 tokens, and the context holds 4096. Shorten" in told["message"]
    seen = play(ask(WEATHER), [answer, whole("Cold.")], target=ollama())
    assert seen.bodies[1]["options"] == {"num_ctx": 9216}


def test_a_context_that_did_not_serve_is_not_remembered():
    windows = ContextSizes()
    play(ask(WEATHER), [too_long(5000, 4096), too_long(5000, 4096)], target=ollama(), context_sizes=windows)
    assert windows.get(("local", "m"), 100.0) is None


@pytest.mark.parametrize("streamed", [False, True])
def test_other_servers_say_the_same(streamed):
    text = (
        "This model's maximum context length is 2048 tokens. However, your prompt contains at least 2049 input tokens"
    )
    for body in (ask(WEATHER, stream=streamed), {"model": "m", "messages": [], "stream": streamed}):
        seen = play(body, [error(text, 400)])
        assert seen.head.status == 400
        assert seen.json["error"]["code"] == "context_length_exceeded"
        assert "the prompt has at least 2049 tokens, and the context holds 2048" in seen.json["error"]["message"]


def test_a_context_that_the_answer_filled_is_told_in_the_stream():
    said = b'data: {"error": {"code": 500, "message": "Context size has been exceeded.", "type": "server_error"}}\n\n'
    seen = play(ask(WEATHER, stream=True), [stream("Well", said, finish=None, done=False)])
    assert seen.choice().content == "Well"
    assert seen.events[-1]["error"]["code"] == "context_length_exceeded"
    assert not seen.done


# --- requests that pass untouched

OPENED = Opened(200, NDJSON, 0.0)


def watched(*given, cut, streamed=True):
    watch = PassthroughMonitor(streamed=streamed, swallows=True, wire="ollama")
    passed = b"".join(watch.feed(piece) for piece in (lines(*given, cut=cut).pieces()))
    return watch, passed + watch.end()


@pytest.mark.parametrize("cut", [0, 1, 7])
def test_lines_pass_as_they_come(cut):
    given = (said(thinking="Hm."), "It is ", "cold.", said(done="stop"))
    watch, passed = watched(*given, cut=cut)
    assert watch.has_content
    assert watch.failure(OPENED) is None
    assert passed + watch.held == lines(*given).body


@pytest.mark.parametrize("cut", [0, 1, 7])
@pytest.mark.parametrize(
    ("given", "kind"),
    [
        ((said(thinking="Hm."), said(done="stop")), "swallowed"),
        ((said(thinking="Hm."), b'{"error":"EOF"}\n'), "server_parser"),
        ((said(thinking="Hm."),), "cut"),
    ],
)
def test_lines_that_end_badly_are_held(given, kind, cut):
    watch, passed = watched(*given, cut=cut)
    assert watch.failure(OPENED).kind == kind
    assert passed in {b"", lines(said(thinking="Hm.")).body}


def test_a_whole_answer_is_looked_at():
    answer = whole("Hello").body
    watch = PassthroughMonitor(streamed=False, swallows=True, wire="ollama")
    assert watch.feed(answer) + watch.end() == b""
    assert watch.has_content
    assert watch.held == answer
