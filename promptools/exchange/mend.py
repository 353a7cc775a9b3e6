"""Adapt a request to what the server refused: change a fact of its profile, or leave out part of the request."""

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
"""The profile facts that a refusal reveals about the server, by adaptation."""


def mend(what: Mend, ask: Ask, failure: Failure, mode: ModeName) -> Ask | None:
    """Return the request with one adaptation, as the server's error requires; None if that changes nothing."""
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
    """Weaken a refused `tool_choice`: a named tool, then any tool, then none sent; we enforce what is not sent."""
    ladder = {"named": ("named", "required", "auto"), "required": ("required", "auto")}
    supported = ask.profile.tool_choice
    for kind in ladder.get(ask.choice.kind, (ask.choice.kind,)):
        if kind in supported:
            return _profile(ask, tool_choice=supported - {kind})
    return None


def _fitted(ask: Ask, prompt: int | None, limit: int | None) -> Ask | None:
    """Request a context that holds the prompt; None if a number is unknown or the context would not grow."""
    if prompt is None or limit is None:
        return None
    size = fitting(prompt, answer=ask.max_tokens, limit=limit)
    return None if size is None or size <= (ask.num_ctx or 0) else replace(ask, num_ctx=size)


def _shorter(ask: Ask, found: Overflow) -> Ask | None:
    """Request an answer of at most the tokens that are left in the context, unless the request sets `max_tokens`."""
    if ask.max_tokens is not None or found.context is None or found.more:
        return None
    if found.prompt is None:  # the server has not counted the prompt: with its context known, we count it ourselves
        return _profile(ask, context=found.context)
    left = found.context - found.prompt
    return None if left < LEAST or left == ask.room else replace(ask, room=left)


def _without(ask: Ask, *keys: str) -> Ask | None:
    body = {key: value for key, value in ask.body.items() if key not in keys}
    return replace(ask, body=body) if len(body) < len(ask.body) else None


def without_reasoning(ask: Ask) -> Ask | None:
    """Return the request without its reasoning parameters; None if it has none."""
    reduced = _without(ask, *REASONING_KEYS)
    template_kwargs = as_object(ask.body.get("chat_template_kwargs"))
    kept = {key: value for key, value in template_kwargs.items() if key not in _TEMPLATE_KEYS}
    if len(kept) == len(template_kwargs):
        return reduced
    adapted = reduced or ask
    return replace(adapted, body={**adapted.body, "chat_template_kwargs": kept})
