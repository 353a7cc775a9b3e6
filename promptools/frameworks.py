"""How to use promptools in each framework: the lines of docs/tasks/frameworks.md."""

from __future__ import annotations

from types import ModuleType

FRAMEWORKS_PAGE = "docs/tasks/frameworks.md"

_LANGCHAIN = "ChatOpenAI(..., http_client=promptools.http_client(), http_async_client=promptools.async_http_client())"
_PYDANTIC_AI = "OpenAIProvider(base_url=..., http_client=promptools.async_http_client())"
_AGENTS = 'set_default_openai_client(promptools.AsyncOpenAI(...)) and set_default_openai_api("chat_completions")'
_AUTOGEN = "OpenAIChatCompletionClient(..., http_client=promptools.async_http_client())"
_LLAMA_INDEX = "OpenAILike(..., http_client=promptools.http_client(), async_http_client=promptools.async_http_client())"
_LITELLM = (
    "litellm.client_session = promptools.http_client() and litellm.aclient_session = promptools.async_http_client()"
)

USAGE_LINES = {
    "agents": _AGENTS,
    "autogen_agentchat": _AUTOGEN,
    "autogen_core": _AUTOGEN,
    "autogen_ext": _AUTOGEN,
    "instructor": "instructor.from_openai(promptools.OpenAI(...))",
    "langchain": _LANGCHAIN,
    "langchain_core": _LANGCHAIN,
    "langchain_openai": _LANGCHAIN,
    "langgraph": _LANGCHAIN,
    "litellm": _LITELLM,
    "llama_index": _LLAMA_INDEX,
    "pydantic_ai": _PYDANTIC_AI,
    "smolagents": 'OpenAIModel(..., client_kwargs={"http_client": promptools.http_client()})',
}
"""The line to write, by the top-level package of an object's class."""


def usage_line(thing: object) -> str | None:
    """Return the line for the framework that an object, a class or a module belongs to; None for no known one."""
    if isinstance(thing, ModuleType):
        names = [thing.__name__]
    else:
        kind = thing if isinstance(thing, type) else type(thing)
        names = [base.__module__ for base in kind.__mro__]
    roots = (name.partition(".")[0] for name in names)
    return next((USAGE_LINES[root] for root in roots if root in USAGE_LINES), None)
