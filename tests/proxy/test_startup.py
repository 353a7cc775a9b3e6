"""What `promptools serve` prints as it starts, and what `--verbose` adds, as a process before a real HTTP server."""

import subprocess
import sys

import pytest
from upstream import Answer, completion, running

from promptools.transport import installed_library

pytestmark = pytest.mark.exhaustive

pytest.importorskip("uvicorn")

VLLM = {"/version": {"version": "0.31.0"}, "/v1/models": {"object": "list", "data": [{"id": "m", "owned_by": "vllm"}]}}
REFUSED = Answer(status=500, pieces=(b'{"error": {"message": "unexpected tokens remaining in message header"}}',))
CALL = '```json\n{"tool": "ping", "arguments": {"n": "1",}}\n```'
PING = {
    "name": "ping",
    "parameters": {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]},
}
ASK = {
    "model": "m",
    "messages": [{"role": "user", "content": "s3cret?"}],
    "tools": [{"type": "function", "function": PING}],
}


@pytest.fixture
def server():
    with running() as upstream:
        yield upstream


def started(server, *arguments, ask=None):
    """Run the command until it listens, and one request; return what it printed to both outputs."""
    command = [sys.executable, "-m", "promptools", "serve", "--port", "0", "--base-url", server.url, *arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        printed = []
        for line in process.stdout:
            printed.append(line.rstrip("\n"))
            if line.startswith("listening "):
                break
        try:
            if ask:
                url = printed[-1].removeprefix("listening ")
                installed_library().module.post(f"{url}/chat/completions", json=ask, timeout=300).raise_for_status()
        finally:
            process.terminate()
        return printed, process.communicate(timeout=300)[1]


def test_it_says_what_the_server_is_and_the_modes(server):
    server.about = VLLM
    printed, _ = started(server)
    assert printed[:-1] == [
        f"forwarding to {server.url}",
        "server: vLLM 0.31.0; it answers",
        "modes: native, then raw, then prompt",
    ]


def test_the_first_request_does_not_ask_again(server):
    server.about = VLLM
    server.play(completion("Hello."))
    started(server, ask=ASK)
    # by /tokenize a model's chat template is rendered, each time with another conversation
    paths = [each.path for each in server.looks if each.path != "/tokenize"]
    assert len(paths) == len(set(paths))


def test_a_mode_that_is_set_is_the_only_one(server):
    printed, _ = started(server, "--mode", "prompt")
    assert printed[1:-1] == ["server: unknown kind of server; it answers", "modes: prompt"]


def test_a_server_of_another_kind_than_named_is_a_warning(server):
    server.about = VLLM
    printed, errors = started(server, "--provider", "llamacpp")
    assert printed[1] == "server: llama.cpp's HTTP server; it answers"
    assert "warning: the server says that it is vllm, the settings say llamacpp" in errors


def test_without_a_look_nothing_is_asked(server):
    printed, _ = started(server, "--no-detect")
    assert [line.partition(" ")[0] for line in printed] == ["forwarding", "listening"]
    assert not server.looks


def test_verbose_writes_a_line_for_a_healed_exchange_without_the_models_words(server):
    server.play(REFUSED, completion(CALL))
    _, errors = started(server, "--no-detect", "--verbose", ask=ASK)
    healed = [line for line in errors.splitlines() if line.startswith("promptools: healed: ")]
    assert len(healed) == 1
    assert "native failed (" in healed[0]
    assert healed[0].endswith("answered in prompt mode; ping read as json with fixes: coerce, json")
    assert "s3cret" not in errors


def test_verbose_does_not_call_healed_what_has_failed(server):
    bad = completion(None, [("ping", '{"host": 7')])
    server.play(bad, bad, bad, bad)
    _, errors = started(server, "--no-detect", "--verbose", ask=ASK)
    told = [line.split(": ")[1] for line in errors.splitlines() if line.startswith("promptools: ")]
    assert "failed" in told
    assert "healed" not in told


def test_verbose_says_nothing_of_what_was_well(server):
    server.play(completion("Hello."))
    assert "healed" not in started(server, "--no-detect", "--verbose", ask=ASK)[1]


def test_a_failed_send_names_promptools_the_provider_and_the_model(server):
    server.play(REFUSED, completion(CALL))
    errors = started(server, "--no-detect", ask=ASK)[1]
    assert "promptools: send 1 in native mode failed: " in errors
    assert f"(provider {server.url!r}, model 'm', request req_" in errors
    assert "healed" not in errors
