"""Requests go to all base URLs of a provider, and not to one that has just failed."""

import asyncio
import json
import threading

import pytest
from upstream import completion, running

from promptools.batch import request_pool
from promptools.batch.answering import BatchRequest, RequestServers
from promptools.batch.request_pool import AdaptiveLimit, RequestPool
from promptools.client import AsyncOpenAI
from promptools.profiles import load_config
from promptools.testing import HttpAnswer
from promptools.testing.scripted_server import http_error


@pytest.fixture
def two():
    with running() as first, running() as second:
        yield first, second


def write_config(folder, *servers):
    path = folder / "promptools.toml"
    urls = [server if isinstance(server, str) else server.url for server in servers]
    path.write_text(f"[providers.all]\nbase_url = {json.dumps(urls)}\ndetect = false\n")
    return load_config(path)


def answer(config, requests, *, at_once=4, **options):
    """Answer as many requests through the provider; return the HTTP statuses of the results."""

    async def go():
        client = AsyncOpenAI(config=config, provider="all", max_retries=0, detect=False, **options)
        async with client:
            servers = RequestServers(client, model="m")
            pool = RequestPool(servers.answer, AdaptiveLimit(at_once), patience=30)
            lines = [BatchRequest(n, f"r{n}", "/v1/chat/completions", body()) for n in range(1, requests + 1)]
            answers = []
            await pool.run(iter(lines), answers.append)
            return [answer.result["response"]["status_code"] for answer in answers]

    return asyncio.run(go())


def body():
    return {"messages": [{"role": "user", "content": "hi"}]}


def test_each_server_gets_its_part(two, tmp_path):
    """Two requests are in progress at once, and each is answered while the other is, so that no server is faster."""
    both = threading.Barrier(2, timeout=300)
    hello = json.dumps(completion("hello")).encode()
    for server in two:
        server.play(HttpAnswer(pieces=(hello,), first=both.wait))
    assert answer(write_config(tmp_path, *two), 40, at_once=2) == [200] * 40
    assert [len(server.seen) for server in two] == [20, 20]


def test_a_server_that_fails_is_left_out(two, tmp_path, monkeypatch):
    monkeypatch.setattr(request_pool, "FIRST_WAIT", 0.01)
    good, bad = two
    good.play("hello")
    bad.play(http_error(503))
    assert answer(write_config(tmp_path, good, bad, "http://127.0.0.1:9/v1"), 40) == [200] * 40
    assert len(good.seen) == 40
    assert 1 <= len(bad.seen) <= 4


def test_a_base_url_is_one_server(two, tmp_path):
    for server in two:
        server.play("hello")
    first, second = two
    assert answer(write_config(tmp_path, *two), 4, base_url=second.url) == [200] * 4
    assert [len(first.seen), len(second.seen)] == [0, 4]
