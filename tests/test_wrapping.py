"""`wrap` of other clients than openai's, the HTTP clients for frameworks, and the log's warning of APIs not read."""

import asyncio
import re
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType

import ollama
import openai
import pytest
from upstream import completion, running, unary

import promptools
from promptools.errors import UsageError
from promptools.profiles import Config
from promptools.transport import InterceptingTransport
from promptools.wrapping import FRAMEWORKS_PAGE, USAGE_LINES, async_http_client, http_client, wrap

ROOT = Path(promptools.__file__).parents[1]
FAMILIES = [name for name in ("httpx", "httpx2") if find_spec(name)]
PARAMETERS = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
TOOLS = [{"type": "function", "function": {"name": "get_weather", "parameters": PARAMETERS}}]
ASK = {"model": "m", "messages": [{"role": "user", "content": "Weather in Paris?"}], "tools": TOOLS}
PRINTED = "<tool_call>\n{'name': 'get_weather', 'arguments': {'city': 'Paris'}}\n</tool_call>"
OPTIONS = {"config": Config(), "detect": False}


@pytest.fixture
def server():
    with running() as upstream:
        upstream.play(completion(PRINTED), completion(PRINTED))
        yield upstream


def arguments_in(answer):
    return answer["choices"][0]["message"]["tool_calls"][0]["function"]["arguments"]


# --- clients of anthropic

MESSAGE = {"model": "m", "max_tokens": 100, "messages": ASK["messages"]}
MESSAGE_TOOLS = [{"name": "get_weather", "input_schema": PARAMETERS}]


@pytest.mark.parametrize("suffix", ["", "/v1", "/v1/"])
def test_a_wrapped_client_of_anthropic_gives_the_call(server, suffix):
    anthropic = pytest.importorskip("anthropic")
    own = anthropic.Anthropic(base_url=server.url.removesuffix("/v1") + suffix, api_key="k", max_retries=0)
    with wrap(own, **OPTIONS) as client:
        assert client is own
        message = client.with_options(timeout=9).messages.create(**MESSAGE, tools=MESSAGE_TOOLS)
        assert message.content[0].input == {"city": "Paris"}
        with client.messages.stream(**MESSAGE, tools=MESSAGE_TOOLS) as stream:
            assert stream.get_final_message().content[0].input == {"city": "Paris"}
        assert client.messages.count_tokens(model="m", messages=MESSAGE["messages"]).input_tokens > 0
    assert [(seen.path, seen.headers["authorization"]) for seen in server.seen] == [
        ("/v1/chat/completions", "Bearer k")
    ] * 2


OTHER_REQUESTS = {
    "/v1/models?limit=3": lambda client: client.models.list(limit=3),
    "/v1/models/m": lambda client: client.models.retrieve("m"),
    "/v1/models/v1%2Fv1%2Fm": lambda client: client.models.retrieve("v1/v1/m"),
    "/v1/messages/batches": lambda client: client.messages.batches.create(requests=[]),
    "/v1/messages/batches/b/cancel": lambda client: client.messages.batches.cancel("b"),
    "/v1/files": lambda client: client.beta.files.list(),
    "/v1/other?path=/v1/v1/x": lambda client: client.get("/v1/other?path=/v1/v1/x", cast_to=object),
}
"""What the SDK requests besides messages, with the path that a server knows."""


@pytest.mark.parametrize("suffix", ["", "/v1", "/v1/"])
@pytest.mark.parametrize("kind", ["Anthropic", "AsyncAnthropic"])
def test_all_other_requests_of_a_client_of_anthropic_have_one_v1(server, kind, suffix):
    anthropic = pytest.importorskip("anthropic")
    server.play(*[unary({"data": [], "id": "x", "type": "model", "has_more": False})] * 2 * len(OTHER_REQUESTS))
    base_url = server.url.removesuffix("/v1") + suffix
    wrapped = wrap(getattr(anthropic, kind)(base_url=base_url, api_key="k", max_retries=0), **OPTIONS)

    async def ask(client):
        for request in OTHER_REQUESTS.values():
            answer = request(client)
            if hasattr(answer, "__await__"):
                await answer
        return client

    async def ask_all():
        # a copy with a base URL of its own has the same transport
        for client in (wrapped, wrapped.with_options(base_url=base_url)):
            await ask(client)
        await wrapped.close() if kind.startswith("Async") else wrapped.close()

    asyncio.run(ask_all())
    assert [seen.path for seen in server.seen] == list(OTHER_REQUESTS) * 2


def test_a_wrapped_async_client_of_anthropic_gives_the_call(server):
    anthropic = pytest.importorskip("anthropic")

    async def ask():
        own = anthropic.AsyncAnthropic(base_url=server.url.removesuffix("/v1"), api_key="k", max_retries=0)
        async with wrap(own, **OPTIONS) as client:
            return await client.messages.create(**MESSAGE, tools=MESSAGE_TOOLS)

    assert asyncio.run(ask()).content[0].input == {"city": "Paris"}


# --- clients of httpx and httpx2


@pytest.mark.parametrize("family", FAMILIES)
def test_a_wrapped_http_client_gives_the_call(server, family):
    plain = import_module(family).Client(headers={"x-mine": "1"})
    with wrap(plain, **OPTIONS) as http:
        answer = http.post(f"{server.url}/chat/completions", json=ASK).json()
    assert arguments_in(answer) == '{"city": "Paris"}'
    assert server.seen[0].headers["x-mine"] == "1"
    assert plain.is_closed, "closing the copy closes the original"


@pytest.mark.parametrize("family", FAMILIES)
def test_a_wrapped_async_http_client_gives_the_call(server, family):
    async def ask():
        async with wrap(import_module(family).AsyncClient(), **OPTIONS) as http:
            return (await http.post(f"{server.url}/chat/completions", json=ASK)).json()

    assert arguments_in(asyncio.run(ask())) == '{"city": "Paris"}'


@pytest.mark.parametrize("family", FAMILIES)
def test_the_original_stays_as_it_is(server, family):
    with import_module(family).Client() as plain:
        wrapped = wrap(plain, **OPTIONS)
        assert wrapped is not plain
        assert not isinstance(plain._transport, InterceptingTransport)
        answer = plain.post(f"{server.url}/chat/completions", json=ASK).json()
        assert answer["choices"][0]["message"]["content"] == PRINTED


@pytest.mark.parametrize("family", FAMILIES)
def test_wrapping_a_wrapped_http_client_changes_the_settings_that_are_named(family):
    with wrap(import_module(family).Client(), mode="prompt", **OPTIONS) as once:
        again = wrap(once, trace=True)
        options = again._transport.start.context.options
        assert (options.mode, options.trace) == ("prompt", True)
        assert not isinstance(again._transport.inner, InterceptingTransport)


def test_the_http_client_is_for_the_sdk(server):
    client = openai.OpenAI(base_url=server.url, api_key="none", http_client=http_client(**OPTIONS))
    with client:
        reply = client.chat.completions.create(**ASK)
    assert reply.choices[0].message.tool_calls[0].function.arguments == '{"city": "Paris"}'


def test_the_async_http_client_is_for_the_sdk(server):
    async def ask():
        http = async_http_client(**OPTIONS)
        async with openai.AsyncOpenAI(base_url=server.url, api_key="none", http_client=http) as client:
            return await client.chat.completions.create(**ASK)

    reply = asyncio.run(ask())
    assert reply.choices[0].message.tool_calls[0].function.arguments == '{"city": "Paris"}'


def test_the_http_client_has_the_limits_of_the_sdks_own():
    with http_client(**OPTIONS) as ours, openai.DefaultHttpxClient() as theirs:
        assert ours.timeout == theirs.timeout
        assert ours.follow_redirects == theirs.follow_redirects


@pytest.mark.parametrize("bad", [{"provider": "nobody"}, {"mode": "loud"}, {"colour": 1}])
def test_what_cannot_be_is_said_at_once(bad):
    with pytest.raises(UsageError):
        http_client(**{"config": Config(), **bad})


# --- clients of the ollama package


def test_a_wrapped_ollama_client_stays_the_same_and_gives_the_call(server):
    client = ollama.Client(host=server.url.removesuffix("/v1"))
    assert wrap(client, provider="vllm", **OPTIONS) is client
    answer = client.chat("m", ASK["messages"], tools=TOOLS)
    assert answer.message.tool_calls[0].function.arguments == {"city": "Paris"}
    wrap(client, trace=True)
    assert client.promptools.provider == "vllm"
    assert client.promptools.context.options.trace
    assert not isinstance(client._client._transport.inner, InterceptingTransport)
    client._client.close()


def test_a_wrapped_async_ollama_client_gives_the_call(server):
    async def ask():
        client = wrap(ollama.AsyncClient(host=server.url.removesuffix("/v1")), provider="vllm", **OPTIONS)
        answer = await client.chat("m", ASK["messages"], tools=TOOLS)
        await client._client.aclose()
        return answer

    assert asyncio.run(ask()).message.tool_calls[0].function.arguments == {"city": "Paris"}


# --- what is no client


@pytest.mark.parametrize("package", USAGE_LINES)
def test_of_a_frameworks_object_it_says_what_to_write(package):
    base = type("Model", (), {"__module__": f"{package}.models.chat"})
    own = type("Own", (base,), {"__module__": "app"})  # an app's subclass of it
    for thing in (base, base(), own(), ModuleType(package)):
        with pytest.raises(UsageError) as refused:
            wrap(thing)
        assert USAGE_LINES[package] in str(refused.value)
        assert FRAMEWORKS_PAGE in str(refused.value)


@pytest.mark.parametrize("thing", [openai, openai.OpenAI, ollama, {}, None, 3, "http://localhost:8000/v1"], ids=repr)
def test_of_anything_else_it_says_what_it_takes(thing):
    with pytest.raises(
        UsageError, match="wrap\\(\\) takes a client of openai, ollama, anthropic or httpx, not "
    ) as refused:
        wrap(thing)
    assert FRAMEWORKS_PAGE not in str(refused.value)


@pytest.mark.parametrize("line", dict.fromkeys(USAGE_LINES.values()))
def test_the_page_has_that_line(line):
    page = (ROOT / FRAMEWORKS_PAGE).read_text(encoding="utf-8")
    parts = re.findall(r"\w+=promptools\.\w+\(\)|[\w.]+ = promptools\.\w+\(\)|\"\w+\": promptools\.\w+\(\)", line)
    parts += re.findall(r"^\w[\w.]*\(|promptools\.\w+\(|set_\w+\(\"\w+\"\)", line)
    assert parts
    assert [part for part in parts if part not in page] == []


# --- APIs that pass unread


@pytest.mark.parametrize(
    ("method", "path"),
    [("GET", "/responses/r_1"), ("POST", "/completions"), ("POST", "/embeddings"), ("GET", "/api/chat")],
)
def test_what_holds_no_calls_is_not_in_the_log(server, caplog, method, path):
    with http_client(**OPTIONS) as http:
        http.request(method, f"{server.url}{path}")
    assert caplog.records == []
