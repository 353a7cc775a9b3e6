"""Write Ollama's `/api/chat` to a client: a whole answer, the lines of a stream, an error (Ollama 0.32.15).

A line holds a piece of the message, and the last one says why it ended and what it cost. Calls go out whole, arguments
as an object; `done_reason` stays `stop` beside them, as the server itself has it.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from promptools.parsing.events import CallEnd, Event, Reasoning, Text
from promptools.wire.chunks import finish_reason
from promptools.wire.shapes import as_count, as_list, as_number, as_object

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from promptools.types import Call, Reply
    from promptools.wire.chat import Envelope

_KEPT = {
    "load_duration": int,
    "prompt_eval_duration": int,
    "eval_duration": int,
    "remote_model": str,
    "remote_host": str,
}
"""What an Ollama upstream says beside the message and we cannot know better."""
_TIMINGS = {"prompt_eval_duration": "prompt_ms", "eval_duration": "predicted_ms"}
"""The same of llama.cpp's `timings`, in milliseconds."""


def message(content: str = "", thinking: str = "", calls: Sequence[Call] = (), *, first: int = 0) -> dict[str, Any]:
    """Write a message or a piece of one; `first` is the place of its first call among all of them."""
    said: dict[str, Any] = {"role": "assistant", "content": content}
    if thinking:
        said["thinking"] = thinking
    if calls:
        said["tool_calls"] = [_call(call, place) for place, call in enumerate(calls, first)]
    return said


def _call(call: Call, place: int) -> dict[str, Any]:
    return {"id": call.id, "function": {"index": place, "name": call.name, "arguments": call.arguments}}


def line(envelope: Envelope, said: Mapping[str, Any], *, logprobs: Any = None) -> dict[str, Any]:
    """Write one line that is not the last; log probabilities are those of Chat Completions."""
    body: dict[str, Any] = {"model": envelope.model}
    if envelope.created:
        body["created_at"] = datetime.fromtimestamp(envelope.created, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    body |= {"message": dict(said), "done": False}
    given = as_list(as_object(logprobs).get("content"))
    return body | {"logprobs": given} if given else body


def ended(body: Mapping[str, Any], reply: Reply) -> dict[str, Any]:
    """Make a line the last one."""
    reason = finish_reason(reply)
    return {**body, "done": True, "done_reason": "stop" if reason == "tool_calls" else reason}


def figures(usage: Mapping[str, Any] | None, extra: Mapping[str, Any], seconds: float) -> dict[str, Any]:
    """Write what an answer cost: tokens, and nanoseconds as far as the server told them; `seconds` is the whole."""
    found: dict[str, Any] = {"total_duration": int(seconds * 1e9)}
    timings = as_object(extra.get("timings"))
    for key, name in _TIMINGS.items():
        if (milliseconds := as_number(timings.get(name))) is not None:
            found[key] = int(milliseconds * 1e6)
    found |= {key: extra[key] for key, kind in _KEPT.items() if isinstance(extra.get(key), kind)}
    spent = usage or {}
    for key, name in (("prompt_eval_count", "prompt_tokens"), ("eval_count", "completion_tokens")):
        if (count := as_count(spent.get(name))) is not None:
            found[key] = count
    return found


class LineWriter:
    """Turn the events of a reply into lines."""

    def __init__(self, envelope: Envelope) -> None:
        self._envelope = envelope
        self._calls = 0

    def role(self, content: str | None = "") -> None:  # noqa: ARG002 one signature for all writers
        """Write nothing: every line names the role."""
        return

    def write(self, event: Event, logprobs: Any = None) -> list[dict[str, Any]]:
        """Write what `event` shows to the client, a text with its log probabilities; nothing for what it does not."""
        match event:
            case Text(text=text):
                return [line(self._envelope, message(text), logprobs=logprobs)]
            case Reasoning(text=text):
                return [line(self._envelope, message(thinking=text))]
            case CallEnd(call=call):
                self._calls += 1
                return [line(self._envelope, message(calls=(call,), first=self._calls - 1))]
            case _:
                return []

    def finish(self, reply: Reply, *, logprobs: Any = None) -> dict[str, Any]:
        """Write the last line, but for what the answer cost."""
        return ended(line(self._envelope, message(), logprobs=logprobs), reply)
