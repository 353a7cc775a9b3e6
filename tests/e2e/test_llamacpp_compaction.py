"""Compaction on a real llama.cpp: with the context that was detected, before the server refuses a prompt."""

import asyncio
import json

import pytest
from configs import default_config

from promptools.client import AsyncOpenAI, OpenAI
from promptools.harness.agent import Agent, Compaction, CompactionEvent
from promptools.lab.llamacpp_server import serve
from promptools.lab.script import ScriptedReply

CONTEXT = 4096
PAGES = 6


def turning(page):
    return f"<tool_call>\n{json.dumps({'name': 'turn', 'arguments': {'page': page}})}\n</tool_call>"


LINES = [
    ScriptedReply("Read the book.", turning(1)),
    *(ScriptedReply(f"This is page {page}.", turning(page + 1)) for page in range(1, PAGES)),
    ScriptedReply(f"This is page {PAGES}.", "The book is read."),
]
SETTINGS = Compaction(keep_turns=1, result_characters=100, summarise=False)


def turn(page: int) -> str:
    """Turn to a page."""
    return f"This is page {page}. " + "Words. " * 100


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    folder = tmp_path_factory.mktemp("compaction")
    with serve(LINES, name="reader", folder=folder, slots=1, context=CONTEXT) as running:
        yield running


def statuses(tape):
    """Return the HTTP status of each reply of the server's."""
    rows = [json.loads(line) for line in tape.read_text().splitlines()]
    return [request["status"] for row in rows if row["row"] == "exchange" for request in row["requests"]]


def read_sync(options, tape):
    with OpenAI(**options) as client:
        return list(Agent(client, [turn], compaction=SETTINGS).stream("Read the book.", tape=tape))


def read_async(options, tape):
    async def go():
        async with AsyncOpenAI(**options) as client:
            agent = Agent(client, [turn], compaction=SETTINGS)
            return [event async for event in agent.astream("Read the book.", tape=tape)]

    return asyncio.run(go())


@pytest.mark.parametrize("read", [read_sync, read_async])
@pytest.mark.parametrize("detect", [True, False])
def test_it_is_done_before_the_server_refuses_if_the_server_was_detected(server, tmp_path, read, detect):
    options = {"base_url": server.base_url, "api_key": "none", "timeout": 60, "max_retries": 0, "detect": detect}
    tape = tmp_path / "run.jsonl"
    events = read({**options, "mode": "native"}, tape)
    assert (events[-1].content, events[-1].iterations) == ("The book is read.", PAGES + 1)
    assert any(isinstance(event, CompactionEvent) for event in events)
    assert (400 not in statuses(tape)) is detect
    if detect:
        with OpenAI(**{**options, "mode": "native"}) as client:
            again = Agent(client, [turn], compaction=SETTINGS).replay(tape)
        assert again.messages == events[-1].messages


def test_the_context_of_the_config_comes_first(server, tmp_path):
    options = {"config": default_config(server), "timeout": 60, "max_retries": 0, "mode": "native"}
    tape = tmp_path / "run.jsonl"
    events = read_sync({**options, "overrides": {"context": CONTEXT // 2}}, tape)
    assert events[-1].content == "The book is read."
    assert (
        max(step.usage["prompt_tokens"] for step in events[-1].steps)
        < CONTEXT // 2
        < max(step.usage["prompt_tokens"] for step in read_sync(options, tape)[-1].steps)
    )
