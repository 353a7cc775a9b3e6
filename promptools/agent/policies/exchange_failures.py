"""Errors of the exchange that are the model's fault: reasons to request another reply, like the errors of checks."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from promptools.agent.harness_errors import (
    HarmonyParsingError,
    LongGeneration,
    NonTerminatingError,
    NoToolCallNoFinalMessage,
    ToolCallArgParsingError,
    UnknownToolCalled,
)
from promptools.errors import Exhausted, ModelError
from promptools.wire.chat_encoder import add_usage

KINDS: Mapping[str, type[NonTerminatingError]] = MappingProxyType(
    {
        "truncated": LongGeneration,
        "harmony": HarmonyParsingError,
        "server_parser": HarmonyParsingError,
        "swallowed": NoToolCallNoFinalMessage,
        "empty_calls": NoToolCallNoFinalMessage,
        "choice": NoToolCallNoFinalMessage,
        "unknown_tool": UnknownToolCalled,
        "malformed": ToolCallArgParsingError,
    }
)
"""The exception for each kind of failure that another reply may not have; all others are the server's own."""


def as_harness_error(error: Exception) -> NonTerminatingError | None:
    """Return the exception for an error that crossed the client, with that as its cause; None for any other."""
    if not isinstance(error, (Exhausted, ModelError)):
        return None
    kind = KINDS.get(str(getattr(error.__cause__, "code", "")))
    if kind is None:
        return None
    made = kind(str(error))
    made.__cause__ = error
    return made


def failed_usage(error: Exception) -> dict[str, Any] | None:
    """Return the tokens of the attempts that failed, as far as they are known."""
    total: dict[str, Any] | None = None
    for attempt in error.attempts if isinstance(error, Exhausted) else ():
        total = add_usage(total, attempt.usage)
    return total
