"""pydantic-ai's kinds of output."""

from openai import AsyncOpenAI
from pydantic_ai import Agent, NativeOutput, PromptedOutput, ToolOutput
from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel
from pydantic_ai.providers.openai import OpenAIProvider
from weather_form import KEY, QUESTION, Weather


def way(kind, output):
    async def ask(address, model, stream):
        async with AsyncOpenAI(base_url=f"{address}/v1", api_key=KEY, max_retries=0) as client:
            provider = OpenAIProvider(openai_client=client)
            agent = Agent(kind(model, provider=provider), output_type=output(Weather), retries=0)
            if not stream:
                return (await agent.run(QUESTION)).output
            async with agent.run_stream(QUESTION) as result:
                return await result.get_output()

    return ask


WAYS = {
    "`NativeOutput`": way(OpenAIChatModel, NativeOutput),
    "`NativeOutput` (Responses)": way(OpenAIResponsesModel, NativeOutput),
    "`PromptedOutput`": way(OpenAIChatModel, PromptedOutput),
}
CALLS = {
    "`ToolOutput`": way(OpenAIChatModel, ToolOutput),
    "`ToolOutput` (Responses)": way(OpenAIResponsesModel, ToolOutput),
}
