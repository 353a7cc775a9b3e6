"""One upstream reply, from bytes to deltas: whole or streamed, it comes out the same."""

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
    """How the replies of an API are read."""

    whole: Callable[[Any], list[Delta]]
    piece: Callable[[Any], list[Delta]]
    around: Callable[[Any], Envelope]
    lines: bool = False
    """Is a stream one of lines, rather than of events?"""
    ends: bool = False
    """Does nothing follow the finish reason?"""


SHAPES: Mapping[Api, _Shapes] = {
    "chat": _Shapes(chat.read_reply, chat.read_chunk, chat.read_envelope),
    "ollama": _Shapes(ollama.read_reply, ollama.read_reply, ollama.read_envelope, lines=True, ends=True),
    "completions": _Shapes(completions.read_reply, completions.read_reply, chat.read_envelope),
    "llamacpp": _Shapes(llamacpp.read_reply, llamacpp.read_reply, llamacpp.read_envelope, ends=True),
    "generate": _Shapes(generate.read_reply, generate.read_reply, generate.read_envelope, lines=True, ends=True),
}


MAX_REPLY = 1 << 26
"""Bytes: some 16 million tokens, whole, and some million in a stream of a token an event."""
_EACH = 60
"""Bytes that a string takes beside its characters."""


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
    choices: int = 1
    """How many were asked for. Of one alone the index does not matter: servers have numbered its chunks."""
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
    """Why the body, or the rest of it, is no reply at all; nothing after it is read."""
    limit: int = MAX_REPLY
    """Bytes of a whole reply, of one line or event, or characters of what a stream says, that are held at most."""
    excess: str | None = None
    """That the limit was passed, in words; nothing after it is read."""
    fixes: dict[str, None] = field(default_factory=dict[str, None])
    """The liberties that were taken to read the server's JSON, in words."""
    _sse: SseDecoder = field(default_factory=SseDecoder)
    _lines: LineDecoder = field(default_factory=LineDecoder)
    _whole: list[bytes] = field(default_factory=list[bytes])
    _begun: bool = False
    _held: int = 0
    """How much of the limit is used up."""
    _spent: dict[int | None, dict[str, Any]] = field(default_factory=dict[int | None, dict[str, Any]])
    """What the server says that choices cost, each by itself, or all (None)."""

    @property
    def body(self) -> bytes:
        """Give a whole reply's bytes as they came."""
        return b"".join(self._whole)

    def feed(self, data: bytes) -> list[Delta]:
        """Give the deltas that `data` completes."""
        if self.streamed:
            deltas = [delta for event in self._events(data) for delta in self._read(event)]
            self._hold(self._lines.held + self._sse.held)
            return deltas
        self._whole.append(data)
        self._held += len(data)
        self._hold(0)
        return []

    def _hold(self, more: int) -> None:
        """Compare what is held, and `more` that may go again, with the limit."""
        if self._held + more > self.limit and self.excess is None:
            self._whole.clear()
            self.excess = f"the reply is longer than {self.limit:,} bytes; a higher max_reply lets it through"

    def close(self) -> list[Delta]:
        """Give what is left at the end of the body."""
        if self.streamed:
            return [delta for event in self._events(None) for delta in self._read(event)]
        bodies = self._decoded(self.body.decode("utf-8", "replace"))
        if len(bodies) != 1:
            self.garbled = "the reply is not JSON"
            return []
        self._enclose(bodies[0])
        return self._noted(self._of_choices(SHAPES[self.wire].whole(bodies[0])))

    def _events(self, data: bytes | None) -> list[Sse]:
        """Give the events, or the lines, that `data` completes; None ends the body."""
        if SHAPES[self.wire].lines:
            lines = self._lines.close() if data is None else self._lines.feed(data)
            return [Sse(data=line) for line in lines]
        return self._sse.close() if data is None else self._sse.feed(data)

    def _read(self, event: Sse) -> list[Delta]:
        """Read an event's data, or a line; a comment has none."""
        if self.problem or self.garbled or self.excess or self.done or not event.data:
            return []
        if event.data.lstrip().startswith(DONE):
            self.done = True
            return []
        deltas = [delta for body in self._documents(event) for delta in self._piece(body)]
        self._held += sum(map(_size, deltas)) + (len(event.data) if any(each.logprobs for each in deltas) else 0)
        self._hold(0)
        return deltas

    def _documents(self, event: Sse) -> list[Any]:
        """Give the JSON of an event; what cannot be read and may hold a part of the reply ends it."""
        if "{" not in event.data:
            return []
        bodies = self._decoded(event.data)
        # lines that are no fields of the format are nobody's, but for JSON, and a field whose colon is lost
        if not bodies and (event.event != "raw" or event.data.lstrip().startswith(("{", "data"))):
            self.garbled = "a part of the stream is not JSON"
        return bodies

    def _decoded(self, text: str) -> list[Any]:
        try:
            found = decode(text)
        except ValueError:
            return []
        self.fixes |= dict.fromkeys(found.fixes)
        return found.values

    def _piece(self, body: Any) -> list[Delta]:
        """Read a chunk."""
        shapes = SHAPES[self.wire]
        deltas = self._noted(self._of_choices(shapes.piece(body)))
        if deltas and not self._begun:  # Azure's first chunk has no choices and names nothing
            self._begun = True
            self._enclose(body)
        if any(delta.finish_reason for delta in deltas):
            self.tail = dict(shapes.around(body).extra)
            # these say with their last line, or event, that there is no more
            self.done = self.done or (shapes.ends and len(self.finish) >= self.choices)
        return deltas

    def _of_choices(self, deltas: list[Delta]) -> list[Delta]:
        """Give a sole choice its index; others that were not asked for are left out, as clients do."""
        if self.choices > 1:
            return deltas
        first = next((delta.index for delta in deltas if delta.index is not None), None)
        return [
            delta if delta.index is None else replace(delta, index=0)
            for delta in deltas
            if delta.index in {None, first}
        ]

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


def _size(delta: Delta) -> int:
    """Return about how much memory it takes to keep what a delta says."""
    calls = sum(_EACH + len(call.arguments) + len(call.id or "") + len(call.name or "") for call in delta.tool_calls)
    words = len(delta.content) + len(delta.reasoning) + len(delta.refusal)
    return calls + (_EACH + words if words else 0)


def _together(spent: Iterable[dict[str, Any]]) -> dict[str, Any]:
    """Sum what choices cost: the prompt once, as in OpenAI's API."""
    first, *others = spent
    if not others:
        return first
    written = sum(as_count(each.get("completion_tokens")) or 0 for each in (first, *others))
    return first | {
        "completion_tokens": written,
        "total_tokens": (as_count(first.get("prompt_tokens")) or 0) + written,
    }


def is_stream(headers: Headers, *, asked: bool) -> bool:
    """Tell whether a reply is a stream: by what it says it is, else by what was asked for."""
    kind = header(headers, "content-type").lower()
    if "event-stream" in kind or "ndjson" in kind:
        return True
    return asked and "json" not in kind
