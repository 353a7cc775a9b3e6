"""Anthropic's Messages API, `/v1/messages`: encode responses for a client, complete or as events, and errors.

Each call is a separate block, after reasoning and text. The API requires a signature for reasoning. Clients send the
signature back without examining it, so promptools uses a constant.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from promptools.numbers import as_count
from promptools.parsing.events import CallArgs, CallEnd, CallStart, Event, Reasoning, Text
from promptools.wire.chat_encoder import finish_reason
from promptools.wire.json_body import as_object

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from promptools.types import Call, Reply
    from promptools.wire.chat_decoder import Envelope


SIGNATURE = "promptools"
"""The signature of reasoning; it is not checked when a client sends it back."""
DISCARDED_SIGNATURE = f"{SIGNATURE}-discarded"
"""The signature of reasoning from an attempt that failed: if a client sends such reasoning back, it is left out."""
THREAD_NOT_FOUND = "thread_not_found"
"""The error code for a request that continues a thread.

Anthropic's SDKs react to this code by sending the whole conversation, or by no longer using threads.
"""
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
"""Maps codes of promptools' own errors to the API's error types. For other codes, the kind of the error decides."""


def encode_message(envelope: Envelope) -> dict[str, Any]:
    """Encode a message that still lacks its content, stop reason and usage; these are added later."""
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
    """Encode a call as a content block."""
    return {"type": "tool_use", "id": call.id, "name": call.name, "input": dict(call.arguments)}


def encode_stop(reply: Reply, stop: str | int | None, sequences: Collection[str]) -> dict[str, Any]:
    """Encode why a reply ended, as the fields `stop_reason` and `stop_sequence`.

    `stop` is the server's stop reason, `sequences` are the request's stop sequences.
    """
    reason = finish_reason(reply)
    if reason == "stop" and isinstance(stop, str) and stop in sequences:
        return {"stop_reason": "stop_sequence", "stop_sequence": stop}
    return {"stop_reason": _STOP_REASONS.get(reason, "end_turn"), "stop_sequence": None}


def encode_usage(usage: Mapping[str, Any] | None) -> dict[str, Any]:
    """Encode the usage. The API counts the prompt's cached tokens separately from the prompt's other tokens."""
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
    """Encode an error; `kind` is the API's error type. The `code` is included only if Anthropic's SDKs know it."""
    details = {"details": {"error_code": code}} if code == THREAD_NOT_FOUND else {}
    error = {"type": "error", "error": {"type": kind, "message": message, **details}}
    return {**error, "request_id": request_id} if request_id else error


def error_type(status: int) -> str:
    """Return the API's error type for an HTTP status."""
    return _ERROR_TYPES.get(status, "invalid_request_error" if 400 <= status < 500 else "api_error")


def own_error_type(kind: str, code: str) -> str:
    """Return the API's error type for one of promptools' own errors."""
    by_kind = "invalid_request_error" if kind in {"UsageError", "invalid_request_error"} else "api_error"
    return _OWN_ERROR_TYPES.get(code, by_kind)


# Encode the events of a streamed `/v1/messages` response.
#
#     message_start
#     for each block:   content_block_start, content_block_delta ..., content_block_stop
#     message_delta     with the stop reason and the usage
#     message_stop
#
# The API streams one block at a time. A server may begin a call before the previous call is complete. So while a call
# is open, all other events wait in groups: the events of one call, or text and reasoning between calls. A block of only
# white space would be refused by the API. So white space beside calls or thinking waits for text, and is dropped if no
# text follows. Thinking of an attempt that failed is a separate block, which ends where the next block begins.


PING: Mapping[str, Any] = {"type": "ping"}
MESSAGE_STOP: Mapping[str, Any] = {"type": "message_stop"}


@dataclass(slots=True)
class _Group:
    """Holds events that must wait until an earlier call ends.

    The events are those of the call with the index `call` or, if `call` is None, those of text and reasoning.
    """

    call: int | None
    events: list[Event] = field(default_factory=list[Event])


class BlockWriter:
    """Encodes the events of a reply as content blocks."""

    def __init__(self, envelope: Envelope) -> None:
        self._envelope = envelope
        self._count = 0
        """Number of blocks that have begun."""
        self._block = ""
        """The type of the open block; empty if none is open."""
        self._discarded = False
        """Whether the open block belongs to an attempt that failed."""
        self._call: int | None = None
        """The index of the open call; None if no call is open."""
        self._space = ""
        """White space that is held back, because it may be the beginning of a text block."""
        self._waiting: deque[_Group] = deque()
        self._waiting_calls: dict[int, _Group] = {}

    def role(self, content: str | None = "") -> dict[str, Any]:  # noqa: ARG002 one signature for all writers
        """Encode the event that opens the stream, with an empty usage, since the usage is not known yet."""
        return {"type": "message_start", "message": encode_message(self._envelope)}

    def write(self, event: Event, logprobs: Any = None) -> list[dict[str, Any]]:  # noqa: ARG002 one signature for all writers
        """Encode `event`, and then the events that waited for it.

        Return nothing for an event that clients do not receive, or that must wait until an open call ends.
        """
        if not isinstance(event, (Text, Reasoning, CallStart, CallArgs, CallEnd)):
            return []
        call = None if isinstance(event, (Text, Reasoning)) else event.index
        if self._call is not None and self._call != call:
            self._wait(event, call)
            return []
        encoded = self._encode(event)
        if self._call is None and self._waiting:
            encoded += self._release()
        return encoded

    def discard_attempt(self) -> None:
        """Mark the open reasoning as part of a failed attempt, so that its block ends when the next block begins."""
        self._discarded = bool(self._block)

    def finish(self, reply: Reply, *, logprobs: Any = None) -> dict[str, Any]:  # noqa: ARG002 one signature for all writers
        """Encode the event that ends the message, without the stop reason and the usage. Call `close` first."""
        return {"type": "message_delta"}

    def close(self) -> list[dict[str, Any]]:
        """End the open block, and encode all events that wait."""
        encoded = self._end_block()
        while self._waiting:
            encoded += self._release()
            encoded += self._end_block()
        if self._space and not self._count:
            encoded += [*self._enter("text", text=""), self._delta("text_delta", text=self._space), *self._end_block()]
        return encoded

    # -- what waits

    def _wait(self, event: Event, call: int | None) -> None:
        group = self._waiting[-1] if self._waiting else None
        if call is not None:
            group = self._waiting_calls.get(call)
        if group is None or group.call != call:
            group = _Group(call)
            self._waiting.append(group)
            if call is not None:
                self._waiting_calls[call] = group
        group.events.append(event)

    def _release(self) -> list[dict[str, Any]]:
        """Encode waiting events in order, in O(n), up to and including the events of a call that has not ended."""
        encoded: list[dict[str, Any]] = []
        while self._waiting and self._call is None:
            group = self._waiting.popleft()
            encoded += [item for event in group.events for item in self._encode(event)]
            if group.call is not None:
                del self._waiting_calls[group.call]
        return encoded

    # -- blocks

    def _encode(self, event: Event) -> list[dict[str, Any]]:
        match event:
            case Text(text="") | Reasoning(text=""):
                return []
            case Text(text=text) if self._block != "text" and not text.strip():
                self._space += text
                return []
            case Text(text=text):
                text, self._space = self._space + text, ""
                return [*self._enter("text", text=""), self._delta("text_delta", text=text)]
            case Reasoning(text=text):
                start = self._enter("thinking", thinking="", signature="")
                return [*start, self._delta("thinking_delta", thinking=text)]
            case CallStart(index=index, id=call_id, name=name):
                return self._begin_call(index, call_id, name)
            case CallArgs(fragment=fragment):
                return [self._delta("input_json_delta", partial_json=fragment)] if fragment else []
            case CallEnd(index=index) if index == self._call:
                return self._end_block()
            case CallEnd(index=index, call=call):
                start = self._begin_call(index, call.id, call.name)
                delta = self._delta("input_json_delta", partial_json=call.arguments_json)
                return [*start, delta, *self._end_block()]
            case _:
                return []

    def _begin_call(self, index: int, call_id: str, name: str) -> list[dict[str, Any]]:
        ended = self._end_block()
        self._call = index
        return [*ended, *self._enter("tool_use", id=call_id, name=name, input={})]

    def _enter(self, kind: str, **fields: Any) -> list[dict[str, Any]]:
        """End the open block, and begin a block of the type `kind`.

        Do nothing if the open block has that type and does not belong to a failed attempt.
        """
        if self._block == kind and not self._discarded:
            return []
        ended = self._end_block() if self._block else []
        self._block = kind
        self._count += 1
        start = {"type": "content_block_start", "index": self._count - 1, "content_block": {"type": kind, **fields}}
        return [*ended, start]

    def _end_block(self) -> list[dict[str, Any]]:
        if not self._block:
            return []
        signature = DISCARDED_SIGNATURE if self._discarded else SIGNATURE
        signed = [self._delta("signature_delta", signature=signature)] if self._block == "thinking" else []
        self._block, self._call, self._discarded = "", None, False
        return [*signed, {"type": "content_block_stop", "index": self._count - 1}]

    def _delta(self, kind: str, **fields: Any) -> dict[str, Any]:
        return {"type": "content_block_delta", "index": self._count - 1, "delta": {"type": kind, **fields}}
