"""Mended requests: each step changes what the profile says of the server, or leaves out what it refused."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, assert_never

from promptools.wire.shapes import as_object

if TYPE_CHECKING:
    from promptools.fallback import Mend
    from promptools.modes.ask import Ask

REASONING_KEYS = ("reasoning_effort", "reasoning", "think", "thinking", "include_reasoning")
_TEMPLATE_KEYS = ("enable_thinking", "thinking", "reasoning_effort")


def mend(what: Mend, ask: Ask, text: str) -> Ask | None:
    """Give the request with one thing mended, as the server's error `text` wants it; None when that changes nothing."""
    match what:
        case "relax_schema":
            return _profile(ask, relax_schema=True)
        case "tool_choice":
            return _less_choice(ask)
        case "functions_only":
            return replace(ask, others=()) if ask.others else None
        case "ids":
            return _profile(ask, tool_ids="alnum9")
        case "object_history":
            return _profile(ask, history_arguments="object")
        case "roles":
            fold = "system" in text.lower() and "not supported" in text.lower()
            return _profile(ask, alternate_roles=True, system_role=ask.profile.system_role and not fold)
        case "no_reasoning":
            return _without_reasoning(ask)
        case "null_content":
            return _profile(ask, null_content=False)
        case "plain_content":
            return _profile(ask, content_parts=False, result_parts=False)
        case "no_stream_options":
            return _profile(ask, stream_usage=False)
        case "no_parallel":
            return _profile(ask, parallel_tool_calls=False)
        case _:
            assert_never(what)


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


def _without(ask: Ask, *keys: str) -> Ask | None:
    body = {key: value for key, value in ask.body.items() if key not in keys}
    return replace(ask, body=body) if len(body) < len(ask.body) else None


def _without_reasoning(ask: Ask) -> Ask | None:
    less = _without(ask, *REASONING_KEYS)
    given = as_object(ask.body.get("chat_template_kwargs"))
    kept = {key: value for key, value in given.items() if key not in _TEMPLATE_KEYS}
    if len(kept) == len(given):
        return less
    mended = less or ask
    return replace(mended, body={**mended.body, "chat_template_kwargs": kept})
