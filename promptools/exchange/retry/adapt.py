"""Adapt a request to what the server refused: change a fact of its profile, or leave out part of the request."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from promptools.fallback import fitting_context
from promptools.fallback.overflow import MIN_ANSWER_TOKENS
from promptools.modes.requests.response_format import without_tools
from promptools.wire.json_types import as_object

if TYPE_CHECKING:
    from promptools.exchange.upstream.failure import Failure
    from promptools.fallback import Adaptation, Overflow
    from promptools.modes.requests.tool_request import ToolRequest
    from promptools.types import ModeName

REASONING_KEYS = ("reasoning_effort", "reasoning", "think", "thinking", "include_reasoning")
_TEMPLATE_KEYS = ("enable_thinking", "thinking", "reasoning_effort")

_FactAdaptation: TypeAlias = Literal[
    "relax_schema", "ids", "object_history", "null_content", "plain_content", "no_stream_options", "no_parallel"
]
REVEALED_FACTS: dict[_FactAdaptation, dict[str, Any]] = {
    "relax_schema": {"relax_schema": True},
    "ids": {"tool_ids": "alnum9"},
    "object_history": {"history_arguments": "object"},
    "null_content": {"null_content": False},
    "plain_content": {"content_parts": False, "result_parts": False},
    "no_stream_options": {"stream_usage": False},
    "no_parallel": {"parallel_tool_calls": False},
}
"""The profile facts that a refusal reveals about the server, by adaptation."""


def adapt_request(adaptation: Adaptation, request: ToolRequest, failure: Failure, mode: ModeName) -> ToolRequest | None:
    """Return the request with one adaptation, as the server's error requires; None if that changes nothing."""
    match adaptation:
        case "tool_choice":
            return _weaken_tool_choice(request)
        case "functions_only":
            return replace(request, other_tools=()) if request.other_tools else None
        case "format":
            return without_tools(request, failure.verdict.feedback) if failure.verdict is not None else None
        case "roles":
            text = failure.text.lower()
            fold = "system" in text and "not supported" in text
            return _with_facts(request, alternate_roles=True, system_role=request.profile.system_role and not fold)
        case "no_reasoning":
            return without_reasoning(request)
        case "fit":
            if mode in {"harmony", "raw"} and request.profile.raw == "completions":
                return _limit_answer(request, failure.overflow)
            return _raise_context(request, failure.overflow.prompt, failure.context_limit)
        case _:
            return _with_facts(request, **REVEALED_FACTS[adaptation])


def _with_facts(request: ToolRequest, **facts: Any) -> ToolRequest | None:
    profile = replace(request.profile, **facts)
    return None if profile == request.profile else replace(request, profile=profile)


def _weaken_tool_choice(request: ToolRequest) -> ToolRequest | None:
    """Weaken a refused `tool_choice`: a named tool, then any tool, then none sent; we enforce what is not sent."""
    ladder = {"named": ("named", "required", "auto"), "required": ("required", "auto")}
    supported = request.profile.tool_choice
    for kind in ladder.get(request.choice.kind, (request.choice.kind,)):
        if kind in supported:
            return _with_facts(request, tool_choice=supported - {kind})
    return None


def _raise_context(request: ToolRequest, prompt: int | None, limit: int | None) -> ToolRequest | None:
    """Request a context that holds the prompt; None if a number is unknown or the context would not grow."""
    if prompt is None or limit is None:
        return None
    size = fitting_context(prompt, answer=request.max_tokens, limit=limit)
    return None if size is None or size <= (request.num_ctx or 0) else replace(request, num_ctx=size)


def _limit_answer(request: ToolRequest, overflow: Overflow) -> ToolRequest | None:
    """Request an answer of at most the tokens that are left in the context, unless the request sets `max_tokens`."""
    if request.max_tokens is not None or overflow.context is None or overflow.at_least:
        return None
    if overflow.prompt is None:  # the server has not counted the prompt: with its context known, we count it ourselves
        return _with_facts(request, context=overflow.context)
    left = overflow.context - overflow.prompt
    return None if left < MIN_ANSWER_TOKENS or left == request.tokens_left else replace(request, tokens_left=left)


def _without(request: ToolRequest, *keys: str) -> ToolRequest | None:
    body = {key: value for key, value in request.body.items() if key not in keys}
    return replace(request, body=body) if len(body) < len(request.body) else None


def without_reasoning(request: ToolRequest) -> ToolRequest | None:
    """Return the request without its reasoning parameters; None if it has none."""
    reduced = _without(request, *REASONING_KEYS)
    template_kwargs = as_object(request.body.get("chat_template_kwargs"))
    kept = {key: value for key, value in template_kwargs.items() if key not in _TEMPLATE_KEYS}
    if len(kept) == len(template_kwargs):
        return reduced
    adapted = reduced or request
    return replace(adapted, body={**adapted.body, "chat_template_kwargs": kept})
