"""What metrics and spans report of a real llama.cpp: its tokens, its model, its failures."""

import pytest
from configs import default_config
from scenes import WEATHER

from promptools.client import OpenAI
from promptools.telemetry import Metrics, Spans

sdk = pytest.importorskip("opentelemetry.sdk.trace")
memory = pytest.importorskip("opentelemetry.sdk.trace.export.in_memory_span_exporter")
export = pytest.importorskip("opentelemetry.sdk.trace.export")


@pytest.fixture
def finished():
    """The spans that have ended, and a tracer provider that makes them."""
    exporter = memory.InMemorySpanExporter()
    provider = sdk.TracerProvider()
    provider.add_span_processor(export.SimpleSpanProcessor(exporter))
    yield provider, exporter.get_finished_spans
    provider.shutdown()


def total(metrics, name, **labels):
    families = metrics.registry.collect()
    samples = [sample for family in families for sample in family.samples if sample.name == f"promptools_{name}"]
    return sum(sample.value for sample in samples if labels.items() <= sample.labels.items())


def test_a_fallback(harmony_server, finished):
    provider, spans = finished
    metrics = Metrics()
    asked = [{"role": "user", "content": "Break in Paris?"}]
    with OpenAI(config=default_config(harmony_server), observer=[metrics, Spans(provider)], max_retries=0) as client:
        reply = client.chat.completions.create(model=harmony_server.name, messages=asked, tools=[WEATHER])
    assert reply.choices[0].message.tool_calls
    assert total(metrics, "fallbacks_total", mode="native", next_mode="harmony", reason="server_parser") == 1
    assert total(metrics, "calls_total", dialect="harmony") == 1
    assert total(metrics, "tokens_total", type="output") == reply.usage.completion_tokens > 0
    sends = [span for span in spans() if span.name == f"chat {harmony_server.name}"]
    assert [span.attributes.get("error.type") for span in sends] == ["server_parser", None]
    assert sends[1].attributes["gen_ai.usage.output_tokens"] == reply.usage.completion_tokens


@pytest.mark.parametrize("stream", [False, True])
def test_what_passes_unchanged(hermes_server, finished, stream):
    provider, spans = finished
    metrics = Metrics()
    more = {"stream": True, "stream_options": {"include_usage": True}} if stream else {}
    asked = [{"role": "user", "content": "Hello?"}]
    with OpenAI(config=default_config(hermes_server), observer=[metrics, Spans(provider)], max_retries=0) as client:
        reply = client.chat.completions.create(model=hermes_server.name, messages=asked, **more)
        usage = [chunk.usage for chunk in reply][-1] if stream else reply.usage
    assert total(metrics, "requests_total", mode="forward", status="200") == 1
    assert total(metrics, "tokens_total", type="input") == usage.prompt_tokens > 0
    assert total(metrics, "tokens_total", type="output") == usage.completion_tokens > 0
    (send,) = (span for span in spans() if span.name.startswith("chat "))
    assert send.attributes["gen_ai.response.model"] == hermes_server.name
    assert send.attributes["gen_ai.response.finish_reasons"] == ("stop",)
