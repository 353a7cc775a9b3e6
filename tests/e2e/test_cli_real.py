"""The commands that talk to a server, talking to a real one."""

import io
import json
import re
import subprocess
import sys

import pytest
from scenes import WEATHER, hermes

from promptools.cli import main
from promptools.cli.demo_command import Scenario, run_scenario
from promptools.lab import weather
from promptools.lab.llamacpp_server import TEMPLATES, serve
from promptools.lab.script import ScriptedReply
from promptools.lab.scripted_model import write_model

pytestmark = pytest.mark.exhaustive


def test_the_demo_is_as_it_should_be():
    done = subprocess.run(
        [sys.executable, "-m", "promptools", "demo", "--json"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    seen = {each["title"]: each for each in json.loads(done.stdout)}
    assert all(report["fine"] for report in seen.values())
    assert "HTTP 500" in seen["llama.cpp alone, with gpt-oss"]["server"]
    assert "native: 500" in seen["the same server through promptools"]["server"]
    assert "harmony: 200, answered" in seen["the same server through promptools"]["server"]


def test_the_demo_runs_against_a_server_of_ones_own(capsys, tmp_path):
    with serve(weather.hermes_script(), template="hermes", name="mine", folder=tmp_path) as server:
        given = ["demo", "--base-url", server.base_url, "--model", "mine", "--provider", "llamacpp"]
        assert main(given) == 0
    printed = capsys.readouterr()
    assert "2/4 the same server through promptools ...\n" in printed.err
    assert "AFTER: the same server through promptools\n" in printed.out
    assert f"try: promptools serve --base-url {server.base_url} --inspect\n" in printed.out


def test_the_demo_fails_where_the_model_calls_nothing(capsys, tmp_path):
    mute = [ScriptedReply(None, "I would rather talk about something else.")]
    with serve(mute, template="hermes", name="mute", folder=tmp_path) as server:
        assert main(["demo", "--base-url", server.base_url, "--model", "mute", "--json"]) == 1
    printed = capsys.readouterr()
    assert [each["fine"] for each in json.loads(printed.out)] == [True, False, False, False]
    assert "3 of 4 conversations did not go as expected" in printed.err


def file_of(lines, folder):
    """Write a model that carries its template, as one from elsewhere does."""
    return str(write_model(lines, folder, template=(TEMPLATES / "hermes.jinja").read_text()))


def test_the_demo_runs_on_a_model_in_a_file(capsys, tmp_path):
    assert main(["demo", "--model", file_of(weather.hermes_script(), tmp_path), "--json"]) == 0
    seen = json.loads(capsys.readouterr().out)
    call = {"name": "get_weather", "arguments": {"city": "Paris"}}
    assert [report["calls"] for report in seen] == [[call]] * 4
    assert [each["direct"] for each in seen] == [True, False, False, False]
    assert "prompt: 200, answered" in seen[3]["server"]


def test_what_a_model_in_a_file_says_alone_is_shown(capsys, tmp_path):
    fenced = '```json\n{"name": "get_weather", "arguments": {"city": "Paris"}}\n```'
    leaking = [
        ScriptedReply(weather.QUESTION, fenced),
        ScriptedReply(weather.RESULT, weather.ANSWER),
        ScriptedReply(None, "No."),
    ]
    assert main(["demo", "--model", file_of(leaking, tmp_path), "--json"]) == 0
    alone, ours, *_ = json.loads(capsys.readouterr().out)
    assert (alone["calls"], alone["server"]) == ([], f"200, stop: {fenced!r}")
    assert alone["app"] == f"no call, answer: {fenced!r}"
    assert ours["calls"] == [{"name": "get_weather", "arguments": {"city": "Paris"}}]


def test_what_a_model_in_a_file_chooses_is_its_own(capsys, tmp_path):
    assert main(["demo", "--model", file_of([ScriptedReply(None, "Let us talk about something else.")], tmp_path)]) == 0
    assert "the model called nothing" in capsys.readouterr().out


def test_a_server_that_does_not_fail_makes_no_failure_to_show(tmp_path):
    with serve(weather.hermes_script(), template="hermes", folder=tmp_path) as server:
        seen = run_scenario(Scenario("straight", server.base_url, "scripted", direct=True, must_fail=True))
    assert not seen.fine


@pytest.fixture
def tools(tmp_path):
    path = tmp_path / "tools.json"
    path.write_text(json.dumps([WEATHER]))
    return str(path)


def test_chat_shows_what_is_said_and_called(capsys, hermes_server, tools):
    assert main(["chat", "Talk and call?", "--base-url", hermes_server.base_url, "--tools", tools]) == 0
    out = capsys.readouterr().out
    assert "I'll check." in out
    assert 'get_weather({"city": "Paris"})' in out
    assert "[native: answered]" in out


def test_chat_answers_a_script_in_json(capsys, hermes_server, tools):
    where = ["--base-url", hermes_server.base_url, "--provider", "llamacpp", "--tools", tools]
    assert main(["chat", "Leak in Paris?", "--json", "--mode", "native", *where]) == 0
    data = json.loads(capsys.readouterr().out)
    assert data["message"]["tool_calls"][0]["function"]["name"] == "get_weather"


def test_chat_is_a_conversation_whose_tools_are_you(capsys, hermes_server, tools, monkeypatch):
    said = "What is the weather in Paris?\n\nParis: sunny, 18 degrees\nSay words\n"
    monkeypatch.setattr(sys, "stdin", io.StringIO(said))
    assert main(["chat", "--base-url", hermes_server.base_url, "--model", "hermes-scripted", "--tools", tools]) == 0
    out = capsys.readouterr().out
    assert re.search(r"get_weather.*It is sunny in Paris.*word0 word1", out, re.DOTALL)


def test_chat_says_what_is_wrong(capsys, hermes_server):
    assert main(["chat", "Say words", "--base-url", "http://127.0.0.1:9/v1", "--model", "m"]) == 1
    assert "no answer from http://127.0.0.1:9/v1 (Connection refused)" in capsys.readouterr().err


def test_two_servers_can_share_a_folder(tmp_path):
    with serve(hermes("x" * 9), folder=tmp_path) as one, serve(hermes("x" * 9), folder=tmp_path) as two:
        assert one.url != two.url
    assert one.process.returncode == two.process.returncode == 0
