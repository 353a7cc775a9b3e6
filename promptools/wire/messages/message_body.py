"""Encode `/v1/messages` responses for a client, as a whole; and the API's errors.

Each call is a block of its own, after reasoning and text. Reasoning needs a signature, which clients send back with it
without reading it; ours is a constant.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from promptools.wire.chat_encoder import finish_reason
from promptools.wire.json_types import as_count, as_object

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from promptools.types import Call, Reply
    from promptools.wire.chat_decoder import Envelope

SIGNATURE = "promptools"
"""The signature of reasoning; it is not checked."""
DISCARDED_SIGNATURE = f"{SIGNATURE}-discarded"
"""The signature of reasoning of an attempt that failed: if a client sends it back, it does not go to the model."""
THREAD_NOT_FOUND = "thread_not_found"
"""Code of a thread that is to be continued: Anthropic's SDKs then send the whole conversation, or use no threads."""
_STOP_REASONS = {"tool_calls": "tool_use", "length": "max_tokens", "content_filter": "refusal"}
_ERROR_TYPES = {
    401: "authentication_error",
    402: "billing_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    503: "overloaded_error",
    504: "timeout_error",
    529: "overloaded_error",
}
_OWN_ERROR_TYPES = {
    "invalid_api_key": "authentication_error",
    "host_not_allowed": "permission_error",
    "body_too_large": "request_too_large",
    "context_length_exceeded": "invalid_request_error",
    "timeout": "timeout_error",
    "rate_limit_exceeded": "rate_limit_error",
    "overloaded": "overloaded_error",
    "shutting_down": "overloaded_error",
}
"""The API's types of our own errors, by code."""


def encode_message(envelope: Envelope) -> dict[str, Any]:
    """Encode a message without content; the end of a response fills in the rest."""
    return {
        "id": f"msg_{envelope.id.removeprefix('chatcmpl-')}",
        "type": "message",
        "role": "assistant",
        "model": envelope.model,
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
        "usage": encode_usage(None),
    }


def encode_content(reply: Reply) -> list[dict[str, Any]]:
    """Encode the content blocks of a reply."""
    blocks: list[dict[str, Any]] = []
    if reply.reasoning:
        blocks.append({"type": "thinking", "thinking": reply.reasoning, "signature": SIGNATURE})
    if reply.content.strip() or (reply.content and not blocks and not reply.calls):
        blocks.append({"type": "text", "text": reply.content})
    return [*blocks, *(encode_call(call) for call in reply.calls)]


def encode_call(call: Call) -> dict[str, Any]:
    """Encode one call."""
    return {"type": "tool_use", "id": call.id, "name": call.name, "input": dict(call.arguments)}


def encode_stop(reply: Reply, stop: str | int | None, sequences: Collection[str]) -> dict[str, Any]:
    """Encode why a reply ended; `stop` is the server's stop reason, `sequences` are those of the request."""
    reason = finish_reason(reply)
    if reason == "stop" and isinstance(stop, str) and stop in sequences:
        return {"stop_reason": "stop_sequence", "stop_sequence": stop}
    return {"stop_reason": _STOP_REASONS.get(reason, "end_turn"), "stop_sequence": None}


def encode_usage(usage: Mapping[str, Any] | None) -> dict[str, Any]:
    """Encode the usage; the API counts cached tokens apart from the other tokens of the prompt."""
    spent = usage or {}
    cached = as_count(as_object(spent.get("prompt_tokens_details")).get("cached_tokens")) or 0
    prompt = as_count(spent.get("prompt_tokens")) or 0
    return {
        "input_tokens": max(0, prompt - cached),
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": min(cached, prompt),
        "output_tokens": as_count(spent.get("completion_tokens")) or 0,
    }


def encode_error(message: str, kind: str, code: str = "", request_id: str = "") -> dict[str, Any]:
    """Encode an error of the API's type `kind`; its details have the `code`, if the SDKs know it."""
    details = {"details": {"error_code": code}} if code == THREAD_NOT_FOUND else {}
    error = {"type": "error", "error": {"type": kind, "message": message, **details}}
    return {**error, "request_id": request_id} if request_id else error


def error_type(status: int) -> str:
    """Return the API's error type for an HTTP status."""
    return _ERROR_TYPES.get(status, "invalid_request_error" if 400 <= status < 500 else "api_error")


def own_error_type(kind: str, code: str) -> str:
    """Return the API's error type for one of our own errors."""
    by_kind = "invalid_request_error" if kind in {"UsageError", "invalid_request_error"} else "api_error"
    return _OWN_ERROR_TYPES.get(code, by_kind)
