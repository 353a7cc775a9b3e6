"""`promptools launch`: what a program gets, and what becomes of it and of the proxy."""

import json
import os
import signal
import sys
import tomllib
from urllib.error import URLError
from urllib.request import urlopen

import pytest
from upstream import completion, running, unary

from promptools.cli import main
from promptools.cli.launch_command import AGENTS, KEY_VARIABLE, Place

PLACE = Place("http://127.0.0.1:1234", "qwen3:8b", "a-key")
NATIVE = {"role": "assistant", "content": "Hello"}
ASK = """
import json, os, sys, urllib.request
base, key = os.environ["OPENAI_BASE_URL"], os.environ["OPENAI_API_KEY"]
body = {"model": os.environ["OPENAI_MODEL"], "messages": [{"role": "user", "content": "Hi"}]}
headers = {"content-type": "application/json", "authorization": "Bearer " + key}
asked = urllib.request.Request(base + "/chat/completions", json.dumps(body).encode(), headers)
answer = json.load(urllib.request.urlopen(asked))
names = ["OPENAI_BASE_URL", "ANTHROPIC_BASE_URL", "ANTHROPIC_API_KEY", "OLLAMA_HOST"]
told = {"answer": answer["choices"][0]["message"]["content"], **{name: os.environ.get(name) for name in names}}
open(sys.argv[1], "w").write(json.dumps(told))
sys.exit(7)
"""


@pytest.fixture
def upstream():
    with running() as server:
        yield server


def launch(upstream, *arguments):
    return main(["launch", "--no-detect", "--base-url", upstream.url, "--api-key", "servers-key", *arguments])


def test_a_program_asks_the_server_through_the_proxy(upstream, tmp_path, monkeypatch, capfd):
    monkeypatch.setenv("ANTHROPIC_API_KEY", "not for this server")
    upstream.play(unary({"object": "list", "data": [{"id": "only"}]}), unary(completion("Hello")))
    assert launch(upstream, sys.executable, "--", "-c", ASK, str(tmp_path / "told")) == 7
    told = json.loads((tmp_path / "told").read_text())
    address = told["OLLAMA_HOST"]
    assert told == {
        "answer": "Hello",
        "OPENAI_BASE_URL": f"{address}/v1",
        "ANTHROPIC_BASE_URL": address,
        "ANTHROPIC_API_KEY": None,
        "OLLAMA_HOST": address,
    }
    listed, asked = upstream.seen
    assert (listed.path, asked.path, asked.json["model"]) == ("/v1/models", "/v1/chat/completions", "only")
    assert asked.headers["authorization"] == "Bearer servers-key"
    assert f"asks only of {upstream.url} through {address}" in capfd.readouterr().err
    with pytest.raises(URLError):  # the proxy has ended with the program
        urlopen(f"{address}/healthz")


def test_a_proxy_that_wants_a_key_gets_one_of_its_own(upstream, tmp_path, monkeypatch):
    (tmp_path / "promptools.toml").write_text(
        f'[proxy]\napi_key_env = "MINE"\n[providers.p]\nbase_url = "{upstream.url}"\nmodels = ["m"]\n'
    )
    monkeypatch.setenv("MINE", "a key of the clients of serve")
    upstream.play(unary(completion("Hello")))
    config = ["--config", str(tmp_path / "promptools.toml"), "--no-detect"]
    assert main(["launch", *config, "--model", "m", sys.executable, "--", "-c", ASK, str(tmp_path / "told")]) == 7
    (asked,) = upstream.seen
    assert (asked.json["model"], asked.headers.get("authorization")) == ("m", None)


def test_a_signal_ends_the_program(upstream):
    code = "import os, signal, time; os.kill(os.getppid(), signal.SIGTERM); time.sleep(600)"
    assert launch(upstream, "--model", "m", sys.executable, "--", "-c", code) == 128 + signal.SIGTERM
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_the_keyboards_interrupt_is_left_to_the_program(upstream):
    code = "import os, signal; os.kill(os.getppid(), signal.SIGINT); print(signal.getsignal(signal.SIGINT)); exit(3)"
    assert launch(upstream, "--model", "m", sys.executable, "--", "-c", code) == 3


def test_the_program_can_be_interrupted(upstream):
    code = "import os, signal; os.kill(os.getpid(), signal.SIGINT)"
    assert launch(upstream, "--model", "m", sys.executable, "--", "-c", code) == 128 + signal.SIGINT


def test_claude_gets_no_other_key():
    settings = AGENTS["claude"](PLACE)
    assert settings.variables["ANTHROPIC_BASE_URL"] == PLACE.address
    assert settings.variables["ANTHROPIC_AUTH_TOKEN"] == PLACE.key
    assert settings.variables["ANTHROPIC_MODEL"] == settings.variables["ANTHROPIC_SMALL_FAST_MODEL"] == PLACE.model
    assert "ANTHROPIC_API_KEY" in settings.unset


def test_codex_reads_its_settings_as_toml():
    settings = AGENTS["codex"](PLACE)
    flags, values = settings.arguments[::2], settings.arguments[1::2]
    assert {*flags} == {"-c"}
    assert tomllib.loads("\n".join(values)) == {
        "model": PLACE.model,
        "model_provider": "promptools",
        "model_providers": {
            "promptools": {
                "name": "promptools",
                "base_url": f"{PLACE.address}/v1",
                "wire_api": "responses",
                "env_key": KEY_VARIABLE,
            }
        },
    }
    assert settings.variables == {KEY_VARIABLE: PLACE.key}


def test_opencode_gets_a_provider():
    config = json.loads(AGENTS["opencode"](PLACE).variables["OPENCODE_CONFIG_CONTENT"])
    assert config["model"] == config["small_model"] == "promptools/qwen3:8b"
    provider = config["provider"]["promptools"]
    assert provider["options"] == {"baseURL": f"{PLACE.address}/v1", "apiKey": PLACE.key}
    assert [*provider["models"]] == [PLACE.model]


def test_qwen_gets_the_variables_of_openai():
    variables = AGENTS["qwen"](PLACE).variables
    assert variables == {
        "OPENAI_BASE_URL": f"{PLACE.address}/v1",
        "OPENAI_API_KEY": PLACE.key,
        "OPENAI_MODEL": PLACE.model,
    }


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (
            ["clude"],
            "there is no program 'clude' on the PATH; did you mean 'claude'? install it",
        ),
        (["nothing-of-the-kind"], "there is no program 'nothing-of-the-kind' on the PATH; install it"),
        (["claude", "extra"], "unexpected argument 'extra'"),
        ([sys.executable], "no server is configured: add --base-url URL, or --config FILE with a provider"),
    ],
)
def test_errors_in_one_line(words, said, monkeypatch, tmp_path, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    try:
        status = main(["launch", *words])
    except SystemExit as end:
        status = end.code
    assert status == 2
    assert said in capsys.readouterr().err


def test_the_server_must_answer_if_its_model_is_asked_for(capsys):
    assert main(["launch", "--base-url", "http://127.0.0.1:9/v1", sys.executable]) == 1
    assert "no answer from http://127.0.0.1:9/v1" in capsys.readouterr().err
    assert "OPENAI_BASE_URL" not in os.environ
