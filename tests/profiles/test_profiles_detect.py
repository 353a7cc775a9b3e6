"""What a server's answers to a look are taken to mean, from what real servers answered and documented ones would."""

import json
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from promptools.profiles import Config, Provider, resolve
from promptools.profiles.server_detection import (
    ProbeResponse,
    is_server_final,
    model_requests,
    read_model,
    read_server,
    read_version,
    server_requests,
    server_root,
    version_requests,
)
from promptools.types import Reply, ServerInfo, Trace

RECORDED = json.loads((Path(__file__).parents[1] / "recordings/looks/servers.json").read_text(encoding="utf-8"))
OLLAMA = RECORDED["ollama 0.32.15"]
LLAMACPP = RECORDED["llama.cpp (xllamacpp 2026.10.11549)"]
BASE = "http://host:8000/v1"
HTML = "<!doctype html><title>Welcome</title>"


def owned(*owners):
    """A list of models as OpenAI's API has it."""
    return 200, {"object": "list", "data": [{"id": f"m{i}", "owned_by": owner} for i, owner in enumerate(owners)]}


def answer(said):
    if said is None:
        return None
    status, body = said
    return ProbeResponse(status, (body if isinstance(body, str) else json.dumps(body)).encode())


def answers(questions, told):
    return [answer(told.get(urlsplit(each.url).path, told.get("*", (404, "not here")))) for each in questions]


def seen(told, base=BASE):
    questions = server_requests(base)
    return read_server(questions, answers(questions, told))


def certain(told):
    questions = server_requests(BASE)
    found = answers(questions, told)
    return is_server_final(read_server(questions, found), found)


def show(model, told=OLLAMA):
    (question,) = model_requests(BASE, model)
    assert json.loads(question.body) == {"model": model}
    return read_model(seen(told), [question], [answer(told["/api/show"][model])])


VLLM = {"/version": (200, {"version": "0.32.0"}), "/v1/models": owned("vllm", "vllm")}
V0 = {"id": "q", "type": "llm", "compatibility_type": "gguf", "state": "loaded", "max_context_length": 32768}
UNKNOWN_PATH = (200, {"error": "Unexpected endpoint or method. (GET /version)"})

KNOWN = {
    "a real Ollama": (OLLAMA, "ollama", "0.32.15"),
    "an Ollama without a model": ({"/api/version": (200, {"version": "0.32.15"})}, "ollama", "0.32.15"),
    "a real llama.cpp, of no number": (LLAMACPP, "llamacpp", None),
    "a numbered llama.cpp": (
        {"/props": (200, {"build_info": "b10488-6a1f2c3", "default_generation_settings": {}})},
        "llamacpp",
        "b10488",
    ),
    "a llama.cpp that shows no props": ({"/v1/models": owned("llamacpp")}, "llamacpp", None),
    "vLLM": (VLLM, "vllm", "0.32.0"),
    "vLLM whose models are not told in time": ({**VLLM, "/v1/models": None}, "vllm", "0.32.0"),
    "vLLM that wants another key": ({**VLLM, "/v1/models": (401, {"error": "Unauthorized"})}, "vllm", "0.32.0"),
    "vLLM behind a proxy that knows /v1 alone": ({"/v1/models": owned("vllm")}, "vllm", None),
    "LM Studio": ({"/api/v0/models": (200, {"data": [V0]}), "*": UNKNOWN_PATH}, "lmstudio", None),
    "LM Studio by its newer API": (
        {"/api/v1/models": (200, {"models": [{"key": "q", "loaded_instances": []}]}), "*": UNKNOWN_PATH},
        "lmstudio",
        None,
    ),
    "SGLang": ({"/v1/models": owned("sglang")}, "sglang", None),
}


@pytest.mark.parametrize("name", KNOWN)
def test_a_server_that_says_what_it_is(name):
    told, kind, version = KNOWN[name]
    found = seen(told)
    assert (found.kind, found.version) == (kind, version)
    assert found.why
    assert certain(told)


UNKNOWN = {
    "OpenAI": {"*": (404, {"error": {"message": "Invalid URL"}}), "/v1/models": owned("system", "openai")},
    "a page for everything": {"*": (200, HTML)},
    "JSON of no use for everything": {"*": (200, {"version": 7, "data": "x", "models": 1, "build_info": []})},
    "a list for everything": {"*": (200, [{"version": "1.0"}])},
    "deep JSON for everything": {"*": (200, "[" * 100_000)},
    "a redirection for everything": {"*": (307, {"version": "1.0"})},
    "LocalAI": {"/version": (200, {"version": "v3.4.0"}), "/v1/models": owned(None)},
    "LocalAI that wants a key": {"/version": (200, {"version": "v3.4.0"}), "/v1/models": (401, {})},
    "a version of something else": {"/version": (200, {"version": "1.2"}), "/v1/models": owned("someone")},
    "Open WebUI": {"/api/version": (200, {"version": "0.6.5", "deployment_id": ""}), "*": (200, HTML)},
    "llama-swap": {"/api/version": (200, {"version": "170", "commit": "x", "build_date": "y"})},
    "KoboldCpp": {"/api/version": (200, {"version": "0.7.0"}), "/v1/models": owned("koboldcpp")},
    "props of something else": {"/props": (200, {"chat_template": "", "default_generation_settings": {}})},
    "a gateway before two kinds": {"/v1/models": owned("vllm", "sglang")},
    "LM Studio without a model": {"*": UNKNOWN_PATH, "/api/v0/models": (200, {"data": []})},
}


@pytest.mark.parametrize("name", UNKNOWN)
def test_a_server_that_does_not_is_openai_compatible(name):
    found = seen(UNKNOWN[name])
    assert (found.kind, found.version, found.why) == (None, None, "no answer says what server it is")
    target = resolve("llama-3", base_url="http://127.0.0.1:11434/v1", config=Config(), seen=found)
    assert target.profile.kind == "openai-compatible"
    assert "kind 'openai-compatible': no answer says what server it is" in target.reasons


def test_the_context_that_a_server_was_started_with():
    models = [{"id": "m", "owned_by": "vllm", "max_model_len": 8192}, {"id": "l", "owned_by": "vllm"}]
    found = seen({**VLLM, "/v1/models": (200, {"data": [*models, {**models[0], "max_model_len": 4096}]})})
    assert found.context == 4096
    target = resolve("openai/gpt-oss-20b", base_url=BASE, config=Config(), seen=found)
    assert target.profile.context == 4096
    assert "context = 4096: max_model_len, in the server's list of models" in target.reasons
    for odd in (None, True, "8192", 0):
        told = {**VLLM, "/v1/models": (200, {"data": [{**models[0], "max_model_len": odd}]})}
        assert seen(told).context is None
    assert resolve("openai/gpt-oss-20b", seen=seen(VLLM)).profile.context == 131_072


def test_answers_that_are_not_utf8_tell_nothing():
    questions = server_requests(BASE)
    assert read_server(questions, [ProbeResponse(200, b"\xff\xfe{")] * len(questions)).kind is None


def test_answers_that_name_two_kinds_name_none():
    found = seen({**OLLAMA, "/v1/models": owned("vllm")})
    assert found.kind is None
    assert found.why == (
        "the answers name more than one kind: ollama (GET /api/version answers as Ollama does)"
        " and vllm (its models are owned by vllm)"
    )


def test_what_was_asked_is_told_and_never_what_a_body_holds():
    found = seen({**OLLAMA, "/props": None, "/version": (200, "sk-secret"), "/api/v0/models": (503, "")})
    assert found.asked == (
        ("GET /api/version", "HTTP 200"),
        ("GET /version", "HTTP 200, not a JSON object"),
        ("GET /props", "no answer"),
        ("GET /api/v0/models", "HTTP 503"),
        ("GET /api/v1/models", "HTTP 404"),
        ("GET /v1/models", "HTTP 200"),
    )


@pytest.mark.parametrize(
    ("base", "root", "models"),
    [
        ("http://h:1/v1", "http://h:1", "http://h:1/v1/models"),
        ("http://h:1/v1/", "http://h:1", "http://h:1/v1/models"),
        ("http://h:1", "http://h:1", "http://h:1/models"),
        ("http://h/llm/api/v1", "http://h/llm/api", "http://h/llm/api/v1/models"),
        ("http://h/v1/v1", "http://h/v1", "http://h/v1/v1/models"),
    ],
)
def test_the_root_is_the_base_url_without_its_last_v1(base, root, models):
    assert server_root(base) == root
    urls = [each.url for each in server_requests(base)]
    assert urls[0] == f"{root}/api/version"
    assert urls[-1] == models
    assert {each.method for each in server_requests(base)} == {"GET"}


def test_nothing_answered():
    found = seen({"*": None})
    assert (found.kind, found.why) == (None, "nothing answered in time")
    assert not certain({"*": None})


@pytest.mark.parametrize(
    ("told", "sure"),
    [
        ({}, True),
        ({"*": (401, "")}, False),
        ({"*": (503, {"error": "loading"})}, False),
        ({"/v1/models": (429, "")}, False),
        ({"/v1/models": (502, "")}, False),
        ({"*": (501, "")}, True),
        ({"/v1/models": None}, True),
        ({"*": (301, "")}, True),
    ],
)
def test_a_look_that_may_tell_more_the_next_time_is_taken_again(told, sure):
    assert certain(told) is sure


def test_sglangs_version_is_asked_for_once_it_is_known():
    found = seen({"/v1/models": owned("sglang")})
    questions = version_requests(BASE, found)
    assert [each.label for each in questions] == ["GET /server_info", "GET /get_server_info"]
    told = {"/get_server_info": (200, {"version": "0.5.10", "api_key": "secret"})}
    more = read_version(found, questions, answers(questions, told))
    assert (more.kind, more.version) == ("sglang", "0.5.10")
    assert more.asked[-2:] == (("GET /server_info", "HTTP 404"), ("GET /get_server_info", "HTTP 200"))
    assert "secret" not in repr(more)
    assert read_version(found, questions, answers(questions, {})).version is None
    assert version_requests(BASE, seen(OLLAMA)) == ()


def test_what_a_model_of_ollamas_can_do():
    found = show("gptoss")
    assert found.capabilities == ("completion", "tools", "thinking")
    assert found.context == 8192
    assert found.asked[-1] == ("POST /api/show", "HTTP 200")
    profile = resolve("gptoss", base_url=BASE, config=Config(), seen=found).profile
    named = resolve("go", provider="ollama").profile  # it is a tiny llama, whatever its name says
    assert (profile.modes, profile.thinking, profile.num_ctx_limit) == (named.modes, True, 8192)


def test_a_model_without_tools_is_not_asked_natively_and_one_without_thinking_not_to_think():
    target = resolve("notools", base_url=BASE, config=Config(), seen=show("notools"))
    assert target.profile.modes == ("prompt",)
    assert target.profile.thinking is False
    reasons = [each for each in target.reasons if "/api/show" in each]
    assert reasons[0] == "modes = ('prompt',): /api/show lists completion as the model's capabilities, and no tools"
    assert resolve("go", seen=show("go")).profile.modes == ("native", "raw", "prompt")


def test_a_config_goes_over_what_was_seen():
    house = Provider("house", base_url=BASE, detect=True, facts={"modes": ("native",), "num_ctx_limit": 512})
    target = resolve("notools", base_url=BASE, config=Config(providers={"house": house}), seen=show("notools"))
    assert target.probe == "server"
    assert (target.profile.kind, target.profile.modes, target.profile.num_ctx_limit) == ("ollama", ("native",), 512)


def test_where_native_was_all_there_was_prompt_takes_its_place():
    only = {**OLLAMA, "/api/show": {"m": (200, {"capabilities": []})}}
    target = resolve("m", base_url=BASE, config=Config(), seen=show("m", only))
    assert target.profile.modes == ("prompt",)
    assert any("lists nothing as" in each for each in target.reasons)


@pytest.mark.parametrize(
    ("body", "context"),
    [
        ({"capabilities": ["tools"]}, None),
        ({"capabilities": ["tools"], "model_info": {"general.architecture": "q", "q.context_length": 40960}}, 40960),
        ({"capabilities": ["tools"], "model_info": {"general.architecture": "q", "q.context_length": True}}, None),
        ({"capabilities": ["tools"], "model_info": {"general.architecture": "q", "q.context_length": 0}}, None),
        ({"capabilities": ["tools"], "model_info": {"other.context_length": 40960}}, None),
    ],
)
def test_the_context_length_of_a_model(body, context):
    assert show("m", {**OLLAMA, "/api/show": {"m": (200, body)}}).context == context


@pytest.mark.parametrize("said", [None, (404, {"error": "model 'm' not found"}), (200, {"details": {}}), (200, HTML)])
def test_a_model_that_is_not_told_of_changes_nothing(said):
    found = show("m", {**OLLAMA, "/api/show": {"m": said}})
    assert (found.capabilities, found.context) == (None, None)
    assert resolve("m", seen=found).profile.modes == ("native", "raw", "prompt")


def test_the_version_that_was_seen_bounds_the_facts():
    old = resolve("m", base_url=BASE, config=Config(), seen=seen({**VLLM, "/version": (200, {"version": "0.8.2"})}))
    assert (old.server_version, old.profile.reasoning_field) == ("0.8.2", "reasoning_content")
    assert old.profile.tool_choice == {"auto", "none", "named"}
    new = resolve("m", base_url=BASE, config=Config(), seen=seen(VLLM))
    assert new.profile.reasoning_field == "reasoning"
    assert "kind 'vllm', version '0.32.0': its models are owned by vllm" in new.reasons


def test_what_a_config_says_of_the_server_goes_before_what_was_seen():
    told = Config(providers={"p": Provider("p", kind="vllm", base_url=BASE, server_version="0.8.2", detect=True)})
    target = resolve("m", base_url=BASE, config=told, seen=seen(OLLAMA))
    assert (target.profile.kind, target.server_version) == ("vllm", "0.8.2")
    other = Config(providers={"p": Provider("p", kind="vllm", base_url=BASE, detect=True)})
    assert resolve("m", base_url=BASE, config=other, seen=seen(OLLAMA)).server_version is None


@pytest.mark.parametrize(
    ("provider", "worth"),
    [
        (None, "server"),
        (Provider("p", base_url=BASE), None),
        (Provider("p", base_url=BASE, kind="vllm"), "model"),
        (Provider("p", base_url=BASE, kind="vllm", detect=True), "model"),
        (Provider("p", base_url=BASE, kind="vllm", detect=False), None),
        (Provider("p", base_url=BASE, kind="openai-compatible", detect=True), None),
        (Provider("p", base_url=BASE, kind="ollama"), "model"),
        (Provider("ollama", base_url=BASE), "model"),
        (Provider("p", base_url=BASE, kind="ollama", detect=False), None),
        (Provider("p", base_url=BASE, detect=True), "server"),
        (Provider("p", base_url=BASE, detect=False), None),
    ],
)
def test_what_a_look_is_worth(provider, worth):
    config = Config(providers={provider.name: provider} if provider else {})
    assert resolve("m", base_url=BASE, config=config).probe == worth


def test_a_named_kind_is_settled():
    assert resolve("m", base_url=BASE, provider="vllm").probe == "model"
    assert resolve("m", base_url=BASE, provider="openai-compatible").probe is None
    assert resolve("m", base_url=BASE, provider="ollama").probe == "model"


def test_what_was_seen_has_a_json_form():
    for found in (show("go"), ServerInfo(), seen(VLLM)):
        assert ServerInfo.from_dict(json.loads(json.dumps(found.to_dict()))) == found
        reply = Reply(trace=Trace(seen=found))
        assert Reply.from_dict(json.loads(json.dumps(reply.to_dict()))) == reply
    assert Trace.from_dict(Trace().to_dict()).seen is None
