"""OpenAI's Agents SDK, whose default is the Responses API."""

from agents import Agent, OpenAIChatCompletionsModel, OpenAIResponsesModel, Runner, function_tool
from openai import AsyncOpenAI
from weather_tool import KEY, QUESTION, TURNS, get_weather


def way(kind):
    async def ask(address, model, stream):
        async with AsyncOpenAI(base_url=f"{address}/v1", api_key=KEY, max_retries=0) as client:
            agent = Agent(name="weather", model=kind(model, client), tools=[function_tool(get_weather)])
            if not stream:
                return (await Runner.run(agent, QUESTION, max_turns=TURNS)).final_output
            result = Runner.run_streamed(agent, QUESTION, max_turns=TURNS)
            events = [event async for event in result.stream_events() if event.type == "raw_response_event"]
            return "".join(event.data.delta for event in events if event.data.type == "response.output_text.delta")

    return ask


WAYS = {"responses": way(OpenAIResponsesModel), "chat": way(OpenAIChatCompletionsModel)}
