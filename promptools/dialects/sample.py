"""A sample tool, call and result, used to show a dialect."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from promptools.types import Call

if TYPE_CHECKING:
    from promptools.dialects.contract import Dialect


TOOL: dict[str, Any] = {
    "name": "get_weather",
    "description": "Tell the weather of a city.",
    "parameters": {
        "type": "object",
        "properties": {"city": {"type": "string"}, "days": {"type": "integer"}},
        "required": ["city"],
    },
}
CALL = Call("call00001", "get_weather", {"city": "Oslo", "days": 2}, '{"city": "Oslo", "days": 2}')
CONVERSATION: list[dict[str, Any]] = [
    {
        "role": "assistant",
        "tool_calls": [
            {"id": CALL.id, "type": "function", "function": {"name": CALL.name, "arguments": CALL.arguments_json}}
        ],
    },
    {"role": "tool", "tool_call_id": CALL.id, "content": "5 degrees, rain"},
]
"""The sample call and its result as messages; `promptools.render` adds a message that declares the sample tool."""


def sample_text(dialect: Dialect) -> str:
    """Return the sample call as a model would write it."""
    return dialect.render_calls([CALL])


def tiers(dialect: Dialect) -> tuple[str, ...]:
    """Return the tiers of the markers that begin a dialect's calls, the most distinctive first."""
    own = {head.tier or dialect.tier for head in dialect.heads} or {dialect.tier}
    return tuple(tier for tier in "SABC" if tier in own)
