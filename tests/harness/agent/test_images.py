"""Images in the results of tools: shown to the model in a form that each client and mode can hold, or named."""

import json

import openai
import pytest
from upstream import running

from promptools.client import OpenAI
from promptools.harness.agent import (
    Agent,
    Compaction,
    CompactionEvent,
    IterationLimitError,
    RunLimits,
    compaction,
    trajectory,
)
from promptools.harness.toolsets import ToolOutput
from promptools.harness.toolsets.agent_tool import image_part
from promptools.profiles import Config
from promptools.testing import ModelReply, http_error

IMAGE = image_part(b"\x89PNG picture", "image/png")
REFUSED = http_error(
    500, "image input is not supported - hint: if this is unexpected, you may need to provide the mmproj"
)
LOOK = ModelReply(None, calls=[("look", {})])
TWICE = ModelReply(None, calls=[("look", {}), ("read", {})])
NOTE = "[The images of this result are not shown: this model, or its server, takes none.]"


def look() -> ToolOutput:
    """Look at the screen."""
    return ToolOutput("[image image/png, 12 bytes]", (IMAGE,))


def read() -> str:
    """Read the screen."""
    return "Nothing is written there."


@pytest.fixture(scope="module")
def server():
    with running() as upstream:
        yield upstream


def ours(server, **options):
    return OpenAI(base_url=server.url, api_key="k", config=Config(), max_retries=0, **options)


def plain(server):
    return openai.OpenAI(base_url=server.url, api_key="k", max_retries=0)


def sent(server, number):
    return server.requests[number].json["messages"]


@pytest.mark.parametrize("client", [plain, ours])
def test_images_follow_the_results_in_a_message_of_the_user(server, client):
    server.play(TWICE, "It is a picture.", "And so on.")
    with client(server) as made:
        agent = Agent(made, [look, read], model="m")
        done = agent.run("Look.")
        assert done.content == "It is a picture."
        assert done.results[0].images == (IMAGE,)
        first, second, user = sent(server, 1)[-3:]
        assert [message["role"] for message in (first, second, user)] == ["tool", "tool", "user"]
        assert first["content"] == (
            "[image image/png, 12 bytes]\n(The images of this result follow in the next message.)"
        )
        assert second["content"] == "Nothing is written there."
        assert user["content"] == [IMAGE]
        agent.run([*done.messages, {"role": "user", "content": "Go on."}])
    assert [message["role"] for message in sent(server, 2)][-3:] == ["user", "assistant", "user"]


def test_in_prompt_mode_they_are_beside_the_text_of_the_results(server):
    server.play('<tool_call>\n{"name": "look", "arguments": {}}\n</tool_call>', "It is a picture.")
    with ours(server, mode="prompt", dialect="hermes") as made:
        assert Agent(made, [look], model="m").run("Look.").content == "It is a picture."
    text, image = sent(server, 1)[-1]["content"]
    assert "[image image/png, 12 bytes]" in text["text"]
    assert image == IMAGE


@pytest.mark.parametrize("client", [plain, ours])
def test_a_server_that_takes_none_gets_a_note_from_then_on(server, client):
    server.play(LOOK, *[REFUSED] * 2, LOOK, "I see nothing.")
    events = []
    with client(server) as made:
        for event in Agent(made, [look], model="m").stream("Look."):
            events.append(event)
            if isinstance(event, CompactionEvent):
                server.play(LOOK, "I see nothing.")  # however often the refused request was sent
    done = events[-1]
    assert done.content == "I see nothing."
    assert [event.stage for event in events if isinstance(event, CompactionEvent)] == ["images"]
    results = [message["content"] for message in done.messages if message["role"] == "tool"]
    assert results == [f"[image image/png, 12 bytes]\n{NOTE}"] * 2
    assert not any("image_url" in json.dumps(request.json) for request in server.requests)


def test_harmony_mode_whose_prompt_is_text_gets_the_note(server):
    thought = "<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant"
    call = f"{thought}<|channel|>commentary to=functions.look <|constrain|>json<|message|>{{}}"
    final = f"{thought}<|channel|>final<|message|>I see nothing."
    server.play(*({"choices": [{"index": 0, "text": text, "finish_reason": "stop"}]} for text in (call, final)))
    with ours(server, mode="harmony") as made:
        assert Agent(made, [look], model="gpt-oss").run("Look.").content == "I see nothing."
    assert NOTE in server.requests[1].json["prompt"]


def test_other_failures_do_not_cost_the_images(server):
    server.play(LOOK, http_error(503), LOOK)
    with plain(server) as made, pytest.raises(openai.InternalServerError):
        Agent(made, [look], model="m").run("Look.")
    assert len(server.requests) == 2
    server.play(LOOK, LOOK, REFUSED)  # the first image was accepted: the second is not the reason
    with plain(server) as made, pytest.raises(openai.InternalServerError, match="image input"):
        Agent(made, [look], model="m").run("Look.")
    assert len(server.requests) == 3


def test_compaction_counts_images_and_leaves_old_ones_out(server):
    turns = [{"role": "user", "content": "Look."}]
    for number in range(3):
        call = {"id": f"c{number}", "type": "function", "function": {"name": "look", "arguments": "{}"}}
        turns.append({"role": "assistant", "content": None, "tool_calls": [call]})
        content = [{"type": "text", "text": "a screen"}, IMAGE]
        turns.append({"role": "tool", "tool_call_id": f"c{number}", "content": content})
    assert 3 * 4000 < compaction.size(turns) < 4 * 4000
    server.play("Done.")
    with plain(server) as made:
        options = {"compaction": Compaction(context=9000, keep_turns=1), "model": "m"}
        agent = Agent(made, [look], **options)
        server.play(ModelReply(None, calls=[("look", {})], usage={"prompt_tokens": 8000}), "Done.")
        done = agent.run(turns)
    contents = [message["content"] for message in done.messages if message["role"] == "tool"]
    assert contents[:3] == ["a screen\n[an image was left out here]"] * 3
    assert contents[3][1] == IMAGE


def test_a_tape_with_images_is_replayed_and_a_trajectory_names_them(server, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    server.play(LOOK, "It is a picture.")
    with ours(server) as made:
        agent = Agent(made, [look], model="m")
        done = agent.run("Look.", tape="run.jsonl")
        again = agent.replay("run.jsonl")
    assert again.messages == done.messages
    assert again.results[0].images == (IMAGE,)
    written = trajectory(done)
    assert written["messages"][2]["content"] == "[image image/png, 12 bytes]\n[image_url]"


def test_an_image_that_ends_a_run_is_in_its_transcript(server):
    server.play(LOOK, LOOK)
    with plain(server) as made, pytest.raises(IterationLimitError) as caught:
        Agent(made, [look], model="m", limits=RunLimits(steps=2)).run("Look.")
    assert caught.value.transcript.messages[2]["content"][1] == IMAGE
