"""Working tool calls from any open-model server.

`parse` and `StreamParser` read a model's text; `OpenAI`, `AsyncOpenAI` and `wrap` put the whole exchange behind the
client that an app already has; `run_tools` runs a conversation with tools to its end.
"""

from __future__ import annotations

from promptools.errors import Exhausted, ModelError, PromptoolsError, UpstreamError, UsageError
from promptools.parsing.engine import StreamParser, parse
from promptools.schema import Tools
from promptools.types import Call, Discarded, Fix, Malformed, Reply, Result, Span, Tool, Trace

__version__ = "0.1.0"

__all__ = [
    "Call",
    "Discarded",
    "Exhausted",
    "Fix",
    "Malformed",
    "ModelError",
    "PromptoolsError",
    "Reply",
    "Result",
    "Span",
    "StreamParser",
    "Tool",
    "Tools",
    "Trace",
    "UpstreamError",
    "UsageError",
    "parse",
]
