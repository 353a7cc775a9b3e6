import asyncio


async def stream():
    result = Runner.run_streamed(agent, "What is the weather in Paris right now?")
    async for event in result.stream_events():
        if event.type == "raw_response_event" and event.data.type == "response.output_text.delta":
            print(event.data.delta, end="")
    print()


asyncio.run(stream())
