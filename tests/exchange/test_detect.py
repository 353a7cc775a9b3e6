"""The look at a server before it is first spoken to: when, what with, what is remembered, and what it changes."""

import json
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from scripted import WEATHER, Answer, ask, error, play, reply

from promptools.exchange import DetectionCache, Failed, Route, detection
from promptools.exchange.state import route_url
from promptools.profiles import Config, resolve
from promptools.types import ServerInfo

RECORDED = json.loads((Path(__file__).parents[1] / "recordings/looks/servers.json").read_text(encoding="utf-8"))
OLLAMA = {path: tuple(said) for path, said in RECORDED["ollama 0.32.15"].items() if path not in {"*", "/api/show"}}
SHOW = {name: said for name, (_, said) in RECORDED["ollama 0.32.15"]["/api/show"].items()}
SEVEN = ["/api/version", "/version", "/props", "/api/v0/models", "/api/v1/models", "/v1/models"]
URL = "http://server/v1/chat/completions"
CONFIG = Config()


def told(body):
    status, value = body
    return status, json.dumps(value).encode()


def ollama(model=None):
    looked = {path: told(said) for path, said in OLLAMA.items()}
    return {**looked, "/api/show": SHOW[model] if model else (404, b'{"error":"model not found"}')}


VLLM = {"/version": {"version": "0.32.0"}, "/v1/models": {"data": [{"id": "m", "owned_by": "vllm"}]}}


def routed(provider=None, headers=(), url=None, **overrides):
    """Routes as a session makes them."""

    def route(model, named):
        def find(seen=None):
            base = None if provider else "http://server/v1"
            return resolve(model, base_url=base, provider=provider, config=CONFIG, overrides=overrides, seen=seen)

        target = find()
        return Route(target, url, headers, resolve=find if target.probe else None)

    return route


def paths(seen):
    return [[urlsplit(each.url).path for each in look.requests] for look in seen.looks]


def called():
    """A call as /api/chat writes it."""
    call = {"function": {"name": "get_weather", "arguments": {"city": "Paris"}}}
    body = {"model": "m", "message": {"role": "assistant", "content": "", "tool_calls": [call]}, "done": True}
    return Answer(body=json.dumps({**body, "done_reason": "stop", "eval_count": 9}).encode())


def test_a_server_is_looked_at_once():
    cache = DetectionCache()
    first = play(ask(), [reply("hi")], looked=VLLM, route=routed(), detection_cache=cache)
    assert paths(first) == [SEVEN]
    assert first.sent[0].url == URL
    again = play(ask(WEATHER), [reply("hi")], looked=VLLM, route=routed(), detection_cache=cache)
    assert again.looks == []
    assert again.reply.trace.seen.kind == "vllm"
    assert again.reply.trace.seen.seconds == 0.0
    other = play(ask(), [reply("hi")], looked=VLLM, route=routed())
    assert paths(other) == [SEVEN]


def test_what_was_seen_is_in_the_trace_and_in_the_answer():
    body = {**ask(WEATHER), "promptools": {"trace": True}}
    seen = play(body, [reply("It is sunny.")], looked=VLLM, route=routed())
    found = seen.reply.trace.seen
    assert (found.kind, found.version, found.why) == ("vllm", "0.32.0", "its models are owned by vllm")
    assert found.asked[0] == ("GET /api/version", "HTTP 404")
    assert found.seconds == 0.25
    assert seen.json["promptools"]["seen"] == found.to_dict()


def test_without_a_look_the_trace_says_nothing_of_one():
    seen = play({**ask(WEATHER), "promptools": {"trace": True}}, [reply("It is sunny.")])
    assert seen.looks == []
    assert seen.reply.trace.seen is None
    assert seen.json["promptools"]["seen"] is None


def test_a_server_that_is_named_and_tells_nothing_is_not_looked_at():
    seen = play(ask(WEATHER), [reply("It is sunny.")], route=routed("transformers-serve"))
    assert seen.looks == []


def test_a_vllm_that_is_named_is_asked_for_its_version_once():
    cache = DetectionCache()
    oss = "openai/gpt-oss-20b"
    looked = {"/version": {"version": "0.28.0"}, "/v1/models": {"data": [{"id": oss, "max_model_len": 8192}]}}
    completion = Answer(body=json.dumps({"choices": [{"text": FINAL, "finish_reason": "stop"}]}).encode())
    for looks in ([["/version", "/v1/models"]], []):
        seen = play(ask(WEATHER, model=oss), [completion], looked=looked, route=routed("vllm"), detection_cache=cache)
        assert paths(seen) == looks
        assert seen.headers["x-promptools-mode"] == "harmony"
        assert (seen.reply.trace.seen.version, seen.reply.trace.seen.context) == ("0.28.0", 8192)
    other = play(ask(WEATHER, model="other"), [reply("hi")], route=routed("vllm"), detection_cache=cache)
    assert other.looks == []
    assert other.reply.trace.seen.version == "0.28.0"


def test_a_named_vllm_that_is_not_up_yet_is_asked_again():
    cache = DetectionCache()
    for looked, version in ((dict.fromkeys(["/version", "/v1/models"]), None), (VLLM, "0.32.0"), ({}, "0.32.0")):
        seen = play(ask(WEATHER), [reply("hi")], looked=looked, route=routed("vllm"), detection_cache=cache)
        assert seen.reply.trace.seen.version == version


def test_what_somebody_called_a_server_is_not_what_it_is_for_others():
    cache = DetectionCache()
    for provider, kind in (("vllm", "vllm"), (None, None), ("ollama", "ollama"), (None, None)):
        seen = play(
            ask(WEATHER), [spoken()], looked={"/api/show": SHOW["go"]}, route=routed(provider), detection_cache=cache
        )
        assert seen.reply.trace.seen.kind == kind


def spoken():
    """Words, as either API writes them."""
    body = {**json.loads(reply("hi").body), "message": {"role": "assistant", "content": "hi"}, "done": True}
    return Answer(body=json.dumps({**body, "done_reason": "stop"}).encode())


TEMPLATES = Path(__file__).parents[2] / "promptools/lab/templates"
LLAMACPP = {path: said[1] for path, said in RECORDED["llama.cpp (xllamacpp 2026.10.11549)"].items() if path != "*"}
HARMONY = {"/props": {**LLAMACPP["/props"], "chat_template": (TEMPLATES / "harmony.jinja").read_text()}}
FINAL = "<|channel|>analysis<|message|>Easy.<|end|><|start|>assistant<|channel|>final<|message|>Sunny."
BROKEN = "The model produced output that does not match the expected peg-native format"


@pytest.mark.parametrize("named", [None, "llamacpp"])
@pytest.mark.parametrize("model", ["tiny", "qwen3", "gpt-4o", "openai/gpt-oss-20b"])
def test_gpt_oss_on_llamacpp_is_known_under_any_name(named, model):
    looked = {**LLAMACPP, **HARMONY}
    raw = {"content": FINAL, "stop": True, "stop_type": "eos", "index": 0}
    answers = [error(BROKEN), Answer(body=json.dumps(raw).encode())]
    cache = DetectionCache()
    seen = play(ask(WEATHER, model=model), answers, looked=looked, route=routed(named), detection_cache=cache)
    assert [each.mode for each in seen.reply.trace.attempts] == ["native", "harmony"]
    assert seen.message["content"] == "Sunny."
    assert (seen.reply.trace.seen.family, seen.reply.trace.seen.context) == ("gpt-oss", 16384)
    again = play(ask(WEATHER, model="another"), answers, route=routed(named), detection_cache=cache)
    assert again.looks == []
    assert again.reply.trace.mode == "harmony"


@pytest.mark.parametrize("named", [None, "llamacpp"])
def test_the_model_of_a_server_that_takes_any_name_may_be_another_after_a_while(named):
    cache = DetectionCache()
    hermes = {"/props": {**LLAMACPP["/props"], "chat_template": (TEMPLATES / "hermes.jinja").read_text()}}
    silent = dict.fromkeys(SEVEN)
    for at, looked, family in (
        (100, {**LLAMACPP, **HARMONY}, "gpt-oss"),
        (159, {**LLAMACPP, **hermes}, "gpt-oss"),
        (161, {**LLAMACPP, **hermes}, "hermes"),
        (230, silent, "hermes"),  # one that is too busy to tell is still the one that it was
        (231, {**LLAMACPP, **HARMONY}, "gpt-oss"),
    ):
        seen = play(ask(WEATHER), [reply("hi")], looked=looked, route=routed(named), detection_cache=cache, at=at)
        assert (seen.reply.trace.seen.kind, seen.reply.trace.seen.family) == ("llamacpp", family)
        assert bool(seen.looks) is (at != 159)


def test_an_ollama_that_is_seen_is_asked_by_its_own_api_and_what_its_model_can_do():
    cache = DetectionCache()
    seen = play(ask(WEATHER, model="go"), [called()], looked=ollama("go"), route=routed(), detection_cache=cache)
    assert paths(seen) == [SEVEN, ["/api/show"]]
    (show,) = seen.looks[1].requests
    assert (show.method, json.loads(show.body)) == ("POST", {"model": "go"})
    assert urlsplit(seen.sent[0].url).path == "/api/chat"
    assert seen.message["tool_calls"][0]["function"]["arguments"] == '{"city": "Paris"}'
    assert seen.reply.trace.seen.capabilities == ("completion", "tools")
    again = play(ask(WEATHER, model="go"), [called()], route=routed(), detection_cache=cache)
    assert again.looks == []
    other = play(
        ask(WEATHER, model="gptoss"), [called()], looked=ollama("gptoss"), route=routed(), detection_cache=cache
    )
    assert paths(other) == [["/api/show"]]
    assert other.reply.trace.seen.capabilities == ("completion", "tools", "thinking")
    assert other.reply.trace.seen.asked[0] == ("GET /api/version", "HTTP 200")


@pytest.fixture
def two_seconds(monkeypatch):
    """As the package has it; tests that look at real servers have minutes."""
    monkeypatch.setattr(detection, "PROBE_TIMEOUT", 2.0)


def test_both_looks_at_an_ollama_share_two_seconds(two_seconds):
    seen = play(ask(WEATHER, model="go"), [called()], looked=ollama("go"), route=routed())
    assert [look.timeout for look in seen.looks] == [2.0, 1.75]


def test_a_model_without_tools_is_prompted_at_once_and_not_told_to_think():
    fenced = '```json\n{"tool": "get_weather", "arguments": {"city": "Paris"}}\n```'
    said = {"message": {"role": "assistant", "content": fenced}, "done": True, "done_reason": "stop"}
    answer = Answer(body=json.dumps(said).encode())
    body = ask(WEATHER, model="notools", reasoning_effort="high")
    seen = play(body, [answer], looked=ollama("notools"), route=routed())
    assert seen.headers["x-promptools-mode"] == "prompt"
    assert "tools" not in seen.bodies[0]
    assert "think" not in seen.bodies[0]
    assert "the reasoning parameters were left out: the model does not take them" in seen.reply.trace.notes


def test_reasoning_parameters_are_left_out_of_what_would_pass_untouched():
    body = ask(model="m", reasoning_effort="high")
    seen = play(body, [reply("hi")], route=routed("vllm", thinking=False))
    assert "reasoning_effort" not in seen.bodies[0]
    kept = play(body, [reply("hi")], route=routed("vllm"))
    assert kept.bodies[0] == body


def test_of_an_ollama_that_is_named_only_the_model_is_asked_about():
    seen = play(ask(WEATHER, model="go"), [called()], looked=ollama("go"), route=routed("ollama"))
    assert paths(seen) == [["/api/show"]]
    found = seen.reply.trace.seen
    assert (found.kind, found.version, found.why) == (
        "ollama", None, "the server is named; only its version and its models were asked about"
    )  # fmt: skip


def test_a_model_that_is_not_there_yet_is_asked_about_again():
    cache = DetectionCache()
    for _ in range(2):
        seen = play(ask(WEATHER, model="go"), [called()], looked=ollama(), route=routed(), detection_cache=cache)
        assert seen.looks[-1].requests[0].url == "http://server/api/show"
    assert paths(seen) == [["/api/show"]]
    assert seen.reply.trace.seen.capabilities is None


def test_without_a_model_there_is_none_to_ask_about():
    body = {"messages": [{"role": "user", "content": "hi"}]}
    seen = play(body, [error("model is required", 400)], looked=ollama(), route=routed())
    assert paths(seen) == [SEVEN]


def test_a_look_that_nobody_answered_is_taken_again():
    cache = DetectionCache()
    silent = dict.fromkeys([*SEVEN])
    seen = play(ask(WEATHER), [reply("hi")], looked=silent, route=routed(), detection_cache=cache)
    assert seen.reply.trace.seen.why == "nothing answered in time"
    again = play(ask(WEATHER), [reply("hi")], looked=VLLM, route=routed(), detection_cache=cache)
    assert again.reply.trace.seen.kind == "vllm"


def test_a_server_that_tells_nothing_is_not_looked_at_again():
    cache = DetectionCache()
    for looks in (1, 0):
        seen = play(ask(WEATHER), [reply("hi")], route=routed(), detection_cache=cache)
        assert len(seen.looks) == looks
        assert seen.reply.trace.seen.kind is None


def test_a_server_that_went_away_is_looked_at_again():
    cache = DetectionCache()
    play(ask(WEATHER), [reply("hi")], looked=VLLM, route=routed(), detection_cache=cache)
    gone = Answer(0, broken=Failed("connect", "refused", 0.0, ConnectionError("refused")))
    with pytest.raises(ConnectionError):
        play(ask(WEATHER), [gone, gone], route=routed(), detection_cache=cache, spare=True)
    seen = play(ask(WEATHER), [reply("hi")], looked=VLLM, route=routed(), detection_cache=cache)
    assert paths(seen) == [SEVEN]


def test_sglang_is_asked_for_its_version_too():
    looked = {
        "/v1/models": {"data": [{"id": "m", "owned_by": "sglang"}]},
        "/get_server_info": {"version": "0.5.10", "api_key": "secret"},
    }
    seen = play(ask(WEATHER), [reply("hi")], looked=looked, route=routed())
    assert paths(seen) == [SEVEN, ["/server_info", "/get_server_info"]]
    assert seen.reply.trace.seen.version == "0.5.10"
    assert "secret" not in json.dumps(seen.reply.to_dict())


def test_the_look_carries_the_clients_own_key_and_nothing_of_its_body():
    headers = (
        ("Authorization", "Bearer sk-mine"), ("X-Gateway", "g"), ("Content-Type", "application/json"),
        ("Content-Length", "99"), ("Accept", "text/event-stream"), ("User-Agent", "OpenAI/Python"),
    )  # fmt: skip
    seen = play(ask(WEATHER, model="go"), [called()], headers=headers, looked=ollama("go"), route=routed())
    fields = {name.lower(): value for name, value in seen.looks[0].requests[0].headers}
    assert fields == {
        "authorization": "Bearer sk-mine",
        "x-gateway": "g",
        "accept": "application/json",
        "connection": "close",
        "user-agent": "promptools",
    }
    (show,) = seen.looks[1].requests
    assert ("content-type", "application/json") in show.headers
    assert "sk-mine" not in json.dumps(seen.reply.to_dict())
    assert not any("sk-mine" in line for line in seen.log)


def test_a_look_elsewhere_goes_there_with_that_places_key():
    route = routed("ollama", (("authorization", "Bearer theirs"), ("cookie", "")), "http://other:1/v1/chat/completions")
    headers = (("Authorization", "Bearer sk-mine"), ("Cookie", "secret"))
    seen = play(ask(WEATHER, model="go"), [called()], headers=headers, looked=ollama("go"), route=route)
    (show,) = seen.looks[0].requests
    assert show.url == "http://other:1/api/show"
    assert [value for name, value in show.headers if name.lower() in {"authorization", "cookie"}] == ["Bearer theirs"]


@pytest.mark.parametrize(("deadline", "timeouts"), [(10.0, [2.0, 1.75]), (4.0, [1.0, 0.75]), (0.5, [0.125])])
def test_a_look_leaves_the_request_most_of_its_deadline(two_seconds, deadline, timeouts):
    seen = play(
        ask(WEATHER, model="go"), [called()], looked=ollama("go"), route=routed(), deadline=deadline, spare=True
    )
    assert [look.timeout for look in seen.looks] == timeouts


def test_a_body_that_is_not_json_is_sent_on_without_a_look():
    seen = play(b"{", [error("bad JSON", 400)], route=routed())
    assert seen.looks == []
    assert seen.head.status == 400


def test_a_request_that_passes_untouched_is_still_the_clients_own_bytes():
    body = b'{ "model":"m", "messages": [] }'
    seen = play(body, [reply("hi")], looked=VLLM, route=routed())
    assert paths(seen) == [SEVEN]
    assert seen.sent[0].body == body


def test_sights_are_bounded_and_forgotten_by_server():
    cache = DetectionCache(limit=2)
    for root in ("a", "b", "c"):
        cache.put(root, "", ServerInfo(kind="vllm", seconds=1.0))
    assert cache.get("a") is None
    assert cache.get("c") == ServerInfo(kind="vllm")
    cache.put("c", "m", ServerInfo())
    cache.evict("c")
    assert cache.get("c") is cache.get("c", "m") is None


@pytest.mark.parametrize("host", ["v1", "api", "host/v1", "[::1]:9"])
@pytest.mark.parametrize("path", ["/api/chat", "completions"])
def test_another_route_is_on_the_same_host_whatever_its_name(host, path):
    made = route_url(f"http://{host}/chat/completions?a=1", path)
    assert made.startswith(f"http://{host.removesuffix('/v1')}/")
    assert made.endswith(f"{path}?a=1")
