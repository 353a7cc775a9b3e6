"""The demo on a real model that does not call as its template asks it to."""

import json
import os

import environments
import pytest
from recipes.recipe import CannotMakeError

from promptools.cli import demo_command, main
from promptools.lab import llamacpp_server

pytestmark = pytest.mark.models


@pytest.fixture
def qwen():
    try:
        return environments.path_of("model-qwen-0.5b")
    except CannotMakeError as error:
        if os.environ.get("PROMPTOOLS_E2E") == "required":
            pytest.fail(f"the model cannot be had, and PROMPTOOLS_E2E asks for it: {error}")
        pytest.skip(f"the model cannot be had: {error}")


def test_the_server_alone_gives_text_and_promptools_the_call(qwen, capsys, monkeypatch):
    # one thread, as in all tests with a model: several wait for each other at every step if the machine has other work
    monkeypatch.setattr(llamacpp_server, "_cores", lambda: 1)
    # the call and what follows it: then the model makes the same call until the conversation's four turns are over
    monkeypatch.setattr(demo_command, "_TURNS", 2)
    assert main(["demo", "--model", str(qwen), "--json"]) == 0
    alone, chosen, streamed, _ = json.loads(capsys.readouterr().out)
    assert alone["calls"] == []
    assert "get_weather" in alone["server"]
    for ours in (chosen, streamed):
        assert ours["calls"][0]["name"] == "get_weather"
        assert ours["calls"][0]["arguments"]["city"] == "Paris"
