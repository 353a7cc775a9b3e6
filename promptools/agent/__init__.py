"""The execution loop: the model calls Python functions until it answers."""

from promptools.agent.drivers import run_tools, run_tools_async
from promptools.agent.run_events import (
    CallEvent,
    IterationLimitError,
    ReasoningEvent,
    ResultEvent,
    RunEvent,
    TextEvent,
    Transcript,
)

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
