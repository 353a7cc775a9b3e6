"""The agent over a scripted server, sync and async, streamed or not: steps, limits, retries, parallel tools."""

import asyncio
import json
import threading
from dataclasses import replace

import openai
import pytest
import tenacity
from upstream import completion, running
from waiting import LONG

from promptools.client import AsyncOpenAI, OpenAI
from promptools.errors import ModelError, PromptoolsError, UsageError
from promptools.harness.agent import (
    Agent,
    AgentPolicy,
    CallEvent,
    Change,
    Compaction,
    Deny,
    ResultEvent,
    RetryEvent,
    RunContext,
    RunLimits,
    StepEvent,
    Transcript,
    drivers,
    trajectory,
)
from promptools.harness.agent.harness_errors import (
    ExecutionTimeoutError,
    HarnessError,
    IterationLimitError,
    LimitsExceeded,
    LongGeneration,
    NonTerminatingError,
    NoToolCallNoFinalMessage,
    RetrialsExceeded,
    TerminatingError,
    UnexpectedFinishReason,
)
from promptools.harness.agent.toolbox import exception_result
from promptools.harness.sandbox import LocalSandbox
from promptools.harness.toolsets import AgentTool, Toolset
from promptools.harness.toolsets.in_distribution import gpt_oss_tools
from promptools.harness.toolsets.mcp import McpTimeoutError
from promptools.profiles import Config, Provider
from promptools.testing import ModelReply, http_error
from promptools.types import Tool

NOW = AgentPolicy()


def look(path: str) -> str:
    """Look at a file."""
    return f"content of {path}"


def call(name="look", **arguments):
    return name, arguments


def calls(*made, content=None):
    return ModelReply(content, calls=made)


@pytest.fixture(scope="module")
def server():
    with running() as upstream:
        yield upstream


class Way:
    """Runs an agent one of four ways, and returns the transcript and the events."""

    def __init__(self, colour, stream):
        self.colour, self.stream = colour, stream

    def __call__(self, server, tools, task="Do it.", client=openai.OpenAI, state=None, **options):
        connect = {"base_url": server.url, "api_key": "k", "max_retries": 0}
        if self.colour == "sync":
            with client(**connect) as made:
                agent = Agent(made, tools, model="m", **options)
                if not self.stream:
                    return agent.run(task, state=state), []
                events = list(agent.stream(task, state=state))
                return events[-1], events
        return asyncio.run(self.go(connect, tools, task, state, options))

    async def go(self, connect, tools, task, state, options):
        async with openai.AsyncOpenAI(**connect) as made:
            agent = Agent(made, tools, model="m", **options)
            if not self.stream:
                return await agent.arun(task, state=state), []
            events = [event async for event in agent.astream(task, state=state)]
            return events[-1], events


@pytest.fixture(params=[(colour, stream) for colour in ("sync", "async") for stream in (False, True)], ids=str)
def way(request):
    return Way(*request.param)


@pytest.fixture
def plain():
    return Way("sync", stream=False)


def test_a_task_is_worked_on_until_the_answer(server, way):
    server.play(calls(call(path="a")), calls(call(path="b")), "Done.")
    transcript, events = way(server, [look], instructions="Be brief.", temperature=0)
    assert (transcript.content, transcript.ended, transcript.iterations) == ("Done.", "answer", 3)
    assert [result.content for result in transcript.results] == ["content of a", "content of b"]
    assert transcript.messages[:2] == [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "Do it."},
    ]
    assert server.requests[0].json["temperature"] == 0
    assert [step.number for step in transcript.steps] == [1, 2, 3]
    assert all(step.usage["total_tokens"] == 23 for step in transcript.steps)
    assert transcript.usage["total_tokens"] == 69
    if way.stream:
        kinds = [type(event) for event in events if isinstance(event, (CallEvent, ResultEvent, StepEvent, Transcript))]
        assert kinds == [*[CallEvent, ResultEvent, StepEvent] * 2, StepEvent, Transcript]


def test_messages_are_a_task_too(server, plain):
    server.play("Done.")
    transcript, _ = plain(
        server, [look], task=[{"role": "system", "content": "Mine."}, {"role": "user", "content": "x"}]
    )
    assert [message["content"] for message in transcript.messages] == ["Mine.", "x", "Done."]
    with pytest.raises(UsageError, match="no task"):
        plain(server, [look], task=[])


# --- tools -----------------------------------------------------------------------------------------------------------


def tool(name, run, *, parallel=False):
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
    return AgentTool(Tool(name, f"The tool {name}.", schema), run, parallel=parallel)


def test_calls_of_one_reply_run_at_the_same_time_where_all_tools_allow_it(server, way):
    barrier = threading.Barrier(3, timeout=300)  # passed only if all three run at once

    def meet(n):
        barrier.wait()
        return n

    server.play(calls(*(("meet", {"n": n}) for n in (3, 1, 2)), ("none", {})), "Done.")
    transcript, _ = way(server, [Toolset((tool("meet", meet, parallel=True),), instructions="Meet.")])
    assert [result.content[:9] for result in transcript.results] == ["3", "1", "2", "Error: th"]
    assert [message["tool_call_id"] for message in transcript.messages[3:7]] == [f"call_{n}" for n in range(4)]
    assert transcript.messages[0] == {"role": "system", "content": "Meet."}


def test_calls_run_one_after_the_other_if_one_tool_does_not_allow_more(server, way):
    running_now, most = set(), []

    def work(n):
        running_now.add(n)
        most.append(len(running_now))
        running_now.remove(n)
        return n

    server.play(calls(("one", {"n": 1}), ("two", {"n": 2}), ("one", {"n": 3})), "Done.")
    transcript, events = way(server, [tool("one", work, parallel=True), tool("two", work)])
    assert most == [1, 1, 1]
    assert [result.content for result in transcript.results] == ["1", "2", "3"]
    if way.stream:
        kinds = [type(event) for event in events if isinstance(event, (CallEvent, ResultEvent))]
        assert kinds == [CallEvent, ResultEvent] * 3


@pytest.mark.parametrize("place", ["first", "last"])
def test_a_function_may_learn_of_the_run(server, way, place):
    seen = []

    def first(run: RunContext, path: str, *, times: int = 1) -> str:
        """Look.

        Args:
            run: not the model's.
            path: where.
        """
        seen.append((run, path, times))
        return "ok"

    def last(path: str, times: int, run: "RunContext") -> str:
        seen.append((run, path, times))
        return "ok"

    server.play(calls((place, {"path": "a", "times": "2"})), "Done.")
    way(server, [{"first": first, "last": last}[place]], state={"db": 1})
    (context, path, times) = seen[0]
    assert (path, times) == ("a", 2)
    assert (context.state, context.step, context.call.name) == ({"db": 1}, 1, place)
    assert [message["role"] for message in context.messages] == ["user"]
    declared = server.requests[0].json["tools"][0]["function"]["parameters"]
    assert sorted(declared["properties"]) == ["path", "times"]


def test_what_a_tool_raises_is_a_result_and_no_retry(server, way):
    def slow(path: str) -> str:
        raise ExecutionTimeoutError("120 s")

    server.play(calls(("slow", {"path": "a"})), "Done.")
    transcript, _ = way(server, [slow])
    assert transcript.results[0].content == "Error: ExecutionTimeoutError: 120 s"
    assert transcript.retries == 0


def test_a_time_out_is_an_observation_and_under_the_papers_policy_in_its_words(server, way, tmp_path):
    """Of a command that was ended, the model reads what there is; it is a result, and no failure."""
    sandbox = LocalSandbox(tmp_path, allow_unsandboxed=True)
    tools = gpt_oss_tools(tmp_path, sandbox, timeout=0.3)
    line = f"printf '{'x' * 150}'; sleep 30"
    paper = "The last command timed out after 0.3 seconds and has been killed. The output of the command was:\n"
    paper += f"<output>\n{'x' * 100}...\n</output>\nPlease try another command and make sure to"
    for policy, content in (
        ("default", f"{'x' * 150}\n[the command was ended after 0.3 seconds; it must not wait for input, and"),
        ("paper", paper),
    ):
        server.play(calls(("container_exec", {"command": ["bash", "-c", line]})), "Done.")
        transcript, _ = way(server, [tools], policy=policy)
        (result,) = transcript.results
        assert result.content.startswith(content)
        assert not result.is_error
        assert (transcript.retries, transcript.ended) == (0, "answer")


def test_under_the_papers_policy_a_tool_that_took_too_long_raises(server, way, monkeypatch):
    raised = []
    monkeypatch.setattr(
        drivers, "exception_result", lambda call, error: raised.append(error) or exception_result(call, error)
    )

    def slow(path: str) -> str:
        raise McpTimeoutError("'slow' did not answer within 60 seconds", seconds=60.0)

    for policy, kind, content in (
        ("default", McpTimeoutError, "Error: McpTimeoutError: 'slow' did not answer within 60 seconds"),
        ("paper", ExecutionTimeoutError, "The last command timed out after 60 seconds and has been killed."),
    ):
        server.play(calls(("slow", {"path": "a"})), "Done.")
        transcript, _ = way(server, [slow], policy=policy)
        assert type(raised[-1]) is kind
        assert transcript.results[0].content.startswith(content)
        assert transcript.retries == 0
    assert isinstance(raised[-1].__cause__, McpTimeoutError)


# --- limits ----------------------------------------------------------------------------------------------------------


def test_the_limit_of_steps(server, way):
    server.play(*(calls(call(path=f"p{n}")) for n in range(9)))
    with pytest.raises(IterationLimitError, match="after 3 replies") as caught:
        way(server, [look], limits=RunLimits(steps=3))
    error = caught.value
    assert isinstance(error, LimitsExceeded)
    assert isinstance(error, ModelError)
    assert (error.limit, error.transcript.ended, error.transcript.iterations) == ("steps", "steps", 3)
    assert (len(error.transcript.results), len(error.transcript.steps)) == (2, 3)


def test_the_limit_of_tokens(server, way):
    server.play(*(calls(call(path=f"p{n}")) for n in range(9)))
    with pytest.raises(LimitsExceeded, match="46 tokens are used, of at most 40") as caught:
        way(server, [look], limits=RunLimits(tokens=40))
    assert (caught.value.limit, len(server.requests)) == ("tokens", 2)


def test_the_limit_of_seconds(server, way, monkeypatch):
    clock = iter(range(0, 1000, 7))
    monkeypatch.setattr("promptools.harness.agent.agent.time.monotonic", lambda: float(next(clock)))
    server.play(*(calls(call(path=f"p{n}")) for n in range(9)))
    with pytest.raises(LimitsExceeded, match="of 100 seconds") as caught:
        way(server, [look], limits=RunLimits(seconds=100))
    assert caught.value.limit == "seconds"
    assert 1 <= len(server.requests) < 9


def test_a_request_gets_the_time_that_is_left(server, plain):
    from promptools.testing import HttpAnswer

    server.play(HttpAnswer(before=LONG))
    with pytest.raises(LimitsExceeded, match=r"0\.2 seconds") as caught:
        plain(server, [look], limits=RunLimits(seconds=0.2))
    assert isinstance(caught.value.__cause__, openai.APITimeoutError)


def test_the_limit_of_failures_in_a_row(server, way):
    server.play(calls(call(path="a")), *(calls(("none", {"n": n})) for n in range(5)))
    with pytest.raises(LimitsExceeded, match=r"3 calls in a row failed, the last with .*there is no tool") as caught:
        way(server, [look], limits=RunLimits(failures=3))
    assert (caught.value.limit, len(server.requests)) == ("failures", 4)
    roles = [message["role"] for message in caught.value.transcript.messages]
    assert roles.count("tool") == roles.count("assistant") == 4


@pytest.mark.parametrize("pattern", ["AAAA", "ABABABA", "ABCABCABCA"])
def test_calls_that_repeat_themselves_are_not_run_and_then_end_the_run(server, way, pattern):
    ran = []

    def again(letter: str) -> str:
        ran.append(letter)
        return letter

    server.play(*(calls(("again", {"letter": letter})) for letter in pattern))
    with pytest.raises(LimitsExceeded, match="repeats the same calls") as caught:
        way(server, [again], limits=RunLimits(repeats=3))
    assert caught.value.limit == "repeats"
    assert "".join(ran) == pattern[: len(ran)]
    last = caught.value.transcript.results[-1]
    assert last.is_error
    assert "3 times in a row" in last.content


def test_calls_that_change_are_not_a_repetition(server, plain):
    server.play(*(calls(call(path=path)) for path in "AABBAABBCA"), "Done.")
    assert plain(server, [look])[0].content == "Done."


def test_a_call_that_is_announced_but_not_made_is_asked_for_once(server, way):
    server.play("Let me look at a first:", calls(call(path="a")), "Now I will check b.", "Done.")
    transcript, _ = way(server, [look])
    assert transcript.ended == "announced"
    assert transcript.content == "Now I will check b."
    assert transcript.iterations == 3
    assert "announced a tool call" in transcript.messages[2]["content"]
    server.play("Let me look at a first:", calls(call(path="a")), "Done.")
    assert way(server, [look])[0].ended == "answer"
    server.play("Let me look at a first:")
    assert way(server, [look], limits=RunLimits(nudges=0))[0].iterations == 1
    assert way(server, [])[0].ended == "answer"


@pytest.mark.parametrize(
    ("limits", "told"), [({"steps": 0}, "RunLimits.steps"), ({"repeats": 1}, "repeats"), ({"nudges": -1}, "nudges")]
)
def test_limits_that_make_no_sense(limits, told):
    with pytest.raises(UsageError, match=told):
        RunLimits(**limits)


# --- replies that cannot be used -------------------------------------------------------------------------------------


def test_a_reply_that_is_cut_off_or_empty_is_requested_again_and_the_model_sees_why(server, way):
    server.play(ModelReply("Once upon", finish_reason="length"), "", calls(call(path="a")), "Done.")
    transcript, events = way(server, [look])
    assert transcript.content == "Done."
    assert [message["role"] for message in transcript.messages] == ["user", "assistant", "tool", "assistant"]
    step = transcript.steps[0]
    assert [retry.error for retry in step.retries] == ["LongGeneration", "NoToolCallNoFinalMessage"]
    assert (transcript.iterations, transcript.retries) == (2, 2)
    assert transcript.usage["total_tokens"] == 4 * 23
    assert step.usage["total_tokens"] == 23
    second, third, last = (seen.json["messages"] for seen in server.requests[1:])
    assert [message["role"] for message in second] == ["user", "assistant", "user"]
    assert second[1]["content"] == "Once upon"
    assert "LongGeneration" in second[2]["content"]
    assert [message["role"] for message in third] == ["user", "user"]
    assert len(last) == 3
    if way.stream:
        assert [event.attempt for event in events if isinstance(event, RetryEvent)] == [1, 2]


def test_the_papers_resend_shows_no_errors(server, way):
    server.play("", "Done.")
    way(server, [look], policy=AgentPolicy(show_errors=False))
    assert server.requests[0].json["messages"] == server.requests[1].json["messages"]


def test_ten_attempts_are_made(server, way):
    server.play("")
    with pytest.raises(RetrialsExceeded, match="failed after 10 attempts, last exception: NoToolCallNoFinal") as caught:
        way(server, [look])
    assert len(server.requests) == 10
    assert isinstance(caught.value.__cause__, NoToolCallNoFinalMessage)
    assert caught.value.transcript.messages == [{"role": "user", "content": "Do it."}]
    assert isinstance(caught.value, TerminatingError)
    assert isinstance(caught.value, HarnessError)
    assert isinstance(caught.value, PromptoolsError)
    assert issubclass(LongGeneration, NonTerminatingError)


def test_tenacitys_objects_decide_when_to_stop_and_how_long_to_wait(server, way):
    server.play("", "", "", "Done.")
    waits = []

    def wait(state):
        waits.append(state.attempt_number)
        return tenacity.wait_fixed(0.001)(state)

    policy = AgentPolicy(stop=tenacity.stop_after_attempt(3), wait=wait)
    with pytest.raises(RetrialsExceeded, match="after 3 attempts"):
        way(server, [look], policy=policy)
    assert waits == [1, 2, 3]


def test_each_attempt_may_have_a_temperature_of_its_own(server, way):
    server.play("", "", "", calls(call(path="a")), "Done.")
    way(server, [look], policy=AgentPolicy(temperatures=(1.0, 0.5, 0.2)), temperature=0.9)
    assert [seen.json["temperature"] for seen in server.requests] == [1.0, 0.5, 0.2, 0.2, 1.0]


def test_a_reply_that_was_refused_ends_the_run(server, way):
    server.play(ModelReply("I", finish_reason="content_filter"))
    with pytest.raises(UnexpectedFinishReason, match="content_filter") as caught:
        way(server, [look])
    assert len(server.requests) == 1
    assert caught.value.transcript.ended == "UnexpectedFinishReason"


def test_calls_of_a_reply_that_is_cut_off_are_used(server, way):
    server.play(ModelReply("x", calls=[call(path="a")], finish_reason="length"), "Done.")
    assert way(server, [look])[0].results[0].content == "content of a"


def test_the_temperature_falls_with_the_context_that_is_used():
    cooling = AgentPolicy(cooling=0.5)
    assert [cooling.temperature(0, 0.8, used)["temperature"] for used in (0.5, 1, 7)] == pytest.approx([0.6, 0.4, 0.4])
    assert cooling.temperature(0, 0.8, 0.0) == AgentPolicy().temperature(0, 0.8, 1.0) == {}
    assert cooling.temperature(0, None, 1.0) == {"temperature": 0.5}
    assert replace(cooling, temperatures=(1.0, 0.6)).temperature(1, 0.8, 1.0) == {"temperature": 0.3}


def test_a_request_is_cooler_the_more_of_the_context_was_used(server, way):
    usage = {"prompt_tokens": 600, "completion_tokens": 1, "total_tokens": 601}
    server.play(ModelReply(None, calls=[call(path="a")], usage=usage), "Done.")
    policy, compaction = AgentPolicy(cooling=0.5), Compaction(context=1000)
    way(server, [look], policy=policy, compaction=compaction, temperature=1.0)
    assert [seen.json.get("temperature") for seen in server.requests] == [1.0, 0.7]


def test_policies_that_do_not_exist(server):
    with pytest.raises(UsageError, match="there is no policy 'strict'"):
        Agent("x", policy="strict")
    with pytest.raises(UsageError, match="attempts"):
        AgentPolicy(attempts=0)
    with pytest.raises(UsageError, match="cooling"):
        AgentPolicy(cooling=1.5)


def test_each_call_is_allowed_changed_or_denied_with_words(server, way):
    asked = []

    def approve(call):
        asked.append((call.name, call.arguments))
        path = call.arguments["path"]
        return Deny("not that one") if path == "secret" else Change({"path": "b"}) if path == "a" else None

    server.play(calls(call(path="a"), call(path="secret"), call(path="c")), calls(call(path="d")), "Done.")
    done, _ = way(server, [look], approve=approve)
    assert [(result.is_error, result.content) for result in done.results] == [
        (False, '[the call was changed before it was run: {"path": "b"}]\ncontent of b'),
        (True, "Error: PermissionError: not that one"),
        (False, "content of c"),
        (False, "content of d"),
    ]
    assert asked == [("look", {"path": path}) for path in ("a", "secret", "c", "d")]


def test_in_an_async_run_the_function_may_be_async(server):
    async def approve(call):
        await asyncio.sleep(0)
        return Deny("no") if call.arguments["path"] == "a" else Change({"path": 5})

    async def go():
        async with openai.AsyncOpenAI(base_url=server.url, api_key="k", max_retries=0) as client:
            return await Agent(client, [look], model="m", approve=approve).arun("Do it.")

    server.play(calls(call(path="a"), call(path="b")), "Done.")
    assert [result.is_error for result in asyncio.run(go()).results] == [True, False]


def test_a_call_that_an_async_function_allows_runs_in_a_thread_and_knows_the_run(server):
    """The tool waits for something that only the event loop can do."""
    awaited = threading.Event()

    def wait(run: RunContext, path: str) -> str:
        """Wait."""
        return f"{run.state} {awaited.wait(300)}"

    async def approve(call):
        asyncio.get_running_loop().call_later(0, awaited.set)

    async def go():
        async with openai.AsyncOpenAI(base_url=server.url, api_key="k", max_retries=0) as client:
            return await Agent(client, [wait], model="m", approve=approve).arun("Do it.", state="known")

    server.play(calls(call("wait", path="a")), "Done.")
    assert [result.content for result in asyncio.run(go()).results] == ["known True"]


# --- clients ---------------------------------------------------------------------------------------------------------


def test_a_provider_by_its_name(server, monkeypatch, tmp_path):
    (tmp_path / "promptools.toml").write_text(
        f'[providers.here]\nkind = "llamacpp"\nbase_url = "{server.url}"\ndefault_model = "tiny"\n'
    )
    monkeypatch.chdir(tmp_path)
    for colour in ("sync", "async"):
        server.play(calls(call(path="a")), "Done.")
        agent = Agent("here", [look])
        transcript = agent.run("Do it.") if colour == "sync" else asyncio.run(agent.arun("Do it."))
        assert transcript.content == "Done."
        assert server.requests[0].json["model"] == "tiny"


def test_the_wrong_client_is_named(server):
    server.play("Done.")
    with openai.OpenAI(base_url=server.url, api_key="k") as client, pytest.raises(UsageError, match=r"Agent\.run\(\)"):
        asyncio.run(Agent(client, [look]).arun("x"))

    async def go():
        async with openai.AsyncOpenAI(base_url=server.url, api_key="k") as client:
            Agent(client, [look]).run("x")

    with pytest.raises(UsageError, match=r"Agent\.arun\(\)"):
        asyncio.run(go())


@pytest.mark.parametrize("dialect", ["hermes", "qwen3_coder", "harmony"])
def test_calls_in_the_text_of_any_dialect(server, dialect):
    from promptools.testing import calls_as_text

    text = calls_as_text(dialect, [call(path="a")])
    server.play(text, "Done.")
    here = Provider("here", kind="vllm", base_url=server.url, default_model="tiny")
    config = Config(default_provider="here", providers={"here": here})
    with OpenAI(
        config=config, mode="prompt", dialect=dialect if dialect != "harmony" else None, max_retries=0
    ) as client:
        transcript = Agent(client, [look]).run("Do it.")
    assert transcript.content == "Done."
    assert transcript.calls[0].arguments == {"path": "a"}


def test_the_options_of_a_policy_are_those_of_the_requests():
    policy = replace(NOW, harmony_react=True, options={"corrections": 0, "mode": "harmony"})
    asked = {"agent": True, "mode": "harmony"}
    assert policy.request_options == {**asked, "harmony_react": True, "prefill": "channel"}
    assert replace(policy, harmony_react=False).request_options == {**asked, "corrections": 0}
    assert replace(policy, checks="none", harmony_react=False).request_options == {"corrections": 0, "mode": "harmony"}


# --- tapes -----------------------------------------------------------------------------------------------------------


def test_a_run_that_is_interrupted_twice_has_a_result_for_each_call(server, tmp_path):
    def stop(path: str) -> str:
        raise KeyboardInterrupt

    stop.__name__ = "look"
    tape = tmp_path / "run.jsonl"
    with OpenAI(base_url=server.url, api_key="k", detect=False, max_retries=0) as client:
        server.play(calls(call(path="a")), calls(call(path="b")))
        with pytest.raises(LimitsExceeded):
            Agent(client, [look], model="m", limits=RunLimits(steps=2)).run("Do it.", tape=tape)
        server.play(calls(call(path="c")))
        with pytest.raises(KeyboardInterrupt):
            Agent(client, [stop], model="m").resume(tape)
        server.play("Done.")
        done = Agent(client, [look], model="m").resume(tape, "Go on.")
    asked = [made["id"] for message in done.messages for made in message.get("tool_calls") or ()]
    answered = [message["tool_call_id"] for message in done.messages if message["role"] == "tool"]
    assert asked == answered == ["call00000", "call00100", "call00200"]
    assert done.messages[-2:] == [{"role": "user", "content": "Go on."}, {"role": "assistant", "content": "Done."}]


def test_a_provider_by_its_name_replays_its_tape(server, monkeypatch, tmp_path):
    (tmp_path / "promptools.toml").write_text(
        f'[providers.here]\nkind = "llamacpp"\nbase_url = "{server.url}"\ndefault_model = "tiny"\n'
    )
    monkeypatch.chdir(tmp_path)
    server.play(calls(call(path="a")), "Done.")
    done = Agent("here", [look]).run("Do it.", tape="run.jsonl")
    sent = len(server.requests)
    assert Agent("here", [look]).replay("run.jsonl").messages == done.messages
    assert asyncio.run(Agent("here", [look]).areplay("run.jsonl")).messages == done.messages
    assert len(server.requests) == sent
    with openai.OpenAI(base_url=server.url, api_key="k") as client, pytest.raises(UsageError, match="client of prompt"):
        Agent(client, [look]).replay("run.jsonl")


# --- trajectories ----------------------------------------------------------------------------------------------------


def test_a_trajectory_as_mini_swe_agents_tools_read_it(server, plain):
    server.play("", calls(call(path="a"), content="Look."), "Done.")
    transcript, _ = plain(server, [look], instructions="Be brief.")
    made = json.loads(json.dumps(trajectory(transcript, submission="diff", config={"model": "m"})))
    assert made["trajectory_format"] == "mini-swe-agent-1"
    info = made["info"]
    assert (info["exit_status"], info["submission"]) == ("Submitted", "diff")
    assert info["model_stats"]["api_calls"] == 3
    assert all(isinstance(message["content"], str) for message in made["messages"])
    assert [message["role"] for message in made["messages"]] == ["system", "user", "assistant", "user", "assistant"]
    first = made["messages"][2]
    assert first["content"] == 'Look.\nlook({"path": "a"})'
    assert first["extra"]["usage"]["total_tokens"] == 23
    assert [retry["error"] for retry in first["extra"]["retries"]] == ["NoToolCallNoFinalMessage"]
    assert made["messages"][3]["extra"] == {"tool_call_id": "call_0", "tool": "look"}


def test_the_trajectory_of_a_run_that_reached_a_limit(server, plain):
    server.play(calls(call(path="a")), calls(call(path="b")))
    with pytest.raises(IterationLimitError) as caught:
        plain(server, [look], limits=RunLimits(steps=2))
    made = trajectory(caught.value.transcript)
    assert made["info"]["exit_status"] == "steps"
    assert [message["extra"]["step"] for message in made["messages"] if message["role"] == "assistant"] == [1, 2]


def test_every_client_of_ours_works_async(server):
    server.play(calls(call(path="a")), completion("Done."))

    async def go():
        async with AsyncOpenAI(base_url=server.url, api_key="k", config=Config(), max_retries=0) as client:
            return await Agent(client, [look], model="m").arun("Do it.")

    assert asyncio.run(go()).content == "Done."


@pytest.mark.parametrize("stream", [False, True])
def test_what_the_exchange_finds_unusable_is_requested_again_too(server, stream):
    server.play(ModelReply("", finish_reason="tool_calls"), ModelReply("", finish_reason="tool_calls"), "Done.")
    with OpenAI(base_url=server.url, api_key="k", config=Config(), mode="native", max_retries=0) as client:
        agent = Agent(client, [look], model="m")
        done = list(agent.stream("Do it."))[-1] if stream else agent.run("Do it.")
    assert done.content == "Done."
    assert [retry.error for retry in done.steps[0].retries] == ["NoToolCallNoFinalMessage"]
    assert done.steps[0].retries[0].usage["total_tokens"] == 46
    assert "NoToolCallNoFinalMessage" in server.requests[2].json["messages"][-1]["content"]


def test_what_is_the_servers_fault_is_raised_as_it_is(server):
    server.play(http_error(500, "boom"))
    with (
        OpenAI(base_url=server.url, api_key="k", config=Config(), mode="native", max_retries=0) as client,
        pytest.raises(openai.InternalServerError, match="boom"),
    ):
        Agent(client, [look], model="m").run("Do it.")
    assert len(server.requests) == 1
