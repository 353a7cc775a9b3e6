"""`promptools config`: what decides where requests go, and the question on a terminal whether to trust a file."""

import io
import json
import os
import sys
from pathlib import Path

import pytest
from terminals import Terminal
from upstream import completion, running, unary

from promptools.cli import main
from promptools.probing.recommendation import write_provider

REMOTE = """
default_provider = "gpu"
[providers.gpu]
kind = "vllm"
base_url = ["http://me:hidden@gpu.example:8000/v1", "http://127.0.0.1:9/v1"]
api_key_env = "GPU_KEY"
default_model = "big"
[providers.laptop]
kind = "ollama"
profile = { modes = ["prompt"] }
"""


@pytest.fixture(autouse=True)
def alone(monkeypatch, tmp_path):
    for name in list(os.environ):
        if name.startswith(("OPENAI_", "OLLAMA_", "PROMPTOOLS_", "PPXAI_", "XDG_")):
            monkeypatch.delenv(name)
    (tmp_path / "home").mkdir()
    (tmp_path / "work").mkdir()
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("GPU_KEY", "gpu-secret")
    monkeypatch.chdir(tmp_path / "work")


@pytest.fixture
def here():
    path = Path("promptools.toml").absolute()
    path.write_text(REMOTE)
    return path


@pytest.fixture(scope="module")
def server():
    with running() as upstream:
        yield upstream


def show(capsys, *arguments, status=0):
    assert main(["config", "show", "--json", *arguments]) == status
    return json.loads(capsys.readouterr().out)


def decided(shown, setting):
    decision = shown["decisions"][setting]
    return decision["is"], decision["by"]


# --- what decides


def test_of_nothing_the_packages_own(capsys, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "sk-secret")
    shown = show(capsys)
    assert (shown["file"], shown["found_by"], shown["standing"]) == (None, None, None)
    assert decided(shown, "base URL") == ("https://api.openai.com/v1", "the openai package's default")
    assert decided(shown, "key") == ("***", "the environment variable OPENAI_API_KEY")
    assert decided(shown, "provider")[0] is None


def test_a_given_config(capsys, here, monkeypatch):
    monkeypatch.setenv("OPENAI_BASE_URL", "http://me:hidden@environment.example/v1")
    for shown in (show(capsys, "--config", "promptools.toml"), show_named(capsys, monkeypatch, here)):
        file = shown["file"]
        assert shown["standing"] == "given"
        assert decided(shown, "provider") == ("gpu", f"the default of {file}")
        assert decided(shown, "base URL") == ("http://***@gpu.example:8000/v1", f"provider 'gpu' of {file}")
        assert decided(shown, "key") == ("***", "the user and password in the base URL")
        assert decided(shown, "model") == ("big", f"default_model in {file}")
        assert decided(shown, "mode")[0].startswith("native, then ")
        assert {"what": "OPENAI_BASE_URL", "is": "http://***@environment.example/v1"}.items() <= (
            shown["not_used"][-1].items()
        )


def test_a_key_in_the_query_of_an_address_is_not_shown(capsys, monkeypatch):
    monkeypatch.setenv("OPENAI_BASE_URL", "http://environment.example/v1?key=hidden&api-version=1")
    shown = show(capsys)
    assert decided(shown, "base URL")[0] == "http://environment.example/v1?key=***&api-version=1"
    Path("promptools.toml").write_text('[providers.gpu]\nbase_url = "http://gpu.example/v1?api_key=hidden"\n')
    main(["config", "show"])
    main(["config", "trust"])
    main(["providers"])
    printed = capsys.readouterr()
    assert "api_key=***" in printed.out
    assert "hidden" not in f"{shown} {printed.out} {printed.err}"


def show_named(capsys, monkeypatch, path):
    monkeypatch.setenv("PROMPTOOLS_CONFIG", str(path))
    shown = show(capsys)
    assert shown["found_by"] == "PROMPTOOLS_CONFIG"
    return shown


def test_the_environment_before_a_config_that_was_found(capsys, monkeypatch):
    Path("promptools.toml").write_text('[providers.laptop]\nkind = "ollama"\n')
    assert decided(show(capsys), "base URL")[1] == f"the usual address of the kind of {named('laptop')}"
    monkeypatch.setenv("OPENAI_BASE_URL", "http://environment.example/v1")
    shown = show(capsys)
    expected = ("http://environment.example/v1", "the environment variable OPENAI_BASE_URL")
    assert decided(shown, "base URL") == expected
    assert decided(shown, "key") == (None, "the environment variable OPENAI_API_KEY, which is not set")
    assert shown["standing"] == "local"
    shown = show(capsys, "--provider", "laptop")
    assert decided(shown, "base URL")[0] == "http://127.0.0.1:11434/v1"
    assert decided(shown, "key") == (None, "none: laptop names no variable")


def named(provider):
    return f"provider '{provider}' of {Path('promptools.toml').absolute()}"


def test_another_provider_and_model(capsys, here):
    shown = show(capsys, "--config", str(here), "--provider", "laptop", "--model", "qwen3:8b")
    assert decided(shown, "model") == ("qwen3:8b", "--model")
    assert decided(shown, "mode") == ("prompt", f"{here}, provider 'laptop'")


def test_files_that_come_later_in_the_order(capsys, here, tmp_path):
    own = tmp_path / "home/.config/promptools/promptools.toml"
    own.parent.mkdir(parents=True)
    own.write_text("")
    shown = show(capsys, status=1)
    assert [(each["what"], each["is"]) for each in shown["not_used"]] == [("config", str(own))]


def test_a_config_that_is_not_trusted(capsys, here):
    shown = show(capsys, status=1)
    assert (shown["file"], shown["standing"], shown["decisions"]) == (str(here), "untrusted", {})
    assert [each["is"] for each in shown["reaches"] if each["beyond_this_machine"]] == [
        "http://***@gpu.example:8000/v1"
    ]
    assert main(["config", "show"]) == 1
    printed = capsys.readouterr()
    assert "NOT TRUSTED" in printed.out
    assert "promptools config trust" in printed.err


def test_no_secret_is_printed(capsys, here, monkeypatch):
    monkeypatch.setenv("OPENAI_BASE_URL", "http://me:hidden@environment.example/v1")
    for words in (["show"], ["show", "--json"], ["trust"], ["show"], ["show", "--config", str(here), "--json"]):
        main(["config", *words])
        printed = "".join(capsys.readouterr())
        assert printed
        assert "hidden" not in printed
        assert "gpu-secret" not in printed


# --- trust by command


def test_trust_is_said_shown_and_taken_back(capsys, here):
    assert main(["config", "trust"]) == 0
    said = capsys.readouterr().err
    assert said.startswith(f"{here} is trusted. It reaches:\n")
    assert "beyond this machine: provider 'gpu', server: http://***@gpu.example:8000/v1\n" in said
    assert "provider 'gpu', key in the variable: GPU_KEY (set)\n" in said
    assert show(capsys)["standing"] == "trusted"
    assert main(["config", "trust", "--remove", "promptools.toml"]) == 0
    assert capsys.readouterr().err == f"{here} is no longer trusted\n"
    assert show(capsys, status=1)["standing"] == "untrusted"
    assert main(["config", "trust", "--remove"]) == 0
    assert capsys.readouterr().err == f"{here} is not trusted\n"


def test_a_path_is_the_one_that_is_found(capsys, here, tmp_path, monkeypatch):
    here.write_text(REMOTE + '[providers.gpu.profile]\nchat_template = "own.jinja"\n')
    (tmp_path / "link").symlink_to(here.parent)
    monkeypatch.chdir(tmp_path)
    assert main(["config", "trust", "link/promptools.toml"]) == 0
    monkeypatch.chdir(here.parent)
    capsys.readouterr()
    assert show(capsys)["standing"] == "trusted"


@pytest.mark.parametrize(
    ("words", "wrong"),
    [
        (["trust"], "there is no config here; name the file"),
        (["trust", "gone.toml"], "there is no config file 'gone.toml'"),
        (["show", "--config", "gone.toml"], "there is no config file 'gone.toml'"),
        (["show", "--provider", "nope"], "neither a provider"),
    ],
)
def test_wrong_use(capsys, words, wrong):
    assert main(["config", *words]) == 2
    assert wrong in capsys.readouterr().err


# --- the question on a terminal


def on_terminal(*words):
    return Terminal([sys.executable, "-m", "promptools", *words])


@pytest.fixture
def elsewhere(server, here):
    """A config of the server, by an address that counts as another machine, and is this one on Linux."""
    here.write_text(REMOTE.replace("gpu.example:8000", server.root.replace("127.0.0.1", "0.0.0.0").partition("//")[2]))
    return here


def test_the_question_is_asked_once(elsewhere, server, capsys):
    server.play(unary(completion("Hello there")))
    with on_terminal("chat", "Hi", "--no-detect") as terminal:
        terminal.wait_for("Trust it?")
        for shown in (
            str(elsewhere),
            "beyond this machine: provider 'gpu', server: http://***@0.0.0.0",
            "GPU_KEY (set)",
        ):
            assert shown in terminal.written.decode()
        terminal.type("y\n")
        assert terminal.wait() == 0
        assert "Hello there" in terminal.text
    server.play(unary(completion("Hello again")))
    assert main(["chat", "Hi", "--no-detect"]) == 0
    elsewhere.write_text(elsewhere.read_text().replace("0.0.0.0", "other.example"))
    with on_terminal("chat", "Hi") as terminal:
        terminal.wait_for("Trust it?")
        terminal.type("\n")
        assert terminal.wait() == 2
        assert "is not trusted" in terminal.written.decode()


def test_the_answer_is_for_what_was_shown_and_no_file_writes_on_the_terminal(here):
    here.write_text('[providers."\\u001b[2Jgpu"]\nbase_url = "http://\\u001b]0;x\\u0007gpu.example/v1"\n')
    with on_terminal("chat", "Hi") as terminal:
        terminal.wait_for("Trust it?")
        here.write_text(REMOTE.replace("gpu.example", "evil.example"))
        terminal.type("y\n")
        assert terminal.wait() == 2
        assert "evil.example" in terminal.written.decode()
        assert b"\x1b[2J" not in terminal.written
        assert b"\x1b]0;" not in terminal.written


def test_where_trust_cannot_be_kept_the_question_ends_with_the_ways_out(here, tmp_path):
    (tmp_path / "home/.local").write_text("")  # as on a system that can only be read; root may write into any folder
    with on_terminal("chat", "Hi") as terminal:
        terminal.wait_for("Trust it?")
        terminal.type("y\n")
        assert terminal.wait() == 2
        said = terminal.written.decode()
    assert "cannot be kept" in said
    assert "PROMPTOOLS_CONFIG=" in said


@pytest.mark.parametrize("missing", ["stdin", "stderr"])
def test_without_a_terminal_nothing_is_asked(here, capsys, monkeypatch, missing):
    for name, stream in (("stdin", io.StringIO("y\n")), ("stderr", sys.stderr)):
        monkeypatch.setattr(stream, "isatty", lambda name=name: name != missing)
        monkeypatch.setattr(sys, name, stream)
    assert main(["chat", "Hi"]) == 2
    said = capsys.readouterr().err
    assert "Trust it?" not in said
    assert "is not trusted" in said


# --- where a chat goes


def test_chat_says_where_requests_go_if_no_argument_does(server, capsys, monkeypatch):
    file = Path("promptools.toml").absolute()
    file.write_text(f'[providers.here]\nkind = "vllm"\nbase_url = "{server.url}"\ndetect = false\n')
    server.play(unary(completion("hi")))
    assert main(["chat", "Hi", "--model", "m"]) == 0
    assert capsys.readouterr().err == f"requests go to {server.url} (provider 'here' of {file})\n"
    monkeypatch.setenv("OPENAI_BASE_URL", server.url.replace("127.0.0.1", "localhost"))
    monkeypatch.setenv("OPENAI_API_KEY", "sk-secret")
    server.play(unary(completion("hi")))
    assert main(["chat", "Hi", "--model", "m", "--no-detect"]) == 0
    assert "(the environment variable OPENAI_BASE_URL)\n" in capsys.readouterr().err
    server.play(unary(completion("hi")))
    assert main(["chat", "Hi", "--model", "m", "--no-detect", "--base-url", server.url]) == 0
    assert capsys.readouterr().err == ""


def test_the_environments_server_needs_no_key(server, capsys, monkeypatch):
    monkeypatch.setenv("OPENAI_BASE_URL", server.url)
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    server.play(unary(completion("hi")))
    assert main(["chat", "Hi", "--model", "m", "--no-detect"]) == 0
    said = capsys.readouterr()
    assert said.err == f"requests go to {server.url} (the environment variable OPENAI_BASE_URL)\n"
    monkeypatch.delenv("OPENAI_BASE_URL")
    assert main(["chat", "Hi", "--model", "m", "--no-detect"]) == 2
    assert "set OPENAI_API_KEY for OpenAI's" in capsys.readouterr().err


# --- what our commands write


def test_what_probe_writes_is_trusted(monkeypatch):
    from promptools.cli import probe_command
    from promptools.probing.findings import Subject
    from promptools.probing.recommendation import Recommendation
    from promptools.profiles import Profile
    from promptools.transport.found_config import find_here, read_found

    subject = Subject("big", Profile(), 16)
    text = write_provider("gpu", "http://gpu.example/v1", "GPU_KEY", subject, Recommendation((), (), {}))
    probe_command.write_config("promptools.toml", text)
    assert read_found(find_here()).standing == "trusted"


def test_quiet_asks_nothing_without_what_it_is_about(here, capsys, monkeypatch):
    for name, stream in (("stdin", io.StringIO("n\n")), ("stderr", sys.stderr)):
        monkeypatch.setattr(stream, "isatty", lambda: True)
        monkeypatch.setattr(sys, name, stream)
    assert main(["chat", "Hi", "--quiet"]) == 2
    said = capsys.readouterr().err
    assert "beyond this machine: provider 'gpu'" in said
    assert said.index("beyond this machine") < said.index("Trust it?")
