"""What every mode does to a request's body: what goes on as it is, and what the server must not see."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from promptools.wire.shapes import as_object, as_text

if TYPE_CHECKING:
    from promptools.modes.ask import Ask

TOOL_KEYS = frozenset(("tools", "tool_choice", "parallel_tool_calls", "functions", "function_call"))


def passed_on(ask: Ask) -> dict[str, Any]:
    """Copy the body without its messages and without all that tells of tools; unknown keys stay."""
    body = {key: value for key, value in ask.body.items() if key not in TOOL_KEYS and key != "messages"}
    if not ask.profile.n:
        body.pop("n", None)
    if ask.stream and ask.profile.stream_usage:
        body["stream_options"] = {**as_object(body.get("stream_options")), "include_usage": True}
    elif "stream_options" in body:
        body.pop("stream_options")
    return body


def not_offered(ask: Ask, mode: str) -> list[str]:
    """Return a note for each tool that is no function with a name, where tools are told in words."""
    types = [as_text(as_object(each).get("type")) or "function" for each in ask.others]
    return [f"{mode} mode cannot offer the tool of type {each!r}" for each in types if each != "function"]
