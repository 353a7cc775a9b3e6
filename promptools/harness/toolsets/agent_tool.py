"""A tool with the function that runs it, a set of such tools, and what the function may return or raise."""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from promptools.errors import PromptoolsError

if TYPE_CHECKING:
    from promptools.types import Tool


@dataclass(frozen=True, slots=True)
class AgentTool:
    """A tool with the function that runs it."""

    tool: Tool
    run: Callable[..., Any]
    """The function that runs the tool. It gets the arguments as keywords, and returns the result for the model: a
    string, a `ToolOutput` with images, or any value that JSON can hold. The function may be async. An exception that it
    raises becomes an error result."""
    parallel: bool = False
    """Whether calls of the tool may run at the same time as other calls of the same reply."""


@dataclass(frozen=True, slots=True)
class Toolset:
    """Tools that belong together, with information for the model about all of them."""

    tools: tuple[AgentTool, ...]
    namespaces: Mapping[str, str] = field(default_factory=dict[str, str])
    """Maps the name of each namespace to its description. The namespace of the tool `container.exec` is `container`."""
    instructions: str = ""
    """Information for the model about the tools, in addition to their descriptions."""


IMAGE_TYPES = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp"})
"""Image formats that servers of vision models accept."""
MAX_IMAGE = 8 * 2**20
"""Maximum number of bytes of an image that is shown to a model."""


@dataclass(frozen=True, slots=True)
class ToolOutput:
    """A value that a tool may return: text for the model, and images as `image_url` parts of Chat Completions."""

    text: str
    images: tuple[Mapping[str, Any], ...] = field(default=(), repr=False)

    def __str__(self) -> str:
        return self.text


def image_part(content: bytes, mime_type: str) -> dict[str, Any] | None:
    """Return an image as an `image_url` part; None if it is too large, or in a format that servers do not read."""
    if mime_type not in IMAGE_TYPES or len(content) > MAX_IMAGE:
        return None
    data = base64.b64encode(content).decode()
    return {"type": "image_url", "image_url": {"url": f"data:{mime_type};base64,{data}"}}


class ToolTimeoutError(PromptoolsError):
    """A tool was ended because it took too long.

    `seconds` is the time that the tool was allowed, and `output` is what it had written by then. If `observation` is
    given, the model reads this text as a normal result. Otherwise it reads the message of the exception as an error.
    """

    def __init__(self, message: str, *, seconds: float, output: str = "", observation: str = "") -> None:
        super().__init__(message)
        self.seconds = seconds
        self.output = output
        self.observation = observation
