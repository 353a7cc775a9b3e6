"""OpenTelemetry spans of exchanges, of a proxy and in process, before a real HTTP server."""

import gzip

import httpx
import pytest
from operating import FENCED, HELLO, SECRETS, WEATHER, ask, proxied
from serving import serving
from upstream import Answer, completion, running

from promptools.profiles import Config
from promptools.proxy import Proxy
from promptools.proxy.operations import TracedExchanges

pytest.importorskip("opentelemetry.sdk")


@pytest.fixture(scope="module")
def server():
    with running() as upstream:
        yield upstream


@pytest.fixture
def spans():
    """A tracer provider, and the spans that it has finished."""
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import SimpleSpanProcessor
    from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    yield provider, exporter.get_finished_spans
    provider.shutdown()


TRACE = "0af7651916cd43dd8448eb211c80319c"
TRACEPARENT = f"00-{TRACE}-b7ad6b7169203331-01"


def test_spans_of_an_exchange_its_sends_and_its_parse(server, spans):
    provider, finished = spans
    server.play(Answer(500, (b'{"error": {"message": "error parsing tool call: raw"}}',)), completion(FENCED))
    with proxied(server, TracedExchanges(provider)) as client:
        ask(client, WEATHER, traceparent=TRACEPARENT)
    by_name = {}
    for span in finished():
        by_name.setdefault(span.name, []).append(span)
    (exchange,), (first, second), (parse,) = by_name["promptools chat"], by_name["chat m"], by_name["parse reply"]
    assert {format(span.context.trace_id, "032x") for span in finished()} == {TRACE}
    assert format(exchange.parent.span_id, "016x") == "b7ad6b7169203331"
    assert first.parent.span_id == second.parent.span_id == exchange.context.span_id
    assert parse.parent.span_id == second.context.span_id
    assert exchange.start_time <= first.start_time <= first.end_time <= second.start_time <= parse.start_time
    assert parse.end_time <= second.end_time <= exchange.end_time
    assert (exchange.kind.name, first.kind.name, parse.kind.name) == ("SERVER", "CLIENT", "INTERNAL")
    assert exchange.attributes["promptools.mode"] == "prompt"
    assert exchange.attributes["gen_ai.usage.input_tokens"] == 3
    assert exchange.attributes["gen_ai.response.finish_reasons"] == ("tool_calls",)
    assert exchange.status.is_ok or exchange.status.is_unset
    assert first.attributes["error.type"] == "server_parser"
    assert not first.status.is_ok
    assert second.attributes["server.port"] == server.port
    assert second.attributes["gen_ai.response.model"] == "m"
    assert second.attributes["gen_ai.operation.name"] == "chat"
    assert dict(parse.attributes) == {
        "promptools.calls": 1,
        "promptools.dialects": ("json",),
        "promptools.fixes": ("json",),
    }
    shown = "".join(span.to_json() for span in finished())
    assert not [secret for secret in SECRETS if secret in shown]
    assert server.seen[0].headers["traceparent"] == TRACEPARENT  # the server's own spans are in the client's trace


def test_a_server_that_is_not_there_is_an_error(spans):
    provider, finished = spans
    extension = TracedExchanges(provider)
    proxy = Proxy(base_url="http://127.0.0.1:1/v1", config=Config(), detect=False, extensions=[extension])
    with serving(proxy) as port:
        assert ask(httpx, path=f"http://127.0.0.1:{port}/v1/chat/completions").status_code == 502
    send, exchange = finished()
    assert send.attributes["error.type"] == exchange.attributes["error.type"] == "connect"
    assert (send.status.status_code.name, exchange.status.status_code.name) == ("ERROR", "ERROR")


def test_in_process_the_apps_own_span_is_the_parent(server, spans):
    from promptools import OpenAI
    from promptools.telemetry import Spans

    provider, finished = spans
    server.play(completion("hi"))
    with (
        OpenAI(base_url=server.url, api_key="k", detect=False, observer=Spans(provider)) as client,
        provider.get_tracer("app").start_as_current_span("turn") as turn,
    ):
        client.chat.completions.create(**HELLO, extra_headers={"traceparent": TRACEPARENT})
    exchange = next(span for span in finished() if span.name == "promptools chat")
    assert exchange.parent.span_id == turn.get_span_context().span_id
    assert exchange.kind.name == "INTERNAL"


def test_spans_are_exported_as_the_environment_says(server, monkeypatch):
    from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

    with running() as collector:
        collector.play(Answer(pieces=(b"",), type="application/x-protobuf"))
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.root)
        server.play(completion("hi"))
        with proxied(server, TracedExchanges()) as client:
            ask(client)
        (seen,) = collector.seen  # at the latest when the proxy stops
    body = gzip.decompress(seen.body) if seen.headers["content-encoding"] == "gzip" else seen.body
    (resource,) = ExportTraceServiceRequest.FromString(body).resource_spans
    names = [span.name for scope in resource.scope_spans for span in scope.spans]
    assert seen.path == "/v1/traces"
    assert sorted(names) == ["chat m", "promptools chat"]
    assert {pair.key: pair.value.string_value for pair in resource.resource.attributes}["service.name"] == "promptools"
