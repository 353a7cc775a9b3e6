"""An image of a tool's result on a real llama.cpp, whose model takes none: it is refused, and the run goes on."""

import json

import openai
import pytest
from configs import default_config

from promptools.client import OpenAI
from promptools.harness.agent import Agent, CompactionEvent
from promptools.harness.toolsets import ToolOutput
from promptools.harness.toolsets.agent_tool import image_part
from promptools.lab.llamacpp_server import serve
from promptools.lab.script import ScriptedReply

CALL = f"<tool_call>\n{json.dumps({'name': 'look', 'arguments': {}})}\n</tool_call>"
SCRIPT = [ScriptedReply("Look there.", CALL), ScriptedReply("[image image/png", "I was shown no picture.")]


def look() -> ToolOutput:
    """Look at the screen."""
    return ToolOutput("[image image/png, 12 bytes]", (image_part(b"\x89PNG picture", "image/png"),))


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    with serve(SCRIPT, template="hermes", name="looker", folder=tmp_path_factory.mktemp("looker")) as running:
        yield running


@pytest.mark.parametrize("mode", ["plain", "native", "prompt"])
def test_an_image_is_refused_and_the_run_goes_on_with_a_note(server, mode):
    if mode == "plain":
        client = openai.OpenAI(base_url=server.base_url, api_key="none", max_retries=0)
    else:
        options = {"dialect": "hermes"} if mode == "prompt" else {}
        client = OpenAI(config=default_config(server), mode=mode, max_retries=0, **options)
    with client:
        events = list(Agent(client, [look], model="looker").stream("Look there."))
    assert [event.stage for event in events if isinstance(event, CompactionEvent)] == ["images"]
    done = events[-1]
    assert done.content == "I was shown no picture."
    assert done.messages[2]["content"].endswith(
        "[The images of this result are not shown: this model, or its server, takes none.]"
    )
