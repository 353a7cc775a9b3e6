"""The ollama package before the proxy: on a real llama.cpp, and on servers that tell of themselves as others do."""

import asyncio
import json
import threading

import ollama
import pytest
from serving import serving
from upstream import Answer, chunk, completion, running, sse, unary

from promptools.lab import weather
from promptools.lab.llamacpp_server import can_serve, serve
from promptools.lab.script import ScriptedReply
from promptools.lab.weather import ANSWER, QUESTION, RESULT, get_weather
from promptools.profiles import Config, Model, Provider
from promptools.proxy import Proxy
from promptools.transport import installed_library

WORDS = "one two three four five six seven eight"
FORM = {"type": "object", "properties": {"sunny": {"type": "boolean"}}, "required": ["sunny"]}
WAYS = ["whole", "streamed", "async whole", "async streamed"]
VLLM = {
    "/version": {"version": "0.32.0"},
    "/v1/models": {"object": "list", "data": [{"id": "big", "owned_by": "vllm", "max_model_len": 4096, "created": 7}]},
}
OLLAMA = {"/api/version": {"version": "0.32.15"}}
LISTED = unary({**VLLM["/v1/models"], "data": [*VLLM["/v1/models"]["data"], {"id": "openai/gpt-oss-20b"}]})
FENCED = '```json\n{"tool": "get_weather", "arguments": {"city": "Paris"}}\n```'


@pytest.fixture(scope="module")
def server():
    with running() as upstream:
        yield upstream


@pytest.fixture(scope="module")
def broken():
    """A real llama.cpp whose parser fails on what its model says."""
    if not can_serve():
        pytest.skip("xllamacpp or gguf is not installed here")
    final = f"<|channel|>final<|message|>{WORDS}<|return|>"
    thought = f"<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant{final}"
    lines = [ScriptedReply("Say words", final), ScriptedReply("Think", thought)]
    with serve([*lines, *weather.gpt_oss_script()], template="harmony", name="gpt-oss") as running_server:
        yield running_server


@pytest.fixture(scope="module")
def real(broken):
    with serving(Proxy(base_url=broken.base_url, config=Config())) as port:
        yield f"http://127.0.0.1:{port}"


@pytest.fixture
def client(real):
    with ollama.Client(real) as own:
        yield own


@pytest.fixture
def before(server):
    """A client before a proxy before a server that tells of itself what `about` holds."""
    opened = []

    def make(about, **settings):
        server.about = about
        context = serving(Proxy(**{"base_url": server.url, "config": Config(), **settings}))
        made = ollama.Client(f"http://127.0.0.1:{context.__enter__()}")
        opened.append((context, made))
        return made

    yield make
    for context, made in opened:
        made.close()
        context.__exit__(None, None, None)


def parts_of(real, way, method, *arguments, **keys):
    """What an app gets, as a list of the package's own values."""
    stream = way.endswith("streamed")
    if not way.startswith("async"):
        with ollama.Client(real) as client:
            got = getattr(client, method)(*arguments, stream=stream, **keys)
            return list(got) if stream else [got]

    async def later():
        client = ollama.AsyncClient(real)
        try:
            got = await getattr(client, method)(*arguments, stream=stream, **keys)
            return [part async for part in got] if stream else [got]
        finally:
            await client.close()

    return asyncio.run(later())


def user(text):
    return {"role": "user", "content": text}


# --- a real llama.cpp ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("way", WAYS)
def test_a_round_trip_with_a_tool_where_the_servers_own_parser_fails(real, way):
    parts = parts_of(real, way, "chat", "gpt-oss", [user(QUESTION)], tools=[get_weather])
    (call,) = [call for part in parts for call in part.message.tool_calls or ()]
    assert (call.function.name, call.function.arguments) == ("get_weather", {"city": "Paris"})
    assert (parts[-1].done, parts[-1].done_reason) == (True, "stop")
    asked = {"role": "assistant", "content": "", "tool_calls": [call.model_dump()]}
    told = {"role": "tool", "tool_name": "get_weather", "content": f"Paris: {RESULT}"}
    last = parts_of(real, way, "chat", "gpt-oss", [user(QUESTION), asked, told], tools=[get_weather])
    assert "".join(part.message.content for part in last) == ANSWER


@pytest.mark.parametrize("way", WAYS)
def test_a_chat_with_its_figures(real, way):
    *parts, last = parts_of(real, way, "chat", "gpt-oss", [user("Think")], think=True)
    assert "".join(part.message.content for part in (*parts, last)) == WORDS
    assert "".join(part.message.thinking or "" for part in (*parts, last)) == "Hm."
    assert all(part.done is False for part in parts)
    assert last.model == "gpt-oss"
    assert min(last.prompt_eval_count, last.eval_count, last.prompt_eval_duration, last.eval_duration) > 0
    assert last.total_duration >= last.eval_duration


@pytest.mark.parametrize("way", WAYS)
def test_a_generation(real, way):
    *parts, last = parts_of(real, way, "generate", "gpt-oss", "Think", system="Be brief.", options={"num_predict": 90})
    assert "".join(part.response for part in (*parts, last)) == WORDS
    assert "".join(part.thinking or "" for part in (*parts, last)) == "Hm."
    assert (last.done, last.done_reason, last.model) == (True, "stop", "gpt-oss")
    assert min(last.total_duration, last.prompt_eval_count, last.eval_count, last.eval_duration) > 0
    assert bool(parts) is way.endswith("streamed")


@pytest.mark.parametrize("way", WAYS)
def test_a_raw_prompt_is_continued_as_it_is(real, way):
    prompt = "<|start|>user<|message|>Say words<|end|><|start|>assistant"
    *parts, last = parts_of(real, way, "generate", "gpt-oss", prompt, raw=True, options={"num_predict": 500})
    text = "".join(part.response for part in (*parts, last))
    assert text.endswith(WORDS)
    assert (last.done, last.done_reason) == (True, "stop")
    assert min(last.prompt_eval_count, last.eval_count, last.eval_duration) > 0


def test_an_answer_in_a_form(client):
    answer = client.chat("gpt-oss", [user("Say words")], format=FORM, options={"num_predict": 300, "seed": 3})
    made = client.generate("gpt-oss", "Say words", format=FORM, options={"num_predict": 300, "seed": 3})
    assert json.loads(answer.message.content).keys() == json.loads(made.response).keys() == {"sunny"}


def test_models(client):
    (listed,) = client.list().models
    assert (listed.model, listed.details.family, listed.details.quantization_level) == ("gpt-oss", "gpt-oss", "Q8_0")
    assert (len(listed.digest), listed.size > 1_000_000) == (64, True)
    (loaded,) = client.ps().models
    assert (loaded.model, loaded.context_length, loaded.size) == ("gpt-oss", 16384, listed.size)
    shown = client.show("gpt-oss")
    assert shown.capabilities == ["completion", "tools", "thinking"]
    assert shown.modelinfo["general.architecture"] == "gpt-oss"
    assert shown.modelinfo["gpt-oss.context_length"] == 16384
    assert client.show("any name, for it serves them all").details == shown.details


def test_what_loads_a_model_is_answered_at_once(client):
    assert client.chat("gpt-oss").done_reason == client.generate("gpt-oss").done_reason == "load"
    assert client.generate("gpt-oss", keep_alive=0).done_reason == "unload"
    (line,) = client.chat("gpt-oss", [], stream=True, keep_alive="0s")
    assert (line.done, line.done_reason, line.message.content) == (True, "unload", "")


def test_the_probes_of_clients(real):
    with installed_library().module.Client(timeout=300) as http:
        root, head = http.get(f"{real}/"), http.head(f"{real}/")
        version = http.get(f"{real}/api/version").json()
    assert (root.status_code, root.text, head.status_code, head.text) == (200, "Ollama is running", 200, "")
    assert version == {"version": "0.32.15", "served_by": "promptools"}


def test_a_proxy_before_the_proxy_sees_the_server_itself(real):
    seen = []
    proxy = Proxy(base_url=f"{real}/v1", config=Config(), on_reply=lambda reply: seen.append(reply.trace.seen.kind))
    with serving(proxy) as port, ollama.Client(f"http://127.0.0.1:{port}") as client:
        assert client.chat("gpt-oss", [user("Say words")]).message.content == WORDS
        assert client.show("gpt-oss").capabilities == ["completion", "tools", "thinking"]
    assert seen == ["llamacpp"]


def test_a_server_that_embeds_nothing_says_so_itself(client):
    for ask in (lambda: client.embed("gpt-oss", ["a"]), lambda: client.embeddings("gpt-oss", "a")):
        with pytest.raises(ollama.ResponseError, match="does not support embeddings") as raised:
            ask()
        assert raised.value.status_code == 501


@pytest.mark.parametrize(
    ("keys", "words"),
    [
        ({"suffix": "x"}, "'suffix' needs an Ollama server"),
        ({"template": "x"}, "'template' needs an Ollama server"),
        ({"context": [1, 2]}, "'context' needs an Ollama server"),
        ({"raw": True, "system": "x"}, "raw mode does not support template, system, or context"),
        ({"raw": True, "images": [b"x"]}, "'images' needs an Ollama server"),
        ({"raw": True, "format": "json"}, "'format' needs an Ollama server"),
    ],
)
@pytest.mark.parametrize("stream", [False, True])
def test_what_only_an_ollama_can_generate_is_a_clear_error(client, keys, words, stream):
    with pytest.raises(ollama.ResponseError, match=words) as raised:
        list(client.generate("gpt-oss", "Say words", stream=stream, **keys))
    assert raised.value.status_code == 400


@pytest.mark.parametrize(
    ("name", "ask", "advice"),
    [
        ("pull", lambda client: client.pull("qwen3"), "`list` names"),
        ("pull", lambda client: list(client.pull("qwen3", stream=True)), "`list` names"),
        ("push", lambda client: client.push("me/mine"), "registry"),
        ("create", lambda client: client.create("mine", from_="qwen3"), "Modelfile"),
        ("delete", lambda client: client.delete("m"), "remove the model"),
        ("copy", lambda client: client.copy("m", "n"), "`aliases`"),
        ("create_blob", lambda client: client.create_blob(__file__), "put the file"),
    ],
)
def test_the_management_of_models_is_a_clear_error(client, real, broken, name, ask, advice):
    with pytest.raises(ollama.ResponseError, match=advice) as raised:
        ask(client)
    assert raised.value.status_code == 501
    assert raised.value.error.startswith(
        f"'{name}' needs an Ollama server, and {broken.url} is llama.cpp's HTTP server (kind "
    )


# --- other servers ---------------------------------------------------------------------------------------------------


def test_models_of_a_vllm(server, before):
    client = before(VLLM)
    server.play(LISTED)
    big, oss = client.list().models
    assert (big.model, big.modified_at.timestamp(), big.size, big.digest != oss.digest) == ("big", 7, 0, True)
    shown, thinking = client.show("big"), client.show("openai/gpt-oss-20b")
    assert (shown.capabilities, shown.modelinfo["unknown.context_length"]) == (["completion", "tools"], 4096)
    assert (shown.template, shown.parameters, shown.modelfile) == ("", "", "")
    assert thinking.capabilities == ["completion", "tools", "thinking"]
    with pytest.raises(ollama.ResponseError, match="model 'nope' not found") as raised:
        client.show("nope")
    assert raised.value.status_code == 404
    assert {seen.path for seen in server.seen} == {"/v1/models"}


def test_an_alias_of_the_config_is_shown_under_its_own_name(server, before):
    box = Provider("box", kind="vllm", base_url=server.url, models={"big": Model("big", aliases=("small",))})
    client = before(VLLM, config=Config(default_provider="box", providers={"box": box}))
    server.play(LISTED)
    assert client.show("small").modelinfo["general.basename"] == "big"


def test_images_that_a_model_takes_are_among_what_it_can_do(server, before):
    client = before(VLLM)
    entry = {"id": "eyes", "architecture": {"input_modalities": ["text", "image"]}}
    server.play({"object": "list", "data": [entry]})
    assert client.show("eyes").capabilities == ["completion", "tools", "vision"]


def test_embeddings(server, before):
    client = before(VLLM)
    vectors = [{"index": 1, "embedding": [0.5]}, {"index": 0, "embedding": [0.25]}]
    server.play({"object": "list", "data": vectors, "usage": {"prompt_tokens": 4}})
    got = client.embed("big", ["a", "b"], dimensions=1, truncate=True)
    assert (got.embeddings, got.prompt_eval_count, got.total_duration > 0) == ([[0.25], [0.5]], 4, True)
    assert client.embeddings("big", "a").embedding == [0.25]
    assert [(seen.path, seen.json) for seen in server.seen] == [
        ("/v1/embeddings", {"model": "big", "input": ["a", "b"], "dimensions": 1}),
        ("/v1/embeddings", {"model": "big", "input": ["a"]}),
    ]
    assert client.embed("big", "").embeddings == client.embed("big", []).embeddings == []
    assert len(server.seen) == 2


@pytest.mark.parametrize("given", [5, ["a", 5]])
def test_what_is_not_text_is_not_embedded(server, before, given):
    client = before(VLLM)
    server.play()
    with pytest.raises(ollama.ResponseError, match="invalid input type") as raised:
        client._request_raw("POST", "/api/embed", json={"model": "big", "input": given})
    assert (raised.value.status_code, server.seen) == (400, [])


def test_what_a_generation_becomes(server, before):
    client = before(VLLM)
    server.play(completion("Hi"))
    keys = {"images": ["/9j/AA=="], "format": "json", "options": {"num_predict": 7}, "think": False, "keep_alive": 5}
    assert client.generate("big", "Look", system="Be brief.", **keys).response == "Hi"
    (seen,) = server.seen
    picture = {"type": "image_url", "image_url": {"url": "data:image/jpeg;base64,/9j/AA=="}}
    assert (seen.path, seen.json) == (
        "/v1/chat/completions",
        {
            "model": "big",
            "messages": [
                {"role": "system", "content": "Be brief."},
                {"role": "user", "content": [picture, {"type": "text", "text": "Look"}]},
            ],
            "stream": False,
            "max_tokens": 7,
            "response_format": {"type": "json_object"},
            "chat_template_kwargs": {"enable_thinking": False},
        },
    )


def test_what_a_raw_prompt_becomes(server, before):
    client = before(VLLM)
    choice = {"index": 0, "text": "Hi", "finish_reason": "length"}
    server.play({"object": "text_completion", "model": "big", "choices": [choice], "usage": {"completion_tokens": 2}})
    got = client.generate("big", "<s>Look", raw=True, options={"top_k": 3, "num_ctx": 9})
    assert (got.response, got.done_reason, got.eval_count) == ("Hi", "length", 2)
    (seen,) = server.seen
    assert (seen.path, seen.json) == (
        "/v1/completions",
        {"model": "big", "prompt": "<s>Look", "stream": False, "max_tokens": 4096, "top_k": 3},
    )


@pytest.mark.parametrize("raw", [False, True])
def test_lines_come_as_they_are_made(server, before, raw):
    client = before(VLLM)
    came = threading.Event()
    texts = [{"choices": [{"index": 0, "text": text, "finish_reason": None}]} for text in ("Some words. ", "More.")]
    pieces = texts if raw else [chunk({"content": "Some words. "}), chunk({"content": "More."})]
    end = {"choices": [{"index": 0, "text": "", "finish_reason": "stop"}]} if raw else chunk({}, finish="stop")
    server.play(sse(*pieces, end, between=lambda: came.wait(300)))
    words = []
    for part in client.generate("big", "Look", raw=raw, stream=True):
        words.append((part.response, came.is_set()))
        came.set()
    assert words[0][1] is False
    assert "".join(word for word, _ in words) == "Some words. More."
    assert part.done


@pytest.mark.parametrize("raw", [False, True])
def test_an_error_amid_a_stream_is_a_line(server, before, raw):
    client = before(VLLM)
    text = {"choices": [{"index": 0, "text": "Some words. ", "finish_reason": None}]}
    server.play(sse(text if raw else chunk({"content": "Some words. "}), done=False, then="cut"))
    came = []
    with pytest.raises(ollama.ResponseError) as raised:
        came.extend(part.response for part in client.generate("big", "Look", raw=raw, stream=True))
    assert ("".join(came), raised.value.status_code) == ("Some words. ", -1)


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("raw", [False, True])
def test_an_error_of_the_server_is_its_text(server, before, raw, stream):
    client = before(VLLM)
    server.play(Answer(status=404, pieces=(b'{"error": {"message": "The model `m` does not exist."}}',)))
    with pytest.raises(ollama.ResponseError, match="The model `m` does not exist") as raised:
        list(client.generate("m", "Look", raw=raw, stream=stream))
    assert raised.value.status_code == 404


def test_a_raw_reply_that_ends_too_early_is_not_an_answer(server, before):
    client = before(VLLM)
    server.play(sse({"choices": [{"index": 0, "text": "Some", "finish_reason": None}]}))
    with pytest.raises(ollama.ResponseError, match="without a finish reason"):
        list(client.generate("big", "Look", raw=True, stream=True))


@pytest.mark.filterwarnings("ignore::ResourceWarning")
def test_a_server_that_is_gone(before):
    client = before({}, base_url="http://127.0.0.1:9/v1", provider="vllm")
    for ask in (client.list, lambda: client.generate("m", "hi"), lambda: client.embed("m", "a")):
        with pytest.raises(ollama.ResponseError, match="no answer from") as raised:
            ask()
        assert raised.value.status_code == 502


# --- an Ollama, and what may be one ----------------------------------------------------------------------------------


@pytest.mark.parametrize("about", [OLLAMA, {**OLLAMA, **VLLM}, {}], ids=["ollama", "emulator", "silent"])
def test_what_an_ollama_may_serve_reaches_it_unread(server, before, about):
    if not about:
        about = dict.fromkeys(
            ("/api/version", "/version", "/props", "/api/v0/models", "/api/v1/models", "/v1/models"),
            Answer(then="cut"),
        )
    client = before(about, max_body=10)  # nothing is read, so nothing is too long
    server.play({"models": []}, {"response": "Hi", "done": True}, {"status": "success"}, {"embeddings": [[1.0]]})
    assert client.list().models == []
    assert client.generate("m", "Hi there, how are you?", system="x", suffix="y").response == "Hi"
    assert client.pull("m").status == "success"
    assert client.embed("m", "a").embeddings == [[1.0]]
    assert [seen.path for seen in server.seen] == ["/api/tags", "/api/generate", "/api/pull", "/api/embed"]
    assert server.seen[1].json["suffix"] == "y"


def test_a_chat_without_messages_loads_a_model_of_an_ollama(server, before):
    client = before(OLLAMA)
    server.play({"model": "m", "message": {"role": "assistant", "content": ""}, "done": True, "done_reason": "load"})
    assert client.chat("m").done_reason == "load"
    assert server.seen[0].path == "/api/chat"


@pytest.mark.parametrize(("status", "text"), [(200, b"<h1>My own page</h1>"), (401, b"no key"), (500, b"oh")])
def test_the_servers_own_root_is_its_own(server, before, status, text):
    client = before(OLLAMA)
    server.play(Answer(status=status, pieces=(text,), type="text/html"))
    with installed_library().module.Client(timeout=300) as http:
        answer = http.get(str(client._client.base_url))
    assert (answer.status_code, answer.content, answer.headers["content-type"]) == (status, text, "text/html")


# --- several servers -------------------------------------------------------------------------------------------------


@pytest.fixture
def two(server):
    """A client before a proxy before a vLLM, which is the default, and an Ollama."""
    with running() as other:
        other.about = {**OLLAMA, "/v1/models": {"object": "list", "data": [{"id": "small:latest"}]}}
        server.about = VLLM
        named = {"vllm": server, "ollama": other}
        providers = {name: Provider(name, kind=name, base_url=at.url) for name, at in named.items()}
        config = Config(default_provider="vllm", providers=providers)
        with serving(Proxy(config=config)) as port, ollama.Client(f"http://127.0.0.1:{port}") as client:
            yield client, other


def test_the_models_of_all_providers_are_listed(server, two):
    client, _ = two
    assert [model.model for model in client.list().models] == ["big", "small:latest"]
    assert [(model.model, model.context_length) for model in client.ps().models] == [("big", 4096), ("small:latest", 0)]


def test_the_model_decides_which_server_a_route_asks(server, two):
    client, other = two
    vectors = {"object": "list", "data": [{"index": 0, "embedding": [0.5]}]}
    server.play(completion("Hi"), vectors, LISTED)
    other.play({"model": "small:latest", "response": "Hello", "done": True}, {"embeddings": [[1.0]]})
    assert client.generate("big", "Look").response == "Hi"
    assert client.generate("small:latest", "Look", suffix="its own").response == "Hello"
    assert client.embed("big", "a").embeddings == [[0.5]]
    assert client.embed("small:latest", "a").embeddings == [[1.0]]
    assert client.show("big").modelinfo["unknown.context_length"] == 4096
    assert [seen.path for seen in server.seen] == ["/v1/chat/completions", "/v1/embeddings", "/v1/models"]
    assert [seen.path for seen in other.seen] == ["/api/generate", "/api/embed"]
    assert other.seen[0].json["suffix"] == "its own"


@pytest.mark.parametrize("raw", [False, True])
def test_a_generation_goes_on_to_another_server_with_its_body(server, raw):
    answer = {"choices": [{"index": 0, "text": "Hi", "finish_reason": "stop"}]} if raw else completion("Hi")
    server.about = VLLM
    server.play(answer)
    with running() as failing:
        failing.about = VLLM
        failing.play(Answer(status=503, pieces=(b"{}",)))
        box = Provider("vllm", kind="vllm", base_url=failing.url, failover=("spare",))
        spare = Provider("spare", kind="vllm", base_url=server.url)
        config = Config(default_provider="vllm", providers={"vllm": box, "spare": spare})
        with serving(Proxy(config=config)) as port, ollama.Client(f"http://127.0.0.1:{port}") as client:
            assert client.generate("big", "Look", raw=raw).response == "Hi"
        assert len(failing.seen) == len(server.seen) == 1
    assert "Look" in json.dumps(server.seen[0].json)


# --- who may use it --------------------------------------------------------------------------------------------------


def test_the_proxys_own_key(server, before, monkeypatch):
    server.play(LISTED)
    with pytest.raises(ollama.ResponseError, match="requires its own API key") as raised:
        before(VLLM, api_keys=["k1"]).list()
    assert raised.value.status_code == 401
    assert server.seen == []
    monkeypatch.setenv("OLLAMA_API_KEY", "k1")
    assert len(before(VLLM, api_keys=["k1"]).list().models) == 2
    assert server.seen[0].headers["authorization"] is None


def test_a_body_that_is_too_long(server, before):
    client = before(VLLM, max_body=50)
    server.play()
    with pytest.raises(ollama.ResponseError, match="longer than the 50 bytes") as raised:
        client.generate("big", "word " * 20)
    assert (raised.value.status_code, server.seen) == (413, [])
    with pytest.raises(ollama.ResponseError, match="needs an Ollama server"):
        client.create_blob(__file__)
