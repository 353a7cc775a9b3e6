"""A tool with the function that runs it, and a set of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from promptools.types import Tool


@dataclass(frozen=True, slots=True)
class AgentTool:
    """A tool with the function that runs it."""

    tool: Tool
    run: Callable[..., Any]
    """Gets the arguments as keywords and returns the result for the model: a string, a `ToolOutput` with
    images, or anything that JSON can hold. It may be async. What it raises becomes an error result."""
    parallel: bool = False
    """Whether its calls may run at the same time as other calls of the same reply."""


@dataclass(frozen=True, slots=True)
class Toolset:
    """Tools that belong together."""

    tools: tuple[AgentTool, ...]
    namespaces: Mapping[str, str] = field(default_factory=dict[str, str])
    """The description of each namespace; `container` is the one of `container.exec`."""
    instructions: str = ""
    """What the model should know about the tools, besides their descriptions."""
