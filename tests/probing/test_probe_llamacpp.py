"""The probe on a real llama.cpp, with a template that shows tools and one that does not."""

import json

import pytest
from probe_scripts import hermes

from promptools.cli import main
from promptools.lab.llamacpp_server import can_serve, serve
from promptools.profiles import load_config, resolve

pytestmark = pytest.mark.skipif(not can_serve(), reason="xllamacpp or gguf is not installed here")


@pytest.fixture(scope="module", params=["hermes", "plain"])
def probed(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp("probe")
    with serve(hermes(), template=request.param, name=request.param, folder=folder) as server:
        yield request.param, server


def probe(capsys, server, *arguments):
    status = main(["probe", server.url, "--json", "--max-tokens", "128", *arguments])
    data = json.loads(capsys.readouterr().out)
    return status, data, {finding["check"]: finding["verdict"] for finding in data["findings"]}


ANY_TEMPLATE = {
    "tool results": "works",
    "system message": "works",
    "messages of one role in a row": "accepted",
    "response_format": "works",
    "n": "works",
    "stream_options.include_usage": "works",
    "reasoning_effort": "accepted",
    "reasoning field": "not shown",
    "raw completions": "works",
    "mode harmony": "absent",
    "mode prompt": "works",
    "context": "works",
}
EXPECTED = {
    "hermes": {
        **ANY_TEMPLATE,
        "native tools": "works",
        "streamed call": "works",
        "parallel calls": "works",
        "parallel_tool_calls": "ignored",
        "tool_choice none": "works",
        "tool_choice required": "not shown",  # the grammar forbids an end: text up to the limit
        "tool_choice named": "ignored",
        "tool names with a dot": "works",
        "response_format beside tools": "ignored",
        "mode native": "works",
        "mode raw": "works",
        "special tokens in raw completions": "works",
    },
    "plain": {
        **ANY_TEMPLATE,
        "native tools": "leaks",
        "streamed call": "leaks",
        "parallel calls": "not shown",
        "tool_choice none": "not shown",
        "tool_choice required": "ignored",
        "tool_choice named": "leaks",
        "tool names with a dot": "accepted",
        "response_format beside tools": "not shown",
        "mode native": "absent",
        "mode raw": "absent",
        "special tokens in raw completions": "not shown",
    },
}
MODES = {"hermes": ["native", "raw", "prompt"], "plain": ["prompt"]}


def test_the_verdicts(capsys, probed):
    kind, server = probed
    status, data, verdicts = probe(capsys, server)
    assert verdicts == EXPECTED[kind]
    assert [entry["mode"] for entry in data["modes"]] == MODES[kind]
    assert data["facts"] == {}  # what ships about llama.cpp holds
    assert status == (kind == "plain")
    assert data["kind"] == "llamacpp"
    assert 20 < data["cost"]["requests"] < 40
    assert data["cost"]["completion_tokens"] > 0


def test_some_checks_alone_with_a_table_and_progress(capsys, probed):
    kind, server = probed
    assert main(["probe", server.url, "--checks", "native", "--model", kind]) == (kind == "plain")
    printed = capsys.readouterr()
    assert "get_weather" in printed.out
    assert "requests" in printed.out
    assert "streamed call: " in printed.err
    assert "response_format" not in printed.out


@pytest.mark.parametrize("probed", ["hermes"], indirect=True)
def test_the_context_is_measured_when_asked_to(capsys, probed):
    _, server = probed
    _, data, verdicts = probe(capsys, server, "--checks", "context", "--context")
    assert verdicts == {"context": "works"}
    assert "exceeds the available context size" in data["findings"][0]["reason"]


def test_the_config_that_is_written_names_the_server(capsys, probed, tmp_path):
    kind, server = probed
    path = tmp_path / "promptools.toml"
    assert main(["probe", server.url, "--checks", "native", "--write", str(path), "--name", "gpu"]) in {0, 1}
    config = load_config(path)
    assert config.providers["gpu"].kind == "llamacpp"
    assert config.providers["gpu"].default_model == kind
    assert resolve(None, provider="gpu", config=config).base_url == f"{server.url}/v1"
    capsys.readouterr()
    assert main(["probe", server.url, "--write", str(path)]) == 2
    assert "is not changed" in capsys.readouterr().err
    assert main(["probe", server.url, "--checks", "native", "--write", "-"]) in {0, 1}
    assert '[providers."probed"]' in capsys.readouterr().out
