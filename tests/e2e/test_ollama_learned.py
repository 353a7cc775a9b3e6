"""Models that nobody knows on a real Ollama, with nothing configured: their formats of calls are learned.

The chat templates are in the model files: llama.cpp's server, which Ollama runs, renders them.
"""

import pytest
import rig_ollama
from invented_templates import CALLS, invented_template
from newly_learned import BEFORE, CALL, ask_in_all_ways, learn_anew, lines, told
from rig.ollama import ScriptedModel, serve_models

from promptools.client import OpenAI

pytestmark = pytest.mark.ollama

NAMES = {form: f"acme-{number}" for number, form in enumerate(CALLS)}


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    models = [
        ScriptedModel(name, tuple(lines(form)), "jinja", chat_template=invented_template(form))
        for form, name in NAMES.items()
    ]
    folder = tmp_path_factory.mktemp("ollama")
    with serve_models(models, folder=folder, program=rig_ollama.program(), settings=rig_ollama.SETTINGS) as running:
        yield running


@pytest.mark.parametrize("form", CALLS)
def test_its_calls_are_read_in_every_way(server, form, tmp_path, monkeypatch):
    learn_anew(monkeypatch, tmp_path)
    with OpenAI(base_url=server.base_url, api_key="none", max_retries=0, timeout=300) as client:
        asked = ask_in_all_ways(client, NAMES[form], form)
    for way, got in asked.items():
        assert (told(got), got.content.strip(), got.finish_reason) == ([CALL], BEFORE.strip(), "tool_calls"), way
        assert got.attempts[-1][1] == "answered"
        assert got.trace["seen"]["template_dialect"].startswith("learned_")
