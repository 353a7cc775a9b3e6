"""One upstream reply, from bytes to deltas: whole or streamed, it comes out the same."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, NamedTuple

from promptools.wire import chat
from promptools.wire.chat import Delta, Envelope, UpstreamProblem
from promptools.wire.ndjson import LineDecoder
from promptools.wire.ollama import reply as ollama
from promptools.wire.raw import completions, generate, llamacpp
from promptools.wire.sse import DONE, SseDecoder

if TYPE_CHECKING:
    from promptools.exchange.effects import Headers
    from promptools.profiles.profile import Api


class _Shapes(NamedTuple):
    """How the replies of an API are read."""

    whole: Callable[[Any], list[Delta]]
    piece: Callable[[Any], list[Delta]]
    around: Callable[[Any], Envelope]
    lines: bool = False
    """Is a stream one of lines, rather than of events?"""


SHAPES: Mapping[Api, _Shapes] = {
    "chat": _Shapes(chat.read_reply, chat.read_chunk, chat.read_envelope),
    "ollama": _Shapes(ollama.read_reply, ollama.read_reply, ollama.read_envelope, lines=True),
    "completions": _Shapes(completions.read_reply, completions.read_reply, chat.read_envelope),
    "llamacpp": _Shapes(llamacpp.read_reply, llamacpp.read_reply, llamacpp.read_envelope),
    "generate": _Shapes(generate.read_reply, generate.read_reply, generate.read_envelope, lines=True),
}


def header(headers: Headers, name: str) -> str:
    """Give the first field of that name; empty when there is none."""
    return next((value for key, value in headers if key.lower() == name), "")


@dataclass(slots=True)
class Intake:
    """Reads a body under HTTP 200, and keeps what is said beside the choices."""

    streamed: bool
    """Is it a stream of events, or of lines?"""
    wire: Api = "chat"
    """The API whose reply it is."""
    spare: Callable[[], Envelope] = Envelope
    """Makes what stands in for the id, the model and the time that the server leaves out."""
    envelope: Envelope = field(default_factory=Envelope)
    problem: UpstreamProblem | None = None
    """The error that the body reports; nothing after it is read."""
    usage: dict[str, Any] | None = None
    came: set[int] = field(default_factory=set[int])
    """The choices of which anything came at all."""
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
    _spent: dict[int | None, dict[str, Any]] = field(default_factory=dict[int | None, dict[str, Any]])
    """What the server says that choices cost, each by itself, or all (None)."""

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
        return self._noted(SHAPES[self.wire].whole(body))

    def _texts(self, data: bytes | None) -> list[str]:
        """Give the data of the events, or the lines, that `data` completes; None ends the body."""
        if SHAPES[self.wire].lines:
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
        deltas = self._noted(SHAPES[self.wire].piece(body))
        if deltas and not self._begun:  # Azure's first chunk has no choices and names nothing
            self._begun = True
            self._enclose(body)
        if any(delta.finish_reason for delta in deltas):
            self.tail = dict(SHAPES[self.wire].around(body).extra)
        return deltas

    def _enclose(self, body: Any) -> None:
        said = SHAPES[self.wire].around(body)
        if not (said.id and said.model and said.created):
            spare = self.spare()
            said = replace(
                said,
                id=said.id or spare.id,
                model=said.model or spare.model,
                created=said.created or spare.created,
            )
        self.envelope = said

    def _noted(self, deltas: list[Delta]) -> list[Delta]:
        """Keep what is not for a reader, and give the deltas of choices."""
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


def _together(spent: Iterable[dict[str, Any]]) -> dict[str, Any]:
    """Sum what choices cost: the prompt once, as in OpenAI's API."""
    first, *others = spent
    written = first.get("completion_tokens", 0) + sum(each["completion_tokens"] for each in others)
    total = {"completion_tokens": written, "total_tokens": first.get("prompt_tokens", 0) + written}
    return first | total if others else first


def is_stream(headers: Headers, *, asked: bool) -> bool:
    """Tell whether a reply is a stream: by what it says it is, else by what was asked for."""
    kind = header(headers, "content-type").lower()
    if "event-stream" in kind or "ndjson" in kind:
        return True
    return asked and "json" not in kind
