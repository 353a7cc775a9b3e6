"""The execution loop: the model calls Python functions until it answers."""

from promptools.agent.events import (
    CallEvent,
    IterationLimitError,
    ReasoningEvent,
    ResultEvent,
    RunEvent,
    TextEvent,
    Transcript,
)
from promptools.agent.run import run_tools, run_tools_async

__all__ = [
    "CallEvent",
    "IterationLimitError",
    "ReasoningEvent",
    "ResultEvent",
    "RunEvent",
    "TextEvent",
    "Transcript",
    "run_tools",
    "run_tools_async",
]
