"""Encode Chat Completions for a client: complete replies, the chunks of a stream, errors, and sums of token counts.

The envelope (id, model, created, fingerprint) comes from the server. Reasoning is written both as `reasoning` and as
`reasoning_content`, since a client may read only one of the two fields.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from promptools.json_values import is_object
from promptools.numbers import as_number
from promptools.parsing.events import CallArgs, CallEnd, CallStart, Event, Reasoning, Text

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from promptools.types import Attempt, Call, Reply
    from promptools.wire.chat_decoder import Envelope

CUT_OFF_REASONS = frozenset({"length", "content_filter"})
"""The finish reasons of replies that were cut off."""
_CHUNK_FIELDS = ("system_fingerprint", "service_tier")


def finish_reason(reply: Reply, *, legacy: bool = False) -> str:
    """Return the finish reason for a client.

    `tool_calls` is returned only if there are calls. `length` and `content_filter` are returned unchanged, with one
    exception: if there are complete calls, `length` becomes `tool_calls`, since these calls can be run even if the text
    after them was cut off. If a call itself was cut off, `length` is kept.
    """
    reason = reply.finish_reason
    complete = reply.calls and not any(failed.reason == "truncated" for failed in reply.malformed)
    if reason in CUT_OFF_REASONS and not (reason == "length" and complete):
        return reason or ""
    if reply.calls:
        return "function_call" if legacy else "tool_calls"
    return "stop" if reason in {None, "", "tool_calls", "function_call"} else reason or ""


def encode_call(call: Call) -> dict[str, Any]:
    """Encode a call as an entry of `tool_calls`."""
    return {"id": call.id, "type": "function", "function": _encode_function(call)}


def _encode_function(call: Call) -> dict[str, Any]:
    return {"name": call.name, "arguments": call.arguments_json}


def encode_message(reply: Reply, *, legacy: bool = False) -> dict[str, Any]:
    """Encode a reply as the assistant's message; `content` is null if there are calls but no text."""
    encoded: dict[str, Any] = {"role": "assistant", "content": reply.content or (None if reply.calls else "")}
    if reply.reasoning:
        encoded |= _reasoning_fields(reply.reasoning)
    if reply.calls and legacy:
        encoded["function_call"] = _encode_function(reply.calls[0])
    elif reply.calls:
        encoded["tool_calls"] = [encode_call(call) for call in reply.calls]
    return encoded


def _reasoning_fields(text: str) -> dict[str, Any]:
    return {"reasoning": text, "reasoning_content": text}


def encode_choice(reply: Reply, index: int = 0, *, logprobs: Any = None, legacy: bool = False) -> dict[str, Any]:
    """Encode one choice of a complete reply."""
    return {
        "index": index,
        "message": encode_message(reply, legacy=legacy),
        "logprobs": logprobs,
        "finish_reason": finish_reason(reply, legacy=legacy),
    }


def encode_completion(
    envelope: Envelope, choices: Sequence[dict[str, Any]], usage: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """Encode a complete reply. If `usage` is None, the key `usage` is omitted."""
    body = {
        "id": envelope.id,
        "object": "chat.completion",
        "created": envelope.created,
        "model": envelope.model,
        "choices": list(choices),
        **envelope.extra,
    }
    return body | {"usage": dict(usage)} if usage is not None else body


def encode_chunk(
    envelope: Envelope,
    delta: Mapping[str, Any],
    *,
    index: int = 0,
    finish: str | None = None,
    logprobs: Any = None,
) -> dict[str, Any]:
    """Encode a chunk with one choice."""
    one = {"index": index, "delta": dict(delta), "logprobs": logprobs, "finish_reason": finish}
    return _encode_choices(envelope, [one])


def add_server_fields(chunk: dict[str, Any], envelope: Envelope) -> dict[str, Any]:
    """Return a choice's last chunk, extended with the server's fields that promptools does not decode.

    A chunk without choices is returned unchanged.
    """
    if not chunk.get("choices") or not (envelope.choice_extra or envelope.message_extra):
        return chunk
    choice = chunk["choices"][0]
    delta = {**envelope.message_extra, **choice["delta"]}
    return {**chunk, "choices": [{**envelope.choice_extra, **choice, "delta": delta}]}


def encode_usage_chunk(envelope: Envelope, usage: Mapping[str, Any]) -> dict[str, Any]:
    """Encode the usage as a stream's last chunk, without choices, for a client that asked for the usage."""
    return _encode_choices(envelope, []) | {"usage": dict(usage)}


def _encode_choices(envelope: Envelope, choices: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        "id": envelope.id,
        "object": "chat.completion.chunk",
        "created": envelope.created,
        "model": envelope.model,
        **{key: envelope.extra[key] for key in _CHUNK_FIELDS if key in envelope.extra},
        "choices": choices,
    }


class ChunkWriter:
    """Encodes the events of one choice as chunks.

    A call is sent complete at its `CallEnd`. With `live`, calls are streamed instead. A streamed call that fails stays
    open (`unfinished`), and an error follows. Nothing is sent for `WasReasoning`, since the text that turned out to be
    reasoning has already been sent.
    """

    def __init__(self, envelope: Envelope, index: int = 0, *, live: bool = False, legacy: bool = False) -> None:
        self._envelope = envelope
        self._index = index
        self._live = live and not legacy
        self._legacy = legacy
        self._client_indexes: dict[int, int] = {}
        self._open: set[int] = set()

    @property
    def unfinished(self) -> bool:
        """Whether a streamed call has begun but not ended."""
        return bool(self._open)

    def role(self, content: str | None = "") -> dict[str, Any]:
        """Encode the first chunk of a stream.

        If the next chunk has no text, pass None as `content`, as OpenAI's API does. With "" as content, some clients
        would show an empty text part before the calls (Vercel's AI SDK 6).
        """
        return self.chunk({"role": "assistant", "content": content})

    def write(self, event: Event, logprobs: Any = None) -> list[dict[str, Any]]:
        """Encode a parser event. Return nothing for events that clients do not get.

        If the event is a text, `logprobs` are the log probabilities of its tokens.
        """
        match event:
            case Text(text=text):
                return [self.chunk({"content": text}, logprobs=logprobs)]
            case Reasoning(text=text):
                return [self.chunk(_reasoning_fields(text))]
            case CallStart(index=i, id=call_id, name=name) if self._live:
                self._open.add(i)
                head = {"name": name, "arguments": ""}
                return [self._call_chunk(self._client_index(i), {"id": call_id, "type": "function", "function": head})]
            case CallArgs(index=i, fragment=fragment) if i in self._open:
                return [self._call_chunk(self._client_index(i), {"function": {"arguments": fragment}})]
            case CallEnd(index=i) if i in self._open:
                self._open.discard(i)
                return []
            case CallEnd(index=i, call=call) if self._legacy:
                return [self.chunk({"function_call": _encode_function(call)})]
            case CallEnd(index=i, call=call):
                return [self._call_chunk(self._client_index(i), encode_call(call))]
            case _:
                return []

    def discard_attempt(self) -> None:
        """Do nothing after a failed attempt, because the reasoning of the next attempt follows in the same field."""

    def finish(self, reply: Reply, *, logprobs: Any = None) -> dict[str, Any]:
        """Encode the chunk that ends the choice."""
        return self.chunk({}, finish=finish_reason(reply, legacy=self._legacy), logprobs=logprobs)

    def chunk(self, delta: Mapping[str, Any], *, finish: str | None = None, logprobs: Any = None) -> dict[str, Any]:
        """Encode one chunk of this choice."""
        return encode_chunk(self._envelope, delta, index=self._index, finish=finish, logprobs=logprobs)

    def _client_index(self, index: int) -> int:
        """Return the index that the client gets for a call; failed calls leave no gaps between these indexes."""
        return self._client_indexes.setdefault(index, len(self._client_indexes))

    def _call_chunk(self, index: int, call: dict[str, Any]) -> dict[str, Any]:
        return self.chunk({"tool_calls": [{"index": index, **call}]})


def error_body(
    message: str,
    *,
    kind: str,
    code: str | int | None = None,
    attempts: Iterable[Attempt] = (),
    request_id: str = "",
) -> dict[str, Any]:
    """Encode an error in the form of OpenAI's API, with the attempts that were made and, if given, the request's id."""
    tried = [attempt.to_dict() for attempt in attempts]
    named = {"request_id": request_id} if request_id else {}
    return {"error": {"message": message, "type": kind, "param": None, "code": code, "attempts": tried, **named}}


def add_usage(first: Mapping[str, Any] | None, second: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """Add the token counts of two usages, including nested ones; other values are taken from `second`."""
    if first is None or second is None:
        given = second if first is None else first
        return None if given is None else dict(given)
    total = dict(first)
    for key, value in second.items():
        before = total.get(key)
        if is_object(value):
            total[key] = add_usage(before if is_object(before) else None, value)
        elif (one := as_number(before)) is not None and (other := as_number(value)) is not None:
            total[key] = one + other
        elif value is not None:
            total[key] = value
    return total
