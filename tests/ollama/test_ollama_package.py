"""`promptools.ollama` in place of `ollama`: the same names, the same clients, our transport inside; real sockets."""

import asyncio
import inspect
import json
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

import httpx
import ollama as package
import pytest
from upstream import Answer, chunk, completion, running, sse, unary
from waiting import LONG

from promptools import ollama
from promptools.errors import UsageError
from promptools.fallback import Breaker
from promptools.ollama.ollama_clients import AsyncClient, Client
from promptools.profiles import Config, Provider
from promptools.transport import InterceptingTransport

ASK = {"model": "m", "messages": [{"role": "user", "content": "Weather in Paris?"}]}
CALLED = completion(None, [("get_weather", '{"city": "Paris"}')])
LLAMACPP = {"/props": {"build_info": "b10500-abc", "default_generation_settings": {}}}
VERSION = {"/api/version": {"version": "0.32.15"}}
OWN = {"model": "m", "message": {"role": "assistant", "content": "Hi"}, "done": True, "done_reason": "stop"}


def get_weather(city: str) -> str:
    """Tell the weather.

    Args:
      city: Name of the city.
    """
    return f"sunny in {city}"


@pytest.fixture
def server():
    with running() as upstream:
        yield upstream


@pytest.fixture(autouse=True)
def alone(monkeypatch, tmp_path):
    """Nothing of this machine's own settings counts."""
    for name in ("OLLAMA_HOST", "OLLAMA_API_KEY", "PROMPTOOLS_CONFIG", "PPXAI_CONFIG_FILE", "XDG_CONFIG_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    ollama._default.cache_clear()
    yield
    if ollama._default.cache_info().currsize:
        ollama._default()._client.close()
    ollama._default.cache_clear()


def box(server, **more):
    return Config(default_provider="box", providers={"box": Provider("box", base_url=server.url, **more)})


# --- names


def test_every_name_of_the_package_is_there():
    assert ollama.__all__ == package.__all__
    ours = {"Client": Client, "AsyncClient": AsyncClient}
    for name in package.__all__:
        assert getattr(ollama, name) is ours.get(name, getattr(package, name))
    public = {name for name in vars(package) if name[0] != "_"}
    assert public <= set(dir(ollama))


def test_every_function_of_the_package_is_ours():
    functions = {name for name, each in vars(package).items() if inspect.ismethod(each)}
    assert {"chat", "generate", "list", "show", "pull", "embed", "ps"} <= functions
    for name in functions:
        method = getattr(ollama, name)
        assert isinstance(method.__self__, Client)
        assert method.__func__ is getattr(package.Client, name)


def test_what_the_package_lacks_is_lacking():
    with pytest.raises(AttributeError, match=r"module 'promptools\.ollama' has no attribute 'nothing'"):
        _ = ollama.nothing


def test_type_checkers_see_the_same_names():
    stub = Path(ollama.__file__).with_suffix(".pyi")
    space = {}
    exec(compile(stub.read_text(encoding="utf-8"), stub, "exec"), space)
    functions = {name for name, each in vars(package).items() if inspect.ismethod(each)}
    assert set(space["__all__"]) == {*package.__all__, *functions}


def test_importing_it_makes_no_client_and_reads_nothing():
    code = "import promptools, sys; assert 'ollama' not in sys.modules; from promptools import ollama;"
    code += (
        "from promptools.ollama import *; assert ollama._default.cache_info().currsize == 0; print(Client.__module__)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "promptools.ollama.ollama_clients"


# --- where the server is


@pytest.mark.parametrize("kind", [Client, AsyncClient])
@pytest.mark.parametrize(
    ("host", "environ", "where"),
    [
        (None, None, "http://127.0.0.1:11434"),
        (None, "box:1234", "http://box:1234"),
        ("other", "box:1234", "http://other:11434"),
        ("https://other/path", None, "https://other:443/path/"),
        ("http://box:8000/v1", None, "http://box:8000"),
        ("http://box:8000/v1/", None, "http://box:8000"),
    ],
)
def test_the_packages_rules_hold(kind, host, environ, where, monkeypatch):
    if environ:
        monkeypatch.setenv("OLLAMA_HOST", environ)
    assert str(kind(host)._client.base_url).rstrip("/") == where.rstrip("/").removesuffix(":443").replace(":443/", "/")


def config():
    far = Provider("far", kind="vllm", base_url="http://far:8000/v1")
    odd = Provider("odd", kind="vllm", base_url="https://odd/openai")
    return Config(default_provider="far", providers={"far": far, "odd": odd})


@pytest.mark.parametrize(
    ("settings", "environ", "where"),
    [
        ({"provider": "far", "config": config()}, "box", "http://far:8000"),
        ({"provider": "odd", "config": config()}, None, "https://odd/openai/"),
        ({"config": config()}, None, "http://far:8000"),
        ({"config": config()}, "box", "http://far:8000"),
        ({"config": config(), "host": "here:1"}, None, "http://here:1"),
        ({"provider": "vllm"}, None, "http://127.0.0.1:8000"),
        ({"provider": "vllm"}, "box", "http://box:11434"),
        ({"provider": "ollama"}, None, "http://127.0.0.1:11434"),
        ({"provider": "far", "config": config(), "host": "here:1"}, None, "http://here:1"),
    ],
)
def test_a_provider_says_where(settings, environ, where, monkeypatch):
    if environ:
        monkeypatch.setenv("OLLAMA_HOST", environ)
    assert str(Client(**settings)._client.base_url) == where


def test_a_config_file_is_found_unless_the_environment_says_where(tmp_path, monkeypatch):
    (tmp_path / "promptools.toml").write_text('[providers.far]\nkind = "vllm"\nbase_url = "http://127.9.9.9:8000/v1"\n')
    assert str(Client()._client.base_url) == "http://127.9.9.9:8000"
    monkeypatch.setenv("OLLAMA_HOST", "box")
    assert str(Client()._client.base_url) == "http://box:11434"
    monkeypatch.setenv("PROMPTOOLS_CONFIG", "promptools.toml")
    assert str(Client()._client.base_url) == "http://127.9.9.9:8000"


def test_settings_that_cannot_be_are_said_at_once():
    with pytest.raises(UsageError, match="provider 'nope'"):
        Client(provider="nope")
    with pytest.raises(UsageError, match="dialect"):
        Client(dialect="nope")
    with pytest.raises(TypeError, match="made_up"):
        Client(made_up=1)


def test_a_providers_key_is_sent(server, monkeypatch):
    monkeypatch.setenv("BOX_KEY", "sesame")
    monkeypatch.setenv("OLLAMA_API_KEY", "for-ollama-com")
    for settings, sent in (
        ({"config": box(server, api_key_env="BOX_KEY")}, "Bearer sesame"),
        ({"config": box(server, api_key_env="BOX_KEY"), "headers": {"Authorization": "mine"}}, "mine"),
        ({"host": server.root, "config": Config()}, "Bearer for-ollama-com"),
    ):
        server.play(completion("Hi"))
        with Client(**settings) as client:
            client.chat(**ASK)
        assert server.seen[0].headers["authorization"] == sent


def test_a_provider_whose_api_is_elsewhere(server):
    told = Config(providers={"odd": Provider("odd", kind="vllm", base_url=f"{server.root}/openai")})
    server.play(completion("Hi"))
    with Client(provider="odd", config=told) as client:
        assert client.chat(**ASK).message.content == "Hi"
    assert [each.path for each in server.seen] == ["/openai/chat/completions"]


# --- chats


@pytest.mark.parametrize("about", [{}, LLAMACPP])
def test_chats_are_converted_for_other_servers(server, about):
    server.about = about
    server.play(CALLED)
    with Client(server.root) as client:
        answer = client.chat(**ASK, tools=[get_weather], options={"temperature": 0})
        again = client.chat(**ASK, tools=[get_weather])
    (call,) = answer.message.tool_calls
    assert (call.function.name, call.function.arguments) == ("get_weather", {"city": "Paris"})
    assert again.message.tool_calls
    assert [each.path for each in server.seen] == ["/v1/chat/completions"] * 2
    sent = server.seen[0].json
    assert (sent["temperature"], sent["stream"]) == (0, False)
    assert sent["tools"][0]["function"]["parameters"]["properties"]["city"]["type"] == "string"


def test_chats_stay_what_they_are_for_an_ollama(server):
    server.about = VERSION
    server.play(OWN)
    replies = []
    with Client(server.root, on_reply=replies.append) as client:
        answer = client.chat(**ASK, options={"num_ctx": 9}, keep_alive="1m", think="low")
        plain = package.Client(server.root)
        plain.chat(**ASK, options={"num_ctx": 9}, keep_alive="1m", think="low")
        plain._client.close()
    assert answer.message.content == "Hi"
    ours, theirs = server.seen
    assert (ours.method, ours.path, ours.body) == (theirs.method, theirs.path, theirs.body)
    assert {**ours.headers, "Connection": "keep-alive"} == {**theirs.headers}, "but for what is said anew on each hop"
    assert replies == []


def test_a_server_that_nobody_may_look_at_is_what_the_app_takes_it_for(server):
    server.play(OWN)
    with Client(server.root, detect=False) as client:
        client.chat(**ASK)
        client.chat(**ASK, tools=[get_weather])
    assert [each.path for each in server.seen] == ["/api/chat"] * 2
    assert server.looks == []


def test_a_stream(server):
    deltas = ({"role": "assistant", "content": ""}, {"content": "He"}, {"content": "llo"})
    server.play(sse(*(chunk(each) for each in deltas), chunk(finish="stop")))
    with Client(server.root) as client:
        parts = list(client.chat(**ASK, stream=True, tools=[get_weather]))
    assert "".join(part.message.content for part in parts) == "Hello"
    assert [part.done for part in parts][-2:] == [False, True]


def test_an_app_that_leaves_a_stream_closes_it(server):
    server.play(sse(*(chunk({"content": f"{n} "}) for n in range(500)), pause=0.02))
    with Client(server.root) as client:
        parts = client.chat(**ASK, stream=True, tools=[get_weather])
        assert next(parts).message.content
        parts.close()
        assert server.gone.wait(300)


def test_the_async_client(server):
    server.play(CALLED, sse(chunk({"content": "Hi"}), chunk(finish="stop")))

    async def talk():
        async with AsyncClient(server.root) as client:
            first = await client.chat(**ASK, tools=[get_weather])
            second = [part async for part in await client.chat(**ASK, tools=[get_weather], stream=True)]
        return first, second

    first, second = asyncio.run(talk())
    assert first.message.tool_calls[0].function.arguments == {"city": "Paris"}
    assert "".join(part.message.content or "" for part in second) == "Hi"


def test_settings_hold_and_the_reply_tells(server):
    server.play(completion('```json\n{"tool": "get_weather", "arguments": {"city": "Paris"}}\n```'))
    replies, breaker = [], Breaker()
    with Client(server.root, mode="prompt", on_reply=replies.append, breaker=breaker, trace=True) as client:
        answer = client.chat(**ASK, tools=[get_weather])
        assert client.promptools.context.breaker is breaker
    assert answer.message.tool_calls[0].function.name == "get_weather"
    assert "tools" not in server.seen[0].json
    assert (replies[0].trace.mode, replies[0].trace.seen.kind) == ("prompt", None)
    assert "promptools" not in answer.model_dump(), "the package's answers have no place for a trace: hence on_reply"


def test_images_and_history_of_the_package(server):
    server.play(completion("A pixel."))
    message = package.Message(role="user", content="What is it?", images=[package.Image(value=b"\x89PNG")])
    with Client(server.root) as client:
        client.chat("m", [message])
    (part, text) = server.seen[0].json["messages"][0]["content"]
    assert part["image_url"]["url"] == "data:image/png;base64,iVBORw=="
    assert text == {"type": "text", "text": "What is it?"}


# --- everything else


def test_an_ollamas_other_routes_are_its_own(server):
    server.about = VERSION
    server.play({"models": [{"model": "m", "size": 5}], "status": "success"})
    with Client(server.root) as client:
        assert client.list().models[0].size == 5
        assert client.pull("m").status == "success"
        assert client.ps().models[0].model == "m"
        assert client.copy("m", "n").status == "success"
        assert client.delete("m").status == "success"
        client.create_blob(__file__)
    asked = [(each.method, each.path.partition("sha")[0]) for each in server.seen]
    assert asked == [
        ("GET", "/api/tags"), ("POST", "/api/pull"), ("GET", "/api/ps"), ("POST", "/api/copy"),
        ("DELETE", "/api/delete"), ("POST", "/api/blobs/"),
    ]  # fmt: skip
    assert server.seen[-1].body == Path(__file__).read_bytes(), "streamed, and never gathered"
    assert len(server.looks) > 0, "once, for all of them"
    assert len({each.path for each in server.looks}) == len(server.looks)


def test_a_server_of_which_nothing_is_known_answers_for_itself(server):
    server.play(Answer(404, (b'{"error":"not here"}',)))
    with Client(server.root) as client, pytest.raises(package.ResponseError, match="not here") as raised:
        client.show("m")
    assert raised.value.status_code == 404


def test_other_servers_models_are_listed(server):
    server.play({"object": "list", "data": [{"id": "a", "created": 7, "owned_by": "vllm"}, {"id": "b"}]})
    with Client(server.root, provider="vllm") as client:
        models = client.list().models
    assert [(each.model, each.modified_at and each.modified_at.timestamp()) for each in models] == [
        ("a", 7),
        ("b", datetime(1, 1, 1, tzinfo=UTC).timestamp()),
    ]
    assert [(each.method, each.path) for each in server.seen] == [("GET", "/v1/models")]


@pytest.mark.parametrize(
    ("answer", "status", "said"),
    [
        (Answer(401, (b'{"error": {"message": "no key"}}',)), 401, "no key"),
        (Answer(200, (b"<html>",), "text/html"), 502, "response to /models"),
        (unary({"data": 7}), 502, "response to /models"),
    ],
)
def test_a_list_that_cannot_be_had_is_told(server, answer, status, said):
    server.play(answer)
    with Client(server.root, provider="vllm") as client, pytest.raises(package.ResponseError, match=said) as raised:
        client.list()
    assert raised.value.status_code == status


@pytest.mark.parametrize("provider", ["vllm", "openai-compatible", "lmstudio"])
def test_what_only_ollama_has_is_refused_before_anything_is_sent(server, provider):
    with Client(server.root, provider=provider) as client:
        for asked in (lambda: client.pull("m"), lambda: list(client.push("m", stream=True))):
            with pytest.raises(package.ResponseError, match=r"'\w+' needs an Ollama server, and http://127") as raised:
                asked()
            assert raised.value.status_code == 501
    assert server.seen == []


@pytest.mark.parametrize("asynchronous", [False, True])
def test_other_routes_of_other_servers_are_answered_in_process(server, asynchronous):
    vectors = {"object": "list", "data": [{"index": 0, "embedding": [0.5]}]}
    server.play(completion("Hi"), vectors, {"object": "list", "data": [{"id": "m"}]})
    asked = (lambda client: client.generate("m", "Hello"), lambda client: client.embed("m", "a"))
    asked += (lambda client: client.show("m"),)

    async def later():
        client = AsyncClient(server.root, provider="vllm")
        try:
            return [await ask(client) for ask in asked]
        finally:
            await client.close()

    if asynchronous:
        made, embedded, shown = asyncio.run(later())
    else:
        with Client(server.root, provider="vllm") as client:
            made, embedded, shown = (ask(client) for ask in asked)
    assert (made.response, embedded.embeddings, shown.capabilities) == ("Hi", [[0.5]], ["completion", "tools"])
    assert [seen.path for seen in server.seen] == ["/v1/chat/completions", "/v1/embeddings", "/v1/models"]
    assert server.seen[0].json["messages"] == [{"role": "user", "content": "Hello"}]


def test_the_web_is_not_the_servers():
    with Client("http://127.0.0.1:9", provider="vllm", headers={"Authorization": "Bearer k"}) as client:
        transport = client._client._transport
        assert isinstance(transport, InterceptingTransport)
        assert transport.find_endpoint(httpx.Request("POST", "https://ollama.com/api/web_search")) is None
        assert transport.find_endpoint(httpx.Request("POST", "http://box/v1/systemone")) is None
        assert transport.find_endpoint(httpx.Request("POST", "http://box/v1/chat/completions")) is None
        assert transport.find_endpoint(httpx.Request("GET", "http://box/api/chat")) is None


# --- errors


def test_nobody_there_is_said_as_the_package_says_it():
    here = "http://127.0.0.1:9"
    with package.Client(here) as theirs, Client(here) as ours, Client(here, provider="vllm") as named:
        for asked in (
            lambda client: client.chat(**ASK),
            lambda client: list(client.chat(**ASK, stream=True)),
            lambda client: client.list(),
        ):
            outcomes = []
            for client in (theirs, ours, named):
                with pytest.raises((ConnectionError, httpx.HTTPError)) as raised:
                    asked(client)
                outcomes.append((type(raised.value), str(raised.value)))
            assert outcomes[0] == outcomes[1] == outcomes[2]


@pytest.mark.parametrize("stream", [False, True])
def test_a_server_that_is_too_slow_is_httpxs_own_error(server, stream):
    server.about = VERSION
    server.play(Answer(before=LONG))
    with Client(server.root, timeout=0.3) as client, pytest.raises(httpx.ReadTimeout):
        list(client.chat(**ASK, tools=[get_weather], stream=stream))


def test_a_servers_error_is_the_packages_own(server):
    server.play(Answer(404, (json.dumps({"error": {"message": "no model 'm'", "code": 404}}).encode(),)))
    with Client(server.root) as client:
        with pytest.raises(package.ResponseError) as raised:
            client.chat(**ASK)
        assert (raised.value.error, raised.value.status_code) == ("no model 'm'", 404)
        with pytest.raises(package.ResponseError) as raised:
            list(client.chat(**ASK, stream=True, tools=[get_weather]))
        assert (raised.value.error, raised.value.status_code) == ("no model 'm'", 404)


def test_a_bug_of_ours_is_the_packages_own_error_too(server, monkeypatch, caplog):
    monkeypatch.setattr("promptools.exchange.ollama_api.decode_chat_request", None)
    with Client(server.root) as client, pytest.raises(package.ResponseError, match="promptools failed") as raised:
        client.chat(**ASK)
    assert raised.value.status_code == 500
    assert "Traceback" in caplog.text


# --- the module's functions


def test_the_functions_use_one_client_with_the_configs_settings(server, tmp_path):
    (tmp_path / "promptools.toml").write_text(f'[providers.box]\nkind = "vllm"\nbase_url = "{server.url}"\n')
    server.play(CALLED)
    answer = ollama.chat(**ASK, tools=[get_weather])
    assert answer.message.tool_calls[0].function.arguments == {"city": "Paris"}
    assert server.seen[0].path == "/v1/chat/completions"
    assert ollama.chat.__self__ is ollama.list.__self__
    with pytest.raises(package.ResponseError, match="needs an Ollama server"):
        ollama.pull("m")
