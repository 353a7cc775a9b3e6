"""`promptools serve` with a config of several servers: what it prints, and SIGHUP, as a process of its own."""

import signal
import subprocess
import sys
from contextlib import contextmanager

import pytest
from upstream import Answer, completion, running

from promptools.transport import installed_library

pytest.importorskip("uvicorn")
pytestmark = pytest.mark.skipif(not hasattr(signal, "SIGHUP"), reason="the platform has no SIGHUP")

VLLM = {"/version": {"version": "0.31.0"}, "/v1/models": {"object": "list", "data": [{"id": "m", "owned_by": "vllm"}]}}

MODES = "modes: native, then raw, then prompt"
PLAIN_MODES = "modes: native, then prompt"


@pytest.fixture(scope="module")
def servers():
    with running() as one, running() as two:
        one.about = two.about = VLLM
        one.play(completion("of one"))
        two.play(completion("of two"))
        yield one, two


@pytest.fixture
def path(tmp_path):
    return tmp_path / "promptools.toml"


def write(path, one, two, default="gpu"):
    path.write_text(f"""
default_provider = "{default}"
[providers.gpu]
kind = "vllm"
base_url = ["{one.url}", "{two.url}"]
failover = ["laptop"]
[providers.laptop]
kind = "vllm"
base_url = "{two.url}"
[providers.quiet]
base_url = "http://user:p4ss@127.0.0.1:1/v1"
detect = false
[proxy.models]
fast = "laptop/small"
careful = ["gpu/big", "laptop/big"]
""")


@contextmanager
def started(path, *arguments):
    """Run the command; yield the process, and the lines that it printed until it listens."""
    command = [sys.executable, "-m", "promptools", "serve", "--port", "0", "--config", str(path), *arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        printed = []
        for line in process.stdout:
            printed.append(line.rstrip("\n"))
            if line.startswith("listening "):
                break
        try:
            yield process, printed
        finally:
            process.terminate()
            process.communicate(timeout=300)


def ask(url, model):
    body = {"model": model, "messages": []}
    answer = installed_library().module.post(f"{url}/chat/completions", json=body, timeout=300)
    return answer.json()["choices"][0]["message"]["content"]


def test_it_prints_a_line_for_each_provider_and_reloads_on_sighup(servers, path):
    one, two = servers
    write(path, one, two)
    with started(path) as (process, printed):
        assert printed[:-1] == [
            f"provider gpu (default): {one.url} and {two.url}; vLLM 0.31.0; 2 of 2 answer; {MODES}",
            f"provider laptop: {two.url}; vLLM 0.31.0; it answers; {MODES}",
            "provider quiet: http://127.0.0.1:1/v1",
            "model fast: laptop/small",
            "model careful: gpu/big, then laptop/big",
        ]
        url = printed[-1].removeprefix("listening ")
        assert ask(url, "x") == "of one"
        path.write_text("[providers.gpu]\nbase_ulr = 1\n")
        process.send_signal(signal.SIGHUP)
        line = process.stderr.readline()
        assert line.startswith("promptools: the config was not reloaded, and the old one stays: ")
        assert "providers.gpu.base_ulr: unknown key; did you mean 'base_url'?" in line
        assert ask(url, "x") == "of one"
        write(path, one, two, default="laptop")
        process.send_signal(signal.SIGHUP)
        assert process.stderr.readline() == f"promptools: the config was reloaded: {path}\n"
        assert ask(url, "x") == "of two"


@pytest.mark.parametrize("arguments", [[], ["--provider", "plain"]], ids=["several", "one"])
def test_the_modes_are_those_of_the_requests_where_they_detect_nothing(servers, path, arguments):
    one = servers[0]
    path.write_text(f"""
default_provider = "plain"
[providers.plain]
base_url = "{one.url}"
[providers.asked]
base_url = "{one.url}"
detect = true
""")
    with started(path, *arguments) as (process, printed):
        if arguments:
            assert printed[1:3] == ["server: unknown kind of server; it answers", PLAIN_MODES]
        else:
            assert (
                printed[0] == f"provider plain (default): {one.url}; unknown kind of server; it answers; {PLAIN_MODES}"
            )
            assert printed[1] == f"provider asked: {one.url}; vLLM 0.31.0; it answers; {MODES}"
        warning = process.stderr.readline()
    advice = 'requests take it for openai-compatible; to use what is known of vllm, set kind = "vllm"'
    assert warning == f"warning: {'' if arguments else 'provider plain: '}the server says that it is vllm, {advice}\n"


def test_a_server_that_several_providers_share_is_asked_once(servers, path):
    one = servers[0]
    asked = []
    for count in (2, 5):
        providers = "".join(f'[providers.p{at}]\nbase_url = "{one.url}"\n' for at in range(count))
        path.write_text(f'default_provider = "p0"\n{providers}')
        one.looks.clear()
        with started(path) as (_, printed):
            assert len(printed) == count + 1
            assert all("; it answers; " in line for line in printed[:-1])
        asked.append(sorted(look.path for look in one.looks))
    assert asked[0]
    assert asked[0] == asked[1]


@pytest.mark.exhaustive
def test_what_does_not_answer_is_said_and_no_detection_asks_nobody(servers, path):
    one = servers[0]
    path.write_text(f"""
default_provider = "gpu"
[providers.gpu]
base_url = "{one.url}"
kind = "llamacpp"
[providers.laptop]
kind = "vllm"
base_url = "http://127.0.0.1:1/v1"
""")
    with started(path) as (process, printed):
        assert printed[1] == (f"provider laptop: http://127.0.0.1:1/v1; vLLM; it does not answer yet; {MODES}")
        line = process.stderr.readline()
        assert line == "warning: provider gpu: the server says that it is vllm, the settings say llamacpp\n"
    one.looks.clear()
    with started(path, "--no-detect") as (_, printed):
        assert printed[0] == f"provider gpu (default): {one.url}"
        assert ask(printed[-1].removeprefix("listening "), "unknown") == "of one"
    assert not one.looks


@pytest.mark.exhaustive
def test_one_of_several_providers_is_printed_as_a_single_server(servers, path):
    one, two = servers
    write(path, one, two)
    with started(path, "--provider", "laptop") as (_, printed):
        assert printed[0] == f"forwarding to {two.url}"
        assert ask(printed[-1].removeprefix("listening "), "gpu/x") == "of two"


@pytest.mark.exhaustive
def test_the_log_tells_of_failover(servers, path):
    one, two = servers
    write(path, one, two)
    one.play(Answer(503, (b"{}",)))
    try:
        with started(path, "--no-detect") as (process, printed):
            assert ask(printed[-1].removeprefix("listening "), "x") == "of two"
            line = process.stderr.readline()
        at = f"promptools: provider 'gpu' at {one.url} failed (HTTP 503)"
        assert line == f"{at}; the request goes to provider 'gpu' at {two.url}\n"
    finally:
        one.play(completion("of one"))
