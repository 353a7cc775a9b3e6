"""Declare tools in a system prompt, with instructions and examples of how the family writes calls."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from promptools.dialects.calls.resolve import dump
from promptools.dialects.rendering.example_calls import example_calls
from promptools.schema.documents.json_guards import is_object

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from promptools.schema import Tools
    from promptools.types import Call


def shown_functions(tools: Tools) -> list[dict[str, Any]]:
    """Return each tool with only the keys that chat templates show: the models have seen no others."""
    declared: list[dict[str, Any]] = []
    for tool in tools.to_openai():
        function = tool["function"]
        assert is_object(function)
        declared.append({key: function[key] for key in ("name", "description", "parameters") if key in function})
    return declared


def json_lines(tools: Tools) -> str:
    """Return the tools as JSON in OpenAI's format, one per line."""
    return "\n".join(dump({"type": "function", "function": function}) for function in shown_functions(tools))


def explain_tools(
    render_calls: Callable[[Sequence[Call]], str], tools: Tools, declared: str, *, parallel: bool, required: bool
) -> str:
    """Render the system-prompt block: the declared tools, when to call them, and example calls of offered tools.

    The wording and its order were chosen by what small models do with it (docs/reference/real-models.md).
    """
    one, other = example_calls(tools)
    single, several = render_calls([one]), render_calls([one, other])
    how = f"{_SEVERAL}\n\n{single}\n\nFor two things:\n\n{several}" if parallel else f"{_SINGLE}\n\n{single}"
    when = _REQUIRED if required else _OPTIONAL
    return f"# Tools\n\nYou have these tools:\n\n{declared}\n\n{how}\n\n{_SPARING} {when}"


_SEVERAL = (
    "When the user asks for something that a tool can do, do not answer yourself: call the tool. Reply with only a list"
    " of calls, one for each thing that the user asks for. For one thing:"
)
_SINGLE = (
    "When the user asks for something that a tool can do, do not answer yourself: call the tool. Reply with only one"
    " call at a time:"
)
_SPARING = "Leave out optional parameters that the user does not mention."
_REQUIRED = "You must call a tool in this turn."
_OPTIONAL = "For anything else:\n\nan answer in plain text, without calls."
"""A paragraph of its own: at the end of another, a model of 1.5B overlooked it in eight of fourteen requests."""
