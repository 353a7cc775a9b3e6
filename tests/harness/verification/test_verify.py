"""The command on a real llama.cpp, whose model leaves some calls where the server does not find them."""

import json
import re

import pytest
from serving import serving

from promptools.cli import main
from promptools.harness.verification import measuring
from promptools.harness.verification.measuring import measure
from promptools.harness.verification.scenarios import cases
from promptools.lab.llamacpp_server import can_serve, serve
from promptools.lab.script import ScriptedReply
from promptools.profiles import Config
from promptools.proxy import Proxy

pytestmark = pytest.mark.skipif(not can_serve(), reason="xllamacpp or gguf is not installed here")

EQUAL = [
    "right tool",
    "parallel calls",
    "streamed and whole",
    "restraint",
    "structured output",
    "results in the history",
    "odd Unicode",
]
HEALED = "right arguments"
"""The scenario whose calls the model writes in a code block, which the server takes for text."""


def written(answer, *, fenced):
    calls = [f'{{"name": "{call.name}", "arguments": {call.arguments}}}' for call in answer.calls]
    if fenced:
        return "\n".join(f"```json\n{call}\n```" for call in calls)
    return "\n".join(f"<tool_call>\n{call}\n</tool_call>" for call in calls) or answer.content


def script():
    lines = {}
    for case in cases([*EQUAL, HEALED]):
        for ask in case.asks():
            cue = ask.body["messages"][-1]["content"]
            lines[cue] = ScriptedReply(cue, written(ask.right, fenced=case.scenario == HEALED))
    return [*lines.values(), ScriptedReply(None, "I do not know.")]


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    with serve(script(), name="scripted", folder=tmp_path_factory.mktemp("verify")) as running:
        yield running


def verify(capsys, server, *arguments):
    status = main(["verify", server.base_url, "--temperature", "0", "--max-tokens", "128", "--yes", *arguments])
    return status, capsys.readouterr()


def test_a_server_that_loses_calls(capsys, server, tmp_path):
    page, log = tmp_path / "page.html", tmp_path / "log.jsonl"
    chosen = ["--scenarios", f"{HEALED},restraint", "--output", str(log)]
    status, printed = verify(capsys, server, *chosen, "--json", "--html", str(page))
    assert status == 0
    result = json.loads(printed.out)
    seen = {each["name"]: (each["alone"]["right"], each["through"]["right"]) for each in result["scenarios"]}
    assert seen == {HEALED: (0, 10), "restraint": (10, 10)}
    assert result["conclusion"].startswith("promptools makes a difference here: +50.0 points")
    assert result["server"].startswith("llamacpp")
    assert result["settings"] == {"temperature": 0.0, "max_tokens": 128}
    assert "will be asked 40 times" in printed.err
    assert "0/20 asking" in printed.err
    row = next(row for row in result["rows"] if row["scenario"] == HEALED)
    assert row["alone"]["failure"].startswith("the call is in the content, as json")
    assert row["alone"]["reply"].startswith("```json")
    assert re.match(r"call: \w+\(\{", row["through"]["reply"])
    assert row["through"]["attempts"] == ["native: answered"]
    assert row["alone"]["prompt_tokens"] > 0 < row["through"]["completion_tokens"]
    assert "the call is in the content" in page.read_text(encoding="utf-8")
    # once more: nothing is asked
    status, printed = verify(capsys, server, *chosen)
    assert status == 0
    assert printed.err.splitlines() == ["all cases are in the log"]
    assert "promptools makes a difference here" in printed.out
    assert "through promptools: right" in printed.out


def test_a_server_that_needs_nothing(capsys, server):
    status, printed = verify(capsys, server, "--scenarios", ",".join(EQUAL), "--workers", "4")
    assert status == 0
    assert "The server alone is as good: use it (+0.0 points" in printed.out
    assert printed.out.count("100.0 %") == 2 * (len(EQUAL) + 1)


@pytest.mark.parametrize(("rows", "finished"), [(4, 2), (3, 1)])
def test_what_there_was_no_time_for_is_told(capsys, server, monkeypatch, rows, finished):
    """A case is finished when each of its repeats is."""

    def short(cases, *args, repeats, **more):
        all_rows = measure(cases[:2], *args, repeats=repeats, **more)
        return all_rows[:rows]

    monkeypatch.setattr(measuring, "measure", short)
    status, printed = verify(capsys, server, "--scenarios", "restraint", "--repeats", "2")
    assert status == 0
    assert f"the time was over after {finished} of 10 planned cases" in printed.err


def test_a_run_is_asked_for(capsys, server, monkeypatch):
    arguments = ["verify", server.base_url, "--scenarios", "restraint"]
    assert main(arguments) == 2
    refused = capsys.readouterr().err
    assert "add --yes" in refused
    assert "trying the server" not in refused


def test_a_proxy_is_not_verified(capsys, server, tmp_path):
    """Else promptools would be compared with itself, and the server that needs it be called as good."""
    with serving(Proxy(base_url=server.base_url, config=Config())) as port:
        url = f"http://127.0.0.1:{port}/v1"
        assert main(["verify", url, "--scenarios", HEALED, "--yes", "--output", str(tmp_path / "log")]) == 2
    printed = capsys.readouterr()
    said = f"{url} is a promptools proxy, whose answers are not the server's own: name the server behind it"
    assert said in printed.err
    assert "trying the server" not in printed.err
    assert printed.out == ""
    assert not (tmp_path / "log").exists()


def test_usage(capsys, server):
    status, printed = verify(capsys, server, "--scenarios", "restrain")
    assert status == 2
    assert "'restrain' is not one of valid calls by schema" in printed.err


def test_the_exit_status_of_a_comparison(capsys, server, tmp_path):
    chosen = ["--scenarios", f"{HEALED},restraint", "--json"]
    _, printed = verify(capsys, server, *chosen)
    before = json.loads(printed.out)
    after = json.loads(printed.out)
    for row in after["rows"]:
        if row["scenario"] == "restraint":
            row["through"] = {**row["through"], "share": 0.0}
    paths = [tmp_path / "before.json", tmp_path / "after.json"]
    for path, data in zip(paths, (before, after), strict=True):
        path.write_text(json.dumps(data), encoding="utf-8")
    names = [str(path) for path in paths]
    assert main(["verify", "--compare", *names]) == 1
    assert "losses beyond chance" in capsys.readouterr().out
    assert main(["verify", "--compare", names[0], names[0], "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["lost"] is False
    assert main(["verify", "--compare", *names[::-1]]) == 0
    assert main(["verify", "--compare", names[0], str(tmp_path / "none")]) == 2
