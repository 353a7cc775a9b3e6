"""Write the response to the client: a stream of chunks as they become certain, or one JSON body at the end."""

from __future__ import annotations

import json
import math
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from promptools.exchange.line import Line, Writer
from promptools.wire import chunks
from promptools.wire.chat import Envelope
from promptools.wire.shapes import is_list, is_object
from promptools.wire.sse import DONE, comment, encode

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from promptools.exchange.effects import Headers
    from promptools.modes.ask import Ask
    from promptools.parsing.events import Event
    from promptools.types import Malformed, Reply

_JSON = json.JSONEncoder(ensure_ascii=False, allow_nan=False)
_OURS = frozenset({
    "content-type", "content-length", "content-encoding", "transfer-encoding", "connection", "keep-alive", "trailer",
    "etag", "content-md5", "digest",
})  # fmt: skip
"""Header fields that describe the upstream's bytes, which are not the ones that the client gets."""


class Account(NamedTuple):
    """What the end of a response reports."""

    usage: Mapping[str, Any] | None
    """Summed over all attempts."""
    report: Mapping[str, Any] | None
    """The value of the `promptools` key; None: no such key."""
    said: str
    """A comment, for APIs that have comments."""
    seconds: float
    """How long the request took."""


class Outlet(Protocol):
    """Writes the response to one request: methods return the bytes to send now. Choices are addressed by index."""

    content_type: str
    heartbeat: bytes
    """Bytes without meaning that may be sent at any time; empty if the format has none."""

    def take(self, index: int, events: Iterable[Event], envelope: Envelope, logprobs: Any) -> bytes:
        """Add events of a choice, and return the bytes that may be sent now."""
        ...

    def committed(self, index: int) -> bool:
        """Whether a choice is past its commit point."""
        ...

    def broken(self, index: int) -> Malformed | None:
        """Return the call of a choice that failed after it was streamed in part, if any."""
        ...

    def unfinished(self, index: int) -> bool:
        """Whether a call of a choice has been sent in part."""
        ...

    def drop(self, index: int) -> None:
        """Discard what is held of a failed attempt."""
        ...

    def finish(self, index: int, reply: Reply, envelope: Envelope, tail: Mapping[str, Any], *, good: bool) -> bytes:
        """End a choice with its reply; for `good` see `Line.finish`."""
        ...

    def end(self, account: Account) -> bytes:
        """End the response."""
        ...


class StreamOutlet:
    """Writes server-sent events; other stream formats override `_encoded` and `_writer`."""

    content_type = "text/event-stream; charset=utf-8"
    heartbeat = comment("keep-alive")

    def __init__(self, ask: Ask, *, begun: bool = False) -> None:
        self._ask = ask
        self._begun = begun
        self._lines: dict[int, Line] = {}
        self._last: dict[str, Any] | None = None
        self._tail: Mapping[str, Any] = {}
        self._envelope: Envelope | None = None

    def take(self, index: int, events: Iterable[Event], envelope: Envelope, logprobs: Any) -> bytes:
        """Add events of a choice, and return the bytes that may be sent now."""
        sent = self._line(index).take(events, self._envelope or envelope, logprobs)
        if sent:
            self._envelope = self._envelope or envelope
        return self._encoded(sent)

    def committed(self, index: int) -> bool:
        """Whether a choice is past its commit point."""
        return self._line(index).committed

    def broken(self, index: int) -> Malformed | None:
        """Return the call of a choice that failed after it was streamed in part, if any."""
        return self._line(index).broken

    def unfinished(self, index: int) -> bool:
        """Whether a call of a choice has been sent in part."""
        return self._line(index).unfinished

    def drop(self, index: int) -> None:
        """Discard what is held of a failed attempt."""
        self._line(index).drop()

    def finish(self, index: int, reply: Reply, envelope: Envelope, tail: Mapping[str, Any], *, good: bool) -> bytes:
        """End a choice; its last chunk is held until `end` or the end of another choice."""
        self._envelope = self._envelope or envelope
        previous_last = [self._ended()] if self._last else []
        *sent, self._last = self._line(index).finish(reply, self._envelope, good=good)
        self._tail = tail
        return self._encoded([*previous_last, *sent])

    def end(self, account: Account) -> bytes:
        """Return the last chunk, the comment and `[DONE]`."""
        last = [self._ended()] if self._last else []
        if self._ask.include_usage and account.usage is not None:
            last.append(chunks.usage_chunk(self._envelope or Envelope(), account.usage))
        if account.report is not None and last:
            last[-1] = {**last[-1], "promptools": account.report}
        return self._encoded(last) + comment(account.said) + encode(DONE)

    def _ended(self) -> dict[str, Any]:
        """Return the last chunk, with the extra fields of the server's last chunk."""
        last = self._last or {}
        return {**last, **{key: value for key, value in self._tail.items() if key not in last}}

    def _encoded(self, bodies: Iterable[Mapping[str, Any]]) -> bytes:
        return b"".join(b"data: %b\n\n" % dump(body) for body in bodies)

    def _writer(self, index: int, envelope: Envelope) -> Writer:
        return chunks.ChunkWriter(envelope, index, live=True, legacy=self._ask.legacy)

    def _line(self, index: int) -> Line:
        if index not in self._lines:
            self._lines[index] = Line(self._ask, partial(self._writer, index), begun=self._begun)
        return self._lines[index]


class WholeOutlet:
    """Collects the choices of a whole reply and writes them as one JSON body."""

    content_type = "application/json"
    heartbeat = b""

    def __init__(self, ask: Ask) -> None:
        self._ask = ask
        self._choices: dict[int, dict[str, Any]] = {}
        self._envelope: Envelope | None = None
        self._logprobs: dict[int, Any] = {}

    def take(self, index: int, events: Iterable[Event], envelope: Envelope, logprobs: Any) -> bytes:  # noqa: ARG002 one signature for all outlets
        """Store the log probabilities; the reply itself comes with `finish`."""
        if logprobs:
            self._logprobs[index] = logprobs
        return b""

    def committed(self, index: int) -> bool:  # noqa: ARG002 one signature for all outlets
        """Return False: nothing is sent before the end."""
        return False

    def broken(self, index: int) -> Malformed | None:  # noqa: ARG002 one signature for all outlets
        """Return None: no call is streamed."""
        return None

    def unfinished(self, index: int) -> bool:  # noqa: ARG002 one signature for all outlets
        """Return False: no call is sent in part."""
        return False

    def drop(self, index: int) -> None:
        """Discard what is held of a failed attempt."""
        self._logprobs.pop(index, None)

    def finish(self, index: int, reply: Reply, envelope: Envelope, tail: Mapping[str, Any], *, good: bool) -> bytes:  # noqa: ARG002 one signature for all outlets
        """Store a choice."""
        logprobs = self._logprobs.get(index)
        self._choices[index] = chunks.choice(reply, index, logprobs=logprobs, legacy=self._ask.legacy)
        self._envelope = self._envelope or envelope
        return b""

    def end(self, account: Account) -> bytes:
        """Return the whole reply; what a stream puts in a comment is in the headers here."""
        choices = [self._choices[index] for index in sorted(self._choices)]
        body = chunks.completion(self._envelope or Envelope(), choices, account.usage)
        if account.report is not None:
            body["promptools"] = account.report
        return dump(body)


def own_headers(upstream: Headers, content_type: str, mode: str, attempts: int) -> Headers:
    """Return the headers of our response: the upstream's that still apply, the content type, mode and attempts."""
    kept = tuple((key, value) for key, value in upstream if key.lower() not in _OURS)
    return (
        *kept,
        ("content-type", content_type),
        ("x-promptools-mode", mode),
        ("x-promptools-attempts", str(attempts)),
    )


def dump(body: Mapping[str, Any]) -> bytes:
    """Encode JSON in UTF-8 without ASCII escapes.

    Lone surrogates, which UTF-8 cannot encode, are escaped; NaN and infinity, which JSON lacks, become null.
    """
    try:
        return _JSON.encode(body).encode()
    except UnicodeEncodeError:
        return json.dumps(body).encode()
    except ValueError:
        return dump(_finite(body))


def _finite(value: Any) -> Any:
    """Return a copy of a JSON value with null for NaN and infinity. Recurses as deep as the value."""
    if is_object(value):
        return {key: _finite(item) for key, item in value.items()}
    if is_list(value):
        return [_finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
