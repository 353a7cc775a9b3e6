"""How an agent asks each family: by the profile, in the words of the history, with the room that is left."""

from dataclasses import asdict, replace

import pytest
from upstream import running, unary

from promptools.client import OpenAI
from promptools.errors import UsageError
from promptools.harness.agent import PAPER_POLICY, Agent, AgentPolicy, RetryEvent, RunLimits, read_tape
from promptools.harness.agent.harness_errors import LimitsExceeded
from promptools.harness.toolsets import AgentTool, Toolset
from promptools.harness.toolsets.in_distribution import container_exec_definition, gpt_oss_tools
from promptools.modes.options import Options
from promptools.modes.registry import modes_for
from promptools.modes.tool_request import parse_request
from promptools.profiles import Config, Provider, resolve
from promptools.profiles.facts import load_builtin

THOUGHT = "<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant"
FINAL = "<|channel|>final<|message|>Done."
ENDS = {"stop_type": "word", "stopping_word": "<|call|>", "stop": True}


@pytest.fixture(scope="module")
def server():
    with running() as upstream:
        yield upstream


def said(text, prompt=100, **more):
    """A reply of llama.cpp's raw endpoint."""
    counts = {"tokens_evaluated": prompt, "tokens_predicted": 9, "timings": {"prompt_n": prompt}}
    return unary({"index": 0, "content": text, "model": "m", **ENDS, **counts, **more})


def look(path: str) -> str:
    """Look at a file."""
    return f"content of {path}"


def client(server, **options):
    here = Provider("here", kind="llamacpp", base_url=server.url)
    return OpenAI(config=Config(default_provider="here", providers={"here": here}), max_retries=0, **options)


SHELL = Toolset((AgentTool(container_exec_definition(), lambda command: "a.py"),), {"container": "Commands."})


def test_gpt_oss_is_asked_in_harmony_with_its_tools_in_the_system_message_and_no_flag(server):
    server.play(
        said(f'{THOUGHT}<|channel|>analysis to=container.exec code<|message|>{{"command": ["ls"]}}'), said(FINAL)
    )
    with client(server) as own:
        done = Agent(own, [SHELL, look], model="gpt-oss-20b").run("List.")
    assert (done.content, done.iterations, len(server.requests)) == ("Done.", 2, 2)
    assert [call.name for call in done.calls] == ["container.exec"]
    first = server.requests[0]
    assert first.path == "/completion"
    system, _, developer = first.json["prompt"].partition("<|end|><|start|>developer")
    assert "namespace container {" in system
    assert "Reasoning: medium" in system
    assert "type look" in developer
    assert first.json["temperature"] == 1.0


def test_what_the_request_sets_is_kept(server):
    server.play(said(FINAL))
    with client(server) as own:
        Agent(own, [look], model="gpt-oss-20b", temperature=0.2, reasoning_effort="high").run("List.")
    sent = server.requests[0].json
    assert sent["temperature"] == 0.2
    assert "Reasoning: high" in sent["prompt"]


def asked(kind, model="gpt-oss-20b", agent=True, **options):
    target = resolve(model, provider=kind, **options)
    return modes_for(parse_request({"messages": [], "model": model}, target.profile, Options(agent=agent)), tools=True)


MODES = [
    ("vllm", True, "gpt-oss-20b", "harmony"),
    ("llamacpp", True, "gpt-oss-20b", "harmony"),
    ("sglang", True, "gpt-oss-20b", "harmony"),
    ("ollama", True, "gpt-oss:20b", "harmony"),
    ("lmstudio", True, "gpt-oss-20b", "native"),
    ("vllm", False, "gpt-oss-20b", "native"),
    ("vllm", True, "qwen3-8b", "native"),
]


def test_the_modes_of_an_agent():
    assert [(*row, asked(row[0], row[2], row[1])[0]) for *row, _ in MODES] == MODES


def test_modes_that_the_user_lists_are_for_agents_too():
    assert asked("vllm", overrides={"modes": ["prompt"]}) == ("prompt",)
    assert asked("vllm", overrides={"modes": ["prompt"], "agent_modes": ["native"]}) == ("native",)


def test_the_tools_that_are_declared_are_those_of_the_training(tmp_path):
    from promptools.harness.sandbox import LocalSandbox

    (fact,) = [fact for fact in load_builtin("gpt-oss").facts if fact.key == "trained_tools"]
    sandbox = LocalSandbox(tmp_path, allow_unsandboxed=True)
    own = {entry.tool.name for entry in gpt_oss_tools(tmp_path, sandbox, python="stateless").tools}
    sandbox.close()
    assert own <= set(fact.value)


def test_the_papers_policy_is_refused_for_a_model_that_is_another(server):
    server.play(said(FINAL))
    with client(server) as own:
        with pytest.raises(UsageError, match=r"family 'gpt-oss'.*family 'qwen'.*policy='default'"):
            Agent(own, [look], model="qwen3-8b", policy="paper").run("List.")
        assert server.requests == []
        insisting = replace(PAPER_POLICY, family=None)
        assert Agent(own, [look], model="qwen3-8b", policy=insisting).run("List.").content == "Done."


def test_a_reply_without_call_and_answer_is_the_agents_to_retry(server):
    policies = {"default": AgentPolicy(), "paper": replace(PAPER_POLICY, wait=None)}
    for policy in policies.values():
        server.play(said("<|channel|>analysis<|message|>Only thoughts."), said(FINAL))
        with client(server) as own:
            events = list(Agent(own, [look], model="gpt-oss-20b", policy=policy).stream("List."))
        (retry,) = [event for event in events if isinstance(event, RetryEvent)]
        assert (retry.error, retry.usage["prompt_tokens"]) == ("NoToolCallNoFinalMessage", 100)
        assert len(server.requests) == 2
        assert "NoToolCallNoFinalMessage" in server.requests[1].json["prompt"]


# --- the history, word for word


HEADERS = [
    "<|channel|>analysis to=container.exec code",
    " to=container.exec<|channel|>analysis code",
    "<|channel|>commentary to=container.exec <|constrain|>json",
    "<|channel|>analysis to=container.exec <|constrain|>json",
]


def replies(steps):
    """Replies in the forms that the model has: with thoughts or without, a line break at the end, or white space."""
    for number in range(steps):
        thought = f"<|channel|>analysis<|message|>Step {number}.\n<|end|><|start|>assistant" if number % 3 else ""
        form = ['{"command": ["%s"]}\n', '{"command":["%s"]}', '{\n  "command": ["%s"]\n}'][number % 3]
        arguments = form % number
        yield f"{thought}{HEADERS[number % len(HEADERS)]}<|message|>{arguments}"
    yield FINAL


def test_what_the_model_wrote_goes_back_as_it_wrote_it(server):
    written = list(replies(60))
    server.play(*map(said, written))
    with client(server) as own:
        agent = Agent(own, [SHELL], model="gpt-oss-20b", limits=RunLimits(steps=100))
        done = agent.run("List.")
    assert done.iterations == 61
    prompts = [seen.json["prompt"] for seen in server.requests]
    for before, reply, after in zip(prompts, written, prompts[1:], strict=False):
        assert after.startswith(f"{before}{reply}<|call|><|start|>container.exec to=assistant<|channel|>")


def prompts_of(server):
    return [seen.json["prompt"] for seen in server.requests]


def test_a_resumed_run_sends_the_prompts_of_one_that_was_not_interrupted(server, tmp_path):
    written, tape = list(replies(7)), tmp_path / "run.jsonl"
    with client(server, date="2026-11-28") as own:

        def agent(**limits):
            return Agent(own, [SHELL], model="gpt-oss-20b", instructions="Be brief.", limits=RunLimits(**limits))

        server.play(*map(said, written))
        agent().run("List.")
        expected = prompts_of(server)
        server.play(*map(said, written))
        with pytest.raises(LimitsExceeded, match="tokens are used"):
            agent(tokens=200).run("List.", tape=tape)
        with pytest.raises(LimitsExceeded, match="tokens are used"):
            agent(tokens=300).resume(tape)
        tape.write_bytes(tape.read_bytes() + b'{"row": "mess')  # killed while it wrote
        assert agent().resume(tape).content == "Done."
        assert agent().replay(tape).content == "Done."
    assert prompts_of(server) == expected
    assert len(expected) == len(written) == 8


def test_a_line_in_the_middle_of_a_run_is_not_cut_off(tmp_path):
    tape = tmp_path / "run.jsonl"
    run = '{"row": "run", "format": 1, "date": "2026-11-28", "messages": []}\n'
    tape.write_text(f'{run}{{"row": "mess\n{{"row": "messages", "messages": []}}\n')
    with pytest.raises(UsageError, match="line 2 is not valid JSON"):
        read_tape(tape)


def test_the_next_question_of_a_conversation_follows_what_the_model_wrote(server):
    """Its thoughts before an answer are dropped, as the format says; the calls are as it wrote them."""
    call = '<|channel|>analysis to=container.exec code<|message|>{\n  "command": ["ls"]\n}\n'
    server.play(said(call), said(f"{THOUGHT}{FINAL}"), said(FINAL))
    with client(server) as own:
        agent = Agent(own, [SHELL], model="gpt-oss-20b")
        done = agent.run("List.")
        assert asdict(done)["messages"] == done.messages
        agent.run([*done.messages, {"role": "user", "content": "And now?"}])
    _, second, third = prompts_of(server)
    before, _, start = second.rpartition("<|start|>")
    assert start == "assistant"
    asked = "<|start|>user<|message|>And now?<|end|><|start|>assistant"
    assert third == f"{before}<|start|>assistant{FINAL}<|end|>{asked}"


def test_a_message_that_the_app_has_changed_is_sent_as_it_is_now(server):
    call = '<|channel|>analysis to=container.exec code<|message|>{"command": ["ls"]}\n'
    server.play(said(call), said(FINAL), said(FINAL))
    with client(server) as own:
        agent = Agent(own, [SHELL], model="gpt-oss-20b")
        messages = agent.run("List.").messages
        messages[1]["tool_calls"][0]["function"]["arguments"] = '{"command": ["pwd"]}'
        agent.run([*messages, {"role": "user", "content": "And now?"}])
    assert '["ls"]' not in prompts_of(server)[2]
    assert '["pwd"]' in prompts_of(server)[2]


def completed(text, prompt):
    """A reply of vLLM's raw endpoint."""
    usage = {"prompt_tokens": prompt, "completion_tokens": 9, "total_tokens": prompt + 9}
    choice = {"index": 0, "text": text, "finish_reason": "stop"}
    return unary({"id": "c", "created": 7, "model": "m", "choices": [choice], "usage": usage})


def test_the_room_for_a_reply_is_computed_from_the_tokens_of_the_last_prompt(server):
    call = f'{HEADERS[0]}<|message|>{{"command": ["ls"]}}'
    server.play(completed(call, 75_000), completed(FINAL, 75_100))
    here = Provider("here", kind="vllm", base_url=server.url)
    config = Config(default_provider="here", providers={"here": here})
    with OpenAI(config=config, max_retries=0, overrides={"raw_ids": False}) as own:
        Agent(own, [SHELL], model="gpt-oss-20b").run("word " * 60_000)
    first, second = (seen.json["max_tokens"] for seen in server.requests)
    assert first == 4096, "as far as is known, 300 KB may be more tokens than the context has"
    assert 55_000 < second < 131_072 - 75_000


def test_a_stop_token_that_the_server_leaves_in_the_text_is_not_doubled(server):
    server.play(said(f'{HEADERS[0]}<|message|>{{"command": ["ls"]}}<|call|>'), said(f"{THOUGHT}{FINAL}<|return|>"))
    with client(server) as own:
        Agent(own, [SHELL], model="gpt-oss-20b").run("List.")
    assert server.requests[1].json["prompt"].count("<|call|>") == 1


def test_a_header_that_was_repaired_is_not_shown_to_the_model_again(server):
    odd = '<|channel|>analysis to=container.exec<|channel|>analysis code<|message|>{"command": ["ls"]}'
    server.play(said(odd), said(FINAL))
    with client(server) as own:
        done = Agent(own, [SHELL], model="gpt-oss-20b").run("List.")
    assert [call.name for call in done.calls] == ["container.exec"]
    (written,) = [
        turn
        for turn in server.requests[1].json["prompt"].split("<|start|>")
        if "container.exec" in turn and turn.startswith("assistant")
    ]
    assert written == 'assistant to=container.exec<|channel|>analysis code<|message|>{"command": ["ls"]}<|call|>'
