"""langchain's agent over its models of OpenAI, Anthropic and Ollama."""

from langchain.agents import create_agent
from langchain_anthropic import ChatAnthropic
from langchain_ollama import ChatOllama
from langchain_openai import ChatOpenAI
from weather_tool import KEY, QUESTION, get_weather


def ask(model, stream):
    agent = create_agent(model, tools=[get_weather])
    question = {"messages": [("user", QUESTION)]}
    if not stream:
        return agent.invoke(question)["messages"][-1].text
    parts = agent.stream(question, stream_mode="messages")
    return "".join(message.text for message, _ in parts if message.type == "AIMessageChunk")


def of_openai(**more):
    def way(address, model, stream):
        return ask(ChatOpenAI(model=model, base_url=f"{address}/v1", api_key=KEY, max_retries=0, **more), stream)

    return way


def messages(address, model, stream):
    return ask(ChatAnthropic(model=model, base_url=address, api_key=KEY, max_tokens=1000, max_retries=0), stream)


def of_ollama(address, model, stream):
    return ask(ChatOllama(model=model, base_url=address), stream)


WAYS = {
    "chat": of_openai(),
    "responses": of_openai(use_responses_api=True),
    "messages": messages,
    "ollama": of_ollama,
}
