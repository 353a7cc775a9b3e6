"""Tell a model which tools there are, and how its family writes a call, in plain words and the family's own layout."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from promptools.dialects.settle import dump
from promptools.schema.graph import is_object

if TYPE_CHECKING:
    from promptools.schema import Tools

NAME, VALUE = "<function name>", "<value>"
"""What stands in an example where the model puts its own words: an echo of it is no call."""
ARGUMENTS = f'{{"parameter": {VALUE}}}'


def functions(tools: Tools) -> list[dict[str, Any]]:
    """Give the keys of each tool that chat templates show: the models have seen no others."""
    found: list[dict[str, Any]] = []
    for tool in tools.to_openai():
        function = tool["function"]
        assert is_object(function)
        found.append({key: function[key] for key in ("name", "description", "parameters") if key in function})
    return found


def lines(tools: Tools) -> str:
    """Write the tools as JSON in OpenAI's wrapping, one a line."""
    return "\n".join(dump({"type": "function", "function": each}) for each in functions(tools))


def explain(declared: str, form: str, *, several: str = "", parallel: bool, required: bool) -> str:
    """Write the block of a system message: what is declared, the form of a call, and when to call.

    `several` says how more than one call is written; it is left out where only one may be.
    """
    how_many = "You may call one or more functions" if parallel else "You may call one function"
    more = f" {several}" if several and parallel else ""
    when = (
        "You must call a function in this turn."
        if required
        else "If no function is needed, answer in plain words, without any of this."
    )
    return f"""# Tools

{how_many} to help with the user's request. These are the functions:
{declared}

To call a function, end your message with this, and write nothing after it:
{form}
The arguments are JSON.{more} Never write a result yourself. {when}"""
