"""Working tool calls from any open-model server.

`parse` and `StreamParser` read tool calls from a model's text. `render` renders a conversation with tools as a prompt.
`OpenAI`, `AsyncOpenAI` and `wrap` do both, and choose modes and retry, inside the client that an app already uses;
`http_client` and `async_http_client` do so inside a framework's client. `run_tools` runs a conversation with tools to
its end; an `Agent` works on tasks, within limits and by a policy.

Importing this package does no I/O and loads nothing: each name loads its module on first access. So neither openai nor
any other large library is loaded before it is needed, and the command line is ready for an interrupt at once.
"""

from __future__ import annotations

from importlib import import_module as _import_module

TYPE_CHECKING = False  # true for type checkers; to import `typing` takes longer than all that is here

if TYPE_CHECKING:
    from promptools.client import AsyncOpenAI, OpenAI
    from promptools.engine import StreamParser, parse
    from promptools.errors import Exhausted, ModelError, PromptoolsError, UpstreamError, UsageError
    from promptools.harness.agent import (
        Agent,
        AgentPolicy,
        Compaction,
        RunContext,
        RunLimits,
        Transcript,
        run_tools,
        run_tools_async,
    )
    from promptools.modes.prompt_mode import render
    from promptools.profiles import resolve
    from promptools.schema import Tools
    from promptools.types import Call, Discarded, Fix, Malformed, Reply, Result, Span, Tool, Trace
    from promptools.wrapping import async_http_client, http_client, wrap

__version__ = "0.1.0"

__all__ = [
    "Agent",
    "AgentPolicy",
    "AsyncOpenAI",
    "Call",
    "Compaction",
    "Discarded",
    "Exhausted",
    "Fix",
    "Malformed",
    "ModelError",
    "OpenAI",
    "PromptoolsError",
    "Reply",
    "Result",
    "RunContext",
    "RunLimits",
    "Span",
    "StreamParser",
    "Tool",
    "Tools",
    "Trace",
    "Transcript",
    "UpstreamError",
    "UsageError",
    "async_http_client",
    "http_client",
    "parse",
    "render",
    "resolve",
    "run_tools",
    "run_tools_async",
    "wrap",
]

_LAZY = {
    "Agent": "promptools.harness.agent",
    "AgentPolicy": "promptools.harness.agent",
    "AsyncOpenAI": "promptools.client",
    "Call": "promptools.types",
    "Compaction": "promptools.harness.agent",
    "Discarded": "promptools.types",
    "Exhausted": "promptools.errors",
    "Fix": "promptools.types",
    "Malformed": "promptools.types",
    "ModelError": "promptools.errors",
    "OpenAI": "promptools.client",
    "PromptoolsError": "promptools.errors",
    "Reply": "promptools.types",
    "Result": "promptools.types",
    "RunContext": "promptools.harness.agent",
    "RunLimits": "promptools.harness.agent",
    "Span": "promptools.types",
    "StreamParser": "promptools.engine",
    "Tool": "promptools.types",
    "Tools": "promptools.schema",
    "Trace": "promptools.types",
    "Transcript": "promptools.harness.agent",
    "UpstreamError": "promptools.errors",
    "UsageError": "promptools.errors",
    "async_http_client": "promptools.wrapping",
    "http_client": "promptools.wrapping",
    "parse": "promptools.engine",
    "render": "promptools.modes.prompt_mode",
    "resolve": "promptools.profiles",
    "run_tools": "promptools.harness.agent",
    "run_tools_async": "promptools.harness.agent",
    "wrap": "promptools.wrapping",
}


def __getattr__(name: str) -> object:
    if name in _LAZY:
        return getattr(_import_module(_LAZY[name]), name)
    if name in {"errors", "types"}:
        return _import_module(f"{__name__}.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *_LAZY})
