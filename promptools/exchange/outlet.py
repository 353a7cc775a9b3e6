"""What the client gets: a stream of chunks as things become certain, or one whole reply at the end."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Protocol

from promptools.exchange.line import Line
from promptools.wire import chunks
from promptools.wire.chat import Envelope
from promptools.wire.sse import DONE, comment, encode

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from promptools.exchange.effects import Headers
    from promptools.modes.ask import Ask
    from promptools.parsing.events import Event
    from promptools.types import Malformed, Reply

_JSON = json.JSONEncoder(ensure_ascii=False)
_OURS = frozenset({
    "content-type", "content-length", "content-encoding", "transfer-encoding", "connection", "keep-alive", "trailer",
    "etag", "content-md5", "digest",
})  # fmt: skip
"""Fields that describe the server's own bytes, which are not the ones that the client gets."""


class Outlet(Protocol):
    """The client's side of one request, whatever it asked for."""

    content_type: str

    def take(self, index: int, events: Iterable[Event], envelope: Envelope, logprobs: Any) -> bytes:
        """Take events of a choice, and give what may go out now."""
        ...

    def committed(self, index: int) -> bool:
        """Tell whether a choice is past its commit point."""
        ...

    def broken(self, index: int) -> Malformed | None:
        """Give the live call of a choice that failed, if one did."""
        ...

    def drop(self, index: int) -> None:
        """Forget what a failed attempt left behind."""
        ...

    def finish(self, index: int, reply: Reply, envelope: Envelope, tail: Mapping[str, Any], *, good: bool) -> bytes:
        """End a choice with its reply."""
        ...

    def end(self, usage: Mapping[str, Any] | None, report: Mapping[str, Any] | None, said: str) -> bytes:
        """End the answer: the summed `usage`, the `promptools` key if there is to be one, a comment where it can be."""
        ...


class StreamOutlet:
    """Writes server-sent events."""

    content_type = "text/event-stream; charset=utf-8"

    def __init__(self, ask: Ask, *, begun: bool = False) -> None:
        self._ask = ask
        self._begun = begun
        self._lines: dict[int, Line] = {}
        self._last: dict[str, Any] | None = None
        self._envelope: Envelope | None = None

    def take(self, index: int, events: Iterable[Event], envelope: Envelope, logprobs: Any) -> bytes:
        """Take events of a choice, and give what may go out now."""
        sent = self._line(index).take(events, self._envelope or envelope, logprobs)
        if sent:
            self._envelope = self._envelope or envelope
        return _events(sent)

    def committed(self, index: int) -> bool:
        """Tell whether a choice is past its commit point."""
        return self._line(index).committed

    def broken(self, index: int) -> Malformed | None:
        """Give the live call of a choice that failed, if one did."""
        return self._line(index).broken

    def drop(self, index: int) -> None:
        """Forget what a failed attempt left behind."""
        self._line(index).drop()

    def finish(self, index: int, reply: Reply, envelope: Envelope, tail: Mapping[str, Any], *, good: bool) -> bytes:
        """End a choice; its last chunk waits for `end`, or for another choice's."""
        self._envelope = self._envelope or envelope
        *sent, last = self._line(index).finish(reply, self._envelope, good=good)
        waiting = [self._last] if self._last else []
        self._last = {**last, **{key: value for key, value in tail.items() if key not in last}}
        return _events([*waiting, *sent])

    def end(self, usage: Mapping[str, Any] | None, report: Mapping[str, Any] | None, said: str) -> bytes:
        """Write the last chunk, then the comment, then `[DONE]`."""
        last = [self._last] if self._last else []
        if self._ask.include_usage and usage is not None:
            last.append(chunks.usage_chunk(self._envelope or Envelope(), usage))
        if report is not None and last:
            last[-1] = {**last[-1], "promptools": report}
        return _events(last) + comment(said) + encode(DONE)

    def _line(self, index: int) -> Line:
        return self._lines.setdefault(index, Line(self._ask, index, begun=self._begun))


class WholeOutlet:
    """Gathers the choices of a whole reply."""

    content_type = "application/json"

    def __init__(self, ask: Ask) -> None:
        self._ask = ask
        self._choices: dict[int, dict[str, Any]] = {}
        self._envelope: Envelope | None = None
        self._logprobs: dict[int, Any] = {}

    def take(self, index: int, events: Iterable[Event], envelope: Envelope, logprobs: Any) -> bytes:  # noqa: ARG002 one signature for both outlets
        """Keep the log probabilities; the reply itself comes with `finish`."""
        if logprobs:
            self._logprobs[index] = logprobs
        return b""

    def committed(self, index: int) -> bool:  # noqa: ARG002 one signature for both outlets
        """Nothing goes out before the end."""
        return False

    def broken(self, index: int) -> Malformed | None:  # noqa: ARG002 one signature for both outlets
        """Nothing goes out live."""
        return None

    def drop(self, index: int) -> None:
        """Forget what a failed attempt left behind."""
        self._logprobs.pop(index, None)

    def finish(self, index: int, reply: Reply, envelope: Envelope, tail: Mapping[str, Any], *, good: bool) -> bytes:  # noqa: ARG002 one signature for both outlets
        """Keep a choice."""
        logprobs = self._logprobs.get(index)
        self._choices[index] = chunks.choice(reply, index, logprobs=logprobs, legacy=self._ask.legacy)
        self._envelope = self._envelope or envelope
        return b""

    def end(self, usage: Mapping[str, Any] | None, report: Mapping[str, Any] | None, said: str) -> bytes:  # noqa: ARG002 one signature for both outlets
        """Write the whole reply; what a stream says in a comment stands in the headers here."""
        choices = [self._choices[index] for index in sorted(self._choices)]
        body = chunks.completion(self._envelope or Envelope(), choices, usage)
        if report is not None:
            body["promptools"] = report
        return dump(body)


def outlet_for(ask: Ask, *, begun: bool = False) -> Outlet:
    """Make the outlet that the request asks for; `begun` when part of a stream has gone out already."""
    return StreamOutlet(ask, begun=begun) if ask.stream else WholeOutlet(ask)


def own_headers(upstream: Headers, content_type: str, mode: str, attempts: int) -> Headers:
    """Write the head of our answer: the server's fields that still hold, and how it came about."""
    kept = tuple((key, value) for key, value in upstream if key.lower() not in _OURS)
    return (
        *kept,
        ("content-type", content_type),
        ("x-promptools-mode", mode),
        ("x-promptools-attempts", str(attempts)),
    )


def _events(bodies: Iterable[Mapping[str, Any]]) -> bytes:
    return b"".join(b"data: %b\n\n" % dump(body) for body in bodies)


def dump(body: Mapping[str, Any]) -> bytes:
    """Write JSON as short as it can be: lone surrogates, which UTF-8 cannot carry, need escapes."""
    try:
        return _JSON.encode(body).encode()
    except UnicodeEncodeError:
        return json.dumps(body).encode()
