"""A model that makes the same call over and over, on a real llama.cpp, until a line behind the result says so."""

import json

import pytest
from scenes import ANSWER, FENCED_CALL, QUESTION, RESULT, WEATHER

from promptools.lab import llamacpp_server
from promptools.lab.script import ScriptedReply

CALL = ("get_weather", '{"city": "Paris"}')


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    if not llamacpp_server.can_serve():
        pytest.skip("xllamacpp or gguf is not installed here")
    lines = [
        ScriptedReply(QUESTION, FENCED_CALL),
        ScriptedReply(RESULT, FENCED_CALL),
        ScriptedReply("times with these arguments", ANSWER),
    ]
    with llamacpp_server.serve(lines, template="plain", name="loops", folder=tmp_path_factory.mktemp("loops")) as it:
        yield it


def rounds(client, ask, server, **options):
    """Ask, and answer each call with the same result, four times at most; return the answers."""
    history, answers = [{"role": "user", "content": QUESTION}], []
    while len(answers) < 4:
        got = ask(client, server.name, *history, tools=[WEATHER], options={"mode": "prompt", **options})
        answers.append(got)
        if not got.calls:
            break
        history += [got.message(), *({"role": "tool", "tool_call_id": one, "content": RESULT} for one in got.ids)]
    return answers


def test_it_goes_on_until_it_is_told(server, connect, ask):
    client = connect(server)
    told = rounds(client, ask, server)
    assert [got.calls for got in told] == [[CALL], [CALL], []]
    assert told[-1].content == ANSWER
    assert any("the model is told so" in note for note in told[-1].trace["notes"])
    assert "get_weather" in json.dumps(told[-1].trace["notes"])
    off = rounds(client, ask, server, on_repeat="off")
    assert [got.calls for got in off] == [[CALL]] * 4
