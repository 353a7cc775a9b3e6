"""One upstream reply, from bytes to deltas: whole or streamed, it comes out the same."""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from promptools.wire import chat
from promptools.wire.chat import Delta, Envelope, UpstreamProblem
from promptools.wire.ndjson import LineDecoder
from promptools.wire.ollama import reply as ollama
from promptools.wire.sse import DONE, SseDecoder

if TYPE_CHECKING:
    from collections.abc import Callable

    from promptools.exchange.effects import Headers
    from promptools.profiles.profile import Wire


def header(headers: Headers, name: str) -> str:
    """Give the first field of that name; empty when there is none."""
    return next((value for key, value in headers if key.lower() == name), "")


@dataclass(slots=True)
class Intake:
    """Reads a body under HTTP 200, and keeps what is said beside the choices."""

    streamed: bool
    """Is it a stream of events, or of lines?"""
    wire: Wire = "chat"
    """The API whose reply it is."""
    spare: Callable[[], Envelope] = Envelope
    """Makes what stands in for the id and the model that the server leaves out."""
    envelope: Envelope = field(default_factory=Envelope)
    problem: UpstreamProblem | None = None
    """The error that the body reports; nothing after it is read."""
    usage: dict[str, Any] | None = None
    finish: dict[int, str] = field(default_factory=dict[int, str])
    """Finish reasons by choice."""
    stop: dict[int, str | int] = field(default_factory=dict[int, "str | int"])
    """vLLM's stop reasons by choice."""
    tail: dict[str, Any] = field(default_factory=dict[str, Any])
    """What the server put beside the choices of its last chunk: `timings`, for one."""
    done: bool = False
    """Did the server say that the stream is over?"""
    garbled: str | None = None
    """Why the body is no reply at all."""
    _sse: SseDecoder = field(default_factory=SseDecoder)
    _lines: LineDecoder = field(default_factory=LineDecoder)
    _whole: list[bytes] = field(default_factory=list[bytes])
    _begun: bool = False

    @property
    def body(self) -> bytes:
        """Give a whole reply's bytes as they came."""
        return b"".join(self._whole)

    def feed(self, data: bytes) -> list[Delta]:
        """Give the deltas that `data` completes."""
        if not self.streamed:
            self._whole.append(data)
            return []
        return [delta for text in self._texts(data) for delta in self._read(text)]

    def close(self) -> list[Delta]:
        """Give what is left at the end of the body."""
        if self.streamed:
            return [delta for text in self._texts(None) for delta in self._read(text)]
        text = self.body.decode("utf-8", "replace")
        try:
            body = json.loads(text)
        except (ValueError, RecursionError):
            self.garbled = "the reply is not JSON"
            return []
        self._enclose(body)
        return self._noted(ollama.read_reply(body) if self.wire == "ollama" else chat.read_reply(body))

    def _texts(self, data: bytes | None) -> list[str]:
        """Give the data of the events, or the lines, that `data` completes; None ends the body."""
        if self.wire == "ollama":
            return self._lines.close() if data is None else self._lines.feed(data)
        events = self._sse.close() if data is None else self._sse.feed(data)
        return [event.data for event in events]

    def _read(self, data: str) -> list[Delta]:
        """Read an event's data, or a line; a comment has none, and what is neither JSON nor an error is passed over."""
        if self.problem or not data:
            return []
        if data.strip() == DONE:
            self.done = True
            return []
        try:
            body = json.loads(data)
        except (ValueError, RecursionError):
            return []
        deltas = self._noted(ollama.read_reply(body) if self.wire == "ollama" else chat.read_chunk(body))
        if deltas and not self._begun:  # Azure's first chunk has no choices and names nothing
            self._begun = True
            self._enclose(body)
        if any(delta.finish_reason for delta in deltas):
            self.tail = dict(self._around(body).extra)
        return deltas

    def _enclose(self, body: Any) -> None:
        said = self._around(body)
        if not (said.id and said.model):
            spare = self.spare()
            said = replace(said, id=said.id or spare.id, model=said.model or spare.model)
        self.envelope = said

    def _around(self, body: Any) -> Envelope:
        return ollama.read_envelope(body) if self.wire == "ollama" else chat.read_envelope(body)

    def _noted(self, deltas: list[Delta]) -> list[Delta]:
        """Keep what is not for a reader, and give the deltas of choices."""
        for delta in deltas:
            if delta.error:
                self.problem = delta.error
                return []
            if delta.usage is not None:
                self.usage = delta.usage
            if delta.index is not None and delta.finish_reason:
                self.finish[delta.index] = delta.finish_reason
            if delta.index is not None and delta.stop_reason is not None:
                self.stop[delta.index] = delta.stop_reason
        return [delta for delta in deltas if delta.index is not None]


def is_stream(headers: Headers, *, asked: bool) -> bool:
    """Tell whether a reply is a stream: by what it says it is, else by what was asked for."""
    kind = header(headers, "content-type").lower()
    if "event-stream" in kind or "ndjson" in kind:
        return True
    return asked and "json" not in kind
