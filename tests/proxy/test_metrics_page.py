"""docs/reference/metrics.md and the dashboard name what a real proxy reports, all of it and nothing else."""

import json
import logging
import re
from pathlib import Path
from types import SimpleNamespace

import pytest
from operating import FENCED, WEATHER, ask, proxied
from upstream import Answer, chunk, completion, running, sse

from promptools.proxy.operations import LoggedExchanges, MetricsPage, TracedExchanges

parser = pytest.importorskip("prometheus_client.parser")
sdk = pytest.importorskip("opentelemetry.sdk.trace")
from opentelemetry.sdk.trace.export import SimpleSpanProcessor  # noqa: E402 only where it is installed
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter  # noqa: E402

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/reference/metrics.md").read_text(encoding="utf-8")
DASHBOARD = json.loads((ROOT / "deploy/grafana/promptools.json").read_text(encoding="utf-8"))
CRASHED = Answer(500, (b'{"error": {"message": "error parsing tool call: raw"}}',))
CALL = {"id": "c", "type": "function", "function": {"name": "get_weather", "arguments": '{"city": "Reykjavik"}'}}
TURN = [
    {"role": "assistant", "content": None, "tool_calls": [CALL]},
    {"role": "tool", "tool_call_id": "c", "content": "rain"},
]
BROKEN = '```json\n{"tool": "get_weather", "arguments": {"city": ["Reykjavik"]}}\n```'


@pytest.fixture(scope="module")
def seen():
    """The metrics, spans and log lines of a few exchanges."""
    exporter = InMemorySpanExporter()
    provider = sdk.TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    lines = []
    handler = logging.Handler()
    handler.emit = lambda record: lines.append(json.loads(record.getMessage()))
    logging.getLogger("promptools.exchanges").addHandler(handler)
    extensions = (MetricsPage(), TracedExchanges(provider), LoggedExchanges("json"))
    with running() as server, proxied(server, *extensions) as client:
        server.play(CRASHED, completion(BROKEN), completion(FENCED))
        assert ask(client, WEATHER).status_code == 200
        server.play(sse(chunk({"content": "Sunny."}), chunk({}, finish="stop")))
        assert ask(client, {**WEATHER, "stream": True}).status_code == 200
        server.play(completion("It rains."))
        assert ask(client, {**WEATHER, "messages": [*WEATHER["messages"], *TURN, *TURN]}).status_code == 200
        server.play(Answer(404, (b"{}",)))
        assert ask(client).status_code == 404
        assert client.get("/v1/models").status_code == 404
        assert client.get("/v1/models", headers={"host": "elsewhere"}).status_code == 403
        families = list(parser.text_string_to_metric_families(client.get("/metrics").text))
    logging.getLogger("promptools.exchanges").removeHandler(handler)
    provider.shutdown()
    return SimpleNamespace(families=families, spans=exporter.get_finished_spans(), lines=lines)


def table(title):
    """The rows of the table on the page whose first column has this title."""
    block = re.search(rf"^\| {title} \|.*\n\|[ |-]+\n((?:\|.*\n)+)", PAGE, re.MULTILINE)[1]
    return [[cell.strip() for cell in row.strip("|").split("|")] for row in block.splitlines()]


def words(cell):
    return set(re.findall(r"`([^`]+)`", cell))


def metrics_of(families):
    """Each metric of ours with its type and its labels, by the name that the page has."""
    own = [family for family in families if family.name.startswith("promptools_")]
    return {
        family.name + ("_total" if family.type == "counter" else ""): (
            family.type,
            {label for sample in family.samples for label in sample.labels} - {"le"},
        )
        for family in own
        if not family.name.endswith("_created")
    }


def test_a_repeated_call_is_counted(seen):
    (family,) = [family for family in seen.families if family.name == "promptools_repeated"]
    counted = {sample.labels["action"]: sample.value for sample in family.samples if sample.name.endswith("_total")}
    assert counted == {"none": 1.0}  # native mode: it is noted alone
    assert [line["repeated"] for line in seen.lines if line.get("repeated")] == ["none"]


def test_every_metric_is_on_the_page(seen):
    told = {next(iter(words(row[0]))): (row[1], words(row[2])) for row in table("metric")}
    assert metrics_of(seen.families) == told


def test_every_label_is_on_the_page(seen):
    told = {label for row in table("label") for label in words(row[0])}
    assert {label for _, labels in metrics_of(seen.families).values() for label in labels} == told


def test_every_attribute_is_on_the_page(seen):
    columns = {"promptools chat": 1, "chat m": 2, "parse reply": 3}
    rows = table("attribute")
    for name, column in columns.items():
        used = {key for span in seen.spans if span.name == name for key in span.attributes}
        assert used == {next(iter(words(row[0]))) for row in rows if row[column] == "yes"}, name


def test_every_field_is_on_the_page(seen):
    example, *short = re.findall(r"^time=.*$", PAGE, re.MULTILINE)
    told = [next(iter(words(row[0]))) for row in table("field")]
    assert all(list(line) == told for line in seen.lines if "api" in line)
    assert set(re.findall(r"(\w+)=", example)) <= set(told)
    passed, refused = (line for line in seen.lines if "api" not in line)
    assert [re.findall(r"(\w+)=", line) for line in short] == [[key for key in passed if key != "reason"], [*refused]]


def queries():
    return [target["expr"] for panel in DASHBOARD["panels"] for target in panel.get("targets", ())]


@pytest.mark.parametrize("query", queries())
def test_every_metric_of_the_dashboard_is_in_a_scrape(seen, query):
    samples = {}
    for family in seen.families:
        for sample in family.samples:
            samples.setdefault(sample.name, set()).update(sample.labels)
    found = re.findall(r"((?:promptools|process)_\w+)(?:\{([^}]*)\})?", query)
    assert found
    for name, selectors in found:
        assert name in samples, name
        labels = set(re.findall(r"(\w+)=~", selectors)) | {
            label for group in re.findall(r"by \(([^)]*)\)", query) for label in re.split(r",\s*", group)
        }
        assert labels - {"job"} <= samples[name], name


def test_the_dashboard_shows_every_metric():
    shown = {name for query in queries() for name in re.findall(r"promptools_\w+?(?=_bucket|\b)", query)}
    assert shown == {next(iter(words(row[0]))) for row in table("metric")}


def test_the_panels_of_the_dashboard_do_not_overlap():
    ids = [panel["id"] for panel in DASHBOARD["panels"]]
    assert len(set(ids)) == len(ids)
    taken = set()
    for panel in DASHBOARD["panels"]:
        place = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert not cells & taken
        assert place["x"] + place["w"] <= 24
        taken |= cells
