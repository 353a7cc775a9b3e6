"""Declare tools in a system prompt, with instructions and examples of how the family writes calls."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from promptools.dialects.rendering.example_calls import example_calls
from promptools.dialects.rendering.templates import Instructions, fill, keys_of
from promptools.json_values import is_object
from promptools.jsontext.text import dump

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


_CALL_A_TOOL = "When the user asks for something that only a tool can tell or do, call the tool."
DEFAULT_INSTRUCTIONS: Final = Instructions(
    text="""# Tools

You have these tools:

{tools}

{how_many}

Give an optional parameter only if the user mentions it. {when}""",
    parallel=f"{_CALL_A_TOOL} Reply with only a list of calls, one for each thing that the user asks for. For one"
    " thing:\n\n{call}\n\nFor two things:\n\n{calls}",
    single=f"{_CALL_A_TOOL} Reply with only one call at a time:\n\n{{call}}",
    required="You must call a tool in this turn.",
    optional="A call that needs the result of another waits for that result.\n\n"
    "What needs no tool, answer in plain text.",
)
"""The wording and its order were chosen by what small models do with it (docs/reference/real-models.md).

What needs no tool is a paragraph of its own: at the end of another, a model of 1.5B overlooked it in eight of fourteen
requests. It is a sentence, not the example of an answer: models hand on such an example as their own.
"""


def explain_tools(
    render_calls: Callable[[Sequence[Call]], str],
    tools: Tools,
    declared: str,
    *,
    parallel: bool,
    required: bool,
    instructions: Instructions = DEFAULT_INSTRUCTIONS,
    examples: tuple[Call, Call] | None = None,
) -> str:
    """Render the system-prompt block: the declared tools, when to call them, and example calls of offered tools."""
    template = instructions.choose(parallel=parallel, required=required)
    keys = keys_of(template)
    values = {"tools": declared}
    if "call" in keys or "calls" in keys:
        one, other = examples or example_calls(tools)
        values |= {"call": render_calls([one]), "calls": render_calls([one, other])}
    return fill(template, values)
