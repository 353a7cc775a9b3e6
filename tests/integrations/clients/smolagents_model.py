"""smolagents, which ends by a call of its own tool."""

from smolagents import LogLevel, OpenAIModel, ToolCallingAgent, tool
from weather_tool import KEY, QUESTION, get_weather


def chat(address, model, stream):
    options = {"client_kwargs": {"max_retries": 0}, "retry": False, "max_tokens": 300}
    server = OpenAIModel(model, api_base=f"{address}/v1", api_key=KEY, **options)
    agent = ToolCallingAgent(
        tools=[tool(get_weather)], model=server, verbosity_level=LogLevel.OFF, max_steps=2, stream_outputs=stream
    )
    return str(agent.run(QUESTION))


WAYS = {"chat": chat}
