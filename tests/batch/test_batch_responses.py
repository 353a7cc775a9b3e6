"""`/v1/responses` in a batch, on servers that know only Chat Completions."""

import json

import pytest
from upstream import running

from promptools.batch import request_pool
from promptools.batch.answering import BatchAnswer
from promptools.cli import main
from promptools.lab.llamacpp_server import can_serve, serve
from promptools.lab.script import ScriptedReply
from promptools.testing.scripted_server import HttpAnswer, calls_as_text, completion, http_error, json_answer

TOOL = {
    "type": "function",
    "name": "get_weather",
    "parameters": {"type": "object", "properties": {"days": {"type": "integer"}}, "required": ["days"]},
}
LEAKED = calls_as_text("hermes", [("get_weather", {"days": "3"})])


@pytest.fixture
def batch(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(request_pool, "FIRST_WAIT", 0.05)

    def run(bodies, base_url, *more):
        requests = [
            {"custom_id": f"r{number}", "method": "POST", "url": "/v1/responses", "body": {"model": "m", **body}}
            for number, body in enumerate(bodies)
        ]
        (tmp_path / "in.jsonl").write_text("\n".join(map(json.dumps, requests)))
        status = main(["batch", "in.jsonl", "out.jsonl", "--base-url", base_url, "--no-detect", *more])
        printed = capsys.readouterr()
        written = (tmp_path / "out.jsonl").exists()
        lines = (tmp_path / "out.jsonl").read_text().splitlines() if written else []
        return status, printed, {row["custom_id"]: row["response"] for row in map(json.loads, lines)}

    return run


@pytest.fixture(scope="module")
def server():
    with running() as upstream:
        yield upstream


def test_responses_with_repaired_calls(batch, server):
    usage = {"prompt_tokens": 7, "completion_tokens": 5, "total_tokens": 12}
    server.play(json_answer({**completion(LEAKED), "usage": usage}))
    status, printed, responses = batch([{"input": "hi", "tools": [TOOL]}] * 3, server.url, "--json")
    assert status == 0
    assert {seen.path for seen in server.seen} == {"/v1/chat/completions"}
    assert len(responses) == 3
    for response in responses.values():
        assert response["status_code"] == 200
        assert response["body"]["object"] == "response"
        (call,) = [item for item in response["body"]["output"] if item["type"] == "function_call"]
        assert (call["name"], call["arguments"]) == ("get_weather", '{"days": 3}')
    totals = json.loads(printed.out)
    assert (totals["prompt_tokens"], totals["completion_tokens"]) == (21, 15)


def test_faults_of_the_server(batch, server):
    busy = http_error(429, "too many requests")
    busy.headers["Retry-After"] = "1"
    away = [http_error(503), http_error(502), HttpAnswer(then="cut"), http_error(500)]
    server.play("one", busy, "two", *away, "three")
    status, _, responses = batch([{"input": f"{number}"} for number in range(30)], server.url)
    assert status == 0
    assert len(responses) == 30
    assert {(response["status_code"], response["body"]["status"]) for response in responses.values()} == {
        (200, "completed")
    }


def test_requests_that_cannot_be_served(batch, server, tmp_path):
    server.play("hello")
    bodies = [
        {"input": "hi", "background": True},
        {"input": "hi", "previous_response_id": "resp_none"},
        {"input": "hi"},
    ]
    status, _, responses = batch(bodies, server.url)
    assert status == 1
    assert [responses[f"r{number}"]["status_code"] for number in range(3)] == [400, 400, 200]
    errors = [json.loads(text) for text in (tmp_path / "out.errors.jsonl").read_text().splitlines()]
    assert {error["custom_id"]: error["code"] for error in errors} == {"r0": "http_error", "r1": "http_error"}
    assert "background" in next(error["message"] for error in errors if error["custom_id"] == "r0")


def test_a_server_that_is_away_for_too_long(batch):
    status, printed, responses = batch([{"input": "hi"}], "http://127.0.0.1:9/v1", "--patience", "0.1")
    assert (status, responses) == (1, {})
    assert "the server has answered no request for 0.1 s" in printed.err


def test_a_dry_run_counts_their_text(batch, server):
    items = [
        {"role": "user", "content": [{"type": "input_text", "text": "abc"}]},
        {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "c", "output": "xy"},
    ]
    _, printed, _ = batch([{"input": items, "instructions": "Be brief."}], server.url, "--dry-run", "--json")
    counted = json.loads(printed.out)
    assert counted["urls"] == {"/v1/responses": 1}
    if counted["text"]["unit"] == "characters":
        assert counted["text"]["total"] == len("Be brief.\nabc\n{}\nxy")


@pytest.mark.parametrize(
    ("usage", "tokens"),
    [
        ({"input_tokens": 3, "output_tokens": 4}, (3, 4)),
        ({"prompt_tokens": 1, "completion_tokens": 2}, (1, 2)),
        ({"prompt_tokens": 1}, (1, 0)),
        (None, (0, 0)),
    ],
)
def test_usage(usage, tokens):
    assert BatchAnswer(1, {"response": {"body": {"usage": usage}}}).usage == tokens


@pytest.mark.e2e
@pytest.mark.skipif(not can_serve(), reason="xllamacpp or gguf is not installed here")
def test_a_real_llamacpp(batch, tmp_path_factory):
    # in the format of another model, which this server takes for text
    call = '[TOOL_CALLS] [{"name": "get_weather", "arguments": {"days": "3"}}]'
    script = [ScriptedReply("Please look.", call), ScriptedReply("Hello.", "Good day.")]
    with serve(script, template="hermes", name="looking", folder=tmp_path_factory.mktemp("looking")) as real:
        bodies = [{"input": "Please look.", "tools": [TOOL]}, {"input": "Hello."}] * 4
        status, printed, responses = batch(bodies, real.base_url, "--json")
    assert status == 0, printed.err
    assert json.loads(printed.out)["completion_tokens"] > 0
    for number in range(8):
        output = responses[f"r{number}"]["body"]["output"]
        calls = [(item["name"], item["arguments"]) for item in output if item["type"] == "function_call"]
        texts = [part["text"] for item in output if item["type"] == "message" for part in item["content"]]
        if number % 2:
            assert (calls, texts) == ([], ["Good day."])
        else:
            assert calls == [("get_weather", '{"days": 3}')]
