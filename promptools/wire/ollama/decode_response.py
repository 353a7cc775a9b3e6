"""Decode replies of `/api/chat`, complete or line by line, to the deltas of Chat Completions.

Both have one format: a message or a part of it; the last line has `done`, the reason and the usage. Any line may be an
error, under HTTP 200 too (docs.ollama.com, errors).
"""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any

from promptools.wire.chat_decoder import Delta, Envelope, calls_of, error_of, is_error, reasoning_of
from promptools.wire.json_types import as_count, as_list, as_object, as_text, as_timestamp
from promptools.wire.lenient_json import is_shallow

if TYPE_CHECKING:
    from collections.abc import Mapping

_FINISH_REASONS = {"load": "stop", "unload": "stop"}
"""Values of `done_reason` that are not finish reasons: the model was only loaded, or unloaded."""
_DECODED_KEYS = frozenset({
    "model", "created_at", "message", "done", "done_reason", "logprobs", "error", "prompt_eval_count", "eval_count",
})  # fmt: skip


def decode_envelope(body: Any) -> Envelope:
    """Decode the envelope; durations of the last line (nanoseconds) are passed on unchanged. There is no id."""
    data = as_object(body)
    extra = {key: value for key, value in data.items() if key not in _DECODED_KEYS and is_shallow(value)}
    return Envelope(model=as_text(data.get("model")), created=_timestamp(as_text(data.get("created_at"))), extra=extra)


def _timestamp(moment: str) -> int:
    """Parse an RFC 3339 time to seconds since 1970; 0 if it is invalid."""
    try:
        return as_timestamp(datetime.fromisoformat(moment).timestamp())
    except (ValueError, OverflowError, OSError):
        return 0


def decode_reply(body: Any) -> list[Delta]:
    """Decode a complete reply or one line: a delta of the only choice and one for the usage, or one with the error."""
    data = as_object(body)
    # unlike in other APIs, a `message` is not a sign of an error
    if is_error(data.get("error")) or not ("message" in data or "done" in data):
        problem = error_of(body)
        return [] if problem is None else [Delta(index=None, error=problem)]
    message = as_object(data.get("message"))
    logprobs = as_list(data.get("logprobs"))
    deltas = [
        Delta(
            content=as_text(message.get("content")),
            reasoning=reasoning_of(message),
            tool_calls=calls_of(message),
            finish_reason=_finish_reason(data),
            logprobs={"content": logprobs} if logprobs and is_shallow(logprobs) else None,
        )
    ]
    usage = _usage(data)
    return deltas if usage is None else [*deltas, Delta(index=None, usage=usage)]


def _finish_reason(data: Mapping[str, Any]) -> str | None:
    """Return the finish reason; Ollama before 0.1.38 has `done` without a reason."""
    if data.get("done") is not True:
        return None
    reason = as_text(data.get("done_reason")) or "stop"
    return _FINISH_REASONS.get(reason, reason)


def _usage(data: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the usage; the server omits counts of zero (for example of a prompt that was fully cached)."""
    prompt, answer = as_count(data.get("prompt_eval_count")), as_count(data.get("eval_count"))
    if prompt is None and answer is None:
        return None
    read, written = prompt or 0, answer or 0
    return {"prompt_tokens": read, "completion_tokens": written, "total_tokens": read + written}
