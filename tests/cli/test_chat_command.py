"""`promptools chat` against a server: which model it asks, in which mode, and what it says of a server that is none."""

import json

import pytest
from upstream import Answer, completion, running, unary

from promptools.cli import main


@pytest.fixture
def upstream():
    with running() as server:
        yield server


def chat(upstream, *arguments):
    return main(["chat", "Hi", "--json", "--no-detect", "--base-url", upstream.url, *arguments])


def test_without_a_name_the_only_model_of_the_server_is_asked(upstream, capsys):
    upstream.play(unary({"object": "list", "data": [{"id": "only"}]}), unary(completion("Hello")))
    assert chat(upstream) == 0
    assert [each.path for each in upstream.seen] == ["/v1/models", "/v1/chat/completions"]
    assert upstream.seen[1].json["model"] == "only"
    assert json.loads(capsys.readouterr().out)["message"]["content"] == "Hello"


@pytest.mark.parametrize(("listed", "told"), [(["a", "b"], "'a', 'b'"), ([], "none")])
def test_of_several_one_must_be_named(upstream, capsys, listed, told):
    upstream.play(unary({"data": [{"id": each} for each in listed]}))
    assert chat(upstream) == 2
    assert capsys.readouterr().err == f"promptools chat: name a model with --model; the server lists {told}\n"


@pytest.mark.parametrize(
    "answer",
    [
        Answer(pieces=(b"<html>Welcome</html>",), type="text/html"),
        Answer(pieces=(b"<html>Welcome</html>",)),
        Answer(pieces=(b"",)),
        unary([]),
        unary({}),
        unary("ok"),
        unary({"data": None}),
        unary({"data": {"id": "only"}}),
    ],
)
def test_a_server_that_lists_nothing_of_the_kind_is_an_error_in_one_line(upstream, capsys, answer):
    upstream.play(answer)
    assert chat(upstream) == 1
    said = capsys.readouterr().err
    assert said.startswith(f"promptools chat: {upstream.url}/models did not answer with a list of models (")
    assert said.endswith("); check that its address is the root of the API, with /v1, or name a model with --model\n")
    assert said.count("\n") == 1


def test_entries_without_a_name_are_none(upstream, capsys):
    upstream.play(unary({"data": [{}, "x", {"id": 3}]}))
    assert chat(upstream) == 2
    assert "the server lists none" in capsys.readouterr().err


def test_a_server_that_refuses_to_list(upstream, capsys):
    upstream.play(Answer(404, (b'{"error": "not here"}',)))
    assert chat(upstream) == 1
    assert "404" in capsys.readouterr().err


HARMONY_ERROR = Answer(500, (b'{"error": {"message": "Unexpected token 1 while expecting start token 200006"}}',))
CALL = '```json\n{"tool": "ping", "arguments": {}}\n```'


@pytest.mark.parametrize("option", [[], ["--verbose"]])
def test_what_was_healed_is_not_in_the_middle_of_the_answer(upstream, capsys, tmp_path, option):
    tools = tmp_path / "tools.json"
    tools.write_text('[{"name": "ping", "parameters": {"type": "object", "properties": {}}}]')
    upstream.play(HARMONY_ERROR, completion(CALL))
    connect = ["--no-detect", "--base-url", upstream.url, "--model", "m"]
    assert main(["chat", "Hi", "--tools", str(tools), *connect, *option]) == 0
    out, err = capsys.readouterr()
    assert "call ping({})" in out
    assert "promptools:" not in out
    if option:
        failed, healed = err.splitlines()
        assert failed.startswith("promptools: send 1 in native mode failed: harmony (HTTP 500); ")
        assert healed == "promptools: healed: native failed (harmony); answered in prompt mode"
    else:
        assert err == ""


def test_without_a_server_the_config_is_named_that_has_none(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    for name in ("OPENAI_API_KEY", "OPENAI_BASE_URL", "PROMPTOOLS_CONFIG", "PPXAI_CONFIG_FILE", "XDG_CONFIG_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert main(["chat", "Hi"]) == 2
    assert "; there is no config that names one" in capsys.readouterr().err
    (tmp_path / "promptools.toml").write_text("")
    for command in (["chat", "Hi"], ["agent", "Hi", "--sandbox", "local"]):
        assert main(command) == 2
        said = capsys.readouterr().err
        assert said.startswith(f"promptools {command[0]}: name a server with --base-url or --provider, ")
        assert said.endswith("promptools.toml has no providers\n")
        assert said.count("\n") == 1


def test_every_mode_can_be_asked_for(upstream, capsys):
    text = "<|channel|>final<|message|>Hello"
    choice = {"index": 0, "text": text, "finish_reason": "stop"}
    upstream.play(unary({"id": "c", "created": 1, "model": "m", "choices": [choice]}))
    assert chat(upstream, "--provider", "vllm", "--model", "gpt-oss-20b", "--mode", "harmony") == 0
    assert upstream.seen[0].path == "/v1/completions"
    said = json.loads(capsys.readouterr().out)
    assert (said["message"]["content"], said["promptools"]["mode"]) == ("Hello", "harmony")


def test_control_characters_of_the_model_do_not_reach_the_terminal(upstream, capsys):
    upstream.play(completion("a\x1b[2Jb\tc\n"))
    assert main(["chat", "Hi", "--no-detect", "--base-url", upstream.url, "--model", "m"]) == 0
    assert capsys.readouterr().out.startswith("a\\x1b[2Jb\tc\n")
