"""Replies of `/api/chat`, whole or a line of a stream at a time, as the deltas of Chat Completions.

Both have one shape: a message, whole or a piece of it; the last one has `done` and says why, and what it cost. An error
may stand in any line, after HTTP 200 too (docs.ollama.com, errors).
"""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any

from promptools.wire.chat import Delta, Envelope, calls_of, error_of, is_error, reasoning_of
from promptools.wire.decode import shallow
from promptools.wire.shapes import as_count, as_list, as_object, as_text, as_time

if TYPE_CHECKING:
    from collections.abc import Mapping

_FINISH = {"load": "stop", "unload": "stop"}
"""Reasons for the end that are no reasons of a reply: the model was only loaded, or unloaded."""
_OWN = frozenset({
    "model", "created_at", "message", "done", "done_reason", "logprobs", "error", "prompt_eval_count", "eval_count",
})  # fmt: skip


def read_envelope(body: Any) -> Envelope:
    """Take what stands around the message; times of the last line (nanoseconds) go on as they came. There is no id."""
    data = as_object(body)
    extra = {key: value for key, value in data.items() if key not in _OWN and shallow(value)}
    return Envelope(model=as_text(data.get("model")), created=_seconds(as_text(data.get("created_at"))), extra=extra)


def _seconds(moment: str) -> int:
    """Read an RFC 3339 time as seconds since 1970; 0 when it is none."""
    try:
        return as_time(datetime.fromisoformat(moment).timestamp())
    except (ValueError, OverflowError, OSError):
        return 0


def read_reply(body: Any) -> list[Delta]:
    """Read a whole reply or one line: a delta of the only choice, then one for the usage; or one with the error."""
    data = as_object(body)
    # a message is no sign of an error here, as it is on other wires
    if is_error(data.get("error")) or not ("message" in data or "done" in data):
        problem = error_of(body)
        return [] if problem is None else [Delta(index=None, error=problem)]
    said = as_object(data.get("message"))
    logprobs = as_list(data.get("logprobs"))
    deltas = [
        Delta(
            content=as_text(said.get("content")),
            reasoning=reasoning_of(said),
            tool_calls=calls_of(said),
            finish_reason=_finish(data),
            logprobs={"content": logprobs} if logprobs and shallow(logprobs) else None,
        )
    ]
    usage = _usage(data)
    return deltas if usage is None else [*deltas, Delta(index=None, usage=usage)]


def _finish(data: Mapping[str, Any]) -> str | None:
    """Give the finish reason; Ollama before 0.1.38 says that it is done and not why."""
    if data.get("done") is not True:
        return None
    said = as_text(data.get("done_reason")) or "stop"
    return _FINISH.get(said, said)


def _usage(data: Mapping[str, Any]) -> dict[str, Any] | None:
    """Give the usage; a count of nothing is left out by the server (a prompt that was cached whole, for one)."""
    prompt, answer = as_count(data.get("prompt_eval_count")), as_count(data.get("eval_count"))
    if prompt is None and answer is None:
        return None
    read, written = prompt or 0, answer or 0
    return {"prompt_tokens": read, "completion_tokens": written, "total_tokens": read + written}
