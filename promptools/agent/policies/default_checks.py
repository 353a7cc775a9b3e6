"""The checks of the default policy, for any mode: what cannot be used is a reply that is cut off, or empty."""

from __future__ import annotations

from typing import TYPE_CHECKING

from promptools.agent.harness_errors import LongGeneration, NoToolCallNoFinalMessage, UnexpectedFinishReason
from promptools.wire.chat_encoder import CUT_OFF_REASONS

if TYPE_CHECKING:
    from promptools.agent.loop.reply_collector import AccumulatedReply

_REFUSED = frozenset({"content_filter", "error"})
"""Finish reasons of replies that another request would not improve."""


def check_default(reply: AccumulatedReply) -> None:
    """Raise an exception for a reply that cannot be used. Calls that are complete are used, cut off or not."""
    if reply.finish_reason in _REFUSED:
        raise UnexpectedFinishReason(f"unexpected finish_reason: {reply.finish_reason}")
    if reply.calls:
        return
    if reply.finish_reason in CUT_OFF_REASONS:
        raise LongGeneration(f"the reply was cut off, finish_reason: {reply.finish_reason}, usage: {reply.usage}")
    if not reply.content.strip():
        raise NoToolCallNoFinalMessage("the reply holds no tool call, and no text for the user")
