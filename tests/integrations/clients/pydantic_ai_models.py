"""pydantic-ai's models of OpenAI and Anthropic."""

from anthropic import AsyncAnthropic
from openai import AsyncOpenAI
from pydantic_ai import Agent
from pydantic_ai.models.anthropic import AnthropicModel
from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel
from pydantic_ai.providers.anthropic import AnthropicProvider
from pydantic_ai.providers.openai import OpenAIProvider
from weather_tool import KEY, QUESTION, get_weather


def of_openai(kind):
    async def way(address, model, stream):
        async with AsyncOpenAI(base_url=f"{address}/v1", api_key=KEY, max_retries=0) as client:
            return await ask(kind(model, provider=OpenAIProvider(openai_client=client)), stream)

    return way


async def messages(address, model, stream):
    async with AsyncAnthropic(base_url=address, api_key=KEY, max_retries=0) as client:
        return await ask(AnthropicModel(model, provider=AnthropicProvider(anthropic_client=client)), stream)


async def ask(model, stream):
    agent = Agent(model, tools=[get_weather])
    if not stream:
        return (await agent.run(QUESTION)).output
    async with agent.run_stream(QUESTION) as result:
        return "".join([piece async for piece in result.stream_text(delta=True)])


WAYS = {"chat": of_openai(OpenAIChatModel), "responses": of_openai(OpenAIResponsesModel), "messages": messages}
