import asyncio


async def stream():
    async with agent.run_stream("What is the weather in Paris right now?") as answer:
        async for text in answer.stream_text(delta=True, debounce_by=None):
            print(text, end="")
    print()


asyncio.run(stream())
