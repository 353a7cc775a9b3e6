"""Async: `AsyncOpenAI` for three questions at once, then `run_tools_async` for a whole conversation."""

import asyncio

from promptools import AsyncOpenAI, run_tools_async
from promptools.lab import weather
from promptools.lab.llamacpp_server import serve


async def get_weather(city: str) -> str:
    """Tell the current weather of a city."""
    await asyncio.sleep(0)  # an async tool is awaited; a plain one runs in a thread
    return f"{city}: clear sky, 18 degrees"


async def main(base_url, model):
    question = [{"role": "user", "content": weather.QUESTION}]
    async with AsyncOpenAI(base_url=base_url, api_key="none") as client:
        asked = (client.chat.completions.create(model=model, messages=question, tools=[weather.TOOL]) for _ in range(3))
        for reply in await asyncio.gather(*asked):
            call = reply.choices[0].message.tool_calls[0]
            print(call.function.name, call.function.arguments)

        transcript = await run_tools_async(client, question, [get_weather], model=model)
        print(transcript.content)


if __name__ == "__main__":
    with serve(weather.hermes_script(), template="hermes", name="hermes") as server:
        asyncio.run(main(server.base_url, server.name))
