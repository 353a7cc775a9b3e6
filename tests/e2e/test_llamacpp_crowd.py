"""Many streams at once: no two get mixed up."""

import asyncio
import json

import openai
import pytest
from configs import default_config
from scenes import WEATHER

from promptools.cli.collected_reply import CollectedReply
from promptools.client import AsyncOpenAI

pytestmark = pytest.mark.exhaustive

CROWD = 40


async def one(client: openai.AsyncOpenAI, model: str, number: int) -> tuple[int, list, str | None]:
    answer = CollectedReply()
    stream = await client.chat.completions.create(
        model=model,
        messages=[{"role": "user", "content": f"Weather of City{number}?"}],
        tools=[WEATHER],
        stream=True,
    )
    async for chunk in stream:
        list(answer.add(chunk))
    return number, answer.reply.calls, answer.reply.finish_reason


@pytest.mark.parametrize("way", ["client", "proxy"])
def test_forty_streams_at_once(hermes_server, proxies, way):
    async def crowd() -> list[tuple[int, list, str | None]]:
        if way == "client":
            client = AsyncOpenAI(config=default_config(hermes_server), max_retries=0, timeout=300)
        else:
            url = proxies.before(hermes_server.base_url, "llamacpp")
            client = openai.AsyncOpenAI(base_url=url, api_key="none", max_retries=0, timeout=300)
        async with client:
            return await asyncio.gather(*(one(client, hermes_server.name, number) for number in range(CROWD)))

    for number, calls, finish_reason in asyncio.run(crowd()):
        assert finish_reason == "tool_calls"
        (call,) = calls
        assert json.loads(call.arguments) == {"city": f"City{number}"}
