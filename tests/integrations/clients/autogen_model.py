"""autogen's assistant."""

from autogen_agentchat.agents import AssistantAgent
from autogen_ext.models.openai import OpenAIChatCompletionClient
from weather_tool import KEY, QUESTION, get_weather

FEATURES = ("function_calling", "json_output", "structured_output")


async def chat(address, model, stream):
    client = OpenAIChatCompletionClient(
        model=model,
        base_url=f"{address}/v1",
        api_key=KEY,
        max_retries=0,
        model_info={"family": "unknown", "vision": False, **dict.fromkeys(FEATURES, True)},
    )
    agent = AssistantAgent("weather", client, tools=[get_weather], reflect_on_tool_use=True, model_client_stream=stream)
    try:
        return (await agent.run(task=QUESTION)).messages[-1].content
    finally:
        await client.close()


WAYS = {"chat": chat}
