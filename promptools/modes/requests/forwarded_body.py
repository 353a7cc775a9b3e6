"""The parts of a request's body that every mode passes on, and those that the server must not see."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from promptools.wire.json_types import as_object, as_text
from promptools.wire.parameters import thinking_budget

if TYPE_CHECKING:
    from promptools.modes.requests.tool_request import ToolRequest

TOOL_KEYS = frozenset(("tools", "tool_choice", "parallel_tool_calls", "functions", "function_call"))


def forwarded_body(request: ToolRequest) -> dict[str, Any]:
    """Copy the body without messages and without the keys that concern tools; unknown keys are kept."""
    body = {key: value for key, value in request.body.items() if key not in TOOL_KEYS and key != "messages"}
    if not request.profile.n:
        body.pop("n", None)
    budget = thinking_budget(body.get("thinking"))
    if budget is not None and request.profile.thinking_budget is not None:
        body.setdefault(request.profile.thinking_budget, budget)
    if request.stream and request.profile.stream_usage:
        body["stream_options"] = {**as_object(body.get("stream_options")), "include_usage": True}
    elif "stream_options" in body:
        body.pop("stream_options")
    return body


def other_tool_notes(request: ToolRequest, mode: str) -> list[str]:
    """Return a note for each offered tool that is not a function, where tools are described in the prompt."""
    kinds = [as_text(as_object(kind).get("type")) or "function" for kind in request.other_tools]
    return [f"{mode} mode cannot offer the tool of type {kind!r}" for kind in kinds if kind != "function"]
