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
    assert said.startswith(f"promptools chat: {upstream.url}/models answered with no list of models (")
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


def test_every_mode_can_be_asked_for(upstream, capsys):
    text = "<|channel|>final<|message|>Hello"
    choice = {"index": 0, "text": text, "finish_reason": "stop"}
    upstream.play(unary({"id": "c", "created": 1, "model": "m", "choices": [choice]}))
    assert chat(upstream, "--provider", "vllm", "--model", "gpt-oss-20b", "--mode", "harmony") == 0
    assert upstream.seen[0].path == "/v1/completions"
    said = json.loads(capsys.readouterr().out)
    assert (said["message"]["content"], said["promptools"]["mode"]) == ("Hello", "harmony")
