"""Agents on a real llama.cpp: each exception of the paper's policy, retries that show the error, limits, the tape."""

import asyncio
import json
from dataclasses import replace

import pytest
from configs import default_config
from editors import Editor, blocks
from editors import agent as agent_process

from promptools.client import AsyncOpenAI, OpenAI
from promptools.errors import UsageError
from promptools.harness.agent import PAPER_POLICY, Agent, RunLimits, TapeMismatch, harness_errors, read_tape
from promptools.harness.agent.harness_errors import (
    LimitsExceeded,
    MaxNewTokensExceeded,
    RetrialsExceeded,
)
from promptools.lab.llamacpp_server import serve
from promptools.lab.script import ScriptedReply
from promptools.lab.weather import prompt_mode_phrase

ROLES = ["user", "assistant", "tool", "user", "assistant", "tool", "assistant"]
THOUGHT = "<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant"
FINAL = "<|channel|>final<|message|>"


def called(arguments='{"path": "a.py"}', recipient="functions.read"):
    return f"<|channel|>commentary to={recipient} <|constrain|>json<|message|>{arguments}<|call|>"


FENCED = '```json\n{"tool": "read", "arguments": {"path": "a.py"}}\n```'
LONG = "".join(f"{number} " for number in range(200))
BAD = {
    "LongGeneration": f"{FINAL}{LONG}",
    "HarmonyParsingError": "There is no header at all.<|return|>",
    "HarmonyMessageMissingChannel": "<|message|>Nobody knows where.<|return|>",
    "MultipleReasoningMessages": f"{THOUGHT}{THOUGHT.replace('Hm', 'Well')}{FINAL}Yes.<|return|>",
    "MultipleToolCalls": called().replace("<|call|>", "<|end|><|start|>assistant") + called('{"path": "b.py"}'),
    "MultipleFinalMessages": f"{FINAL}One.<|end|><|start|>assistant{FINAL}Two.<|return|>",
    "ToolCallAndFinalMessage": f"{FINAL}Look.<|end|><|start|>assistant{called()}",
    "NoToolCallNoFinalMessage": "<|channel|>analysis<|message|>Only thoughts.<|return|>",
    "ToolNameParsingError": called(recipient="functions."),
    "UnknownToolCalled": called(recipient="functions.teleport"),
    "ToolCallArgParsingError": called('{"path": '),
    "UnknownToolCallArg": called('{"nowhere": 1, "else": 2}'),
    "ToolCallArgNotObject": called('["a.py"]'),
    "ToolCallArgTypeError": called('{"path": "a.py", "line": "first"}'),
}
CONTENT = "The content of a.py: x = 1"
LINES = [
    *(ScriptedReply(f"Task of {name}.", reply) for name, reply in BAD.items()),
    *(ScriptedReply(f"{name}:", THOUGHT + called()) for name in BAD),
    ScriptedReply(CONTENT, f"{THOUGHT}{FINAL}It says x = 1.<|return|>"),
    ScriptedReply("Read it.", THOUGHT + called()),
    ScriptedReply("Read it.", f"{THOUGHT}{FINAL}{FENCED}<|return|>", setting=prompt_mode_phrase()),
    ScriptedReply("Read the notes.", THOUGHT + called('{"path": "notes.txt"}', recipient="repo_browser.open_file")),
    ScriptedReply("Read it for ever.", THOUGHT + called('{"path": "loop.py"}')),
    ScriptedReply("Loop again", THOUGHT + called('{"path": "loop.py"}')),
]


def read(path: str, line: int = 1) -> str:
    """Read a file."""
    return "Loop again" if path == "loop.py" else CONTENT


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    with serve(LINES, template="harmony", name="gpt-oss-agent", folder=tmp_path_factory.mktemp("agent")) as running:
        yield running


@pytest.fixture(scope="module")
def client(server):
    with OpenAI(config=default_config(server), timeout=300, max_retries=0) as made:
        yield made


FAST = replace(PAPER_POLICY, wait=None)


@pytest.mark.parametrize("name", BAD)
def test_each_error_of_the_paper_is_shown_to_the_model_which_mends_it(client, name):
    agent = Agent(client, [read], policy=FAST, max_tokens=100, temperature=0)
    done = agent.run(f"Task of {name}.")
    assert [retry.error for retry in done.steps[0].retries] == [name]
    assert (done.content, done.iterations, done.ended) == ("It says x = 1.", 2, "answer")
    assert [message["role"] for message in done.messages] == ["user", "assistant", "tool", "assistant"]


@pytest.mark.parametrize("name", ["MultipleToolCalls", "HarmonyParsingError"])
def test_the_papers_own_resend_sends_the_same_prompt_and_ends(client, name):
    policy = replace(FAST, show_errors=False, attempts=3)
    with pytest.raises(RetrialsExceeded, match=f"after 3 attempts, last exception: {name}") as caught:
        Agent(client, [read], policy=policy, max_tokens=100).run(f"Task of {name}.")
    assert type(caught.value.__cause__) is getattr(harness_errors, name)


def test_a_reply_with_as_many_tokens_as_it_may_have(client):
    whole = Agent(client, [read], policy=FAST).run("Read it.")
    used = whole.steps[-1].usage["completion_tokens"]
    with pytest.raises((MaxNewTokensExceeded, RetrialsExceeded)):
        Agent(client, [read], policy=replace(FAST, attempts=1), max_tokens=used).run("Read it.")


@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize("policy", ["default", FAST], ids=["default", "paper"])
def test_sync_and_async_are_the_same(server, client, policy, streamed):
    async def go():
        async with AsyncOpenAI(config=default_config(server), timeout=300, max_retries=0) as made:
            agent = Agent(made, [read], policy=policy)
            if not streamed:
                return await agent.arun("Read it.")
            return [event async for event in agent.astream("Read it.")][-1]

    agent = Agent(client, [read], policy=policy)
    sync = list(agent.stream("Read it."))[-1] if streamed else agent.run("Read it.")
    other = asyncio.run(go())
    assert sync.content == other.content == "It says x = 1."
    assert sync.iterations == other.iterations == 2


@pytest.mark.parametrize("policy", ["default", FAST], ids=["default", "paper"])
def test_a_loop_ends_at_its_limit(client, policy):
    with pytest.raises(LimitsExceeded) as caught:
        Agent(client, [read], policy=policy, limits=RunLimits(repeats=3)).run("Read it for ever.")
    assert caught.value.limit == "repeats"
    assert len(caught.value.transcript.results) == 3


def test_an_editors_agent_by_the_agent_client_protocol(server, tmp_path):
    (tmp_path / "notes.txt").write_text(CONTENT)
    editor = Editor()

    async def talk():
        async with agent_process(server.base_url, editor, "--request", '{"temperature": 0}') as connection:
            session = (await connection.new_session(cwd=str(tmp_path), mcp_servers=[])).session_id
            return (await connection.prompt(session_id=session, prompt=blocks("Read the notes."))).stop_reason

    assert asyncio.run(talk()) == "end_turn"
    assert editor.asked == []
    said = editor.said()
    assert "".join(entry[1] for entry in said if entry[0] == "agent_message_chunk") == "It says x = 1."
    assert "".join(entry[1] for entry in said if entry[0] == "agent_thought_chunk") == "Hm.Hm."
    (call,) = [entry for entry in said if entry[0] == "tool_call"]
    assert call[1:] == ('repo_browser.open_file {"path": "notes.txt"}', "read", "pending")


# --- the tape --------------------------------------------------------------------------------------------------------


def never_read(path: str, line: int = 1) -> str:
    """Read a file."""
    raise AssertionError


never_read.__name__ = "read"


def refuse(*_):
    raise AssertionError("a connection is made")


@pytest.mark.parametrize("mode", ["native", "prompt", "harmony"])
@pytest.mark.parametrize("streamed", [False, True])
def test_a_run_is_replayed_without_server_and_tools(server, tmp_path, monkeypatch, mode, streamed):
    path = tmp_path / "run.jsonl"
    options = {"config": default_config(server), "timeout": 60, "max_retries": 0, "mode": mode}
    with OpenAI(**options) as client:
        agent = Agent(client, [read], seed=7)
        done = list(agent.stream("Read it.", tape=path))[-1] if streamed else agent.run("Read it.", tape=path)
    monkeypatch.setattr("socket.socket.connect", refuse)
    with OpenAI(**options) as client:
        again = Agent(client, [never_read], seed=7).replay(path)
        assert (again.content, again.messages) == (done.content, done.messages)
        with pytest.raises(TapeMismatch, match="request 1 differs") as caught:
            Agent(client, [never_read], seed=8).replay(path)
        assert_shows_the_seed(caught.value)


@pytest.mark.parametrize("mode", ["native", "prompt", "harmony"])
@pytest.mark.parametrize("streamed", [False, True])
def test_a_run_is_replayed_with_an_async_client(server, tmp_path, monkeypatch, mode, streamed):
    path = tmp_path / "run.jsonl"
    options = {"config": default_config(server), "timeout": 60, "max_retries": 0, "mode": mode}

    async def go():
        async with AsyncOpenAI(**options) as client:
            agent = Agent(client, [read], seed=7)
            if streamed:
                done = [event async for event in agent.astream("Read it.", tape=path)][-1]
            else:
                done = await agent.arun("Read it.", tape=path)
        monkeypatch.setattr("socket.socket.connect", refuse)
        async with AsyncOpenAI(**options) as client:
            again = await Agent(client, [never_read], seed=7).areplay(path)
            with pytest.raises(TapeMismatch, match="request 1 differs") as caught:
                await Agent(client, [never_read], seed=8).areplay(path)
            assert_shows_the_seed(caught.value)
        return done, again

    done, again = asyncio.run(go())
    assert (again.content, again.messages) == (done.content, done.messages)


def assert_shows_the_seed(mismatch):
    assert '-    "seed": 7' in mismatch.difference.replace(",", "")
    assert '+    "seed": 8' in mismatch.difference.replace(",", "")


def test_a_tape_is_replayed_by_a_client_of_either_kind(server, tmp_path):
    path = tmp_path / "run.jsonl"
    options = {"config": default_config(server), "timeout": 60, "max_retries": 0}
    with OpenAI(**options) as client:
        done = Agent(client, [read]).run("Read it.", tape=path)
        with pytest.raises(UsageError, match=r"Agent\.run\(\)"):
            asyncio.run(Agent(client, [read]).areplay(path))

    async def go():
        async with AsyncOpenAI(**options) as client:
            with pytest.raises(UsageError, match=r"areplay\(\)"):
                Agent(client, [read]).replay(path)
            return await Agent(client, [never_read]).areplay(path)

    assert asyncio.run(go()).messages == done.messages


@pytest.mark.parametrize("colour", ["sync", "async"])
def test_a_run_is_resumed_from_its_tape(server, tmp_path, colour):
    path = tmp_path / "run.jsonl"
    options = {"config": default_config(server), "timeout": 60, "max_retries": 0}

    async def resume_async(*message):
        async with AsyncOpenAI(**options) as client:
            return await Agent(client, [read]).aresume(path, *message)

    with OpenAI(**options) as client:
        resume = Agent(client, [read]).resume if colour == "sync" else lambda _, *more: asyncio.run(resume_async(*more))
        with pytest.raises(LimitsExceeded):
            Agent(client, [read], limits=RunLimits(steps=1)).run("Read it.", tape=path)
        done = resume(path, "Read it.")
        assert done.content == "It says x = 1."
        assert [message["role"] for message in done.messages] == ROLES
        ids = [call["id"] for message in done.messages for call in message.get("tool_calls") or ()]
        assert len(ids) == len(set(ids)) == 2
        assert Agent(client, [never_read]).replay(path).messages == done.messages
        with pytest.raises(UsageError, match="complete"):
            resume(path)


def test_a_tape_holds_no_credentials_and_can_be_resumed(server, tmp_path):
    path = tmp_path / "run.jsonl"
    with OpenAI(config=default_config(server), api_key="sk-very-secret-key", timeout=300, max_retries=0) as client:
        agent = Agent(client, [read], limits=RunLimits(steps=1), user="sk-very-secret-key")
        with pytest.raises(LimitsExceeded):
            agent.run("Read it.", tape=path)
        assert "very-secret" not in path.read_text()
        recorded = read_tape(path)
        assert recorded.ended == "steps"
        assert recorded.messages[-1]["content"].startswith("Error: not run")
        lines = path.read_text().splitlines()
        assert [json.loads(line)["row"] for line in lines] == ["run", "exchange", "messages", "end"]
        killed = tmp_path / "killed.jsonl"
        killed.write_text("\n".join(lines[:-1]))
        assert "it may have run" in read_tape(killed).messages[-1]["content"]
        more = Agent(client, [read])
        messages = [*more.resumed(path), {"role": "user", "content": "Read it."}]
        assert more.run(messages, tape=path).content == "It says x = 1."
        with pytest.raises(UsageError, match="complete"):
            more.resumed(path)
