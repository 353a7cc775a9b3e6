"""Requests that come in on Ollama's API: passed to an Ollama as they are, converted for others, answered in lines."""

import json

import pytest
from scripted import JSON, NOW, SSE, URL, WEATHER, Answer, chunk, error, reply, stream, target
from scripted import play as play_chat

from promptools.errors import UsageError
from promptools.exchange import Failed, Route
from promptools.exchange.ollama_api import OLLAMA_API, serve_ollama_route
from promptools.exchange.state import api_base, route_url

CHAT = "http://server/api/chat"
V1 = URL
NDJSON = (("content-type", "application/x-ndjson"),)
CALL = {"id": "call_1", "function": {"index": 0, "name": "get_weather", "arguments": {"city": "Oslo"}}}
STRUCTURED = {
    "tool_calls": [
        {
            "index": 0,
            "id": "c1",
            "type": "function",
            "function": {"name": "get_weather", "arguments": '{"city":"Oslo"}'},
        }
    ]
}
FENCED = '```json\n{"tool": "get_weather", "arguments": {"city": "Oslo"}}\n```'
HARMONY = "unexpected tokens remaining in message header"


def ask(*tools, **more):
    body = {"model": "m", "messages": [{"role": "user", "content": "Weather in Oslo?"}], **more}
    return body | {"tools": list(tools)} if tools else body


def play(body, answers, **keys):
    return play_chat(body, answers, **{"url": CHAT, "front": OLLAMA_API, **keys})


def lines(seen):
    assert seen.body.endswith(b"\n")
    return [json.loads(each) for each in seen.body.splitlines()]


def said(seen):
    """Join the lines of a stream as a client does."""
    content = thinking = ""
    calls = []
    *parts, last = lines(seen)
    for part in (*parts, last):
        assert part["done"] is (part is last)
        message = part["message"]
        assert message["role"] == "assistant"
        content += message["content"]
        thinking += message.get("thinking", "")
        calls += [call["function"] for call in message.get("tool_calls", ())]
    return content, thinking, calls, last


def called(calls):
    return [(call["index"], call["name"], call["arguments"]) for call in calls]


OSLO = [(0, "get_weather", {"city": "Oslo"})]


# --- an upstream that is no Ollama


def test_a_whole_answer():
    seen = play(ask(WEATHER, stream=False), [reply(calls=[("get_weather", {"city": "Oslo"})], finish="tool_calls")])
    assert [each.url for each in seen.sent] == ["http://server/v1/chat/completions"]
    assert seen.json == {
        "model": "m",
        "created_at": "1970-01-01T00:00:07Z",
        "message": {
            "role": "assistant",
            "content": "",
            "tool_calls": [
                {"id": "call00001", "function": {"index": 0, "name": "get_weather", "arguments": {"city": "Oslo"}}}
            ],
        },
        "done": True,
        "done_reason": "stop",
        "total_duration": 0,
        "prompt_eval_count": 10,
        "eval_count": 9,
    }
    assert seen.headers == {
        "content-type": "application/json", "x-promptools-mode": "native", "x-promptools-attempts": "1",
    }  # fmt: skip


def test_without_tools_it_is_converted_too():
    answer = reply("Cold.", reasoning="Hm.", finish="length", logprobs={"content": [{"token": "Cold.", "logprob": 0}]})
    seen = play(ask(stream=False, options={"num_predict": 1, "num_ctx": 9}), [answer])
    assert seen.bodies[0]["max_tokens"] == 1
    assert seen.json["message"] == {"role": "assistant", "content": "Cold.", "thinking": "Hm."}
    assert (seen.json["done_reason"], seen.json["logprobs"]) == ("length", [{"token": "Cold.", "logprob": 0}])
    assert seen.reply.trace.notes == (
        "not sent: num_ctx of options; this server is not known to take it with a request",
    )


@pytest.mark.parametrize("cut", [0, 1, 7])
def test_a_stream(cut):
    usage = {"prompt_tokens": 10, "completion_tokens": 9, "total_tokens": 19}
    answer = stream(
        {"reasoning_content": "Hm."}, "Let me ", "look.", STRUCTURED, finish="tool_calls", usage=usage, cut=cut
    )
    seen = play(ask(WEATHER), [answer])
    assert seen.headers["content-type"] == "application/x-ndjson"
    content, thinking, calls, last = said(seen)
    assert (content, thinking, called(calls)) == ("Let me look.", "Hm.", OSLO)
    assert (last["done_reason"], last["eval_count"], last["prompt_eval_count"]) == ("stop", 9, 10)
    assert seen.bodies[0]["stream_options"] == {"include_usage": True}, "or there would be no counts"


def test_lines_go_out_as_things_become_certain():
    seen = play(ask(WEATHER), [stream("Let me ", "look.", cut=200)])
    assert len(seen.pieces) > 2
    assert all(piece.endswith(b"\n") for piece in seen.pieces)


def test_two_calls_keep_their_places():
    calls = [("get_weather", {"city": "Oslo"}), {"id": "c2", "function": {"name": "now", "arguments": "{}"}}]
    seen = play(ask(WEATHER, NOW, stream=False), [reply(calls=calls, finish="tool_calls")])
    assert called([each["function"] for each in seen.json["message"]["tool_calls"]]) == [*OSLO, (1, "now", {})]


def test_a_failure_is_healed_before_anything_is_certain():
    broken = stream(
        {"reasoning_content": "Hm."}, b'data: {"error": {"message": "%b"}}\n\n' % HARMONY.encode(), finish=None
    )
    seen = play(ask(WEATHER), [broken, stream(FENCED)])
    content, _, calls, last = said(seen)
    assert (content, called(calls), last["done_reason"]) == ("", OSLO, "stop")
    assert [each.outcome for each in seen.reply.trace.attempts] == ["harmony", "answered"]


def test_calls_are_whole_whatever_the_options_say():
    body = ask(WEATHER, promptools={"arguments": "live"})
    pieces = [{"tool_calls": [{"index": 0, "id": "c1", "function": {"name": "get_weather", "arguments": '{"ci'}}]}]
    pieces += [{"tool_calls": [{"index": 0, "function": {"arguments": 'ty": "Oslo"}'}}]}]
    assert called(said(play(body, [stream(*pieces, finish="tool_calls")]))[2]) == OSLO


def test_everything_can_be_held():
    body = ask(WEATHER, promptools={"hold": "all"})
    content, thinking, calls, _ = said(play(body, [stream({"reasoning_content": "Hm."}, "Hi.", STRUCTURED)]))
    assert (content, thinking, called(calls)) == ("Hi.", "Hm.", OSLO)


def test_the_trace_is_in_the_last_line():
    whole = play(ask(WEATHER, stream=False, promptools={"trace": True}), [reply("Hi.")]).json
    streamed = lines(play(ask(WEATHER, promptools={"trace": True}), [stream("Hi.")]))
    assert whole["promptools"]["mode"] == streamed[-1]["promptools"]["mode"] == "native"
    assert "promptools" not in streamed[0]


def test_how_long_it_took():
    first = error(HARMONY)
    first.takes = 2.0
    seen = play(ask(WEATHER, stream=False), [first, reply(FENCED)])
    assert seen.json["total_duration"] == 2_000_000_000


def test_what_a_llamacpp_tells_of_its_time():
    tail = {"timings": {"prompt_ms": 2, "predicted_ms": 3}}
    last = json.loads(chunk({}, "stop")[6:]) | tail
    seen = play(ask(WEATHER), [stream("Hi.", b"data: %b\n\n" % json.dumps(last).encode(), finish=None)])
    assert (said(seen)[3]["prompt_eval_duration"], said(seen)[3]["eval_duration"]) == (2_000_000, 3_000_000)


# --- an upstream that is an Ollama


def ollama(**facts):
    return target(wire="ollama", tool_choice=frozenset({"auto"}), **facts)


def whole(content="", *, done="stop", **more):
    body = {
        "model": "m",
        "created_at": "2026-11-21T08:02:00.7609199Z",
        "message": {"role": "assistant", "content": content},
    }
    body["message"] |= more
    body |= {"done": True, "done_reason": done, "load_duration": 3, "prompt_eval_count": 10, "eval_count": 9}
    return Answer(200, json.dumps(body).encode(), JSON)


UNTOUCHED = (
    b'{ "model":"m", "messages":[ {"role":"user","content":"Hi"} ], "stream":false, "options":{"num_ctx":9,"x":1},'
    b' "think":"low","format":{"type":"object"},"keep_alive":-1,"made_up":[1.0] }'
)


def test_what_concerns_no_tools_passes_byte_for_byte():
    answer = whole('{"hello": 1}')
    seen = play(UNTOUCHED, [answer], target=ollama())
    assert [(each.url, each.body) for each in seen.sent] == [(CHAT, UNTOUCHED)]
    assert seen.body == answer.body
    assert "x-promptools-mode" not in seen.headers
    assert seen.reply is None


@pytest.mark.parametrize("cut", [0, 1, 50])
def test_a_stream_passes_byte_for_byte(cut):
    body = (
        b'{"model": "m",  "message": {"role":"assistant","content":"He"}, "done":false}\n' + whole("llo").body + b"\n"
    )
    seen = play(ask(), [Answer(200, body, NDJSON, cut)], target=ollama())
    assert seen.body == body
    assert seen.headers["content-type"] == "application/x-ndjson"


def test_a_config_that_names_another_model_changes_that_alone():
    seen = play(ask(stream=False, made_up=1), [whole("Hi")], target=ollama(model="real"))
    assert seen.bodies == [ask(stream=False, made_up=1) | {"model": "real"}]
    assert seen.sent[0].url == CHAT


def test_a_configs_defaults_are_parameters_of_chat_completions():
    seen = play(ask(stream=False, options={"top_p": 1}), [whole("Hi")], target=ollama(defaults={"temperature": 0}))
    assert seen.bodies[0]["options"] == {"temperature": 0, "top_p": 1}
    assert seen.json["message"]["content"] == "Hi"


def test_an_error_passes_as_it_is():
    answer = Answer(404, b'{"error":"model \'m\' not found"}')
    seen = play(ask(), [answer], target=ollama())
    assert (seen.head.status, seen.body) == (404, answer.body)


def test_with_tools_it_is_read_and_written_anew():
    body = ask(WEATHER, stream=False, options={"num_ctx": 9, "temperature": 0}, think="low", keep_alive="5m")
    seen = play(body, [whole("", tool_calls=[CALL])], target=ollama())
    (sent,) = seen.bodies
    assert sent == body | {"truncate": False}
    assert called([each["function"] for each in seen.json["message"]["tool_calls"]]) == OSLO
    assert (seen.json["created_at"], seen.json["load_duration"]) == ("2026-11-21T08:02:00Z", 3)


def test_a_swallowed_call_is_asked_for_again():
    seen = play(ask(WEATHER, stream=False), [whole(""), whole(FENCED)], target=ollama())
    assert called([each["function"] for each in seen.json["message"]["tool_calls"]]) == OSLO
    assert seen.json["eval_count"] == 18, "both sends are counted"
    assert seen.headers["x-promptools-attempts"] == "2"


# --- errors


def test_our_own_errors_are_one_text():
    seen = play(ask(WEATHER, promptools={"mode": "magic"}), [])
    assert (seen.head.status, list(seen.json)) == (400, ["error"])
    assert "promptools.mode must be one of" in seen.json["error"]


def test_a_body_that_is_not_an_object_goes_to_the_server():
    seen = play(b"[]", [Answer(400, b'{"error":"no"}')], target=ollama())
    assert (seen.sent[0].url, seen.sent[0].body, seen.body) == (CHAT, b"[]", b'{"error":"no"}')


@pytest.mark.parametrize("wire", ["chat", "ollama"])
@pytest.mark.parametrize("tools", [[], [WEATHER]])
@pytest.mark.parametrize("images", ["x", [1], ["not base64!"], [{"a": 1}]])
def test_images_of_a_wrong_shape_are_a_clear_error(images, tools, wire):
    """A real Ollama answers 400; they were left out, and the model asked about a picture that it did not get."""
    asked = ask(*tools, messages=[{"role": "user", "content": "What is it?", "images": images}])
    seen = play(asked, [], target=target(wire=wire))
    assert (seen.head.status, seen.sent) == (400, [])
    assert seen.json["error"].startswith("'messages[0].images")


@pytest.mark.parametrize("body", [b"[]", b'"hi"', b"{not json", b""])
def test_before_another_server_a_body_that_is_not_an_object_is_a_clear_error(body):
    seen = play(body, [])
    assert (seen.head.status, seen.json) == (400, {"error": "the request's body must be a JSON object"})


@pytest.mark.parametrize("tools", [(), (WEATHER,)])
def test_another_servers_error_is_its_text(tools):
    seen = play(ask(*tools), [error("The model `m` does not exist.", 404)])
    assert (seen.head.status, seen.json) == (404, {"error": "The model `m` does not exist."})
    assert seen.headers["content-type"] == "application/json"


@pytest.mark.parametrize("body", [b"<html>bad gateway</html>", b'{"error": {}}', b'{"detail": "no"}', b""])
def test_odd_errors_have_a_text(body):
    seen = play(ask(WEATHER), [Answer(503, body)])
    assert seen.head.status == 503
    assert seen.json["error"]
    assert isinstance(seen.json["error"], str)


def test_when_every_attempt_failed_it_says_which():
    seen = play(ask(WEATHER), [error(HARMONY), error(HARMONY), error(HARMONY)])
    assert seen.head.status == 502
    assert seen.json["error"].startswith(f"every attempt failed (harmony: {HARMONY}). Tried: 1. native mode: harmony;")


def test_an_error_amid_a_stream_is_a_line():
    cut = Answer(200, chunk({"content": "Let me"}), SSE, broken=Failed("closed", "gone", 0))
    seen = play(ask(WEATHER), [cut])
    *parts, last = lines(seen)
    assert [part["message"]["content"] for part in parts] == ["Let me"]
    assert list(last) == ["error"]
    assert "cut" in last["error"]


def test_the_shells_own_error_is_raised_where_nobody_answered():
    gone = ConnectionRefusedError("nobody there")
    with pytest.raises(ConnectionRefusedError):
        play(ask(WEATHER), [Answer(0, broken=Failed("connect", "refused", 0, gone))])


def test_a_history_of_the_package():
    history = [
        {"role": "user", "content": "Weather in Oslo and Rome?"},
        {
            "role": "assistant",
            "thinking": "Two.",
            "tool_calls": [
                {"function": {"name": "get_weather", "arguments": {"city": "Oslo"}}},
                {"function": {"name": "get_weather", "arguments": {"city": "Rome"}}},
            ],
        },
        {"role": "tool", "content": "cold", "tool_name": "get_weather"},
        {"role": "tool", "content": "warm", "tool_name": "get_weather"},
    ]
    seen = play(ask(WEATHER, messages=history), [stream("So.")])
    _, calls, cold, warm = seen.bodies[0]["messages"]
    ids = [call["id"] for call in calls["tool_calls"]]
    assert len(set(ids)) == 2
    assert calls["reasoning_content"] == "Two."
    assert [(each["tool_call_id"], each["content"]) for each in (cold, warm)] == [(ids[0], "cold"), (ids[1], "warm")]


# --- other routes


def play_other(name, answers=(), **keys):
    return play(b"", answers, url=f"http://server/api/{name}", begin=serve_ollama_route, **keys)


def test_a_route_that_cannot_be_found_is_our_own_error():
    def nowhere(model, provider):
        raise UsageError("no such place")

    seen = play_other("tags", route=nowhere)
    assert (seen.head.status, seen.json) == (400, {"error": "no such place"})


def test_a_list_that_nobody_answers():
    seen = play_other("tags", [Answer(0, broken=Failed("connect", "refused", 0))], target=target(kind="vllm"))
    assert (seen.head.status, seen.json) == (
        502,
        {"error": "no answer from the server (connect: refused)"},
    )
    assert [(each.method, each.url) for each in seen.sent] == [("GET", "http://server/v1/models")]


@pytest.mark.parametrize("facts", [{"kind": "ollama"}, {"provider": None}])
def test_what_an_ollama_may_answer_is_left_to_it(facts):
    assert play_other("pull", target=target(**facts)).head is None


@pytest.mark.parametrize(
    ("version", "left"),
    [
        ({"version": "0.1"}, True),  # another server that emulates Ollama: its list of models is its own
        ((200, b"<html>"), False),
        ({"version": "0.32.15", "served_by": "promptools"}, True),  # another proxy, which answers by itself
        ((404, b""), False),
        ((501, b""), False),
        ((401, b"{}"), True),
        ((503, b""), True),
        (None, True),
    ],
)
@pytest.mark.parametrize("provider", [None, "box"])
def test_a_server_of_no_known_kind_answers_by_itself_only_where_it_may_be_able_to(version, left, provider):
    looked = {"/api/version": version, "/v1/models": {"data": [{"id": "m", "owned_by": "docker"}]}}
    place = target(provider=provider)
    route = Route(place, resolve=lambda seen: place)
    seen = play_other("ps", [] if left else [listed("m")], route=lambda model, name: route, looked=looked)
    assert (seen.head is None) is left


def listed(*names):
    return Answer(body=json.dumps({"object": "list", "data": [{"id": name} for name in names]}).encode())


def test_the_body_is_read_only_where_a_route_is_answered():
    generate = {"model": "m", "prompt": "Weather?", "stream": False}
    for kind, asked in (("ollama", 0), ("vllm", 1)):
        seen = play(
            generate,
            [reply("Cold.")] * asked,
            url="http://server/api/generate",
            begin=serve_ollama_route,
            target=target(kind=kind),
        )
        assert len(seen.sent) == asked
    assert seen.json["response"] == "Cold."


# --- places


@pytest.mark.parametrize(
    ("url", "path", "there"),
    [
        ("http://s/v1/chat/completions", "chat/completions", "http://s/v1/chat/completions"),
        ("http://s/v1/chat/completions/?a=b", "chat/completions", "http://s/v1/chat/completions/?a=b"),
        ("http://s/v1/chat/completions?a=b", "completions", "http://s/v1/completions?a=b"),
        ("http://s/v1/chat/completions?a=b", "models", "http://s/v1/models?a=b"),
        ("http://s/v1/chat/completions", "/api/chat", "http://s/api/chat"),
        ("http://s/api/v3/chat/completions", "models", "http://s/api/v3/models"),
        ("http://s/api/chat", "/api/chat", "http://s/api/chat"),
        ("http://s/api/chat", "chat/completions", "http://s/v1/chat/completions"),
        ("http://s/v1/api/chat", "chat/completions", "http://s/v1/chat/completions"),
        ("http://s/path/api/tags", "models", "http://s/path/v1/models"),
        ("http://s/api/blobs/sha256:0", "models", "http://s/v1/models"),
    ],
)
def test_another_route_of_the_same_server(url, path, there):
    assert route_url(url, path) == there


def test_the_base_of_what_is_neither():
    assert api_base("http://s/v1/") == "http://s/v1"
