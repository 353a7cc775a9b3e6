"""The SDK's clients with our transport inside, against a real HTTP server; runs on every major of openai."""

import asyncio
import gc
import logging
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from importlib import import_module
from importlib.util import find_spec

import openai
import pytest
from pydantic import BaseModel
from tenacity import stop_after_attempt, wait_fixed
from upstream import Answer, chunk, completion, running, sse
from waiting import LONG, until

from promptools.client import AsyncOpenAI, OpenAI
from promptools.errors import UsageError
from promptools.fallback import Breaker
from promptools.profiles import Config
from promptools.transport import InterceptingTransport
from promptools.wrapping import wrap

MAJOR = int(openai.__version__.split(".")[0])
SDK_FAMILY = "httpx2" if MAJOR >= 3 else "httpx"
FAMILIES = [name for name in ("httpx", "httpx2") if find_spec(name) and (MAJOR >= 3 or name == "httpx")]
TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "get_weather",
            "description": "Tell the weather.",
            "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
        },
    }
]
HELLO = {"model": "m", "messages": [{"role": "user", "content": "Weather in Paris?"}]}
ASK = {**HELLO, "tools": TOOLS}
CALL = completion(None, [("get_weather", '{"city": "Paris"}')])
STREAM = sse(
    chunk({"role": "assistant", "content": ""}),
    chunk({"content": "Hel"}),
    chunk({"content": "lo"}),
    chunk({}, finish="stop"),
    {**chunk(), "choices": [], "usage": {"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5}},
)


@pytest.fixture
def server():
    with running() as upstream:
        yield upstream


@pytest.fixture(autouse=True)
def clean(monkeypatch, tmp_path):
    for name in ("OPENAI_API_KEY", "OPENAI_BASE_URL", "PROMPTOOLS_CONFIG", "PPXAI_CONFIG_FILE", "XDG_CONFIG_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)


class Driver:
    """Makes the same calls through the sync or the async client."""

    def __init__(self, colour):
        self.colour = colour
        self.kind = OpenAI if colour == "sync" else AsyncOpenAI
        self.plain = openai.OpenAI if colour == "sync" else openai.AsyncOpenAI

    def run(self, client, work):
        """Run `work(client)`, awaiting what it gives and closing the client."""

        async def go():
            try:
                return await work(client)
            finally:
                await client.close()

        if self.colour == "async":
            return asyncio.run(go())
        with client:
            return work(client)

    def create(self, client, **kw):
        return self.run(client, lambda c: c.chat.completions.create(**kw))

    def chunks(self, client, **kw):
        async def gather(c):
            return [each async for each in await c.chat.completions.create(stream=True, **kw)]

        if self.colour == "async":
            return self.run(client, gather)
        return self.run(client, lambda c: list(c.chat.completions.create(stream=True, **kw)))


@pytest.fixture(params=["sync", "async"])
def driver(request):
    return Driver(request.param)


def make(driver, server, **kw):
    return driver.kind(**{"base_url": server.url, "api_key": "k", "max_retries": 0, "timeout": 600, **kw})


def test_create(server, driver):
    server.play(completion("hi"))
    reply = driver.create(make(driver, server), **HELLO)
    assert reply.choices[0].message.content == "hi"
    assert reply.usage.total_tokens == 5
    assert server.seen[0].path == "/v1/chat/completions"
    assert server.seen[0].headers["Authorization"] == "Bearer k"
    assert server.seen[0].json == HELLO


def test_an_address_without_a_scheme(driver):
    with pytest.raises(UsageError, match=r"'localhost:8000' is not a URL; did you mean 'http://localhost:8000/v1'\?"):
        driver.kind(base_url="localhost:8000", api_key="k")


def test_create_with_tools(server, driver):
    server.play(CALL)
    reply = driver.create(make(driver, server), **ASK)
    call = reply.choices[0].message.tool_calls[0]
    assert (call.function.name, call.function.arguments) == ("get_weather", '{"city": "Paris"}')
    assert reply.choices[0].finish_reason == "tool_calls"


def test_a_stream(server, driver):
    server.play(STREAM)
    chunks = driver.chunks(make(driver, server), **HELLO)
    assert "".join(c.choices[0].delta.content or "" for c in chunks if c.choices) == "Hello"
    assert chunks[-1].usage.total_tokens == 5


def test_the_stream_helper(server, driver):
    server.play(STREAM)

    async def helper(c):
        stack = getattr(c.chat.completions, "stream", None) or c.beta.chat.completions.stream
        async with stack(**HELLO) as events:
            async for _ in events:
                pass
            return await events.get_final_completion()

    def sync_helper(c):
        stack = getattr(c.chat.completions, "stream", None) or c.beta.chat.completions.stream
        with stack(**HELLO) as events:
            for _ in events:
                pass
            return events.get_final_completion()

    final = driver.run(make(driver, server), helper if driver.colour == "async" else sync_helper)
    assert final.choices[0].message.content == "Hello"


def test_raw_response(server, driver):
    server.play(Answer(pieces=(b'{"choices": [], "id": "x"}',), headers={"x-request-id": "r1"}))
    raw = driver.run(make(driver, server), lambda c: c.chat.completions.with_raw_response.create(**HELLO))
    assert raw.status_code == 200
    assert raw.headers["x-request-id"] == "r1"
    assert raw.parse().id == "x"


def test_streaming_response(server, driver):
    server.play(STREAM)

    def lines(c):
        with c.chat.completions.with_streaming_response.create(stream=True, **HELLO) as response:
            return list(response.iter_lines())

    async def async_lines(c):
        async with c.chat.completions.with_streaming_response.create(stream=True, **HELLO) as response:
            return [line async for line in response.iter_lines()]

    got = driver.run(make(driver, server), async_lines if driver.colour == "async" else lines)
    assert [line for line in got if line][-1] == "data: [DONE]"


@pytest.mark.parametrize("text", ['{"name": "Paris"}', 'Sure:\n```json\n{"name": "Paris"}\n```', "{'name': 'Paris',}"])
def test_parse(server, driver, text):
    class City(BaseModel):
        name: str

    server.play(completion(text))

    def parsing(c):
        completions = c.chat.completions if hasattr(c.chat.completions, "parse") else c.beta.chat.completions
        return completions.parse(**HELLO, response_format=City)

    reply = driver.run(make(driver, server), parsing)
    assert reply.choices[0].message.parsed == City(name="Paris")


def test_other_paths_pass(server, driver):
    server.play(Answer(pieces=(b'{"object": "list", "data": [{"id": "m", "object": "model"}]}',), gzip=True))

    async def ids(c):
        return [model.id async for model in c.models.list()]

    client = make(driver, server)
    got = driver.run(client, ids if driver.colour == "async" else lambda c: [m.id for m in c.models.list()])
    assert got == ["m"]
    assert server.seen[0].path == "/v1/models"


@pytest.mark.parametrize("family", FAMILIES)
def test_a_users_http_client_stays_theirs(server, driver, family):
    module = import_module(family)
    seen = []

    def hook(request):
        seen.append(request.url.path)

    async def async_hook(request):
        hook(request)

    is_async = driver.colour == "async"
    kind = module.AsyncClient if is_async else module.Client
    http = kind(timeout=9, event_hooks={"request": [async_hook if is_async else hook]}, headers={"X-Mine": "1"})
    before = dict(http.__dict__)
    server.play(CALL)
    client = make(driver, server, http_client=http)
    assert http.__dict__ == before
    assert driver.create(client, **ASK).choices[0].message.tool_calls
    assert seen == ["/v1/chat/completions"]
    assert server.seen[0].headers["X-Mine"] == "1"
    assert http.is_closed


def test_copies_share_the_breaker_and_the_connection(server, driver):
    server.play(completion())
    client = make(driver, server)
    for copy in (client.copy(), client.with_options(timeout=3, max_retries=1)):
        assert type(copy) is type(client)
        assert copy.promptools is client.promptools
        assert copy._client is client._client
    other = client.with_options(mode="prompt", trace=True)
    assert other.promptools is not client.promptools
    assert other.promptools.context.breaker is client.promptools.context.breaker
    assert other.promptools.context.options.mode == "prompt"
    assert client.promptools.context.options.mode is None
    assert other._client._transport.original_client is client._client._transport.original_client
    again = other.with_options(trace=False)
    assert again.promptools.context.options.mode == "prompt"
    assert not again.promptools.context.options.trace
    elsewhere = client.with_options(base_url=f"{server.root}/other/v1")
    driver.create(elsewhere, **HELLO)
    assert server.seen[0].path == "/other/v1/chat/completions"


def test_a_copy_with_another_http_client(server, driver):
    module = import_module(SDK_FAMILY)
    http = (module.AsyncClient if driver.colour == "async" else module.Client)()
    copy = make(driver, server).with_options(http_client=http)
    assert isinstance(copy._client._transport, InterceptingTransport)
    assert copy._client._transport.original_client is http
    server.play(completion())
    assert driver.create(copy, **HELLO).choices


def test_wrap_keeps_the_client(server, driver):
    server.play(completion())
    plain = driver.plain(base_url=server.url, api_key="k")
    wrapped = wrap(plain, mode="native")
    assert wrapped is plain
    assert wrap(plain) is plain
    transport = plain._client._transport
    assert not isinstance(transport.inner, InterceptingTransport)
    assert plain.with_options(timeout=3)._client is plain._client
    wrap(plain, trace=True)
    assert plain.promptools.context.options.mode == "native"
    assert plain.promptools.context.options.trace
    assert not isinstance(plain._client._transport.inner, InterceptingTransport)
    assert driver.create(plain, **HELLO).choices


def test_wrap_leaves_others_with_the_same_http_client_alone(server):
    module = import_module(SDK_FAMILY)
    http = module.Client()
    one, other = (openai.OpenAI(base_url=server.url, api_key="k", http_client=http) for _ in range(2))
    wrap(one)
    assert other._client is http
    assert not isinstance(http._transport, InterceptingTransport)
    http.close()


def test_wrapping_does_not_close_the_client_of_an_earlier_copy(server):
    server.play(completion())
    one = openai.OpenAI(base_url=server.url, api_key="k")
    copy = one.with_options(timeout=5)
    wrap(one)
    del one
    gc.collect()
    assert not copy.is_closed()
    assert copy.chat.completions.create(**HELLO).choices
    copy.close()


def test_a_shared_http_client_that_closes_itself_outlives_a_wrapped_client(server):
    class Shared(import_module(SDK_FAMILY).Client):
        def __del__(self):
            self.close()

    http = Shared()
    server.play(completion())
    one = wrap(openai.OpenAI(base_url=server.url, api_key="k", http_client=http))
    assert isinstance(one._client, Shared)
    del one
    gc.collect()
    assert not http.is_closed
    assert wrap(openai.OpenAI(base_url=server.url, api_key="k", http_client=http)).chat.completions.create(**HELLO)
    http.close()


def test_azure_through_wrap(server, driver):
    kind = openai.AzureOpenAI if driver.colour == "sync" else openai.AsyncAzureOpenAI
    server.play(CALL)
    client = wrap(kind(azure_endpoint=server.root, api_key="az", api_version="2024-10-21", max_retries=0))
    reply = driver.create(client, **ASK)
    assert reply.choices[0].message.tool_calls[0].function.name == "get_weather"
    assert server.seen[0].path == "/openai/deployments/m/chat/completions?api-version=2024-10-21"
    assert server.seen[0].headers["api-key"] == "az"


def test_wrap_refuses_what_is_not_a_client():
    with pytest.raises(UsageError, match="not a 'dict'"):
        wrap({})


@pytest.mark.parametrize("colour", ["sync", "async"])
def test_a_proxy_of_the_environment(server, colour, monkeypatch):
    monkeypatch.setenv("HTTP_PROXY", server.root)
    for name in ("NO_PROXY", "no_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.delenv(name, raising=False)
    server.play(CALL)
    driver = Driver(colour)
    reply = driver.create(driver.kind(base_url="http://nowhere.invalid/v1", api_key="k", max_retries=0), **ASK)
    assert reply.choices[0].message.tool_calls
    assert server.seen[0].path == "http://nowhere.invalid/v1/chat/completions"


def test_time_outs_are_the_sdks(server, driver):
    server.play(Answer(before=LONG))
    with pytest.raises(openai.APITimeoutError):
        driver.create(make(driver, server, timeout=0.3, max_retries=1), **HELLO)
    until(lambda: len(server.seen) == 2)


def test_connect_errors_are_the_sdks(driver):
    with pytest.raises(openai.APIConnectionError):
        driver.create(driver.kind(base_url="http://127.0.0.1:1/v1", api_key="k", max_retries=0), **HELLO)


def test_rate_limits_are_the_sdks_to_retry(server, driver):
    slow = Answer(status=429, pieces=(b'{"error": {"message": "slow down"}}',), headers={"retry-after": "0.05"})
    server.play(slow, completion("at last"))
    reply = driver.create(make(driver, server, max_retries=2), **ASK)
    assert reply.choices[0].message.content == "at last"
    assert server.seen[1].headers["x-stainless-retry-count"] == "1"


def test_an_upstreams_own_error_comes_through(server, driver):
    server.play(Answer(status=404, pieces=(b'{"error": {"message": "no such model", "code": 404}}',)))
    with pytest.raises(openai.NotFoundError, match="no such model"):
        driver.create(make(driver, server), **HELLO)


def test_breaking_off_closes_the_upstream(server, driver):
    server.play(sse(chunk({"content": "a"}), chunk({"content": "b"}), done=False, then="hang"))

    def take(c):
        stream = c.chat.completions.create(stream=True, **HELLO)
        for _ in stream:
            break
        stream.close()
        assert server.gone.wait(LONG)

    async def async_take(c):
        stream = await c.chat.completions.create(stream=True, **HELLO)
        async for _ in stream:
            break
        await stream.close()
        assert await asyncio.to_thread(server.gone.wait, LONG)

    driver.run(make(driver, server), async_take if driver.colour == "async" else take)


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("tools", [False, True])
def test_cancelling_closes_the_upstream(server, stream, tools):
    """Before the first byte; with tools the exchange is at work then."""
    server.play(Answer(before=LONG))

    async def go():
        async with AsyncOpenAI(base_url=server.url, api_key="k", max_retries=0) as client:
            task = asyncio.create_task(client.chat.completions.create(stream=stream, **(ASK if tools else HELLO)))
            while not server.seen:
                await asyncio.sleep(0.01)
            await asyncio.sleep(0.05)
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task
            assert task.cancelled()
            assert await asyncio.to_thread(server.gone.wait, LONG)

    asyncio.run(go())


def config(tmp_path, server, extra="", port=None):
    (tmp_path / "promptools.toml").write_text(
        f"""
default_provider = "here"
[providers.here]
kind = "llamacpp"
base_url = "{server.url}"
default_model = "tiny"
{extra}
[providers.there]
kind = "vllm"
base_url = "{server.root}/there/v1"
api_key_env = "THERE_KEY"
default_model = "big"
"""
    )


def test_the_default_provider_of_the_config(server, driver, tmp_path, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "secret")
    config(tmp_path, server)
    server.play(completion())
    client = driver.kind(max_retries=0)
    assert str(client.base_url) == server.url + "/"
    assert client.promptools.provider == "here"
    driver.create(client, **HELLO)
    assert server.seen[0].path == "/v1/chat/completions"
    assert "secret" not in str(server.seen[0].headers)


def test_a_provider_by_name_and_its_key(server, driver, tmp_path, monkeypatch):
    config(tmp_path, server)
    monkeypatch.setenv("THERE_KEY", "abc")
    server.play(completion())
    driver.create(driver.kind(provider="there", max_retries=0), **HELLO)
    assert server.seen[0].path == "/there/v1/chat/completions"
    assert server.seen[0].headers["Authorization"] == "Bearer abc"
    server.play(completion())
    driver.create(driver.kind(max_retries=0).with_options(provider="there"), **HELLO)
    assert server.seen[0].path == "/there/v1/chat/completions"
    assert server.seen[0].headers["Authorization"] == "Bearer abc"


def test_a_config_is_read_once_and_may_be_handed_over(server, driver, tmp_path):
    config(tmp_path, server)
    (tmp_path / "promptools.toml").rename(tmp_path / "other.toml")
    assert driver.kind(config=str(tmp_path / "other.toml")).promptools.provider == "here"
    with pytest.raises(openai.OpenAIError):
        driver.kind()
    with pytest.raises(UsageError, match="nope"):
        driver.kind(provider="nope", config=Config())


def test_base_url_wins_over_the_configs_default(server, driver, tmp_path, monkeypatch):
    config(tmp_path, server)
    client = driver.kind(base_url="http://x.example/v1", api_key="k")
    assert client.promptools.provider is None
    assert str(client.base_url) == "http://x.example/v1/"
    monkeypatch.setenv("OPENAI_BASE_URL", "http://y.example/v1")
    assert str(driver.kind(api_key="k").base_url) == "http://y.example/v1/"
    assert str(driver.kind(config="promptools.toml").base_url) == server.url + "/"


def test_unknown_settings_are_refused(driver):
    with pytest.raises(TypeError, match="colour"):
        driver.kind(base_url="http://x/v1", api_key="k", colour="red")
    with pytest.raises(UsageError, match="mode"):
        driver.kind(base_url="http://x/v1", api_key="k", mode="magic")


def test_importing_promptools_does_not_import_openai():
    code = "import sys, promptools; print('openai' in sys.modules, 'httpx' in sys.modules)"
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=env)
    assert out.stdout.split() == ["False", "False"]


# What the exchange does for a client


HARMONY = Answer(
    status=500, pieces=(b'{"error": {"message": "Unexpected token 12606 while expecting start token 200006"}}',)
)
FENCED = '```json\n{"tool": "get_weather", "arguments": {"city": "Paris"}}\n```'


def arguments(reply):
    return [(c.function.name, c.function.arguments) for c in reply.choices[0].message.tool_calls or []]


def test_a_fallback_is_seen_by_everyone(server, driver, caplog):
    caplog.set_level(logging.INFO, "promptools")
    replies = []
    server.play(HARMONY, completion(FENCED))
    client = make(driver, server, on_reply=replies.append, max_retries=2)
    raw = driver.run(client, lambda c: c.chat.completions.with_raw_response.create(**ASK))
    assert raw.headers["x-promptools-mode"] == "prompt"
    assert raw.headers["x-promptools-attempts"] == "2"
    assert arguments(raw.parse()) == [("get_weather", '{"city": "Paris"}')]
    assert [attempt.outcome for attempt in replies[0].trace.attempts] == ["harmony", "answered"]
    (line,) = [record for record in caplog.records if record.name == "promptools"]
    assert line.levelno == logging.INFO
    assert line.getMessage().startswith("send 1 in native mode failed: harmony (HTTP 500); prompt mode is tried")
    assert "tools" not in server.seen[1].json


def test_a_streamed_fallback(server, driver):
    server.play(HARMONY, sse(*[chunk({"content": c}) for c in FENCED], chunk({}, finish="stop")))
    chunks = driver.chunks(make(driver, server), **ASK)
    calls = [c for each in chunks for choice in each.choices for c in choice.delta.tool_calls or []]
    assert calls[0].function.name == "get_weather"
    assert "".join(c.function.arguments or "" for c in calls) == '{"city": "Paris"}'
    assert [choice.finish_reason for each in chunks for choice in each.choices][-1] == "tool_calls"


def test_the_breaker_is_shared_with_copies_and_may_be_handed_in(server):
    breaker = Breaker(threshold=1)
    with OpenAI(base_url=server.url, api_key="k", max_retries=0, breaker=breaker) as first:
        server.play(HARMONY, completion(FENCED))
        assert arguments(first.chat.completions.create(**ASK))
        server.play(completion(FENCED))
        for client in (first.with_options(timeout=5), first.with_options(trace=True)):
            assert arguments(client.chat.completions.create(**ASK))
        assert ["tools" in seen.json for seen in server.seen] == [False, False]
    with OpenAI(base_url=server.url, api_key="k", max_retries=0, breaker=breaker) as other:
        other.chat.completions.create(**ASK)
        assert "tools" not in server.seen[-1].json


def test_a_bad_request_of_ours_is_a_400_and_is_not_retried(server, driver):
    server.play(completion())
    gone = {"type": "function", "function": {"name": "gone"}}
    with pytest.raises(openai.BadRequestError, match="names 'gone'") as caught:
        driver.create(make(driver, server, max_retries=2), **ASK, tool_choice=gone)
    assert caught.value.body["type"] == "UsageError"
    assert not server.seen
    with pytest.raises(openai.BadRequestError, match="colour"):
        driver.create(make(driver, server), **HELLO, extra_body={"promptools": {"colour": 1}})


def test_all_attempts_failed_is_a_502_that_is_not_retried(server, driver):
    server.play(HARMONY)
    with pytest.raises(openai.InternalServerError) as caught:
        driver.create(make(driver, server, max_retries=2), **ASK)
    assert caught.value.status_code == 502
    assert caught.value.response.headers["x-should-retry"] == "false"
    assert caught.value.body["type"] == "Exhausted"
    assert len(caught.value.body["attempts"]) == len(server.seen)


def test_untouched_is_byte_for_byte(server, driver):
    odd = b'{ "id" :"x","choices":[ {"index":0,"message":{"role":"assistant","content":"\\u00e9"}} ], "odd":[1.50]}'
    server.play(Answer(pieces=(odd,)))
    raw = driver.run(make(driver, server), lambda c: c.chat.completions.with_raw_response.create(**HELLO))
    assert raw.content == odd
    plain = driver.plain(base_url=server.url, api_key="k", max_retries=0)
    driver.create(plain, **HELLO)
    assert server.seen[0].body == server.seen[1].body
    ours, theirs = ({k.lower(): v for k, v in seen.headers.items()} for seen in server.seen)
    differ = {"connection", "x-stainless-raw-response"}  # one speaks of the connection, one of `with_raw_response`
    assert {k: v for k, v in ours.items() if k not in differ} == {k: v for k, v in theirs.items() if k not in differ}


def test_an_untouched_stream_is_byte_for_byte(server):
    pieces = (b": hello\n\n", b'data: {"choices":[{"index":0,"delta":{"content":"a"}}]}\r\n\r\ndata: {"choi', b'ces":')
    rest = (b'[{"index":0,"delta":{},"finish_reason":"stop"}]}\n\n', b"data: [DONE]\n\n")
    server.play(Answer(pieces=pieces + rest, type="text/event-stream", pause=0.02))
    with make(Driver("sync"), server) as client:
        response = client.chat.completions.with_streaming_response.create(stream=True, **HELLO)
        with response as got:
            assert b"".join(got.iter_bytes()) == b"".join(pieces + rest)


def test_a_trace_on_request(server, driver):
    server.play(CALL)
    reply = driver.create(make(driver, server), **ASK, extra_body={"promptools": {"trace": True, "mode": "native"}})
    assert reply.model_extra["promptools"]["mode"] == "native"
    assert "promptools" not in server.seen[0].json


def test_a_mode_forced_by_the_client(server, driver):
    server.play(completion(FENCED))
    assert arguments(driver.create(make(driver, server, mode="prompt"), **ASK))
    assert "tools" not in server.seen[0].json


def test_several_choices(server, driver):
    two = completion("one")
    two["choices"].append({**two["choices"][0], "index": 1, "message": {"role": "assistant", "content": "two"}})
    server.play(two)
    reply = driver.create(make(driver, server), **ASK, n=2)
    assert [choice.message.content for choice in reply.choices] == ["one", "two"]


def test_an_error_after_the_first_word_is_in_the_stream(server, driver):
    server.play(sse(chunk({"content": "Hel"}), {"error": {"message": "boom", "code": 500}}, done=False))
    with pytest.raises(openai.APIError, match="boom"):
        driver.chunks(make(driver, server), **ASK)


def test_a_provider_for_one_request_gets_its_own_key_and_no_other(server, driver, tmp_path, monkeypatch):
    config(tmp_path, server)
    server.play(completion())
    other = {"extra_body": {"promptools": {"provider": "there"}}, "extra_headers": {"api-key": "secret"}}
    for key, said in ((None, "Bearer none"), ("abc", "Bearer abc")):
        if key:
            monkeypatch.setenv("THERE_KEY", key)
        client = make(driver, server, api_key="secret", organization="org", config="promptools.toml")
        driver.create(client, **HELLO, **other)
        seen = server.seen[-1]
        assert seen.path == "/there/v1/chat/completions"
        assert seen.headers["authorization"] == said
        assert "secret" not in str(seen.headers)
        assert "org" not in seen.headers.values()


def test_a_key_that_is_missing_is_an_error_for_the_provider_in_use_only(server, driver, tmp_path):
    (tmp_path / "far.toml").write_text(
        'default_provider = "far"\n[providers.far]\nbase_url = "https://far.example/v1"\napi_key_env = "FAR_KEY"\n'
        f'[providers.near]\nbase_url = "{server.url}"\n'
    )
    with pytest.raises(UsageError, match="FAR_KEY"):
        driver.kind(config="far.toml")
    server.play(completion())
    assert driver.create(driver.kind(config="far.toml", provider="near"), **HELLO).choices
    far = {"extra_body": {"promptools": {"provider": "far"}}}
    with pytest.raises(openai.BadRequestError, match="FAR_KEY"):
        driver.create(driver.kind(config="far.toml", provider="near"), **HELLO, **far)


def test_the_default_model_of_the_provider(server, driver, tmp_path):
    config(tmp_path, server)
    server.play(completion())
    driver.create(driver.kind(max_retries=0), **{**HELLO, "model": "default"})
    assert server.seen[0].json["model"] == "tiny"


def test_tenacitys_policies_and_the_deadline(server, driver):

    server.play(HARMONY)
    with pytest.raises(openai.InternalServerError):
        driver.create(make(driver, server, stop=stop_after_attempt(1)), **ASK)
    assert len(server.seen) == 1
    server.play(HARMONY, completion(FENCED))
    waits = []
    driver.create(make(driver, server, wait=lambda state: waits.append(state.attempt_number) or 0.01), **ASK)
    assert waits == [1]
    driver.create(make(driver, server, wait=wait_fixed(0.01)), **ASK)
    server.play(Answer(before=LONG))
    with pytest.raises(openai.APIError, match="timeout"):
        driver.create(make(driver, server, deadline=0.3), **ASK)


def test_a_bug_in_on_reply_is_logged_and_no_more(server, driver, caplog):
    def bad(reply):
        raise KeyError("mine")

    server.play(CALL)
    assert arguments(driver.create(make(driver, server, on_reply=bad), **ASK))
    assert "on_reply" in caplog.text


def test_threads_share_a_client(server):
    server.play(CALL)
    with make(Driver("sync"), server) as client, ThreadPoolExecutor(8) as pool:
        replies = list(pool.map(lambda _: client.chat.completions.create(**ASK), range(40)))
    assert all(arguments(reply) for reply in replies)


def test_many_streams_on_one_loop(server):
    server.play(sse(*[chunk({"content": c}) for c in FENCED], chunk({}, finish="stop"), pause=0.001))

    async def one(client):
        stream = await client.chat.completions.create(stream=True, **ASK)
        return [call async for each in stream for choice in each.choices for call in choice.delta.tool_calls or []]

    async def go():
        async with make(Driver("async"), server, mode="prompt") as client:
            return await asyncio.gather(*(one(client) for _ in range(40)))

    assert all(asyncio.run(go()))


def test_on_reply_hears_of_every_stream(server, driver):
    replies = []
    server.play(sse(*[chunk({"content": c}) for c in FENCED], chunk({}, finish="stop")))
    driver.chunks(make(driver, server, mode="prompt", on_reply=replies.append), **ASK)
    assert [call.name for call in replies[0].calls] == ["get_weather"]


def test_a_refused_key_comes_through(server, driver):
    server.play(Answer(status=401, pieces=(b'{"error": {"message": "bad key", "code": "invalid_api_key"}}',)))
    with pytest.raises(openai.AuthenticationError, match="bad key"):
        driver.create(make(driver, server, max_retries=2), **ASK)
    assert len(server.seen) == 1


@pytest.mark.parametrize("family", FAMILIES)
def test_a_mock_transport_below(family):
    module = import_module(family)

    def handler(request):
        return module.Response(200, json=CALL)

    with module.Client(transport=module.MockTransport(handler)) as http:
        client = OpenAI(base_url="http://x/v1", api_key="k", http_client=http)
        assert arguments(client.chat.completions.create(**ASK))

    async def go():
        async with module.AsyncClient(transport=module.MockTransport(handler)) as http:
            client = AsyncOpenAI(base_url="http://x/v1", api_key="k", http_client=http)
            return await client.chat.completions.create(**ASK)

    assert arguments(asyncio.run(go()))


def test_a_kind_of_server_for_one_request_keeps_the_address(server, driver):
    server.play(CALL)
    assert arguments(driver.create(make(driver, server), **ASK, extra_body={"promptools": {"provider": "vllm"}}))
    with pytest.raises(openai.BadRequestError, match="nope"):
        driver.create(make(driver, server), **ASK, extra_body={"promptools": {"provider": "nope"}})


def test_what_cannot_be_is_said_by_constructors_and_wrap(driver):
    async def later(reply): ...

    for bad in ({"on_reply": later}, {"dialect": "klingon"}, {"provider": "nope"}, {"corrections": -1}):
        with pytest.raises(UsageError):
            driver.kind(base_url="http://x/v1", api_key="k", **bad)
        with pytest.raises(UsageError):
            wrap(driver.plain(base_url="http://x/v1", api_key="k"), **bad)
    with pytest.raises(UsageError, match="colour"):
        wrap(driver.plain(base_url="http://x/v1", api_key="k"), colour=1)


def test_redirects_are_the_sdks_to_follow(server, driver):
    server.play(
        Answer(status=307, pieces=(b"moved",), headers={"Location": f"{server.root}/moved/v1/chat/completions"}), CALL
    )
    assert arguments(driver.create(make(driver, server), **ASK))
    assert server.seen[1].path == "/moved/v1/chat/completions"
    assert server.seen[1].json["messages"] == ASK["messages"]
