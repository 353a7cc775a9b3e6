"""What the lab's Ollama needs before there is an Ollama; the running one is tested in tests/e2e."""

import sys
from typing import get_args

import pytest
from rig import ollama
from rig.ollama import MODELFILES, OllamaTemplate, ScriptedModel, serve, serve_models

from promptools.errors import UpstreamError, UsageError
from promptools.lab.script import ScriptedReply

LINES = (ScriptedReply("a question", "an answer"),)

STAND_IN = """#!{python}
import os, sys, threading
from http.server import BaseHTTPRequestHandler, HTTPServer
class Answer(BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
if sys.argv[1] == "create":
    print("no such parser", file=sys.stderr)
    sys.exit(1)
told = {{name: value for name, value in os.environ.items() if name.startswith("OLLAMA_") or name == "HOME"}}
print(told, flush=True)
server = HTTPServer(("127.0.0.1", 0), Answer)
print(f"Listening on 127.0.0.1:{{server.server_port}} (version 1)", flush=True)
server.serve_forever()
"""


@pytest.fixture
def program(tmp_path):
    """A program that comes up as Ollama does, and refuses every model."""
    path = tmp_path / "ollama"
    path.write_text(STAND_IN.format(python=sys.executable), encoding="utf-8")
    path.chmod(0o755)
    return path


def test_every_template_has_its_modelfile():
    assert {path.stem for path in MODELFILES.glob("*.Modelfile")} == set(get_args(OllamaTemplate))


def test_without_ollama_it_says_so(monkeypatch, tmp_path):
    monkeypatch.setattr(ollama.shutil, "which", lambda name: None)
    with pytest.raises(UsageError, match="needs the program `ollama`"):
        serve(LINES, folder=tmp_path)


def test_a_model_that_is_refused_is_told_and_nothing_runs_on(program, tmp_path, monkeypatch):
    started = []
    start = ollama.start_server
    monkeypatch.setattr(
        ollama, "start_server", lambda *given, **keys: started.append(start(*given, **keys)) or started[0]
    )
    with pytest.raises(UpstreamError, match=r"(?s)refused the model 'mine'.*no such parser"):
        serve_models([ScriptedModel("mine", LINES)], folder=tmp_path / "kept", program=program)
    assert started[0].process.poll() is not None


def test_the_users_own_ollama_is_left_alone(program, tmp_path, monkeypatch):
    monkeypatch.setenv("OLLAMA_MODELS", "/my/own/models")
    monkeypatch.setenv("OLLAMA_DEBUG", "1")
    monkeypatch.setattr(ollama, "_create", lambda *given: None)
    settings = {"OLLAMA_MAX_QUEUE": "1"}
    with serve_models(
        [ScriptedModel("mine", LINES)], folder=tmp_path / "kept", program=program, settings=settings
    ) as server:
        printed = server.log.read_text(encoding="utf-8")
    assert server.name == "mine"
    assert str(tmp_path / "kept" / "home") in printed
    assert "/my/own" not in printed
    assert "OLLAMA_DEBUG" not in printed
    assert "'OLLAMA_MAX_QUEUE': '1'" in printed
