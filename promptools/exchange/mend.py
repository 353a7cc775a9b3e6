"""Mended requests: each step changes what the profile says of the server, or leaves out what it refused."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from promptools.fallback import fitting
from promptools.fallback.overflow import LEAST
from promptools.modes.form import formed
from promptools.wire.shapes import as_object

if TYPE_CHECKING:
    from promptools.exchange.failure import Failure
    from promptools.fallback import Mend, Overflow
    from promptools.modes.ask import Ask
    from promptools.types import ModeName

REASONING_KEYS = ("reasoning_effort", "reasoning", "think", "thinking", "include_reasoning")
_TEMPLATE_KEYS = ("enable_thinking", "thinking", "reasoning_effort")

_Said: TypeAlias = Literal[
    "relax_schema", "ids", "object_history", "null_content", "plain_content", "no_stream_options", "no_parallel"
]
FACTS: dict[_Said, dict[str, Any]] = {
    "relax_schema": {"relax_schema": True},
    "ids": {"tool_ids": "alnum9"},
    "object_history": {"history_arguments": "object"},
    "null_content": {"null_content": False},
    "plain_content": {"content_parts": False, "result_parts": False},
    "no_stream_options": {"stream_usage": False},
    "no_parallel": {"parallel_tool_calls": False},
}
"""What the server has said about itself by refusing: the facts of the profile that mend it."""


def mend(what: Mend, ask: Ask, failure: Failure, mode: ModeName) -> Ask | None:
    """Give the request with one thing mended, as the server's error wants it; None when that changes nothing."""
    match what:
        case "tool_choice":
            return _less_choice(ask)
        case "functions_only":
            return replace(ask, others=()) if ask.others else None
        case "format":
            return formed(ask, failure.verdict.feedback) if failure.verdict is not None else None
        case "roles":
            text = failure.text.lower()
            fold = "system" in text and "not supported" in text
            return _profile(ask, alternate_roles=True, system_role=ask.profile.system_role and not fold)
        case "no_reasoning":
            return without_reasoning(ask)
        case "fit":
            if mode == "harmony" and ask.profile.raw == "completions":
                return _shorter(ask, failure.overflow)
            return _fitted(ask, failure.overflow.prompt, failure.limit)
        case _:
            return _profile(ask, **FACTS[what])


def _profile(ask: Ask, **facts: Any) -> Ask | None:
    profile = replace(ask.profile, **facts)
    return None if profile == ask.profile else replace(ask, profile=profile)


def _less_choice(ask: Ask) -> Ask | None:
    """Ask for less than the server refused: a named tool, then any tool, then nothing; what is not sent we enforce."""
    ladder = {"named": ("named", "required", "auto"), "required": ("required", "auto")}
    taken = ask.profile.tool_choice
    for said in ladder.get(ask.choice.kind, (ask.choice.kind,)):
        if said in taken:
            return _profile(ask, tool_choice=taken - {said})
    return None


def _fitted(ask: Ask, prompt: int | None, limit: int | None) -> Ask | None:
    """Ask for a context that holds the prompt, where both numbers are known."""
    if prompt is None or limit is None:
        return None
    size = fitting(prompt, answer=ask.max_tokens, limit=limit)
    return None if size is None or size <= (ask.num_ctx or 0) else replace(ask, num_ctx=size)


def _shorter(ask: Ask, found: Overflow) -> Ask | None:
    """Ask for an answer of the length that is left, unless the request itself says how long; the server has counted."""
    if ask.max_tokens is not None or found.context is None or found.more:
        return None
    if found.prompt is None:  # it has not: we have
        return _profile(ask, context=found.context)
    left = found.context - found.prompt
    return None if left < LEAST or left == ask.room else replace(ask, room=left)


def _without(ask: Ask, *keys: str) -> Ask | None:
    body = {key: value for key, value in ask.body.items() if key not in keys}
    return replace(ask, body=body) if len(body) < len(ask.body) else None


def without_reasoning(ask: Ask) -> Ask | None:
    """Leave out what is said of thinking; None when nothing is."""
    less = _without(ask, *REASONING_KEYS)
    given = as_object(ask.body.get("chat_template_kwargs"))
    kept = {key: value for key, value in given.items() if key not in _TEMPLATE_KEYS}
    if len(kept) == len(given):
        return less
    mended = less or ask
    return replace(mended, body={**mended.body, "chat_template_kwargs": kept})
