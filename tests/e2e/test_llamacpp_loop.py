"""The execution loop on a real server: question, call, our function, answer."""

import asyncio

import pytest
from configs import default_config
from scenes import ANSWER, QUESTION, RESULT

from promptools.client import AsyncOpenAI, OpenAI
from promptools.harness.agent import CallEvent, ResultEvent, TextEvent, Transcript, run_tools, run_tools_async

SERVERS = ["hermes_server", "harmony_server", "plain_server"]
ASKED = [{"role": "user", "content": QUESTION}]


def get_weather(city: str) -> str:
    """Current weather of a city."""
    assert city == "Paris"
    return RESULT


@pytest.mark.parametrize("kind", SERVERS)
def test_the_loop_runs_to_the_answer(request, kind):
    with OpenAI(config=default_config(request.getfixturevalue(kind)), timeout=300) as client:
        done = run_tools(client, ASKED, [get_weather])
    assert (done.content, done.iterations) == (ANSWER, 2)
    assert [(call.name, call.arguments) for call in done.calls] == [("get_weather", {"city": "Paris"})]
    assert [result.content for result in done.results] == [RESULT]
    assert [message["role"] for message in done.messages] == ["user", "assistant", "tool", "assistant"]


def test_streamed_it_tells_what_happens(hermes_server):
    with OpenAI(config=default_config(hermes_server), timeout=300, mode="prompt") as client:
        events = list(run_tools(client, ASKED, [get_weather], stream=True))
    kinds = [type(event) for event in events]
    assert kinds.index(CallEvent) < kinds.index(ResultEvent)
    assert isinstance(events[-1], Transcript)
    after = events[kinds.index(ResultEvent) :]
    assert "".join(event.text for event in after if isinstance(event, TextEvent)) == ANSWER


def test_awaited_it_is_the_same(harmony_server):
    async def run() -> Transcript:
        async with AsyncOpenAI(config=default_config(harmony_server), timeout=300) as client:
            return await run_tools_async(client, ASKED, [get_weather])

    assert asyncio.run(run()).content == ANSWER
