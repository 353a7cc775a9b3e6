async def stream():
    agent = AssistantAgent("weather", model, tools=[get_weather], reflect_on_tool_use=True, model_client_stream=True)
    events = [event async for event in agent.run_stream(task="What is the weather in Paris right now?")]
    text = "".join(event.content for event in events if type(event).__name__ == "ModelClientStreamingChunkEvent")
    print(text.rpartition("</think>")[2])


asyncio.run(stream())
