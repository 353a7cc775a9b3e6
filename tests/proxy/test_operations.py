"""Health, metrics and the log of a proxy under uvicorn, before a real HTTP server."""

import json
import logging
import re
import subprocess
import sys

import httpx
import pytest
from operating import FENCED, HELLO, SECRETS, WEATHER, ask, proxied
from serving import serving
from upstream import Answer, chunk, completion, running, sse

from promptools.errors import UsageError, install_command
from promptools.exchange import ExchangeEnd, ObservedExchange, Request
from promptools.profiles import Config, Provider
from promptools.proxy import Proxy
from promptools.proxy.operations import Health, LoggedExchanges, MetricsPage
from promptools.telemetry import Spans
from promptools.telemetry.metrics import MAX_MODELS, Metrics

pytest.importorskip("starlette")
prometheus = pytest.importorskip("prometheus_client.parser")
openmetrics = pytest.importorskip("prometheus_client.openmetrics.parser")


@pytest.fixture(scope="module")
def server():
    with running() as upstream:
        yield upstream


def scraped(text, parser=prometheus):
    """The samples of a scrape: `{(name, labels): value}`."""
    return {
        (sample.name.removeprefix("promptools_"), tuple(sorted(sample.labels.items()))): sample.value
        for family in parser.text_string_to_metric_families(text)
        for sample in family.samples
    }


def metric(samples, name, **labels):
    """The sum of the samples with this name and these labels."""
    return sum(
        value for (one, pairs), value in samples.items() if one == name and labels.items() <= dict(pairs).items()
    )


# -- health


def test_the_process_is_alive_whatever_the_server_does():
    with serving(Proxy(base_url="http://127.0.0.1:1/v1", api_keys="k", detect=False, extensions=[Health()])) as port:
        answer = httpx.get(f"http://127.0.0.1:{port}/healthz")  # public: no key
        assert (answer.status_code, answer.json()) == (200, {"status": "ok"})
        answer = httpx.get(f"http://127.0.0.1:{port}/readyz")
        assert (answer.status_code, answer.json()) == (503, {"status": "no server answers"})


@pytest.mark.parametrize(("status", "ready"), [(200, 200), (401, 200), (404, 200), (500, 503), (503, 503)])
def test_a_server_that_answers_makes_the_proxy_ready(server, status, ready):
    server.play(Answer(status=status, pieces=(b"{}",)))
    with proxied(server, Health()) as client:
        assert [client.get("/readyz").status_code for _ in range(5)] == [ready] * 5
    assert [seen.path for seen in server.seen] == ["/v1/models"]  # asked once, however often the page is requested
    assert server.seen[0].headers["authorization"] is None  # the client's key is not the probe's


def test_one_server_of_several_is_enough():
    with running() as one, running() as two:
        for server, status in ((one, 503), (two, 200)):
            server.play(Answer(status=status, pieces=(b"{}",)))
        gpu = Provider("gpu", kind="vllm", base_url="http://127.0.0.1:1/v1", replicas=(one.url,))
        laptop = Provider("laptop", kind="vllm", base_url=two.url)
        config = Config(default_provider="gpu", providers={"gpu": gpu, "laptop": laptop})
        with serving(Proxy(config=config, detect=False, extensions=[Health()])) as port:
            assert httpx.get(f"http://127.0.0.1:{port}/readyz").status_code == 200
        two.play(Answer(status=500, pieces=(b"{}",)))
        with serving(Proxy(config=config, detect=False, extensions=[Health()])) as port:
            assert httpx.get(f"http://127.0.0.1:{port}/readyz").status_code == 503


def test_failover_is_not_a_client_that_disconnects():
    with running() as one, running() as two:
        one.play(Answer(status=503, pieces=(b'{"error": {"message": "overloaded"}}',)))
        two.play(completion("hi"))
        gpu = Provider("gpu", kind="vllm", base_url=one.url, failover=("laptop",))
        providers = {"gpu": gpu, "laptop": Provider("laptop", kind="vllm", base_url=two.url)}
        config = Config(default_provider="gpu", providers=providers)
        with serving(Proxy(config=config, detect=False, extensions=[MetricsPage()])) as port:
            url = f"http://127.0.0.1:{port}"
            assert ask(httpx, path=f"{url}/v1/chat/completions").status_code == 200
            samples = scraped(httpx.get(f"{url}/metrics").text)
    assert metric(samples, "errors_total", provider="gpu", kind="http") == metric(samples, "errors_total") == 1
    assert metric(samples, "requests_total", provider="gpu", status="503") == 1
    assert metric(samples, "requests_total", provider="laptop", status="200") == 1


def test_a_proxy_that_drains_is_not_ready(server):
    server.play(Answer(pieces=(b"{}",)))
    health = Health()
    with proxied(server, health) as client:
        assert client.get("/readyz").status_code == 200
        vars(health)["_proxy"].draining = True
        assert client.get("/readyz").json() == {"status": "draining"}
        assert client.get("/healthz").status_code == 200


# -- metrics


def test_metrics_need_the_key(server):
    with proxied(server, MetricsPage(), api_keys="other") as client:
        assert client.get("/metrics").status_code == 401


def test_a_fallback_with_a_repaired_call(server):
    server.play(Answer(500, (b'{"error": {"message": "error parsing tool call: raw"}}',)), completion(FENCED))
    with proxied(server, MetricsPage()) as client:
        assert ask(client, WEATHER).json()["choices"][0]["message"]["tool_calls"]
        samples = scraped(client.get("/metrics").text)
    place = {"api": "chat", "provider": server.url, "model": "m"}
    assert metric(samples, "requests_total", **place, mode="prompt", status="200") == 1
    assert metric(samples, "requests_in_flight", api="chat") == 0
    assert metric(samples, "attempts_total", mode="native", outcome="server_parser") == 1
    assert metric(samples, "attempts_total", mode="prompt", outcome="answered") == 1
    assert metric(samples, "fallbacks_total", mode="native", next_mode="prompt", reason="server_parser") == 1
    assert metric(samples, "calls_total", model="m", dialect="json") == 1
    assert metric(samples, "fixes_total", dialect="json", kind="json") == 1
    assert metric(samples, "tokens_total", model="m", type="input") == 3
    assert metric(samples, "tokens_total", model="m", type="output") == 2
    assert metric(samples, "healing_requests_total", model="m") == 1
    assert metric(samples, "healing_tokens_total") == 0
    assert metric(samples, "request_duration_seconds_count", **place) == 1
    assert metric(samples, "errors_total") == 0
    assert metric(samples, "time_to_first_byte_seconds_count") == 0


def test_malformed_calls_of_attempts_that_failed_are_counted(server):
    broken = '```json\n{"tool": "get_weather", "arguments": {"city": ["Reykjavik"]}}\n```'
    server.play(completion(broken), completion(FENCED))
    with proxied(server, MetricsPage(), mode="prompt") as client:
        answer = ask(client, WEATHER)
        assert answer.status_code == 200
        samples = scraped(client.get("/metrics").text)
    assert metric(samples, "malformed_total", dialect="json", reason="invalid_arguments") == 1
    assert metric(samples, "fallbacks_total", mode="prompt", next_mode="prompt", reason="malformed") == 1
    assert metric(samples, "healing_requests_total", model="m") == 1
    assert metric(samples, "healing_tokens_total", model="m", type="input") == 3
    assert metric(samples, "healing_tokens_total", model="m", type="output") == 2
    cost = dict(part.split("=") for part in answer.headers["x-promptools-healing"].split(", "))
    assert (cost["requests"], cost["input-tokens"], cost["output-tokens"]) == ("1", "3", "2")
    assert metric(samples, "healing_seconds_total", model="m") == pytest.approx(float(cost["seconds"]), abs=0.0005)


@pytest.mark.parametrize("stream", [False, True])
def test_tokens_of_what_passes_unread(server, stream):
    usage = {"prompt_tokens": 11, "completion_tokens": 7}
    talk = 'text with "prompt_tokens": 99 in it'
    so_far = {"prompt_tokens": 11, "completion_tokens": 1}
    pieces = (chunk({"content": talk}, usage=so_far), chunk({}, finish="stop"), chunk(choices=[], usage=usage))
    server.play(sse(*pieces) if stream else {"usage": usage, "choices": completion(talk)["choices"]})
    with proxied(server, MetricsPage()) as client:
        assert ask(client, {**HELLO, "stream": stream}).status_code == 200
        samples = scraped(client.get("/metrics").text)
    assert metric(samples, "requests_total", mode="forward") == 1
    assert metric(samples, "tokens_total", type="input") == 11
    assert metric(samples, "tokens_total", type="output") == 7
    assert metric(samples, "time_to_first_byte_seconds_count") == (1 if stream else 0)


def test_errors_by_kind(server):
    with proxied(server, MetricsPage()) as client:
        server.play(Answer(404, (b'{"error": {"message": "no such model"}}',)))
        assert ask(client).status_code == 404
        assert ask(client, {**HELLO, "promptools": {"mode": "nonsense"}}).status_code == 400
        server.play(sse(chunk({"content": "a"}), done=False, then="cut"))
        ask(client, {**WEATHER, "stream": True})
        samples = scraped(client.get("/metrics").text)
    assert metric(samples, "errors_total", kind="http") == 1
    assert metric(samples, "errors_total", kind="usage") == 1
    assert metric(samples, "errors_total") == 3
    assert metric(samples, "requests_total", status="404", model="other") == 1


def test_no_server():
    proxy = Proxy(base_url="http://127.0.0.1:1/v1", config=Config(), detect=False, extensions=[MetricsPage()])
    with serving(proxy) as port, httpx.Client(base_url=f"http://127.0.0.1:{port}") as client:
        assert ask(client).status_code == 502
        samples = scraped(client.get("/metrics").text)
    assert metric(samples, "requests_total", status="none") == 1
    assert metric(samples, "errors_total", kind="connect") == 1


def test_clients_cannot_make_labels():
    metrics = Metrics()
    exchange = ObservedExchange("id", Request("POST", "http://s/v1", (), b""), "chat", 1.0)
    for status, count in ((404, 3), (200, MAX_MODELS + 5)):
        for number in range(count):
            metrics.began(exchange)
            metrics.ended(exchange, ExchangeEnd(2.0, "p", f"model-{status}-{number}", status))
    samples = scraped(metrics.scrape()[0].decode())
    models = {dict(pairs)["model"] for name, pairs in samples if name == "requests_total"}
    assert len(models) == MAX_MODELS + 1
    assert "model-404-1" not in models
    assert metric(samples, "requests_total", model="other") == 8


def test_openmetrics_where_it_is_asked_for(server):
    server.play(completion("hi"))
    with proxied(server, MetricsPage()) as client:
        ask(client)
        answer = client.get("/metrics", headers={"accept": "application/openmetrics-text; version=1.0.0"})
    assert answer.headers["content-type"].startswith("application/openmetrics-text")
    assert metric(scraped(answer.text, openmetrics), "requests_total") == 1


SHARED = """
import sys
from promptools.errors import UsageError
from promptools.exchange import ExchangeEnd, ObservedExchange, Request
from promptools.telemetry import Metrics

metrics = Metrics()
exchange = ObservedExchange("id", Request("POST", "http://s/v1", (), b""), "chat", 1.0)
metrics.began(exchange)
metrics.ended(exchange, ExchangeEnd(2.0, "p", "m", 200))
print(metrics.scrape()[0].decode())
metrics.close()
"""


def test_processes_share_their_metrics(tmp_path):
    for count in (1, 2):
        done = subprocess.run(
            [sys.executable, "-c", SHARED],
            env={"PROMETHEUS_MULTIPROC_DIR": str(tmp_path), "PYTHONPATH": ":".join(sys.path)},
            capture_output=True,
            text=True,
            check=True,
        )
        assert metric(scraped(done.stdout), "requests_total", provider="p") == count


# -- the log


@pytest.fixture
def lines():
    """The lines of the log of exchanges."""
    kept = []

    class Handler(logging.Handler):
        def emit(self, record):
            kept.append(record.getMessage())

    handler = Handler()
    logger = logging.getLogger("promptools.exchanges")
    logger.addHandler(handler)
    yield kept
    logger.removeHandler(handler)


def test_one_line_for_an_exchange_without_payloads(server, lines):
    server.play(Answer(500, (b'{"error": {"message": "error parsing tool call: raw"}}',)), completion(FENCED))
    with proxied(server, LoggedExchanges("json")) as client:
        ask(client, WEATHER)
    (line,) = lines
    fields = json.loads(line)
    assert not [secret for secret in SECRETS if secret in line]
    for name in ("time", "id", "request_id", "seconds", "first_byte_seconds"):
        assert fields.pop(name)
    assert fields == {
        "method": "POST",
        "api": "chat",
        "model": "m",
        "provider": server.url,
        "mode": "prompt",
        "attempts": 2,
        "failures": ["server_parser"],
        "status": 200,
        "error": "",
        "stream": False,
        "input_tokens": 3,
        "output_tokens": 2,
        "calls": 1,
        "malformed": 0,
        "repeated": "",
        "notes": 0,
        "fixes": ["json"],
    }


def test_a_model_name_cannot_break_a_line(server, lines):
    server.play(completion("hi"))
    with proxied(server, LoggedExchanges("text")) as client:
        ask(client, {**HELLO, "model": "m\nstatus=200 \x1b[31m"})
    (line,) = lines
    assert line.isprintable()
    assert r'model="m\nstatus=200 \u001b[31m"' in line
    assert re.search(r" mode=forward attempts=1 status=200 stream=false seconds=[\d.]+ ", line)


def test_the_command_writes_the_log_to_stderr(server):
    server.play(completion("hi"))
    command = [sys.executable, "-m", "promptools", "serve", "--port", "0", "--base-url", server.url, "--no-detect"]
    with subprocess.Popen(
        [*command, "--log-format", "json"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        url = next(line.split()[1] for line in process.stdout if line.startswith("listening "))
        root = url.removesuffix("/v1")
        assert ask(httpx, path=f"{url}/chat/completions").status_code == 200
        assert httpx.get(f"{root}/healthz").status_code == 200
        assert httpx.get(f"{root}/readyz").status_code == 200
        assert "promptools_requests_total{" in httpx.get(f"{root}/metrics").text
        process.terminate()
        _, errors = process.communicate(timeout=300)
    assert [json.loads(line)["status"] for line in errors.splitlines()] == [200]


# -- all of them


def test_credentials_of_the_base_url_are_in_none_of_them(server, lines):
    server.play(completion("hi"))
    url = server.url.replace("//", "//user:pa55word@")
    proxy = Proxy(base_url=url, config=Config(), detect=False, extensions=[MetricsPage(), LoggedExchanges("json")])
    with serving(proxy) as port, httpx.Client(base_url=f"http://127.0.0.1:{port}") as client:
        assert ask(client).status_code == 200
        page = client.get("/metrics").text
    assert server.url in page
    assert "pa55word" not in page + "".join(lines)


@pytest.mark.parametrize(
    ("module", "make", "extra"), [("prometheus_client", Metrics, "server"), ("opentelemetry", Spans, "otel")]
)
def test_what_is_not_installed_is_named(monkeypatch, module, make, extra):
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(UsageError, match=re.escape(install_command(extra))):
        make()
