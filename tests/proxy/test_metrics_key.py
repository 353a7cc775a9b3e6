"""A key for the metrics opens /metrics, and nothing else."""

import httpx
import pytest
from serving import serving
from upstream import completion, running

from promptools.cli import serve_command
from promptools.errors import UsageError
from promptools.profiles import Config
from promptools.proxy import Proxy
from promptools.proxy.inspector import Inspector
from promptools.proxy.operations import Health, MetricsPage

METRICS, API = "key-for-metrics", "key-for-clients"
ASK = {"model": "m", "messages": [{"role": "user", "content": "hi"}]}


@pytest.fixture(scope="module")
def server():
    with running() as upstream:
        yield upstream


def statuses(proxy, key):
    headers = {"authorization": f"Bearer {key}"} if key else {}
    with (
        serving(proxy) as port,
        httpx.Client(base_url=f"http://127.0.0.1:{port}", headers=headers, timeout=60) as client,
    ):
        got = {path: client.get(path).status_code for path in ("/metrics", "/inspect/api/exchanges", "/v1/models")}
        got["chat"] = client.post("/v1/chat/completions", json=ASK).status_code
        return got


@pytest.mark.parametrize(
    ("key", "metrics", "rest"), [(METRICS, 200, 401), (API, 200, 200), ("wrong", 401, 401), (None, 401, 401)]
)
def test_beside_keys_of_clients(server, key, metrics, rest):
    server.play(*[completion("hi")] * 9)
    extensions = [Inspector(), Health(), MetricsPage(keys=[METRICS])]
    proxy = Proxy(base_url=server.url, config=Config(), detect=False, api_keys=[API], extensions=extensions)
    got = statuses(proxy, key)
    assert got.pop("/metrics") == metrics
    assert set(got.values()) == {rest}


@pytest.mark.parametrize(("key", "status"), [(METRICS, 200), ("wrong", 401), (None, 401)])
def test_of_a_proxy_that_needs_no_key(server, key, status):
    server.play(*[completion("hi")] * 9)
    proxy = Proxy(base_url=server.url, config=Config(), detect=False, extensions=[MetricsPage(keys=[METRICS])])
    assert statuses(proxy, key)["/metrics"] == status


def test_a_key_that_opens_more_is_refused(server, monkeypatch):
    extensions = [MetricsPage(keys=[API])]
    with pytest.raises(UsageError, match="PROMPTOOLS_METRICS_KEY"):
        Proxy(base_url=server.url, config=Config(), api_keys=[API], extensions=extensions)
    proxy = Proxy(base_url=server.url, config=Config(), detect=False, extensions=extensions)
    monkeypatch.setenv("PROMPTOOLS_API_KEY", API)
    before = proxy.served
    with pytest.raises(UsageError, match="PROMPTOOLS_METRICS_KEY"):
        proxy.reload(Config())
    assert proxy.served is before


def test_it_comes_from_the_environment_or_an_option(monkeypatch):
    import argparse

    parser = argparse.ArgumentParser()
    serve_command.add(parser)
    monkeypatch.setenv("PROMPTOOLS_METRICS_KEY", "one, two")
    page = next(
        each
        for each in serve_command.reporting_extensions(parser.parse_args(["--metrics-key", "three"]))
        if isinstance(each, MetricsPage)
    )
    for key in ("one", "two", "three"):
        assert page.access.has_key({"headers": [(b"x-api-key", key.encode())]})
    assert not page.access.has_key({"headers": [(b"x-api-key", b"four")]})
    monkeypatch.delenv("PROMPTOOLS_METRICS_KEY")
    pages = serve_command.reporting_extensions(parser.parse_args([]))
    assert all(each.access is None for each in pages)
