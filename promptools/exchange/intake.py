"""Decode one upstream reply from bytes to deltas; whole or streamed, of any API, the result is the same.

A stream is split into events (SSE) or lines (NDJSON), each parsed as JSON as it completes; a whole reply is buffered
and parsed by `close`. What belongs to one choice becomes a delta. What belongs to the reply (envelope, usage, finish
and stop reasons, an error) is kept as an attribute of the decoder.

Decoding ends for good, and what follows is not read, at the first of four: `problem` (the server reports an error),
`garbled` (not JSON, where content may be lost), `excess` (more than `limit` was buffered) and `done` (the server
signalled the end).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, NamedTuple

from promptools.wire import chat
from promptools.wire.chat import Delta, Envelope, UpstreamProblem
from promptools.wire.decode import decode
from promptools.wire.ndjson import LineDecoder
from promptools.wire.ollama import reply as ollama
from promptools.wire.raw import completions, generate, llamacpp
from promptools.wire.shapes import as_count
from promptools.wire.sse import DONE, Sse, SseDecoder

if TYPE_CHECKING:
    from promptools.exchange.effects import Headers
    from promptools.profiles.profile import Api


class _Shapes(NamedTuple):
    """The functions that read an API's replies."""

    whole: Callable[[Any], list[Delta]]
    piece: Callable[[Any], list[Delta]]
    around: Callable[[Any], Envelope]
    lines: bool = False
    """Whether a stream consists of lines (NDJSON) rather than events (SSE)."""
    ends: bool = False
    """Whether nothing follows the finish reason."""


SHAPES: Mapping[Api, _Shapes] = {
    "chat": _Shapes(chat.read_reply, chat.read_chunk, chat.read_envelope),
    "ollama": _Shapes(ollama.read_reply, ollama.read_reply, ollama.read_envelope, lines=True, ends=True),
    "completions": _Shapes(completions.read_reply, completions.read_reply, chat.read_envelope),
    "llamacpp": _Shapes(llamacpp.read_reply, llamacpp.read_reply, llamacpp.read_envelope, ends=True),
    "generate": _Shapes(generate.read_reply, generate.read_reply, generate.read_envelope, lines=True, ends=True),
}


MAX_REPLY = 1 << 26
"""Bytes: about 16 million tokens in a whole reply, about a million in a stream with one token per event."""
_EACH = 60
"""Bytes of overhead of a string, on top of its characters."""


def header(headers: Headers, name: str) -> str:
    """Return the first field of that name, in any case; empty if there is none."""
    return next((value for key, value in headers if key.lower() == name), "")


@dataclass(slots=True)
class Intake:
    """Decodes the body of an HTTP 200 response, and keeps what the reply says outside its choices."""

    streamed: bool
    """Whether the body is a stream, of events or of lines."""
    wire: Api = "chat"
    """The API whose reply it is."""
    spare: Callable[[], Envelope] = Envelope
    """Return defaults for the id, model and time that the server leaves out."""
    choices: int = 1
    """The number requested. The index of a single choice is ignored: some servers number its chunks."""
    envelope: Envelope = field(default_factory=Envelope)
    problem: UpstreamProblem | None = None
    """The error that the body reports; nothing after it is read."""
    usage: dict[str, Any] | None = None
    came: set[int] = field(default_factory=set[int])
    """The indexes of the choices that any delta was received for."""
    finish: dict[int, str] = field(default_factory=dict[int, str])
    """Finish reasons by choice."""
    stop: dict[int, str | int] = field(default_factory=dict[int, "str | int"])
    """vLLM's stop reasons by choice."""
    tail: dict[str, Any] = field(default_factory=dict[str, Any])
    """The extra fields of the server's last chunk, such as `timings`."""
    done: bool = False
    """Whether the server signalled the end of the stream."""
    garbled: str | None = None
    """Why the body, or the rest of it, is not a valid reply; nothing after it is read."""
    limit: int = MAX_REPLY
    """The most that is buffered: bytes of a whole reply or of one line or event, characters of a stream's content."""
    excess: str | None = None
    """The message that the limit was exceeded; nothing after it is read."""
    fixes: dict[str, None] = field(default_factory=dict[str, None])
    """Descriptions of the fixes that were needed to parse the server's JSON, without duplicates."""
    _sse: SseDecoder = field(default_factory=SseDecoder)
    _lines: LineDecoder = field(default_factory=LineDecoder)
    _whole: list[bytes] = field(default_factory=list[bytes])
    _begun: bool = False
    _held: int = 0
    """How much of the limit is used."""
    _spent: dict[int | None, dict[str, Any]] = field(default_factory=dict[int | None, dict[str, Any]])
    """The last usage by choice; under None, the usage of all choices together."""

    @property
    def body(self) -> bytes:
        """The unchanged bytes of a whole reply."""
        return b"".join(self._whole)

    def feed(self, data: bytes) -> list[Delta]:
        """Return the deltas that `data` completes."""
        if self.streamed:
            deltas = [delta for event in self._events(data) for delta in self._read(event)]
            self._hold(self._lines.held + self._sse.held)
            return deltas
        self._whole.append(data)
        self._held += len(data)
        self._hold(0)
        return []

    def _hold(self, more: int) -> None:
        """Check what is buffered, plus `more` that may be released again, against the limit."""
        if self._held + more > self.limit and self.excess is None:
            self._whole.clear()
            self.excess = f"the reply is longer than {self.limit:,} bytes; a higher max_reply lets it through"

    def close(self) -> list[Delta]:
        """Return the remaining deltas at the end of the body."""
        if self.streamed:
            return [delta for event in self._events(None) for delta in self._read(event)]
        bodies = self._decoded(self.body.decode("utf-8", "replace"))
        if len(bodies) != 1:
            self.garbled = "the reply is not JSON"
            return []
        self._enclose(bodies[0])
        return self._noted(self._of_choices(SHAPES[self.wire].whole(bodies[0])))

    def _events(self, data: bytes | None) -> list[Sse]:
        """Return the events, or the lines as events, that `data` completes; None ends the body."""
        if SHAPES[self.wire].lines:
            lines = self._lines.close() if data is None else self._lines.feed(data)
            return [Sse(data=line) for line in lines]
        return self._sse.close() if data is None else self._sse.feed(data)

    def _read(self, event: Sse) -> list[Delta]:
        """Return the deltas of one event or line; a comment has none."""
        if self.problem or self.garbled or self.excess or self.done or not event.data:
            return []
        if event.data.lstrip().startswith(DONE):
            self.done = True
            return []
        deltas = [delta for body in self._documents(event) for delta in self._piece(body)]
        self._held += sum(map(_size, deltas)) + (len(event.data) if any(delta.logprobs for delta in deltas) else 0)
        self._hold(0)
        return deltas

    def _documents(self, event: Sse) -> list[Any]:
        """Parse the JSON values of an event; unreadable data that may contain part of the reply ends the decoding."""
        if "{" not in event.data:
            return []
        bodies = self._decoded(event.data)
        # raw lines, which are no SSE fields, are ignored unless they may be JSON or a `data` field without its colon
        if not bodies and (event.event != "raw" or event.data.lstrip().startswith(("{", "data"))):
            self.garbled = "a part of the stream is not JSON"
        return bodies

    def _decoded(self, text: str) -> list[Any]:
        try:
            decoded = decode(text)
        except ValueError:
            return []
        self.fixes |= dict.fromkeys(decoded.fixes)
        return decoded.values

    def _piece(self, body: Any) -> list[Delta]:
        """Return the deltas of a chunk."""
        shapes = SHAPES[self.wire]
        deltas = self._noted(self._of_choices(shapes.piece(body)))
        if deltas and not self._begun:  # Azure's first chunk has no choices and no id, model or time
            self._begun = True
            self._enclose(body)
        if any(delta.finish_reason for delta in deltas):
            self.tail = dict(shapes.around(body).extra)
            # in these APIs the finish reason comes with the last line or event
            self.done = self.done or (shapes.ends and len(self.finish) >= self.choices)
        return deltas

    def _of_choices(self, deltas: list[Delta]) -> list[Delta]:
        """Set the index of a single choice to 0; others that were not requested are dropped, as clients do."""
        if self.choices > 1:
            return deltas
        first = next((delta.index for delta in deltas if delta.index is not None), None)
        return [
            delta if delta.index is None else replace(delta, index=0)
            for delta in deltas
            if delta.index in {None, first}
        ]

    def _enclose(self, body: Any) -> None:
        envelope = SHAPES[self.wire].around(body)
        if not (envelope.id and envelope.model and envelope.created):
            spare = self.spare()
            envelope = replace(
                envelope,
                id=envelope.id or spare.id,
                model=envelope.model or spare.model,
                created=envelope.created or spare.created,
            )
        self.envelope = envelope

    def _noted(self, deltas: list[Delta]) -> list[Delta]:
        """Record errors, usage and finish reasons; return the deltas that belong to choices."""
        for delta in deltas:
            if delta.error:
                self.problem = delta.error
                return []
            if delta.usage is not None:
                self._spent[delta.index] = delta.usage
                self.usage = _together(self._spent.values())
            if delta.index is None:
                continue
            self.came.add(delta.index)
            if delta.finish_reason:
                self.finish[delta.index] = delta.finish_reason
            if delta.stop_reason is not None:
                self.stop[delta.index] = delta.stop_reason
        return [delta for delta in deltas if delta.index is not None]


def _size(delta: Delta) -> int:
    """Return roughly how many bytes of memory the text of a delta takes."""
    calls = sum(_EACH + len(call.arguments) + len(call.id or "") + len(call.name or "") for call in delta.tool_calls)
    text = len(delta.content) + len(delta.reasoning) + len(delta.refusal)
    return calls + (_EACH + text if text else 0)


def _together(spent: Iterable[dict[str, Any]]) -> dict[str, Any]:
    """Sum the usage of several choices, counting the prompt once, as OpenAI's API does."""
    first, *others = spent
    if not others:
        return first
    completion = sum(as_count(usage.get("completion_tokens")) or 0 for usage in (first, *others))
    return first | {
        "completion_tokens": completion,
        "total_tokens": (as_count(first.get("prompt_tokens")) or 0) + completion,
    }


def is_stream(headers: Headers, *, asked: bool) -> bool:
    """Whether a reply is a stream: by its content type, else by what was asked for."""
    media_type = header(headers, "content-type").lower()
    if "event-stream" in media_type or "ndjson" in media_type:
        return True
    return asked and "json" not in media_type
