"""What the client gets: a stream of chunks as things become certain, or one whole reply at the end."""

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
"""Fields that describe the server's own bytes, which are not the ones that the client gets."""


class Account(NamedTuple):
    """What is said at the end of an answer."""

    usage: Mapping[str, Any] | None
    """Summed over all sends."""
    report: Mapping[str, Any] | None
    """The `promptools` key, if there is to be one."""
    said: str
    """A comment, for APIs that have such."""
    seconds: float
    """How long it all took."""


class Outlet(Protocol):
    """The client's side of one request, whatever it asked for."""

    content_type: str
    heartbeat: bytes
    """What may go out at any time and says nothing; empty: there is no such thing."""

    def take(self, index: int, events: Iterable[Event], envelope: Envelope, logprobs: Any) -> bytes:
        """Take events of a choice, and give what may go out now."""
        ...

    def committed(self, index: int) -> bool:
        """Tell whether a choice is past its commit point."""
        ...

    def broken(self, index: int) -> Malformed | None:
        """Give the live call of a choice that failed, if one did."""
        ...

    def unfinished(self, index: int) -> bool:
        """Tell whether a call of a choice has gone out in part."""
        ...

    def drop(self, index: int) -> None:
        """Forget what a failed attempt left behind."""
        ...

    def finish(self, index: int, reply: Reply, envelope: Envelope, tail: Mapping[str, Any], *, good: bool) -> bytes:
        """End a choice with its reply."""
        ...

    def end(self, account: Account) -> bytes:
        """End the answer."""
        ...


class StreamOutlet:
    """Writes server-sent events; what other streams do otherwise stands in the methods with an underscore."""

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
        """Take events of a choice, and give what may go out now."""
        sent = self._line(index).take(events, self._envelope or envelope, logprobs)
        if sent:
            self._envelope = self._envelope or envelope
        return self._encoded(sent)

    def committed(self, index: int) -> bool:
        """Tell whether a choice is past its commit point."""
        return self._line(index).committed

    def broken(self, index: int) -> Malformed | None:
        """Give the live call of a choice that failed, if one did."""
        return self._line(index).broken

    def unfinished(self, index: int) -> bool:
        """Tell whether a call of a choice has gone out in part."""
        return self._line(index).unfinished

    def drop(self, index: int) -> None:
        """Forget what a failed attempt left behind."""
        self._line(index).drop()

    def finish(self, index: int, reply: Reply, envelope: Envelope, tail: Mapping[str, Any], *, good: bool) -> bytes:
        """End a choice; its last chunk waits for `end`, or for another choice's."""
        self._envelope = self._envelope or envelope
        waiting = [self._ended()] if self._last else []
        *sent, self._last = self._line(index).finish(reply, self._envelope, good=good)
        self._tail = tail
        return self._encoded([*waiting, *sent])

    def end(self, account: Account) -> bytes:
        """Write the last chunk, then the comment, then `[DONE]`."""
        last = [self._ended()] if self._last else []
        if self._ask.include_usage and account.usage is not None:
            last.append(chunks.usage_chunk(self._envelope or Envelope(), account.usage))
        if account.report is not None and last:
            last[-1] = {**last[-1], "promptools": account.report}
        return self._encoded(last) + comment(account.said) + encode(DONE)

    def _ended(self) -> dict[str, Any]:
        """Give the last chunk with what the server put beside its own."""
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
    """Gathers the choices of a whole reply."""

    content_type = "application/json"
    heartbeat = b""

    def __init__(self, ask: Ask) -> None:
        self._ask = ask
        self._choices: dict[int, dict[str, Any]] = {}
        self._envelope: Envelope | None = None
        self._logprobs: dict[int, Any] = {}

    def take(self, index: int, events: Iterable[Event], envelope: Envelope, logprobs: Any) -> bytes:  # noqa: ARG002 one signature for all outlets
        """Keep the log probabilities; the reply itself comes with `finish`."""
        if logprobs:
            self._logprobs[index] = logprobs
        return b""

    def committed(self, index: int) -> bool:  # noqa: ARG002 one signature for all outlets
        """Nothing goes out before the end."""
        return False

    def broken(self, index: int) -> Malformed | None:  # noqa: ARG002 one signature for all outlets
        """Nothing goes out live."""
        return None

    def unfinished(self, index: int) -> bool:  # noqa: ARG002 one signature for all outlets
        """Nothing goes out in part."""
        return False

    def drop(self, index: int) -> None:
        """Forget what a failed attempt left behind."""
        self._logprobs.pop(index, None)

    def finish(self, index: int, reply: Reply, envelope: Envelope, tail: Mapping[str, Any], *, good: bool) -> bytes:  # noqa: ARG002 one signature for all outlets
        """Keep a choice."""
        logprobs = self._logprobs.get(index)
        self._choices[index] = chunks.choice(reply, index, logprobs=logprobs, legacy=self._ask.legacy)
        self._envelope = self._envelope or envelope
        return b""

    def end(self, account: Account) -> bytes:
        """Write the whole reply; what a stream says in a comment stands in the headers here."""
        choices = [self._choices[index] for index in sorted(self._choices)]
        body = chunks.completion(self._envelope or Envelope(), choices, account.usage)
        if account.report is not None:
            body["promptools"] = account.report
        return dump(body)


def own_headers(upstream: Headers, content_type: str, mode: str, attempts: int) -> Headers:
    """Write the head of our answer: the server's fields that still hold, and how it came about."""
    kept = tuple((key, value) for key, value in upstream if key.lower() not in _OURS)
    return (
        *kept,
        ("content-type", content_type),
        ("x-promptools-mode", mode),
        ("x-promptools-attempts", str(attempts)),
    )


def dump(body: Mapping[str, Any]) -> bytes:
    """Write JSON as short as it can be.

    Lone surrogates, which UTF-8 cannot carry, need escapes; NaN and infinity, which JSON lacks, become null.
    """
    try:
        return _JSON.encode(body).encode()
    except UnicodeEncodeError:
        return json.dumps(body).encode()
    except ValueError:
        return dump(_finite(body))


def _finite(value: Any) -> Any:
    """Copy a JSON value with null for each number that JSON has no word for. As deep as the value is."""
    if is_object(value):
        return {key: _finite(each) for key, each in value.items()}
    if is_list(value):
        return [_finite(each) for each in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
