"""Write the response to the client: a stream of chunks that can no longer change, or one JSON body at the end."""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol
from weakref import WeakMethod

from pydantic_core import to_json

from promptools.exchange.commit_point import ChoiceStream, ChoiceWriter
from promptools.json_values import is_array, is_object
from promptools.wire import chat_encoder
from promptools.wire.chat_decoder import Envelope
from promptools.wire.sse import DONE, KEEP_ALIVE, encode_comment, encode_event

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from promptools.exchange.effects import Headers
    from promptools.exchange.passthrough import Forwarded
    from promptools.modes.tool_request import ToolRequest
    from promptools.parsing.events import Event
    from promptools.types import HealingCost, Malformed, Reply


_ENCODER = json.JSONEncoder(ensure_ascii=False, allow_nan=False)
DIGEST_FIELDS = ("content-digest", "repr-digest", "digest", "content-md5")
"""Header fields that hold a hash of the body (RFC 9530 and its predecessors)."""
_REPLACED_HEADERS = frozenset({
    "content-type", "content-length", "content-encoding", "transfer-encoding", "connection", "keep-alive", "trailer",
    "etag", *DIGEST_FIELDS,
})  # fmt: skip
"""Header fields of the server that are not passed on, because they describe bytes that the client does not get."""


class Summary(NamedTuple):
    """The facts that are reported at the end of a response."""

    usage: Mapping[str, Any] | None
    """The token usage, summed over all attempts."""
    report: Mapping[str, Any] | None
    """The value of the `promptools` key in the response; None if the response has no such key."""
    note: str
    """The mode and the number of attempts, as a comment at the end of a stream, if the API allows comments."""
    seconds: float
    """How long the request took."""
    phases: tuple[float, float]
    """Seconds from the last request to the first byte of its reply, and seconds from that byte to the end."""

    def with_report(self, body: dict[str, Any]) -> dict[str, Any]:
        """Return the body of a response with the report added, if there is one."""
        return body if self.report is None else body | {"promptools": self.report}


class ResponseWriter(Protocol):
    """Writes the response to one request; `add_events`, `finish` and `end` return the bytes to send now.

    `index` is the index of a choice in the response.
    """

    content_type: str
    heartbeat: bytes
    """Bytes without meaning that may be sent at any time; empty if the format has none."""

    def add_events(self, index: int, events: Iterable[Event], envelope: Envelope, logprobs: Any) -> bytes:
        """Add events of a choice, and return the bytes that may be sent now."""
        ...

    def committed(self, index: int) -> bool:
        """Return whether content or a call of this choice was sent. If so, no other attempt can replace the choice."""
        ...

    def failed_live_call(self, index: int) -> Malformed | None:
        """Return the call of this choice that failed after a part of it was streamed; None if there is none."""
        ...

    def has_open_call(self, index: int) -> bool:
        """Return whether a call of this choice has been sent only partly."""
        ...

    def discard_attempt(self, index: int, corrections: tuple[str, ...]) -> None:
        """Discard the events held from a failed attempt; the next attempt sends the model these `corrections`."""
        ...

    def finish(self, index: int, reply: Reply, envelope: Envelope, extra: Mapping[str, Any], *, valid: bool) -> bytes:
        """End a choice with its reply; `valid` is False if the reply failed the checks and has no call."""
        ...

    def end(self, summary: Summary) -> bytes:
        """Return the bytes that end the response."""
        ...


class SseWriter:
    """Writes server-sent events; other stream formats override `_encode` and `_make_writer`."""

    content_type = "text/event-stream; charset=utf-8"
    heartbeat = KEEP_ALIVE

    def __init__(self, request: ToolRequest, *, begun: bool = False) -> None:
        self._request = request
        self._begun = begun
        self._streams: dict[int, ChoiceStream] = {}
        self._held_chunk: dict[str, Any] | None = None
        self._last_extra: Mapping[str, Any] = {}
        self._envelope: Envelope | None = None
        self._forwarded: Mapping[int, Forwarded] = {}

    def resume(self, forwarded: Mapping[int, Forwarded]) -> None:
        """Skip what the client already has of each choice, because the reply is now added from its beginning."""
        self._forwarded = forwarded

    def add_events(self, index: int, events: Iterable[Event], envelope: Envelope, logprobs: Any) -> bytes:
        """Add events of a choice, and return the bytes that may be sent now."""
        sent = self._stream(index).add_events(events, self._envelope or envelope, logprobs)
        if sent:
            self._envelope = self._envelope or envelope
        return self._encode(sent)

    def committed(self, index: int) -> bool:
        """Return whether content or a call of this choice was sent. If so, no other attempt can replace the choice."""
        return self._stream(index).committed

    def failed_live_call(self, index: int) -> Malformed | None:
        """Return the call of this choice that failed after a part of it was streamed; None if there is none."""
        return self._stream(index).failed_live_call

    def has_open_call(self, index: int) -> bool:
        """Return whether a call of this choice has been sent only partly."""
        return self._stream(index).has_open_call

    def discard_attempt(self, index: int, corrections: tuple[str, ...]) -> None:
        """Discard the events held from a failed attempt; the next attempt sends the model these `corrections`."""
        self._stream(index).discard_attempt(corrections)

    def finish(self, index: int, reply: Reply, envelope: Envelope, extra: Mapping[str, Any], *, valid: bool) -> bytes:
        """End a choice; its last chunk is held until `end`, or until another choice ends."""
        self._envelope = self._envelope or envelope
        previous_last = [self._last_chunk()] if self._held_chunk else []
        *sent, last = self._stream(index).finish(reply, self._envelope, valid=valid)
        self._held_chunk = chat_encoder.add_server_fields(last, envelope)
        self._last_extra = extra
        return self._encode([*previous_last, *sent])

    def end(self, summary: Summary) -> bytes:
        """Return the last chunk, a chunk with the usage if requested, the summary's note as a comment, and `[DONE]`."""
        last = [self._last_chunk()] if self._held_chunk else []
        if self._request.include_usage and summary.usage is not None:
            last.append(chat_encoder.encode_usage_chunk(self._envelope or Envelope(), summary.usage))
        if last:
            last[-1] = summary.with_report(last[-1])
        return self._encode(last) + encode_comment(summary.note) + encode_event(DONE)

    def _last_chunk(self) -> dict[str, Any]:
        """Return the held last chunk, with the extra fields that the server sent in its last chunk."""
        last = self._held_chunk or {}
        return {**last, **{key: value for key, value in self._last_extra.items() if key not in last}}

    def _encode(self, bodies: Iterable[Mapping[str, Any]]) -> bytes:
        return b"".join(b"data: %b\n\n" % encode_json(body) for body in bodies)

    def _make_writer(self, index: int, envelope: Envelope) -> ChoiceWriter:
        return chat_encoder.ChunkWriter(envelope, index, live=True, legacy=self._request.legacy)

    def _stream(self, index: int) -> ChoiceStream:
        if index not in self._streams:
            forwarded = self._forwarded.get(index)
            self._streams[index] = ChoiceStream(
                self._request, self._writer_maker(index), begun=self._begun, forwarded=forwarded
            )
        return self._streams[index]

    def _writer_maker(self, index: int) -> Callable[[Envelope], ChoiceWriter]:
        """Return a function that calls `_make_writer` for this choice, without a reference cycle to this object."""
        method = WeakMethod(self._make_writer)

        def make_writer(envelope: Envelope) -> ChoiceWriter:
            make = method()
            assert make is not None, "a stream is written through its writer"
            return make(index, envelope)

        return make_writer


class JsonWriter:
    """Collects the choices of a whole reply and writes them as one JSON body."""

    content_type = "application/json"
    heartbeat = b""

    def __init__(self, request: ToolRequest) -> None:
        self._request = request
        self._choices: dict[int, dict[str, Any]] = {}
        self._envelope: Envelope | None = None
        self._logprobs: dict[int, Any] = {}

    def add_events(self, index: int, events: Iterable[Event], envelope: Envelope, logprobs: Any) -> bytes:  # noqa: ARG002 one signature for all writers
        """Store the log probabilities; `finish` gets the reply itself."""
        if logprobs:
            self._logprobs[index] = logprobs
        return b""

    def committed(self, index: int) -> bool:  # noqa: ARG002 one signature for all writers
        """Return False, because nothing is sent before the end."""
        return False

    def failed_live_call(self, index: int) -> Malformed | None:  # noqa: ARG002 one signature for all writers
        """Return None, because no call is streamed."""
        return None

    def has_open_call(self, index: int) -> bool:  # noqa: ARG002 one signature for all writers
        """Return False, because a call is never sent in parts."""
        return False

    def discard_attempt(self, index: int, corrections: tuple[str, ...]) -> None:  # noqa: ARG002 one signature for all writers
        """Discard the log probabilities of a failed attempt."""
        self._logprobs.pop(index, None)

    def finish(self, index: int, reply: Reply, envelope: Envelope, extra: Mapping[str, Any], *, valid: bool) -> bytes:  # noqa: ARG002 one signature for all writers
        """Store a choice."""
        logprobs = self._logprobs.get(index)
        choice = chat_encoder.encode_choice(reply, index, logprobs=logprobs, legacy=self._request.legacy)
        message = {**envelope.message_extra, **choice["message"]}
        self._choices[index] = {**envelope.choice_extra, **choice, "message": message}
        self._envelope = self._envelope or envelope
        return b""

    def end(self, summary: Summary) -> bytes:
        """Return the whole reply, without the summary's note, since the response's headers contain the same facts."""
        choices = [self._choices[index] for index in sorted(self._choices)]
        body = chat_encoder.encode_completion(self._envelope or Envelope(), choices, summary.usage)
        return encode_json(summary.with_report(body))


def response_headers(
    upstream: Headers,
    content_type: str,
    mode: str,
    attempts: int,
    notes: int,
    unfit: int = 0,
    healing: HealingCost | None = None,
) -> Headers:
    """Return the response's headers: the server's headers that still apply, the content type, and promptools' own.

    promptools' own headers are the mode and the number of attempts. Three more are added unless they are 0: the number
    of notes, the number of calls that were passed on though they failed the checks, and the cost of failed attempts.
    """
    kept = tuple((key, value) for key, value in upstream if key.lower() not in _REPLACED_HEADERS)
    return (
        *kept,
        ("content-type", content_type),
        ("x-promptools-mode", mode),
        ("x-promptools-attempts", str(attempts)),
        *((("x-promptools-notes", str(notes)),) if notes else ()),
        *((("x-promptools-unfit", str(unfit)),) if unfit else ()),
        *((("x-promptools-healing", _encode_healing(healing)),) if healing and healing.requests else ()),
    )


def _encode_healing(cost: HealingCost) -> str:
    """Encode the cost of failed attempts as a header value, in the form of an RFC 9651 dictionary."""
    tokens = f"input-tokens={cost.input_tokens}, output-tokens={cost.output_tokens}"
    return f"requests={cost.requests}, {tokens}, seconds={cost.seconds:.3f}"


def encode_json(body: Mapping[str, Any]) -> bytes:
    """Encode JSON in UTF-8 without ASCII escapes.

    Lone surrogates, which UTF-8 cannot encode, are escaped; NaN and infinity, which JSON lacks, become null. Values
    that pydantic cannot encode, such as lone surrogates, are encoded by Python's `json`, which takes three times as
    long.
    """
    try:
        return to_json(body, inf_nan_mode="null")
    except ValueError:
        pass
    try:
        return _ENCODER.encode(body).encode()
    except UnicodeEncodeError:
        return json.dumps(body).encode()
    except ValueError:
        return encode_json(_without_nan(body))


def _without_nan(value: Any) -> Any:
    """Return a copy of a JSON value with NaN and infinity replaced by null; recurse into each level of nesting."""
    if is_object(value):
        return {key: _without_nan(item) for key, item in value.items()}
    if is_array(value):
        return [_without_nan(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
