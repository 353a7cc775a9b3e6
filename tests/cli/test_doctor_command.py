"""`promptools doctor`: what it finds, what it calls a problem, and that it shows no key."""

import json

import pytest
from upstream import running

from promptools.cli import doctor_command, main
from promptools.errors import install_command


@pytest.fixture(autouse=True)
def alone(monkeypatch, tmp_path):
    for name in ("OPENAI_BASE_URL", "OPENAI_API_KEY", "PROMPTOOLS_CONFIG"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)


@pytest.fixture(scope="module")
def server():
    with running() as upstream:
        yield upstream


def doctor(capsys, *arguments):
    status = main(["doctor", "--json", *arguments])
    told = json.loads(capsys.readouterr().out)
    assert status == (1 if told["problems"] else 0)
    return told


def rows(told, table, key):
    return {row[key]: row for row in told[table]}


def test_a_server_that_answers(server, capsys):
    told = doctor(capsys, server.url, "--model", "qwen3:8b")
    assert told["problems"] == []
    found = rows(told, "server", "what")
    assert found["address"]["because"] == "it answers"
    assert found["family"]["is"] == "qwen"
    assert found["modes"]["is"].startswith("native, then ")
    assert rows(told, "what_decides", "setting")["base URL"]["decided by"] == "the argument"


def test_a_server_that_does_not(capsys):
    told = doctor(capsys, "http://127.0.0.1:9/v1")
    (problem,) = told["problems"]
    assert problem.startswith("no answer from http://127.0.0.1:9/v1 (Connection refused); start the server there")
    assert main(["doctor", "http://127.0.0.1:9/v1"]) == 1
    assert "problem: no answer from" in capsys.readouterr().out


def test_no_server_is_named(capsys):
    (problem,) = doctor(capsys)["problems"]
    assert problem.startswith("no server is named: give its URL, or write a config")


def test_the_server_of_the_config_with_its_key_and_its_modes(server, capsys, tmp_path, monkeypatch):
    monkeypatch.setenv("MINE", "sk-of-mine-123")
    (tmp_path / "promptools.toml").write_text(
        'default_provider = "p"\n[providers.p]\napi_key_env = "MINE"\ndefault_model = "m"\ndetect = true\n'
        f'base_url = "{server.url}"\n'
    )
    server.probes.clear()
    told = doctor(capsys)
    assert told["problems"] == []
    assert rows(told, "server", "what")["address"]["because"] == "it answers"
    assert rows(told, "what_decides", "setting")["key"]["is"] == "***"
    assert {probe.headers["authorization"] for probe in server.probes} == {"Bearer sk-of-mine-123"}
    assert "sk-of-mine-123" not in json.dumps(told)
    config = tmp_path / "promptools.toml"
    config.write_text(config.read_text().replace("detect = true", 'profile = { modes = ["prompt"] }'))
    found = rows(doctor(capsys), "server", "what")
    assert found["modes"]["is"] == "prompt"
    assert found["address"]["because"] == "something listens there; it was not asked what it is"


def test_a_config_that_is_not_trusted_is_a_problem_and_nothing_is_asked(capsys, tmp_path):
    (tmp_path / "promptools.toml").write_text(
        'default_provider = "p"\n[providers.p]\nbase_url = "http://gpu.example/v1"\napi_key_env = "MINE"\n'
    )
    told = doctor(capsys)
    assert told["server"] == []
    assert "promptools config trust" in told["problems"][0]


def test_a_config_that_cannot_be_read_is_a_problem(capsys, tmp_path):
    (tmp_path / "promptools.toml").write_text("[providers")
    assert doctor(capsys)["problems"][0].startswith("the config is not used: ")


def test_what_is_installed_and_what_is_missing(monkeypatch, capsys):
    installed = {"openai": "3.1", "uvicorn": "0.40", "starlette": "1.0"}
    monkeypatch.setattr(doctor_command, "_version", installed.get)
    needed = [
        "openai<4,>=1.40",
        "ollama>=0.4",
        "starlette>=0.40; extra == 'server'",
        'uvicorn>=0.30; extra == "server"',
        "promptools-compat[server]; extra == 'demo'",
        "gguf==0.19.0; python_version >= '3.11' and extra == 'demo'",
        "mypy; extra == 'dev'",
    ]
    monkeypatch.setattr(doctor_command, "requires", lambda _: needed)
    told = doctor(capsys)
    versions = {row["package"]: row["version"] for row in told["installed"]}
    assert (versions["openai"], versions["ollama"]) == ("3.1", "missing")
    assert {row["extra"]: row["state"] for row in told["extras"]} == {
        "demo": f"not installed (gguf): {install_command('demo')}",
        "server": "installed",
    }
    assert main(["doctor"]) == 1
    shown = capsys.readouterr().out
    assert [line for line in shown.splitlines() if "demo" in line] == [
        line for line in shown.splitlines() if "not installed" in line
    ]
    assert f"demo; if you need one: {install_command('NAME')}" in " ".join(shown.split())
