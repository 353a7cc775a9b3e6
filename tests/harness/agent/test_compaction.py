"""Compaction: what is dropped, in which order, and that no result is left without its call; over a scripted server."""

import json
from itertools import pairwise

import openai
import pytest
from hypothesis import given
from hypothesis import strategies as st
from upstream import running

from promptools.client import OpenAI
from promptools.errors import UsageError
from promptools.harness.agent import Agent, Compaction, CompactionEvent
from promptools.harness.agent import compaction as plan
from promptools.harness.agent.conversation import Conversation
from promptools.harness.agent.harness_errors import MaxContextWindowOverflow
from promptools.testing import HttpAnswer, ModelReply


@pytest.fixture(scope="module")
def server():
    with running() as upstream:
        yield upstream


def overflow(prompt=None, context=None):
    numbers = f"request ({prompt} tokens) exceeds the available context size ({context} tokens), try increasing it"
    text = numbers if prompt else "This model's maximum context length is exceeded: exceeds the available context size"
    body = json.dumps({"error": {"message": text, "type": "exceed_context_size_error", "code": 400}})
    return HttpAnswer(400, (body.encode(),))


def read(path: str) -> str:
    """Read a file."""
    return f"{path} " * 1000


def reading(path, reasoning=""):
    return ModelReply(None, calls=[("read", {"path": path})], reasoning=reasoning)


def run(server, *script, messages="The task.", **options):
    server.play(*script)
    with openai.OpenAI(base_url=server.url, api_key="k", max_retries=0) as client:
        events = list(Agent(client, [read], model="m", instructions="Be brief.", **options).stream(messages))
    return events[-1], [event for event in events if isinstance(event, CompactionEvent)]


def is_whole(messages):
    """Whether each result follows its call, and each call has its result."""
    open_calls: list[str] = []
    for message in messages:
        if message["role"] == "tool":
            if message["tool_call_id"] not in open_calls:
                return False
            open_calls.remove(message["tool_call_id"])
        elif open_calls:
            return False
        open_calls += [call["id"] for call in message.get("tool_calls") or ()]
    return not open_calls


def sent(server):
    return [seen.json["messages"] for seen in server.requests]


READS = [reading(f"file{n}") for n in range(6)]


def test_old_results_are_shortened_when_the_server_says_that_the_prompt_is_too_long(server):
    done, events = run(server, *READS, overflow(9000, 8000), "Done.", compaction=Compaction(keep_turns=2))
    assert done.content == "Done."
    assert [event.stage for event in events] == ["results", "results"]
    assert events[0].after < events[0].before
    last = sent(server)[-1]
    lengths = [len(message["content"]) for message in last if message["role"] == "tool"]
    assert all(length <= 500 for length in lengths[:-2])
    assert all(length == 6000 for length in lengths[-2:])
    assert "characters were left out here" in last[3]["content"]
    assert is_whole(last)


def test_then_the_model_writes_a_summary(server):
    done, events = run(
        server, *READS, overflow(9000, 3000), "Six files were read.", "Done.", compaction=Compaction(keep_turns=2)
    )
    assert [event.stage for event in events] == ["results", "results", "summary", "latest results"]
    *_, asking, last = sent(server)
    assert [message["role"] for message in asking] == ["system", "user"]
    assert "The task." in asking[1]["content"]
    assert "file0" in asking[1]["content"]
    assert [message["role"] for message in last[:3]] == ["system", "user", "user"]
    assert (last[0]["content"], last[1]["content"]) == ("Be brief.", "The task.")
    assert last[2]["content"] == "Summary of the work so far:\nSix files were read."
    assert [message["role"] for message in last[3:]] == ["assistant", "tool"] * 2
    assert is_whole(last)
    assert "tools" not in server.requests[-2].json
    assert done.usage["total_tokens"] == 23 * 8
    assert done.iterations == 7


def test_a_call_in_a_summary_is_left_out(server):
    call = '<tool_call>\n{"name": "read", "arguments": {"path": "file6"}}\n</tool_call>'
    script = [*READS, overflow(9000, 3000), f"Six files were read.\n{call}", "Done."]
    done, _ = run(server, *script, compaction=Compaction(keep_turns=2))
    assert sent(server)[-1][2]["content"] == "Summary of the work so far:\nSix files were read."
    assert done.content == "Done."
    done, events = run(server, *script[:-2], call, "Done.", compaction=Compaction(keep_turns=2))
    assert [event.stage for event in events] == ["results", "results", "latest results", "latest results"]
    assert done.content == "Done."


def test_without_numbers_each_overflow_leads_to_the_next_stage(server):
    thoughtful = [reading(f"file{n}", reasoning="Hm. " * 9) for n in range(6)]
    done, events = run(
        server,
        *thoughtful,
        *([overflow()] * 3),
        "Summary.",
        overflow(),
        "Done.",
        compaction=Compaction(keep_turns=2),
    )
    assert [event.stage for event in events] == ["results", "results", "summary", "latest results"]
    assert done.content == "Done."


def test_it_is_done_before_the_server_complains_if_the_context_is_known(server):
    usage = {"prompt_tokens": 1000, "completion_tokens": 1, "total_tokens": 1001}
    big = [ModelReply(None, calls=[("read", {"path": f"file{n}"})], usage=usage) for n in range(4)]
    done, events = run(server, *big, "Done.", compaction=Compaction(context=1100, keep_turns=1, summarise=False))
    assert done.content == "Done."
    assert events
    assert all(seen.json["messages"] for seen in server.requests)


@pytest.mark.parametrize("streamed", [False, True])
def test_the_prompts_of_failed_attempts_are_not_counted(server, streamed):
    usage = {"prompt_tokens": 1000, "completion_tokens": 9, "total_tokens": 1009}
    call = ModelReply(None, calls=[("read", {"path": "file1"})], usage=usage)
    server.play(ModelReply("", usage=usage), call, "Done.")  # the exchange asks again after the empty reply
    compaction = Compaction(context=2200, keep_turns=1, summarise=False)
    with OpenAI(base_url=server.url, api_key="k", detect=False, max_retries=0) as client:
        agent = Agent(client, [read], model="m", compaction=compaction)
        done = list(agent.stream("The task." * 1000))[-1] if streamed else agent.run("The task." * 1000)
    assert done.steps[0].usage["prompt_tokens"] == 2000
    assert (done.content, len(done.messages[2]["content"])) == ("Done.", len(read("file1")))


def test_the_tools_of_a_short_conversation_do_not_count_as_its_characters(server):
    """The first prompt is almost all tools: 330 tokens for two dozen characters of conversation."""
    first = ModelReply(None, calls=[("read", {"path": "abcde"})], usage={"prompt_tokens": 330, "completion_tokens": 9})
    done, events = run(server, first, "Done.", compaction=Compaction(context=16384))
    assert events == []
    assert done.messages[3]["content"] == "abcde " * 1000


@pytest.mark.parametrize("off", [False, True])
def test_an_overflow_that_cannot_be_helped_ends_the_run(server, off):
    options = {"compaction": False} if off else {"compaction": Compaction(keep_turns=1, summarise=False)}
    told = "compaction is off" if off else "nothing left to make shorter"
    with pytest.raises(MaxContextWindowOverflow, match=told) as caught:
        run(server, *READS, overflow(9000, 8000), **options)
    assert is_whole(caught.value.transcript.messages)
    assert isinstance(caught.value.__cause__, openai.BadRequestError)


def test_a_summary_that_does_not_fit_either_is_left_out(server):
    done, events = run(
        server, *READS, overflow(9000, 3000), overflow(4000, 3000), "Done.", compaction=Compaction(keep_turns=2)
    )
    assert done.content == "Done."
    assert [event.stage for event in events] == ["results", "results", "latest results", "latest results"]


def test_a_run_that_overflows_is_tried_again_from_its_beginning(server):
    server.play(*READS[:2], overflow(9000, 8000), *READS[:1], "Done.")
    with openai.OpenAI(base_url=server.url, api_key="k", max_retries=0) as client:
        done = Agent(client, [read], model="m", compaction=False).run("The task.", overflow_retries=1)
    assert (done.content, done.iterations) == ("Done.", 2)
    server.play(overflow(9000, 8000))
    with (
        openai.OpenAI(base_url=server.url, api_key="k", max_retries=0) as client,
        pytest.raises(MaxContextWindowOverflow),
    ):
        Agent(client, [read], model="m", compaction=False).run("The task.", overflow_retries=2)
    assert len(server.requests) == 3


def test_the_task_is_the_last_message_of_the_user_that_was_passed_in(server):
    history = [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "An old question. " * 200},
        {"role": "assistant", "content": "An old answer. " * 200},
        {"role": "user", "content": "The task."},
    ]
    _, events = run(
        server,
        *READS,
        overflow(9000, 3000),
        "All was read.",
        "Done.",
        messages=history,
        compaction=Compaction(keep_turns=1),
    )
    assert "summary" in [event.stage for event in events]
    last = sent(server)[-1]
    assert [message["content"] for message in last[:3]] == [
        "Be brief.",
        "The task.",
        "Summary of the work so far:\nAll was read.",
    ]


# --- the plan, of any conversation -----------------------------------------------------------------------------------

TEXT = st.text(alphabet="ab ", max_size=400)


@st.composite
def conversations(draw):
    messages = [{"role": "system", "content": "S"}] if draw(st.booleans()) else []
    messages.append({"role": "user", "content": "The task."})
    for turn in range(draw(st.integers(0, 8))):
        made = draw(st.integers(0, 3))
        made_calls = [{"id": f"c{turn}{n}", "function": {"name": "f", "arguments": "{}"}} for n in range(made)]
        message = {"role": "assistant", "content": draw(TEXT), "reasoning_content": draw(TEXT)}
        messages.append({**message, "tool_calls": made_calls} if made else message)
        messages += ({"role": "tool", "tool_call_id": one["id"], "content": draw(TEXT)} for one in made_calls)
        if not made:
            messages.append({"role": "user", "content": draw(TEXT)})
    return messages


@given(conversations(), st.integers(1, 5))
def test_whatever_is_left_out_the_rest_is_whole(messages, turns):
    task = next(at for at, message in enumerate(messages) if message["role"] == "user")
    latest = plan.latest_turns(messages, turns)
    kept = messages[latest:]
    quiet = plan.without_reasoning(messages, latest)
    short = plan.with_short_results(quiet, 0, latest, 100)
    for step in (quiet, short):
        assert is_whole(step)
        assert step[latest:] == kept
        assert plan.size(step) <= plan.size(messages)
    old = plan.old_messages(short, task, latest)
    if old:
        made, at = plan.with_summary(short, task, old, "So far.")
        assert is_whole(made)
        assert made[at] == messages[task]
        assert made[len(made) - len(kept) :] == kept
        assert sum(plan.is_summary(message) for message in made) == 1
        request = plan.summary_request(short, task, old, 1000)
        assert "The task." in request[1]["content"]


@given(st.text(), st.integers(100, 1000))
def test_a_text_is_shortened_from_both_ends(text, characters):
    text = text * 20
    short = plan.shorten(text, characters)
    assert len(short) <= characters
    assert plan.shorten(short, characters) == short
    assert short[:20] == text[:20]
    assert short[-20:] == text[-20:]


@pytest.mark.parametrize(
    "wrong", [{"threshold": 0}, {"threshold": 1.2}, {"keep_turns": 0}, {"result_characters": 5}], ids=str
)
def test_settings_that_make_no_sense(wrong):
    with pytest.raises(UsageError, match="Compaction"):
        Compaction(**wrong)


# --- how often


def played(steps, result, context, settings=None):
    """Run the stages over a conversation that grows by a call and its result at each step; return what happened."""
    conversation = Conversation([{"role": "system", "content": "Be brief."}, {"role": "user", "content": "The task."}])

    def summary(messages):
        yield from ()
        return "What was found. " * 60

    compactor = plan.Compactor(settings or Compaction(context=context), conversation, summary)
    events, kept = [], []
    for number in range(steps):
        if compactor.is_due:
            events += compactor.compact()
        sizes = plan.size(conversation.messages)
        compactor.learn(sizes // 4 + 300, sizes)
        kept.append((sizes // 4 + 300) / context)
        function = {"name": "read", "arguments": json.dumps({"path": f"file{number}"})}
        calls = [{"id": str(number), "type": "function", "function": function}]
        thought = {"reasoning_content": "Now I read the next one. " * 8}
        conversation.messages.append({"role": "assistant", "content": None, "tool_calls": calls, **thought})
        conversation.messages.append({"role": "tool", "tool_call_id": str(number), "content": "x" * result})
    return [event.stage for event in events], kept


def test_sixty_steps_in_32_000_tokens_need_at_most_three_summaries():
    for result in (1_000, 4_000, 10_000, 15_000, 20_000, 24_000, 30_000):
        stages, kept = played(60, result, 32_000)
        assert stages.count("summary") <= 3, result
        assert max(kept) <= 0.8 + result / 4 / 32_000, result


def test_there_is_room_for_some_turns_each_time():
    _, kept = played(60, 10_000, 32_000)
    shortened = [after for before, after in pairwise(kept) if after < before]
    assert 0 < len(shortened) <= 16
    assert max(shortened) <= 0.51
