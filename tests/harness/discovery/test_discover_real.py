"""`promptools discover` on a real llama.cpp, whose model calls tools with known rates."""

import json
import random
import re
import tomllib
from dataclasses import replace
from pathlib import Path

import discovery_plots
import pytest
from discovery_plots import SCRIPT

from promptools import Tools
from promptools.cli import main
from promptools.client import OpenAI
from promptools.harness.agent import Agent
from promptools.harness.toolsets import AgentTool
from promptools.lab.llamacpp_server import can_serve, serve
from promptools.lab.script import ScriptedReply

ROOT = Path(__file__).parents[3]

pytestmark = [pytest.mark.e2e, pytest.mark.skipif(not can_serve(), reason="xllamacpp or gguf is not installed here")]


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    with serve(SCRIPT, name="prior", folder=tmp_path_factory.mktemp("prior"), slots=4) as running:
        yield running


def discover(server, folder, *flags):
    return main(["discover", "--base-url", server.base_url, "--output", str(folder), *flags])


@pytest.fixture(scope="module")
def discovered(server, tmp_path_factory):
    pytest.importorskip("matplotlib")
    folder = tmp_path_factory.mktemp("discovered")
    assert discovery_plots.discover(server.base_url, folder) == 0
    return folder


@pytest.fixture(scope="module")
def tools(discovered):
    return {tool["name"]: tool for tool in json.loads((discovered / "findings.json").read_text())["tools"]}


def test_the_rates_are_the_script_s(tools):
    rates = {name: tool["rate"]["estimate"] for name, tool in tools.items() if tool["calls"]}
    assert rates == {"repo.print_tree": 7 / 20, "repo.list_files": 2 / 20, "repo.open_file": 6 / 20}
    assert tools["repo.print_tree"]["by_kind"]["explore"]["estimate"] == 7 / 9
    assert tools["repo.print_tree"]["by_kind"]["read"]["estimate"] == 0
    assert tools["repo.open_file"]["valid_json"]["estimate"] == 1


def test_verdicts_on_tools(tools):
    assert {name: (tool["verdict"], tool["alias_of"]) for name, tool in tools.items()} == {
        "repo.print_tree": ("confirmed", None),
        "repo.open_file": ("confirmed", None),
        "repo.list_files": ("alias", "repo.print_tree"),
        "repo.delete_file": ("confabulated", None),
    }


def test_verdicts_on_parameters(tools):
    parameters = {own["name"]: (own["verdict"], own["alias_of"]) for own in tools["repo.open_file"]["parameters"]}
    assert parameters == {
        "line_start": ("confirmed", None),
        "line_end": ("confirmed", None),
        "path": ("confirmed", None),
        "file_path": ("alias", "path"),
        "encoding": ("confabulated", None),
        "depth": ("confabulated", None),
    }


def test_the_lift_of_a_definition(tools):
    (lift,) = (own for own in tools["repo.print_tree"]["lifts"] if own["kind"] == "explore")
    assert (lift["baseline"]["estimate"], lift["defined"]["estimate"]) == (7 / 9, 1)
    assert lift["ratio"]["low"] <= 9 / 7 <= lift["ratio"]["high"]
    assert {own["difference"]["estimate"] for own in tools["repo.open_file"]["lifts"]} == {0}
    assert [own["difference"]["estimate"] for own in tools["repo.list_files"]["lifts"] if not own["kind"]] == [-0.1]


def test_the_tool_set_is_loaded(discovered):
    from promptools.profiles import load_config

    tools = Tools(json.loads((discovered / "tools.json").read_text()), strict=True)
    assert tools.names == ("repo.print_tree", "repo.open_file")
    assert [tool.names for tool in tools] == [("repo.list_files",), ()]
    assert load_config(discovered / "promptools.toml").tools["repo.open_file"]["aliases"] == {"file_path": "path"}
    assert set(tomllib.loads((discovered / "promptools.toml").read_text())["tools"]) == set(tools.names)


def test_an_agent_is_called_by_the_names_that_the_model_knows(server, discovered):
    def read_source(path: str, line_start: int = 1, line_end: int = 9) -> str:
        """Read lines of a file."""
        return f"{path}, {line_start} to {line_end}: the weather"  # the next cue

    known = AgentTool(replace(Tools([read_source])[0], names=("repo.open_file",)), read_source)
    with OpenAI(base_url=server.base_url, api_key="none", max_retries=0, mode="prompt") as client:
        agent = Agent(client, [known], model="prior", discovered=discovered)
        done = agent.run("In project 1, show the module.")
    assert agent.toolbox.tools.names == ("repo.open_file",)
    assert agent.toolbox.not_offered == ("repo.print_tree",)
    assert [result.content for result in done.results] == ["b.py, 3 to 8: the weather"]
    assert done.calls[0].name == "repo.open_file"
    assert done.content == "I cannot look out of the window."


def test_reasoning_of_agents_is_asked_with(server, tmp_path):
    (tmp_path / "logs").mkdir()
    message = {"role": "assistant", "content": "", "reasoning": "In project 1, show the tree."}
    (tmp_path / "logs" / "one.jsonl").write_text(json.dumps(message))
    (tmp_path / "intents").write_text("In project 2, show the weather.")
    flags = [
        "--intents",
        str(tmp_path / "intents"),
        "--repeats",
        "1",
        "--questions",
        "1",
        "--no-validate",
        "--no-plots",
    ]
    assert discover(server, tmp_path / "out", *flags, "--from-logs", str(tmp_path / "logs")) == 0
    (tool,) = [
        tool
        for tool in json.loads((tmp_path / "out" / "findings.json").read_text())["tools"]
        if tool["name"] == "repo.print_tree"
    ]
    assert tool["by_kind"]["log"]["estimate"] == 1
    assert tool["rate"]["estimate"] == 1 / 2


def test_the_page(discovered):
    page = (discovered / "discovered-tools.md").read_text()
    assert "| `repo.list_files` | alias of `repo.print_tree` |" in page
    assert "Everything that was planned was sampled." in page
    for name in ("call-rates", "call-rates-by-kind"):
        assert f"![{name}.png]({name}.png)" in page
        assert (discovered / f"{name}.png").read_bytes().startswith(b"\x89PNG")
        assert "repo.print_tree" in (discovered / f"{name}.svg").read_text()


def test_the_figures_and_plots_of_the_documentation(tools):
    """The page has the rates of twice as many intents, which are the same: the intervals are narrower."""
    page = (ROOT / "docs" / "tasks" / "discover-tools.md").read_text("utf-8")
    for name in ("repo.print_tree", "repo.open_file", "repo.list_files"):
        (row,) = re.findall(rf"^\| `{re.escape(name)}` \| (\S+) % \| (\S+) % \[(\S+), (\S+)\] \|", page, re.MULTILINE)
        true, estimate, low, high = (float(figure) / 100 for figure in row)
        assert true == pytest.approx(tools[name]["rate"]["estimate"]) == pytest.approx(estimate)
        assert tools[name]["rate"]["low"] <= low < true < high <= tools[name]["rate"]["high"]
    for image in discovery_plots.NAMES.values():
        assert f"../img/{image}" in page
        drawn = (discovery_plots.IMAGES / image).read_text("utf-8")
        assert all(name in drawn for name in ("repo.print_tree", "repo.open_file", "repo.list_files"))


@pytest.mark.exhaustive
def test_a_run_continues_within_its_budget(server, tmp_path, capsys):
    (tmp_path / "intents").write_text("\n".join(f"In project {number}, show the tree." for number in range(6)))
    flags = ["--intents", str(tmp_path / "intents"), "--repeats", "1", "--questions", "1", "--json", "--no-plots"]
    assert discover(server, tmp_path, *flags, "--max-requests", "4") == 0
    first = json.loads(capsys.readouterr().out)
    assert (first["samples"], first["requests"], first["unsampled"]["intent"]) == ({"intent": 4}, 4, 2)
    samples = (tmp_path / "samples.jsonl").read_text()
    (tmp_path / "samples.jsonl").write_text(samples[:-20])  # killed while the last one was written
    assert discover(server, tmp_path, *flags, "--no-validate") == 0
    second = json.loads(capsys.readouterr().out)
    assert (second["samples"]["intent"], second["unsampled"]) == (6, {})
    assert second["requests"] == sum(second["samples"].values()) - 3
    assert discover(server, tmp_path, *flags, "--seed", "1") == 2
    assert "choose another folder" in capsys.readouterr().err.lower()


def test_names_that_utf8_cannot_hold(server, tmp_path, capsys):
    (tmp_path / "intents").write_text("\n".join(f"In project {number}, show half a character." for number in range(4)))
    flags = ["--intents", str(tmp_path / "intents"), "--repeats", "1", "--questions", "1", "--no-plots"]
    assert discover(server, tmp_path, *flags) == 0
    assert "| `repo.half` | confirmed |" in capsys.readouterr().out
    (tool,) = json.loads((tmp_path / "tools.json").read_text())
    assert list(tool["function"]["parameters"]["properties"]) == ["emoji", "\ufffd"]
    assert tomllib.loads((tmp_path / "promptools.toml").read_text())["tools"] == {"repo.half": {}}


def coverage(server, folder, runs, size):
    """Return the share of the intervals that cover the true rate, of discoveries with intents drawn by their shares."""
    drawn = random.Random(7)
    truth = {"repo.print_tree": 0.3, "repo.open_file": 0.25}
    population = [*["the tree"] * 6, *["the source"] * 5, *["the weather"] * 9]
    covered = 0
    for run in range(runs):
        texts = [f"In project {number}, show {cue}." for number, cue in enumerate(drawn.choices(population, k=size))]
        (folder / "intents").write_text("\n".join(texts))
        flags = ["--repeats", "1", "--questions", "1", "--no-validate", "--no-plots", "--max-requests", str(size)]
        assert discover(server, folder / str(run), "--intents", str(folder / "intents"), *flags) == 0
        found = json.loads((folder / str(run) / "findings.json").read_text())["tools"]
        rates = {tool["name"]: tool["rate"] for tool in found}
        covered += sum(rates[name]["low"] <= rate <= rates[name]["high"] for name, rate in truth.items())
    return covered / runs / len(truth)


@pytest.mark.exhaustive
def test_intervals_cover_the_true_rates(server, tmp_path, capsys):
    """At their confidence: in tests/harness/evaluation, of thousands of draws."""
    assert coverage(server, tmp_path, runs=6, size=60) >= 0.8


def lift_coverage(server, folder, runs, size):
    """Return the share of the intervals of lifts that cover the true one, and how many there are.

    Of 20 intents, 8 lead to calls of a tool and 3 to calls of another one, which become calls of the first where that
    is defined: its rate rises from 40 to 55 %, and that of the other falls from 15 to 0 %.
    """
    drawn = random.Random(5)
    truth = {"repo.print_tree": 0.15, "repo.list_files": -0.15}
    population = [*["the tree"] * 8, *["the files"] * 3, *["the weather"] * 9]
    covered = []
    for run in range(runs):
        texts = [f"In project {number}, show {cue}." for number, cue in enumerate(drawn.choices(population, k=size))]
        (folder / "intents").write_text("\n".join(texts))
        flags = ["--repeats", "1", "--questions", "1", "--no-plots"]
        assert discover(server, folder / str(run), "--intents", str(folder / "intents"), *flags) == 0
        found = json.loads((folder / str(run) / "findings.json").read_text())["tools"]
        for tool in found:
            for lift in tool["lifts"]:
                if tool["name"] in truth and not lift["kind"]:
                    difference = truth[tool["name"]]
                    covered.append(lift["difference"]["low"] <= difference <= lift["difference"]["high"])
    return sum(covered) / len(covered), len(covered)


@pytest.mark.exhaustive
def test_intervals_of_lifts_cover_the_true_ones(server, tmp_path, capsys):
    """At their confidence: in tests/harness/evaluation, of thousands of draws."""
    share, count = lift_coverage(server, tmp_path, runs=2, size=40)
    assert count == 4
    assert share >= 0.75


@pytest.mark.exhaustive
def test_definitions_in_both_messages_of_harmony_mode(tmp_path):
    thought = "<|channel|>analysis<|message|>Look.<|end|><|start|>assistant"
    ls = f'{thought}<|channel|>analysis to=container.exec code<|message|>{{"cmd": ["ls", "-a"]}}<|call|>'
    script = [
        ScriptedReply("show the tree", ls),
        ScriptedReply("show the weather", "<|channel|>final<|message|>No.<|return|>"),
        ScriptedReply("show the weather", ls, setting="# Tools\n\n## container"),
        ScriptedReply(None, "<|channel|>final<|message|>Nothing.<|return|>"),
    ]
    intents = [f"In {number}, show the {what}." for number in range(3) for what in ("tree", "weather")]
    (tmp_path / "intents").write_text("\n".join(intents))
    flags = ["--intents", str(tmp_path / "intents"), "--repeats", "1", "--questions", "1", "--no-plots"]
    with serve(script, template="harmony", name="gpt-oss-prior", folder=tmp_path) as server:
        assert discover(server, tmp_path, *flags) == 0
    (tool,) = json.loads((tmp_path / "findings.json").read_text())["tools"]
    assert (tool["name"], tool["verdict"], tool["rate"]["estimate"]) == ("container.exec", "confirmed", 0.5)
    assert [(own["name"], own["type"], own["required"]) for own in tool["parameters"]] == [
        ("cmd", "array of string", True)
    ]
    lifts = {lift["placement"]: lift for lift in tool["lifts"] if not lift["kind"]}
    assert {place: lift["ratio"]["estimate"] for place, lift in lifts.items()} == {"system": 2, "developer": 2}
