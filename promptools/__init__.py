"""Working tool calls from any open-model server.

- `parse` and `StreamParser` read tool calls from a model's text.
- `render` writes a conversation with tools as a prompt.
- `OpenAI`, `AsyncOpenAI` and `wrap` give an app clients that do both, choose a mode for each server, and retry.
- `http_client` and `async_http_client` return HTTP clients that do the same inside a framework.
- `run_tools` runs a conversation with tools to its end.
- `Agent` works on tasks, within limits and according to a policy.

Importing this package does no I/O and loads none of its modules: each name loads its module on first access. So openai
and other large libraries are loaded only when they are needed, and the command line can handle Ctrl+C early.
"""

from __future__ import annotations

from importlib import import_module as _import_module

TYPE_CHECKING = False  # true for type checkers; importing it from `typing` would take longer than the rest of this file

if TYPE_CHECKING:
    from promptools import errors, types
    from promptools.client import AsyncOpenAI, OpenAI
    from promptools.engine import StreamParser, parse
    from promptools.errors import Exhausted, ModelError, PromptoolsError, UpstreamError, UsageError
    from promptools.exchange import Observer
    from promptools.fallback import Breaker
    from promptools.harness.agent import (
        Agent,
        AgentPolicy,
        Approve,
        CallEvent,
        Change,
        Compaction,
        CompactionEvent,
        Deny,
        IterationLimitError,
        ReasoningEvent,
        ResultEvent,
        RetryEvent,
        RunContext,
        RunEvent,
        RunLimits,
        StepEvent,
        TextEvent,
        Transcript,
        read_tape,
        run_tools,
        run_tools_async,
    )
    from promptools.modes.prompt_mode import render
    from promptools.parsing.events import CallArgs, CallEnd, CallStart, End, Event, Reasoning, Text, WasReasoning
    from promptools.profiles import Config, load_config, resolve
    from promptools.proxy import Proxy
    from promptools.schema import Tools
    from promptools.transport import Settings
    from promptools.types import Call, Discarded, Fix, Malformed, Reply, Result, Span, Tool, Trace
    from promptools.wrapping import async_http_client, http_client, wrap

__version__ = "0.1.0"

__all__ = [
    "Agent",
    "AgentPolicy",
    "Approve",
    "AsyncOpenAI",
    "Breaker",
    "Call",
    "CallArgs",
    "CallEnd",
    "CallEvent",
    "CallStart",
    "Change",
    "Compaction",
    "CompactionEvent",
    "Config",
    "Deny",
    "Discarded",
    "End",
    "Event",
    "Exhausted",
    "Fix",
    "IterationLimitError",
    "Malformed",
    "ModelError",
    "Observer",
    "OpenAI",
    "PromptoolsError",
    "Proxy",
    "Reasoning",
    "ReasoningEvent",
    "Reply",
    "Result",
    "ResultEvent",
    "RetryEvent",
    "RunContext",
    "RunEvent",
    "RunLimits",
    "Settings",
    "Span",
    "StepEvent",
    "StreamParser",
    "Text",
    "TextEvent",
    "Tool",
    "Tools",
    "Trace",
    "Transcript",
    "UpstreamError",
    "UsageError",
    "WasReasoning",
    "async_http_client",
    "errors",
    "http_client",
    "load_config",
    "parse",
    "read_tape",
    "render",
    "resolve",
    "run_tools",
    "run_tools_async",
    "types",
    "wrap",
]

_LAZY = {
    "Agent": "promptools.harness.agent",
    "AgentPolicy": "promptools.harness.agent",
    "Approve": "promptools.harness.agent",
    "AsyncOpenAI": "promptools.client",
    "Breaker": "promptools.fallback",
    "Call": "promptools.types",
    "CallArgs": "promptools.parsing.events",
    "CallEnd": "promptools.parsing.events",
    "CallEvent": "promptools.harness.agent",
    "CallStart": "promptools.parsing.events",
    "Change": "promptools.harness.agent",
    "Compaction": "promptools.harness.agent",
    "CompactionEvent": "promptools.harness.agent",
    "Config": "promptools.profiles",
    "Deny": "promptools.harness.agent",
    "Discarded": "promptools.types",
    "End": "promptools.parsing.events",
    "Event": "promptools.parsing.events",
    "Exhausted": "promptools.errors",
    "Fix": "promptools.types",
    "IterationLimitError": "promptools.harness.agent",
    "Malformed": "promptools.types",
    "ModelError": "promptools.errors",
    "Observer": "promptools.exchange",
    "OpenAI": "promptools.client",
    "PromptoolsError": "promptools.errors",
    "Proxy": "promptools.proxy",
    "Reasoning": "promptools.parsing.events",
    "ReasoningEvent": "promptools.harness.agent",
    "Reply": "promptools.types",
    "Result": "promptools.types",
    "ResultEvent": "promptools.harness.agent",
    "RetryEvent": "promptools.harness.agent",
    "RunContext": "promptools.harness.agent",
    "RunEvent": "promptools.harness.agent",
    "RunLimits": "promptools.harness.agent",
    "Settings": "promptools.transport",
    "Span": "promptools.types",
    "StepEvent": "promptools.harness.agent",
    "StreamParser": "promptools.engine",
    "Text": "promptools.parsing.events",
    "TextEvent": "promptools.harness.agent",
    "Tool": "promptools.types",
    "Tools": "promptools.schema",
    "Trace": "promptools.types",
    "Transcript": "promptools.harness.agent",
    "UpstreamError": "promptools.errors",
    "UsageError": "promptools.errors",
    "WasReasoning": "promptools.parsing.events",
    "async_http_client": "promptools.wrapping",
    "http_client": "promptools.wrapping",
    "load_config": "promptools.profiles",
    "parse": "promptools.engine",
    "read_tape": "promptools.harness.agent",
    "render": "promptools.modes.prompt_mode",
    "resolve": "promptools.profiles",
    "run_tools": "promptools.harness.agent",
    "run_tools_async": "promptools.harness.agent",
    "wrap": "promptools.wrapping",
}
_MODULES = frozenset(("errors", "types"))


if not TYPE_CHECKING:  # else type checkers would accept any name

    def __getattr__(name: str) -> object:
        if name in _LAZY:
            return getattr(_import_module(_LAZY[name]), name)
        if name in _MODULES:
            return _import_module(f"{__name__}.{name}")
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    """Return the public names, for tab completion, without the names that this module uses internally."""
    return sorted({*__all__, "__all__", "__doc__", "__file__", "__name__", "__path__", "__version__"})
