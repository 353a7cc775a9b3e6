"""The probe on a real llama.cpp: a template that shows tools, one that does not, gpt-oss, and a server without --jinja.

The models answer its questions as models of their families do, so that a verdict is about the server.
"""

import json

import pytest
from rig.probing import check_written, hermes, probe_lines

from promptools.cli import main
from promptools.lab.llamacpp_server import can_serve, serve
from promptools.profiles import load_config, resolve

pytestmark = pytest.mark.skipif(not can_serve(), reason="xllamacpp or gguf is not installed here")


@pytest.fixture(scope="module", params=["hermes", "plain", "gpt-oss", "no-jinja"])
def probed(request, tmp_path_factory):
    kind, folder = request.param, tmp_path_factory.mktemp("probe")
    lines = [*probe_lines("harmony", "json")] if kind == "gpt-oss" else hermes()
    template = {"gpt-oss": "harmony", "no-jinja": "hermes"}.get(kind, kind)
    options = {"use_jinja": kind != "no-jinja"}
    with serve(lines, template=template, name=kind, folder=folder, options=options) as server:
        yield kind, server


def probe(capsys, server, *arguments):
    status = main(["probe", server.url, "--json", "--max-tokens", "256", *arguments])
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
        "parallel calls": "leaks",
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
EXPECTED["gpt-oss"] = {
    **{check: verdict for check, verdict in EXPECTED["hermes"].items() if check != "parallel_tool_calls"},
    "parallel calls": "not shown",  # the model ends its turn after one
    "reasoning field": "works",
    "mode raw": "absent",
    "mode harmony": "works",
}
EXPECTED["no-jinja"] = {
    **EXPECTED["plain"],
    **dict.fromkeys(("native tools", "streamed call", "parallel calls", "tool results"), "errors"),
    **{f"tool_choice {value}": "errors" for value in ("none", "required", "named")},
    "tool names with a dot": "not shown",
    "mode native": "errors",
    "mode raw": "errors",
}
MODES = {
    "hermes": ["native", "raw", "prompt"],
    "plain": ["prompt"],
    "gpt-oss": ["native", "harmony", "prompt"],
    "no-jinja": ["prompt"],
}
FAILED = {"plain", "no-jinja"}


def test_the_verdicts(capsys, probed):
    kind, server = probed
    status, data, verdicts = probe(capsys, server)
    expected = EXPECTED[kind]
    if kind == "gpt-oss" and verdicts["tool_choice required"] == "works":
        expected = {**expected, "tool_choice required": "works"}  # what a scripted model writes in a grammar is chance
    assert verdicts == expected
    assert [entry["mode"] for entry in data["modes"]] == MODES[kind]
    # what ships about llama.cpp holds
    assert data["facts"] == ({"modes": ["prompt"]} if kind == "no-jinja" else {})
    reasons = [entry["why"] for entry in data["left_out"]]
    if kind == "no-jinja":
        native, raw = reasons
        assert native == "no_native_tools: tools param requires --jinja flag"
        assert "tools param requires --jinja flag, so raw mode is not possible" in raw
    else:
        assert reasons == []
    assert status == (kind in FAILED)
    assert data["kind"] == "llamacpp"
    assert 20 < data["cost"]["requests"] < 40
    assert data["cost"]["completion_tokens"] > 0


def test_some_checks_alone_with_a_table_and_progress(capsys, probed):
    kind, server = probed
    assert main(["probe", server.url, "--checks", "native", "--model", kind]) == (kind in FAILED)
    printed = capsys.readouterr()
    assert "native tools" in printed.out
    assert "the modes were not checked" in printed.out
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
    assert main(["probe", server.url, "--checks", "native,modes", "--write", str(path), "--name", "gpu"]) in {0, 1}
    config = load_config(path)
    assert config.providers["gpu"].kind == "llamacpp"
    assert config.providers["gpu"].default_model == kind
    assert resolve(None, provider="gpu", config=config).base_url == f"{server.url}/v1"
    check_written(path, "gpu", kind, MODES[kind][0])
    capsys.readouterr()
    assert main(["probe", server.url, "--write", str(path)]) == 2
    assert "is not changed" in capsys.readouterr().err
    assert main(["probe", server.url, "--checks", "native", "--write", "-"]) in {0, 1}
    assert '[providers."probed"]' in capsys.readouterr().out
