"""Hand frameworks' own objects to `wrap`, and print whether it says what to write instead: `refused.py ENVIRONMENT`."""

import os
import sys

import promptools
from promptools.wrapping import USAGE_LINES

os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"
SERVER = {"base_url": "http://localhost:8000/v1", "api_key": "none"}


def with_openai_3():
    from agents import Agent
    from autogen_ext.models.openai import OpenAIChatCompletionClient
    from langchain_openai import ChatOpenAI
    from langgraph.graph import MessagesState, StateGraph
    from pydantic_ai import Agent as PydanticAgent
    from smolagents import OpenAIModel

    yield "langchain_openai", ChatOpenAI(model="m", **SERVER)
    yield "langchain_openai", ChatOpenAI
    yield "langgraph", StateGraph(MessagesState)
    yield "agents", Agent(name="a")
    yield "pydantic_ai", PydanticAgent()
    yield "smolagents", OpenAIModel("m", api_base="http://localhost:8000/v1", api_key="none")
    yield "autogen_ext", OpenAIChatCompletionClient(model="gpt-4o", **SERVER)


def with_openai_2():
    import instructor
    import litellm
    from llama_index.llms.openai_like import OpenAILike

    yield "instructor", instructor.from_openai(promptools.OpenAI(**SERVER))
    yield "litellm", litellm
    yield "llama_index", OpenAILike(model="m", api_base="http://localhost:8000/v1", api_key="none")


def message(thing):
    try:
        promptools.wrap(thing)
    except promptools.UsageError as error:
        return str(error)
    return "it was wrapped"


for package, thing in with_openai_3() if sys.argv[1] == "frameworks-openai-3" else with_openai_2():
    print(USAGE_LINES[package] in message(thing), package, message(thing))
