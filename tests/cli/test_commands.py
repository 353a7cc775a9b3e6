"""The commands that need no server."""

import io
import json
import subprocess
import sys

import pytest

from promptools.cli import demo_command, main, terminal_output
from promptools.engine import StreamParser
from promptools.engine.parser import spans

TOOLS = [
    {
        "name": "get_weather",
        "description": "Weather now.",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string"}, "days": {"type": "integer"}},
            "required": ["city"],
        },
    }
]
REPLY = 'Sure:\n```json\n{"tool": "get_weather", "arguments": {"city": "Paris", "days": "3",}}\n```\n'


@pytest.fixture
def files(tmp_path):
    (tmp_path / "tools.json").write_text(json.dumps(TOOLS))
    (tmp_path / "body.json").write_text(json.dumps({"model": "m", "tools": TOOLS}))
    (tmp_path / "reply.txt").write_text(REPLY)
    (tmp_path / "calls.json").write_text(json.dumps([{"name": "get_weather", "arguments": '{"city": "Oslo"}'}]))
    (tmp_path / "results.json").write_text(json.dumps([{"name": "get_weather", "content": {"sky": "clear"}}]))
    return tmp_path


def run(capsys, *arguments):
    status = main([str(each) for each in arguments])
    printed = capsys.readouterr()
    return status, printed.out, printed.err


@pytest.fixture(params=["rich", "plain"])
def looks(request, monkeypatch):
    if request.param == "plain":
        monkeypatch.setattr(terminal_output.importlib.util, "find_spec", lambda name: None)
    return request.param


@pytest.mark.parametrize("tools", ["tools.json", "body.json"])
def test_parse_shows_calls_and_fixes(capsys, files, looks, tools):
    status, out, _ = run(capsys, "parse", files / "reply.txt", "--tools", files / tools)
    assert status == 0
    assert '{"city": "Paris", "days": 3}' in out
    assert "json: trailing comma" in out
    assert "Sure:" in out


def test_parse_reads_stdin_and_writes_json(capsys, files, monkeypatch):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(REPLY.encode())))
    status, out, _ = run(capsys, "parse", "--tools", files / "tools.json", "--json")
    assert status == 0
    (call,) = json.loads(out)["calls"]
    assert (call["name"], call["arguments"]) == ("get_weather", {"city": "Paris", "days": 3})


def test_parse_explains(capsys, files, looks):
    status, out, _ = run(capsys, "parse", files / "reply.txt", "--tools", files / "tools.json", "--explain")
    assert status == 0
    assert "Strategies, in order" in out
    assert "Its parts, in order" in out
    assert "markup" in out or "discarded" in out


def test_parse_tells_what_each_strategy_was_tried_on(capsys, tmp_path, looks):
    call = '{"tool": "ping", "arguments": {}}'
    for text, ground in (
        (call, "the whole reply"),
        (f"Sure:\n```json\n{call}\n```", "a fence"),
        (f"Sure.\n{call}", "a line's beginning"),
        (f"Sure: {call}", "amid a line"),
    ):
        (tmp_path / "reply.txt").write_text(text)
        _, out, _ = run(capsys, "parse", tmp_path / "reply.txt", "--explain")
        (row,) = [line for line in out.splitlines() if " ping " in line and " call " in line]
        assert ground in row


def test_parse_explains_what_looked_like_a_call_and_began_none(capsys, files):
    text = "Use <function=foo> so, or <tool_call> alone.\n```python\nx = 1\n```\n"
    (files / "talk.txt").write_text(text)
    _, out, _ = run(capsys, "parse", files / "talk.txt", "--tools", files / "tools.json", "--explain")
    rows = [[cell.strip() for cell in line.split("│")[1:-1]] for line in out.splitlines() if line.startswith("│")]
    refused = {(row[0], row[2]): row[4] for row in rows if len(row) == 6 and row[3] == "text"}
    at = text.index("<tool_call>")
    assert refused["qwen3_coder", f"4-{4 + len('<function=')}"] == "what surrounds its head shows no call"
    assert refused["hunyuan", f"{at}-{at + len('<tool_call>')}"] == "its head is followed by none of { ["
    assert "code blocks of this kind contain no calls of this dialect" in refused.values()
    _, out, _ = run(capsys, "parse", files / "talk.txt", "--tools", files / "tools.json", "--json")
    assert json.loads(out)["trace"]["tries"] == []


@pytest.mark.parametrize(
    "text", ['<tool_call>{"name": "get_weather", "arguments": {"city": "Oslo"}}</tool_call>', "Hi."]
)
def test_parse_explains_nothing_beside_what_was_read(capsys, files, text):
    (files / "talk.txt").write_text(text)
    _, out, _ = run(capsys, "parse", files / "talk.txt", "--tools", files / "tools.json", "--explain")
    assert "shows no call" not in out


def test_parse_says_when_there_is_no_call(capsys, files, looks):
    (files / "talk.txt").write_text("Hello [there].")
    _, out, _ = run(capsys, "parse", files / "talk.txt")
    assert "No call in this reply." in out
    assert "Hello [there]." in out


def test_parse_shows_what_is_malformed(capsys, files):
    (files / "bad.txt").write_text('```json\n{"tool": "get_weather", "arguments": {"days": 3}}\n```')
    _, out, _ = run(capsys, "parse", files / "bad.txt", "--tools", files / "tools.json", "--expect", "json")
    assert "invalid_arguments" in out
    assert "city" in out


@pytest.mark.parametrize("text", [REPLY, "<think>hm</think>Hi", "hm</think>Hi", "plain", ""])
def test_the_parts_cover_the_reply(text):
    parser = StreamParser(TOOLS)
    parts = spans([*parser.feed(text), *parser.close("stop")])
    assert "".join(text[span.start : span.end] for span, _ in parts) == text
    if "</think>" in text:
        assert (text.index("hm"), "reasoning") in [(span.start, kind) for span, kind in parts]


def test_render_writes_what_was_given(capsys, files):
    given = ("--tools", files / "tools.json", "--calls", files / "calls.json", "--results", files / "results.json")
    status, out, _ = run(capsys, "render", "--dialect", "hermes", *given)
    assert status == 0
    assert '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Oslo"}}\n</tool_call>' in out
    assert "Weather now." in out
    assert '{"sky": "clear"}' in out


def test_render_takes_calls_and_results_of_the_chat_format(capsys, files):
    called = {"id": "c1", "type": "function", "function": {"name": "get_weather", "arguments": '{"city": "Oslo"}'}}
    (files / "called.json").write_text(json.dumps([called, {"name": "ping", "arguments": None}]))
    (files / "said.json").write_text(json.dumps([{"role": "tool", "tool_call_id": "c1", "content": "4 C"}]))
    _, out, _ = run(
        capsys, "render", "--dialect", "kimi_k2", "--calls", files / "called.json", "--results", files / "said.json"
    )
    assert 'functions.get_weather:0<|tool_call_argument_begin|>{"city": "Oslo"}<|tool_call_end|>' in out
    assert "functions.ping:1<|tool_call_argument_begin|>{}<|tool_call_end|>" in out
    assert out.endswith("## Return of functions.get_weather:0\n4 C\n\nAnswer the user now, in plain text.\n")


def test_render_writes_json(capsys, files):
    _, out, _ = run(capsys, "render", "--tools", files / "tools.json", "--json")
    assert json.loads(out).keys() == {"dialect", "stop", "tools"}


CONFIG = """
default_provider = "box"
[providers.box]
kind = "llamacpp"
base_url = "http://127.0.0.1:9/v1"
default_model = "gpt-oss-20b"
api_key_env = "A_KEY_THAT_IS_NOT_SET"
"""


@pytest.fixture
def config(tmp_path):
    path = tmp_path / "promptools.toml"
    path.write_text(CONFIG)
    return path


def test_providers_lists_the_config_and_what_ships(capsys, config, looks):
    status, out, _ = run(capsys, "providers", "--config", config)
    assert status == 0
    for word in ("box (default)", "A_KEY_THAT_IS_NOT_SET (not set)", "vllm", "gpt-oss"):
        assert word in out


def test_providers_explains_one(capsys, config, looks):
    status, out, _ = run(capsys, "providers", "box", "--config", config)
    assert status == 0
    assert "family 'gpt-oss'" in out
    assert "constrained_ok" in out


def test_providers_writes_json(capsys, config):
    _, out, _ = run(capsys, "providers", "--config", config, "--json")
    assert json.loads(out)["providers"][0]["key_set"] is False
    _, out, _ = run(capsys, "providers", "box", "--config", config, "--json")
    data = json.loads(out)
    assert data["profile"]["kind"] == "llamacpp"
    assert data["profile"]["template_endpoint"] == "llamacpp"
    assert data["reasons"]


def test_providers_tells_of_a_dialect_that_is_none(capsys, tmp_path):
    path = tmp_path / "promptools.toml"
    path.write_text('[providers.d]\nbase_url = "http://d/v1"\nprofile = { dialect = "yaml" }\n')
    status, _, err = run(capsys, "providers", "d", "--config", path)
    assert status == 2
    assert err.startswith(f"promptools providers: {path}: providers.d.profile.dialect: there is no dialect 'yaml'; ")


def test_without_a_config_there_is_still_what_ships(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("PROMPTOOLS_CONFIG", "PPXAI_CONFIG_FILE", "XDG_CONFIG_HOME"):
        monkeypatch.delenv(name, raising=False)
    status, out, _ = run(capsys, "providers")
    assert status == 0
    assert "No providers" in out
    assert json.loads(run(capsys, "providers", "--json")[1])["file"] is None


@pytest.mark.parametrize(
    ("arguments", "wrong"),
    [
        (["parse", "there-is-none.txt"], "cannot read 'there-is-none.txt'"),
        (["parse", "reply.txt", "--tools", "reply.txt"], "is not valid JSON"),
        (["parse", "reply.txt", "--tools", "word.json"], "does not contain a list of tools"),
        (["render"], "nothing to render"),
        (["render", "--calls", "word.json"], "must hold a list"),
        (["render", "--calls", "nameless.json"], "'nameless.json', entry 0: a call must be an object with a 'name'"),
        (
            ["render", "--results", "nameless.json"],
            "'nameless.json', entry 0: a result must be an object with a 'name'",
        ),
        (["render", "--calls", "cut.json"], "'cut.json', entry 0: the arguments are not valid JSON"),
        (
            ["render", "--calls", "list.json"],
            "'list.json', entry 0: the arguments must be an object, or the JSON of one",
        ),
        (["render", "--tools", "none.json"], "nothing to render"),
        (["render", "--required"], "tool_choice is 'required' but no tool is offered"),
        (["render", "--tools", "none.json", "--count"], "--count needs a request: give FILE"),
        (["render", "--mode", "prompt", "--date", "none"], "--mode and --date need a request: give FILE"),
        (["providers", "nope"], "neither a provider"),
        (["providers", "--config", "there-is-none.toml"], "no config file"),
        (["serve", "--provider", "nope"], "neither a provider"),
        (
            ["serve", "--base-url", "http://127.0.0.1:1/v1", "--inspect", "--workers", "2"],
            "--inspect needs --workers 1",
        ),
        (
            ["serve", "--provider", "llamacpp", "--host", "203.0.113.1", "--no-api-key"],
            "cannot listen on 203.0.113.1:8100",
        ),
        (["demo", "--base-url", "http://127.0.0.1:9/v1"], "--model"),
        (["demo", "--model", "m"], "--model 'm' is not a file: write the path of a GGUF file, or add --base-url"),
        (["demo", "--model", "m.gguf"], "cannot read the model 'm.gguf': No such file or directory"),
        (["demo", "--model", "reply.txt"], "'reply.txt' is not a GGUF file"),
        (["demo", "--model", "m.gguf", "--provider", "vllm"], "--provider belongs to --base-url"),
        (["chat", "--json"], "--json answers one message"),
    ],
)
def test_wrong_use_is_told_in_one_line(capsys, files, monkeypatch, arguments, wrong):
    monkeypatch.chdir(files)
    monkeypatch.setenv("HOME", str(files))
    (files / "word.json").write_text('"word"')
    (files / "nameless.json").write_text("[{}]")
    (files / "none.json").write_text("[]")
    (files / "cut.json").write_text('[{"name": "ping", "arguments": "{"}]')
    (files / "list.json").write_text('[{"name": "ping", "arguments": [1]}]')
    status, out, err = run(capsys, *arguments)
    assert (status, out) == (2, "")
    assert wrong in err
    assert err.startswith(f"promptools {arguments[0]}: ")
    assert err.count("\n") == 1


@pytest.mark.parametrize("arguments", [["nope"], ["parse", "--strictness", "mild"], ["parse", "--nope"]])
def test_wrong_arguments_are_told_in_one_line(capsys, arguments):
    with pytest.raises(SystemExit) as left:
        main(arguments)
    assert left.value.code == 2
    assert capsys.readouterr().err.count("\n") == 1


def test_the_version_is_told(capsys):
    with pytest.raises(SystemExit) as left:
        main(["--version"])
    assert left.value.code == 0
    assert capsys.readouterr().out.startswith("promptools ")


def test_a_reader_that_leaves_is_not_a_crash(files):
    command = f"{sys.executable} -m promptools providers --json | head -1"
    done = subprocess.run(["sh", "-c", command], capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == ("{\n", "")


def test_without_xllamacpp_the_demo_names_what_works(capsys, monkeypatch):
    monkeypatch.setattr(demo_command, "can_serve", lambda: False)
    status, out, err = run(capsys, "demo")
    assert (status, out) == (1, "")
    assert err.count("\n") == 1
    assert "promptools demo --base-url URL --model M" in err
