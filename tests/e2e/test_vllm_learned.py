"""A model that nobody knows on a real vLLM, with nothing configured: its format of calls is learned by /tokenize.

One form is enough: what is learned from each is shown on llama.cpp and Ollama, and vLLM renders all in the same way.
"""

import pytest
import rig_vllm
from invented_templates import invented_template
from newly_learned import BEFORE, CALL, ask_in_all_ways, learn_anew, lines, told
from rig.vllm import serve

from promptools.client import OpenAI

pytestmark = pytest.mark.vllm

FORM = "tags: an attribute"


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    folder = tmp_path_factory.mktemp("vllm")
    template = folder / "template.jinja"
    template.write_text(invented_template(FORM), encoding="utf-8")
    installed = rig_vllm.BOOTS["vllm-hermes"].installed()
    running = serve(
        lines(FORM), installed=installed, template="plain", chat_template=template, name="acme-7b", folder=folder
    )
    yield running
    running.stop()


def test_its_calls_are_read_in_every_way(server, tmp_path, monkeypatch):
    learn_anew(monkeypatch, tmp_path)
    with OpenAI(base_url=server.base_url, api_key="none", max_retries=0, timeout=600) as client:
        asked = ask_in_all_ways(client, server.name, FORM)
    for way, got in asked.items():
        assert (told(got), got.content.strip(), got.finish_reason) == ([CALL], BEFORE.strip(), "tool_calls"), way
        assert got.attempts[-1][1] == "answered"
        assert got.trace["seen"]["template_dialect"].startswith("learned_")
