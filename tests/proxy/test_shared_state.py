"""What two proxies share through a real Redis server, which may die and come back."""

import asyncio
import json
import logging
import shutil
import socket
import subprocess
import threading
import time
from contextlib import ExitStack, contextmanager

import environments
import httpx
import pytest
from recipes.recipe import CannotMakeError
from serving import serving
from upstream import Answer, chunk, completion, running, sse

from promptools.errors import UsageError
from promptools.fallback.breaker import BreakerKey
from promptools.profiles import Config, KeyOptions, Provider, ProxyOptions
from promptools.proxy import Proxy
from promptools.proxy.access import ApiKey
from promptools.proxy.admission import Limits

pytest.importorskip("redis")

ASK = {"model": "m", "messages": [{"role": "user", "content": "hi"}]}
PASSWORD = "s3cret-of-redis"
real = pytest.mark.redis


class RedisServer:
    """A Redis server on a port of its own, without files."""

    def __init__(self, program):
        self._program = program
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port = free.getsockname()[1]
        self.url = f"redis://127.0.0.1:{self.port}/0"

    def start(self):
        options = ["--port", str(self.port), "--save", "", "--appendonly", "no", "--requirepass", PASSWORD]
        self._process = subprocess.Popen([self._program, *options], stdout=subprocess.DEVNULL)
        until(self._answers)

    def _answers(self):
        try:
            socket.create_connection(("127.0.0.1", self.port), 1).close()
        except OSError:
            return False
        return True

    def kill(self):
        self._process.kill()
        self._process.wait(300)


def until(condition):
    end = time.monotonic() + 300
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.02)


@pytest.fixture
def redis(monkeypatch):
    try:
        program = shutil.which("redis-server") or environments.path_of("redis")
    except CannotMakeError as error:
        pytest.skip(str(error))
    monkeypatch.setenv("PROMPTOOLS_REDIS_PASSWORD", PASSWORD)
    server = RedisServer(program)
    server.start()
    yield server
    server.kill()


@pytest.fixture
def server():
    with running() as upstream:
        yield upstream


@contextmanager
def two(server, url, **options):
    """Two proxies that share a Redis server; gives the proxies and their addresses."""
    config = options.pop("config", Config())
    proxies = [Proxy(base_url=server.url, config=config, detect=False, redis_url=url, **options) for _ in range(2)]
    with ExitStack() as stack:
        yield proxies, [f"http://127.0.0.1:{stack.enter_context(serving(proxy))}/v1" for proxy in proxies]


def respond(url, text, key="k", **body):
    headers = {"authorization": f"Bearer {key}"}
    return httpx.post(f"{url}/responses", json={"model": "m", "input": text, **body}, headers=headers, timeout=300)


def get(url, response_id, key="k", method="GET"):
    return httpx.request(method, f"{url}/responses/{response_id}", headers={"authorization": f"Bearer {key}"})


@real
@pytest.mark.parametrize("streamed", [False, True])
def test_a_response_is_continued_read_and_deleted_on_another_proxy(server, redis, streamed):
    with two(server, redis.url, api_keys=["k", "other"]) as (_, (one, other)):
        if streamed:
            server.play(sse(chunk({"content": "first"}), chunk({}, "stop")), completion("second"))
            text = respond(one, "hello", stream=True).text
            first = text.rpartition('"response":{"id":"')[2].partition('"')[0]
        else:
            server.play(completion("first"), completion("second"))
            first = respond(one, "hello").json()["id"]
        second = respond(other, "and?", previous_response_id=first)
        assert second.status_code == 200
        sent = [message["content"] for message in server.seen[-1].json["messages"]]
        assert sent == ["hello", "first", "and?"]
        item = get(other, first).json()["output"][0]["id"]
        third = respond(one, [{"type": "item_reference", "id": second.json()["output"][0]["id"]}, *said("so")])
        assert third.status_code == 200
        assert [message["content"] for message in server.seen[-1].json["messages"]] == ["second", "so"]
        assert item
        assert get(other, first, "other").status_code == 404
        assert get(one, first, method="DELETE").status_code == 200
        assert [get(url, first).status_code for url in (one, other)] == [404, 404]


@real
def test_an_owner_s_oldest_responses_are_deleted_and_nobody_else_s(server, redis):
    server.play(*(completion(f"number {number}") for number in range(6)))
    with two(server, redis.url, api_keys=["k", "other"]) as ((maker, _), (one, other)):
        kept = respond(one, "of another", "other").json()["id"]
        made = [respond(one, "hello").json()["id"]]
        maker._shared.responses.max_bytes = 2 * len(get(one, made[0]).text) + 1000  # two, and not three
        made += [respond(one, "hello").json()["id"] for _ in range(3)]
        assert [get(other, response).status_code for response in made] == [404, 404, 200, 200]
        assert get(other, kept, "other").status_code == 200
        assert get(one, made[-1], method="DELETE").status_code == 200
        fifth = respond(one, "hello").json()["id"]
        assert [get(other, response).status_code for response in (made[2], fifth)] == [200, 200]


@real
def test_reasoning_of_a_failed_attempt_is_shared_as_its_id_alone(server, redis):
    def thought(text):
        return chunk({"reasoning_content": text})

    error = {"error": {"message": "unexpected tokens remaining in message header", "code": 500}}
    call = '```json\n{"tool": "ping", "arguments": {}}\n```'
    broken = sse(thought("I use the tool."), error)
    server.play(broken, sse(thought("At last."), chunk({"content": call}), chunk({}, "stop")), completion("second"))
    tool = {"type": "function", "name": "ping", "parameters": {"type": "object"}}
    with two(server, redis.url, api_keys=["k"]) as (_, (one, other)):
        lines = respond(one, "hello", stream=True, tools=[tool]).text.splitlines()
        streamed = json.loads([line for line in lines if line.startswith("data: ")][-1][6:])["response"]["output"]
        references = [{"type": "item_reference", "id": item["id"]} for item in streamed]
        continued = respond(other, [*references, *said("so")], tools=[tool])
    assert continued.status_code == 200
    assistant, user = server.seen[-1].json["messages"]
    assert (assistant["reasoning_content"], user["content"]) == ("At last.", "so")


def said(text):
    return [{"role": "user", "content": text}]


@real
def test_rates_count_together(server, redis):
    server.play(completion())
    with two(server, redis.url, limits=Limits(requests_per_minute=3)) as (_, urls):
        answers = [httpx.post(f"{url}/chat/completions", json=ASK, timeout=300) for url in urls * 2]
    assert [answer.status_code for answer in answers] == [200, 200, 200, 429]
    assert 1 <= int(answers[-1].headers["retry-after"]) <= 20


@real
def test_a_named_keys_slots_count_together(server, redis):
    began, free = threading.Event(), threading.Event()
    server.play(Answer(pieces=(b"{}",), first=lambda: began.set() or free.wait(300)), completion())
    config = Config(proxy=ProxyOptions(keys={"ci": KeyOptions(concurrency=1)}))
    options = {"config": config, "api_keys": [ApiKey("c", "ci"), "k"], "limits": Limits(queue_timeout=0.3)}
    with two(server, redis.url, **options) as (_, (one, other)):

        def ask(url, key):
            headers = {"x-api-key": key}
            return httpx.post(f"{url}/chat/completions", json=ASK, headers=headers, timeout=300).status_code

        client = threading.Thread(target=ask, args=(one, "c"))
        client.start()
        assert began.wait(300)
        assert [ask(other, "c"), ask(other, "k")] == [429, 200]
        free.set()
        client.join(300)
        assert ask(other, "c") == 200


@real
def test_an_open_circuit_is_open_in_both_and_closes_in_both(server, redis):
    with two(server, redis.url) as (proxies, _):
        one, other = (proxy.session.context.breaker for proxy in proxies)
        key = BreakerKey("p", "m", "native")
        one.record_failure(key, time.monotonic(), why="no_native_tools", lasting=True)
        until(lambda: other.state(key, time.monotonic()) == "open")
        assert other.why(key) == "no_native_tools"
        left = other.open_circuits(time.monotonic())[key][0]
        assert left == pytest.approx(one.open_circuits(time.monotonic())[key][0], abs=2)
        other.record_success(key)
        until(lambda: one.state(key, time.monotonic()) == "closed")


@real
def test_redis_may_die_and_come_back(server, redis, caplog):
    server.play(completion())
    caplog.set_level(logging.INFO, "promptools")

    def lines():
        return [record.getMessage() for record in caplog.records if "Redis" in record.getMessage()]

    with two(server, redis.url, limits=Limits(requests_per_minute=100)) as (proxies, (one, other)):
        first = respond(one, "hello").json()["id"]
        key = BreakerKey("p", "m", "native")
        breakers = [proxy.session.context.breaker for proxy in proxies]
        breakers[0].record_failure(key, time.monotonic(), why="w", lasting=True)
        until(lambda: breakers[1].state(key, time.monotonic()) == "open")
        redis.kill()
        for url in (one, other) * 2:
            assert httpx.post(f"{url}/chat/completions", json=ASK, timeout=300).status_code == 200
        assert respond(one, "and?", previous_response_id=first).status_code == 200, "its own are there"
        assert get(other, first).status_code == 404
        until(lambda: len(lines()) == 2)
        assert all("is away" in line and "works alone" in line for line in lines())
        redis.start()
        until(lambda: len(lines()) == 4)
        assert all("is back" in line for line in lines()[2:])
        assert get(other, respond(one, "again").json()["id"]).status_code == 200
        third = Proxy(base_url=server.url, config=Config(), detect=False, redis_url=redis.url)
        with serving(third):  # what Redis had is there again
            until(lambda: third.session.context.breaker.state(key, time.monotonic()) == "open")
        assert {breaker.state(key, time.monotonic()) for breaker in breakers} == {"open"}
    assert PASSWORD not in caplog.text


@real
def test_a_wrong_password_is_one_line_and_never_shown(server, redis, caplog, monkeypatch):
    monkeypatch.delenv("PROMPTOOLS_REDIS_PASSWORD")
    server.play(completion())
    wrong = redis.url.replace("127.0.0.1", ":wr0ng-password@127.0.0.1")
    with serving(Proxy(base_url=server.url, config=Config(), detect=False, redis_url=wrong)) as port:
        assert respond(f"http://127.0.0.1:{port}/v1", "hello").status_code == 200
    (line,) = [record.getMessage() for record in caplog.records if "Redis" in record.getMessage()]
    assert "works alone" in line
    assert "wr0ng" not in caplog.text


# -- without a server


def test_without_redis_it_works_alone_and_says_so_once(server, caplog):
    server.play(completion())
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    limits = Limits(requests_per_minute=2, concurrency=1)
    with two(server, f"redis://127.0.0.1:{port}", limits=limits) as (_, (one, other)):
        answers = [httpx.post(f"{url}/chat/completions", json=ASK, timeout=300) for url in (one, one, one, other)]
        assert [answer.status_code for answer in answers] == [200, 200, 429, 200]
        assert respond(other, "hello").status_code == 200
    assert sum("works alone" in record.getMessage() for record in caplog.records) == 2


def test_a_redis_that_does_not_answer_holds_no_request_up(server):
    server.play(completion())
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"redis://127.0.0.1:{silent.getsockname()[1]}"
        limits = Limits(requests_per_minute=9)
        with serving(Proxy(base_url=server.url, config=Config(), detect=False, redis_url=url, limits=limits)) as port:
            assert respond(f"http://127.0.0.1:{port}/v1", "hello").status_code == 200


def test_a_response_belongs_to_the_proxys_key_that_made_it(server, monkeypatch):
    monkeypatch.setenv("UPSTREAM", "provider-key-1234")
    server.play(completion())
    config = Config(providers={"a": Provider("a", base_url=server.url, api_key_env="UPSTREAM")})
    with serving(Proxy(config=config, detect=False, api_keys=["k", "other"])) as port:
        url = f"http://127.0.0.1:{port}/v1"
        first = respond(url, "hello").json()["id"]
        assert [get(url, first, key).status_code for key in ("k", "other")] == [200, 404]


def test_an_address_that_is_none_is_an_error():
    with pytest.raises(UsageError, match="is not a valid Redis URL") as raised:
        Proxy(base_url="http://127.0.0.1:9/v1", config=Config(), redis_url="http://:s3cret@h")
    assert "s3cret" not in str(raised.value)


def test_it_stops_even_if_a_call_takes_the_cancellation_for_its_own_time_limit(server, monkeypatch):
    proxy = Proxy(base_url=server.url, config=Config(), detect=False, redis_url="redis://127.0.0.1:9/0")
    shared = proxy._shared

    async def scenario():
        begun, swallowed = asyncio.Event(), []

        async def sync():
            begun.set()
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                if swallowed:
                    raise
                swallowed.append(True)

        monkeypatch.setattr(shared.connection, "is_up", True)
        monkeypatch.setattr(shared._breaker, "sync", sync)
        monkeypatch.setattr(shared.connection, "connect", lambda: asyncio.sleep(0))
        monkeypatch.setattr(shared.connection, "call", lambda _: asyncio.sleep(0))
        await shared.start(proxy)
        await begun.wait()
        await asyncio.wait_for(shared.stop(), 300)
        return swallowed

    assert asyncio.run(scenario()) == [True]
