"""Forward requests without tools byte for byte, and watch the reply for failures that a retry can fix.

A retry can fix these failures:

- an error whose kind is in `RETRIED_KINDS`, whatever the HTTP status;
- an error whose kind is in `REFUSAL_KINDS`, if the request can be changed so that the server accepts it;
- a stream that is cut off;
- a reply that the server swallowed: tokens were spent, but nothing was sent.

A retry is possible only while the client has seen no content, so a reply has two phases:

    before content   a stream's events are parsed, and forwarded as they come. The first event that would end the stream
                     (error, finish reason, end marker) is held, with all events after it; an unstreamed reply is held
                     completely. If the reply turns out to be lost, the held data is discarded and the retry loop
                     takes over.
    after content    bytes are forwarded unparsed; only the end of the stream is looked for. An incomplete event or line
                     is held until it is complete, so that an error can follow a broken stream as an event of its
                     own. A stream that ends without announcing its end is followed by an error too.

The first content, call or refusal ends the first phase. If more than `MAX_HELD` bytes are held, the phase ends too,
because a lost reply is never that long.
"""

from __future__ import annotations

import re
from functools import cached_property, partial
from typing import TYPE_CHECKING, NamedTuple

from promptools.exchange.attempt import CALL_FINISH_REASONS
from promptools.exchange.effects import Failed, Opened, ResponseHead
from promptools.exchange.failures import (
    Failure,
    failure_of_connection,
    failure_of_error,
    failure_of_status,
    head_of_error,
)
from promptools.exchange.response_writer import DIGEST_FIELDS
from promptools.exchange.state import Heartbeat
from promptools.exchange.upstream import ReplyDecoder, get_header, is_stream
from promptools.fallback import REFUSAL_KINDS
from promptools.json_values import try_json
from promptools.modes.response_format import AnswerStream, format_error
from promptools.modes.verdict import HARMONY_CALL, MAX_EMPTY_TOKENS
from promptools.numbers import as_count
from promptools.patterns import lazy_pattern
from promptools.profiles.profile import Wire
from promptools.wire.json_body import as_object, parse_json
from promptools.wire.sse import KEEP_ALIVE

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from promptools.exchange.state import ExchangeState, Steps
    from promptools.fallback import FailureKind
    from promptools.modes.tool_request import ToolRequest
    from promptools.wire.chat_decoder import Delta


# Detect the end-of-stream marker in the raw bytes of a stream that is forwarded unparsed.
#
# A stream of chat completions may end without its marker; then a finish reason, or an error, shows that the stream is
# complete.


_DONE_EVENT = lazy_pattern(rb"[\r\n]data: ?\[DONE\][ \t]*(?:\r\n\r\n|\n\n|\r\r)")
"""Matches the last event of an OpenAI stream. It never matches content, as JSON strings have no raw line breaks."""
_FINISH_REASON = lazy_pattern(rb'"finish_reason"\s*:\s*"')
"""Matches a finish reason that is not null. It never matches content, because quotes are escaped in JSON strings."""
_ERROR = b'{"error"'
_MAX_EVENT = 64
"""Number of bytes to keep from earlier chunks. The last event is shorter, so it is found even if chunks split it."""
_DONE_FIELD = lazy_pattern(rb'"done"\s*:\s*true')
"""Matches the last line of an Ollama stream. Other lines can match too, because their content may contain this text."""
_MAX_LINE = 1 << 16
"""Maximum number of bytes of a line that are kept to be parsed. The last line has only a few hundred bytes."""


class StreamEndDetector:
    """Detects the end of a stream from its bytes, which may be split anywhere; buffers at most `_MAX_LINE` bytes."""

    def __init__(self, wire: Wire) -> None:
        self.seen = False
        """Whether the server has signaled the end of the stream."""
        self._finished = False
        """Whether the server has sent a finish reason or an error."""
        self._wire: Wire = wire
        self._tail = bytearray(b"\n")

    def feed(self, data: bytes) -> None:
        """Scan the next bytes."""
        if self.seen:
            return
        if self._wire == "chat":
            self._scan_events(data)
        else:
            self._scan_lines(data)

    def is_complete(self) -> bool:
        """Return whether the stream would be complete if it ended now; its final line break may be missing."""
        if self._wire == "chat":
            return self.seen or self._finished or b"[DONE]" in self._tail
        return self.seen or self._finished or self._tail.startswith(_ERROR) or _is_last(bytes(self._tail))

    def _scan_events(self, data: bytes) -> None:
        text = bytes(self._tail) + data
        self.seen = b"[DONE]" in text and _DONE_EVENT.search(text) is not None
        self._finished = self._finished or _FINISH_REASON.search(text) is not None or _ERROR in text
        self._tail = bytearray(text[-_MAX_EVENT:])

    def _scan_lines(self, data: bytes) -> None:
        first, *rest = data.split(b"\n")
        self._keep(first)
        for line in rest:
            self.seen = self.seen or _is_last(bytes(self._tail))
            self._finished = self._finished or self._tail.startswith(_ERROR)
            self._tail.clear()
            self._keep(line)

    def _keep(self, line: bytes) -> None:
        self._tail += line[: max(0, _MAX_LINE - len(self._tail))]


def _is_last(line: bytes) -> bool:
    """Return whether a line is the last one: its top-level object has `done: true`. Nested objects are ignored."""
    return bool(_DONE_FIELD.search(line)) and as_object(try_json(line)).get("done") is True


RETRIED_KINDS: frozenset[FailureKind] = frozenset({"harmony", "server_parser", "overflow", "cut", "swallowed"})
"""Kinds of failures that are retried because the reply was at fault, and not the request.

`overflow` (the prompt is too long) is included although the request is at fault. Each server reports an overflow
differently, so the retry loop either makes room in the context or reports the overflow in one form for all servers.
"""
MAX_HELD = 1 << 20
"""Maximum number of bytes of a reply to hold while the reply has no content; a longer reply is forwarded."""
_CUT = "the stream ended without a finish reason"
_DELIMITERS: dict[Wire, re.Pattern[bytes]] = {
    "chat": lazy_pattern(rb"\r\n\r\n|\n\n|\r\r"),
    "ollama": lazy_pattern(rb"\n"),
}
"""Matches the end of an event in an SSE stream (`chat`), or of a line in an NDJSON stream (`ollama`)."""
_ENDS: dict[Wire, tuple[bytes, ...]] = {"chat": (b"\n\n", b"\r\n\r\n", b"\r\r"), "ollama": (b"\n",)}
"""The byte strings that `_DELIMITERS` match."""


class Forwarded(NamedTuple):
    """How many characters of a choice's reasoning and of its text the client already has."""

    reasoning: int = 0
    text: int = 0


class TakenReply(NamedTuple):
    """The part of a forwarded reply that had already been read when an attempt took over the reply."""

    data: bytes
    ended: bool
    """Whether the reply's body has ended."""
    choices: int
    forwarded: Mapping[int, Forwarded]
    """What the client already has of each choice."""


class PassthroughMonitor:
    """Decides which bytes of a reply may be forwarded; parses the reply only until the client has seen content."""

    def __init__(
        self,
        *,
        streamed: bool,
        swallows: bool,
        wire: Wire = "chat",
        can_reword: Callable[[Failure], bool] = lambda _: False,
    ) -> None:
        self.wire: Wire = wire
        self._can_reword = can_reword
        self.has_content = False
        """Whether content, a call or a refusal has been seen, or more than `MAX_HELD` bytes would have been held."""
        self._streamed = streamed
        self._end_detector = StreamEndDetector(wire)
        self._delimiter = _DELIMITERS[wire]
        self._swallows = swallows
        self._buffer: bytearray = bytearray()
        self._searched = 0
        self._held: bytearray = bytearray()
        self._has_reasoning = False
        self._closed = False

    @cached_property
    def _decoder(self) -> ReplyDecoder:
        """Decodes the reply; used only until the client has seen content."""
        return ReplyDecoder(streamed=self._streamed, wire=self.wire)

    @property
    def is_over(self) -> bool:
        """Whether the server has announced the end of the stream, though it may keep the connection open."""
        return self._end_detector.seen

    @property
    def ended_early(self) -> bool:
        """Whether a stream ended without announcing its end."""
        decoder = self._decoder
        complete = decoder.server_error or decoder.finish_reasons or decoder.done
        return decoder.streamed and not (complete or self._end_detector.is_complete())

    def feed(self, data: bytes) -> bytes:
        """Return the bytes that may be forwarded after `data` has arrived."""
        if self._streamed:
            self._end_detector.feed(data)
        if not self._streamed:
            if self.has_content:
                return data
            self._held += data
            return self._release() if len(self._held) > MAX_HELD else b""
        if self.has_content:
            return self._complete(data)
        self._buffer += data
        safe, has_content = b"", False
        while not has_content and (block := self._next_block()):
            has_content = self._inspect(self._decoder.feed(block))
            if self._is_ending():
                self._held += block
            else:
                safe += block
        if has_content:
            rest = bytes(self._buffer)
            self._buffer.clear()
            safe += bytes(self._held) + self._complete(rest)
            self._held.clear()
        elif len(self._held) + len(self._buffer) > MAX_HELD:
            safe += self._release()
        return safe

    def _complete(self, data: bytes) -> bytes:
        """Return all bytes so far up to the end of the last complete event or line, and keep the rest."""
        if not self._buffer and data.endswith(_ENDS[self.wire]):
            return data
        start = max(0, len(self._buffer) - 3)  # a chunk boundary may split the ending
        self._buffer += data
        places = ((self._buffer.rfind(ending, start), len(ending)) for ending in _ENDS[self.wire])
        end = max(place + length if place >= 0 else 0 for place, length in places)
        if not end and len(self._buffer) > MAX_HELD:
            end = len(self._buffer)
        whole = bytes(self._buffer[:end])
        del self._buffer[:end]
        return whole

    def _release(self) -> bytes:
        """Return the held bytes, and stop holding any."""
        held = self.held
        self.has_content = True
        self._held.clear()
        self._buffer.clear()
        return held

    def _next_block(self) -> bytes:
        """Remove and return the next complete event or line; empty if there is none. No byte is searched twice."""
        delimiter = self._delimiter.search(self._buffer, self._searched)
        if delimiter is None:
            self._searched = max(0, len(self._buffer) - 3)  # a chunk boundary may split the delimiter
            return b""
        block = bytes(self._buffer[: delimiter.end()])
        del self._buffer[: delimiter.end()]
        self._searched = 0
        return block

    def end(self) -> bytes:
        """Parse the held bytes at the end of the reply. If `failure` then returns None, `held` may be forwarded."""
        if not self._streamed and _is_plain_answer(self._held):
            self.has_content = True
        if not self.has_content:
            held = self._buffer if self._streamed else self._held
            self._inspect([*self._decoder.feed(bytes(held)), *self._decoder.close()])
        self._closed = True
        return b""

    def is_retried(self, failure: Failure) -> bool:
        """Return whether a retry may help. True if the reply was lost, or the server may accept a changed request."""
        return failure.kind in RETRIED_KINDS or (failure.kind in REFUSAL_KINDS and self._can_reword(failure))

    def take(self, *, ended: bool) -> TakenReply | None:  # noqa: ARG002 see `FormMonitor`
        """Return the reply so far if an attempt should take it over.

        In this class, the result is always None, because all replies are forwarded.
        """
        return None

    def flush(self) -> bytes:
        """Return the complete events that are still held when a stream breaks after content.

        In this class, the result is always empty.
        """
        return b""

    @property
    def held(self) -> bytes:
        """The bytes that are held, to be forwarded or discarded."""
        return bytes(self._held + self._buffer)

    def failure(self, opened: Opened) -> Failure | None:
        """Return the failure of the reply so far; None if there is none, or if a retry cannot fix it."""
        if self.has_content:
            return None
        decoder = self._decoder
        if decoder.server_error:
            failure = failure_of_error(decoder.server_error, opened, decoder.body, wire=self.wire)
            return failure if self.is_retried(failure) else None
        if not self._closed or decoder.decode_error:
            return None
        # Ollama's /v1 ends a stream like this when its parser or its runner fails
        if decoder.streamed and not decoder.finish_reasons and not decoder.done:
            return Failure("cut", _CUT, opened=opened)
        lost = decoder.stop_reasons.get(0) == HARMONY_CALL or decoder.finish_reasons.get(0) in CALL_FINISH_REASONS
        if lost or self._is_swallowed():
            return Failure("swallowed", "an answer without content", opened=opened, call_signalled=lost)
        return None

    def _inspect(self, deltas: Sequence[Delta]) -> bool:
        for delta in deltas:
            self._has_reasoning = self._has_reasoning or bool(delta.reasoning)
            self.has_content = self.has_content or bool(delta.content.strip() or delta.tool_calls or delta.refusal)
        return self.has_content

    def _is_ending(self) -> bool:
        decoder = self._decoder
        return bool(decoder.server_error or decoder.finish_reasons or decoder.done)

    def _is_swallowed(self) -> bool:
        if not self._swallows or set(self._decoder.finish_reasons.values()) - {"stop"}:
            return False
        spent = as_count((self._decoder.usage or {}).get("completion_tokens"))
        return self._has_reasoning or (spent is not None and spent > MAX_EMPTY_TOKENS)


def _is_plain_answer(body: bytearray) -> bool:
    """Return whether an unstreamed reply is certainly a single choice with content; False if that is uncertain."""
    if b'"error"' in body:
        return False
    try:
        data = parse_json(bytes(body))
        (choice,) = data["choices"]
        content = choice["message"]["content"]
    except (ValueError, TypeError, KeyError, RecursionError):
        return False
    return isinstance(content, str) and bool(content.strip())


def forward(
    state: ExchangeState, body: bytes, monitor: PassthroughMonitor, heartbeat: float = 0.0
) -> Steps[Failure | TakenReply | None]:
    """Send `body` and forward the response; return None if nothing is left to do.

    Returns the failure if the connection broke, a stream was cut off, or a retry may help. If the monitor hands the
    reply over to an attempt, returns the reply as far as it was read.

    Whenever a stream of events is silent for `heartbeat` seconds (0: never), a comment is sent between two events.
    """
    opened = yield from state.send(body, state.client_api.path)
    if isinstance(opened, Failed):
        return failure_of_connection(opened)
    head = ResponseHead(opened.status, opened.headers)
    if not 200 <= opened.status < 300:
        return (yield from _forward_error(state, opened, head, monitor))
    if heartbeat and _takes_comments(opened):
        state.heartbeat = Heartbeat(heartbeat, KEEP_ALIVE, lambda: head)
    try:
        return (yield from _forward_body(state, opened, head, monitor))
    finally:
        state.heartbeat = None


def _forward_error(
    state: ExchangeState, opened: Opened, head: ResponseHead, monitor: PassthroughMonitor
) -> Steps[Failure | None]:
    """Forward an error response, unless a retry may help."""
    if get_header(opened.headers, "content-encoding"):  # the body is still compressed, so it cannot be read
        while isinstance(chunk := (yield from state.read()), bytes):
            yield from state.emit(chunk, lambda: head)
        return None
    body = yield from state.read_error()
    error = yield from state.compute(partial(failure_of_status, opened, body, monitor.wire), len(body))
    if monitor.is_retried(error):
        return error
    yield from state.emit(error.body, lambda: head_of_error(opened, error))
    return None


def _forward_body(
    state: ExchangeState, opened: Opened, head: ResponseHead, monitor: PassthroughMonitor
) -> Steps[Failure | TakenReply | None]:
    """Forward the body of a response; return None when all of it has been forwarded.

    Return a `Failure` if the response failed, or a `TakenReply` if an attempt is to take over the reply.
    """
    while True:
        chunk = yield from state.read()
        if isinstance(chunk, Failed):
            if rest := monitor.flush():
                yield from state.emit(rest, lambda: head)
            return failure_of_connection(chunk, opened)
        data = monitor.end() if chunk is None else monitor.feed(chunk)
        over = chunk is None or monitor.is_over
        if over and chunk is not None:
            data += monitor.end()
        if data:
            if not data.endswith(_ENDS["chat"]):
                state.heartbeat = None  # the event is too long to be held, and no comment may be inside it
            yield from state.emit(data, lambda: head)
        failure = monitor.failure(opened)
        if failure:
            yield from state.abandon()
            return failure
        if taken := monitor.take(ended=chunk is None):
            return taken
        if chunk is None and monitor.ended_early and is_stream(opened.headers, asked=False):
            if rest := monitor.flush():
                yield from state.emit(rest, lambda: head)
            return Failure("cut", _CUT, opened=opened)
        if over:
            yield from state.emit(monitor.held, lambda: head)
            return None


def _takes_comments(opened: Opened) -> bool:
    """Return whether comments may be added to a response.

    The response must be a stream of events that declares no length, coding or digest.
    """
    if "event-stream" not in get_header(opened.headers, "content-type").lower():
        return False
    return not any(get_header(opened.headers, name) for name in ("content-length", "content-encoding", *DIGEST_FIELDS))


# Watch the reply to a forwarded request that asks for a certain response format. An attempt takes over an answer that
# does not have that format.
#
# Content that is valid JSON passes byte for byte, like all else that the server sends. A whole reply is checked at
# its end. A stream passes event by event, as long as what has arrived is JSON; content that may still turn out to be
# faulty is held, with the events after it. If the content turns out not to be plain JSON, `take` hands over all that
# was read. An attempt then continues as if it had made the request itself, but leaves out what the client already
# has.
#
# Four kinds of reply are passed on unchanged: a refusal, a call, a reply that the server cut off at its length limit or
# by a content filter, and a reply that is too long to be kept.


_CUT_OFF = frozenset({"length", "content_filter"})


class FormMonitor(PassthroughMonitor):
    """Checks whether a reply has the requested format, while forwarding it.

    Keeps up to `limit` bytes of the reply, so that an attempt can take it over.
    """

    def __init__(
        self,
        request: ToolRequest,
        *,
        swallows: bool,
        wire: Wire,
        can_reword: Callable[[Failure], bool],
        limit: int,
    ) -> None:
        super().__init__(streamed=request.stream, swallows=swallows, wire=wire, can_reword=can_reword)
        self._request = request
        self._limit = limit
        self._raw = bytearray()
        self._answers: dict[int, AnswerStream] = {}
        self._forwarded: dict[int, Forwarded] = {}
        self._waiting: list[Delta] = []
        """The deltas that were decoded from the held events."""
        self._is_released = self._is_unfit = False

    @cached_property
    def _decoder(self) -> ReplyDecoder:
        """Decodes the reply, with all its choices."""
        return ReplyDecoder(streamed=self._streamed, wire=self.wire, choices=self._request.n)

    def feed(self, data: bytes) -> bytes:
        """Return the bytes that may be forwarded after `data` has arrived."""
        if self._is_released or not self._streamed:
            return super().feed(data)
        self._end_detector.feed(data)
        self._raw += data
        self._buffer += data
        if len(self._raw) > self._limit:
            return self._release()
        safe = b""
        while not (self._is_released or self._is_unfit) and (block := self._next_block()):
            safe += self._pass_block(block, self._decoder.feed(block))
        return safe

    def end(self) -> bytes:
        """Parse the held bytes at the end of the reply, and return the bytes that may be forwarded.

        `held` may be forwarded too if `failure` and `take` then return None.
        """
        if not self._streamed:
            super().end()
            self._is_unfit = bool(self._held) and self._is_whole_unfit()
        elif not (self._is_released or self._is_unfit):
            tail = bytes(self._buffer)
            self._buffer.clear()
            rest = self._pass_block(tail, [*self._decoder.feed(tail), *self._decoder.close()])
            self._closed = True
            return rest
        return b""

    def take(self, *, ended: bool) -> TakenReply | None:
        """Return the reply so far if it can no longer be in the requested format, else None."""
        if not self._is_unfit:
            return None
        data = bytes(self._raw if self._streamed else self._held)
        seen = max((index for index in self._decoder.seen_choices), default=0) + 1
        return TakenReply(data, ended, min(seen, self._request.n), self._forwarded)

    def failure(self, opened: Opened) -> Failure | None:
        """Return the failure of the reply so far; None if there is none, or if an attempt will take over the reply."""
        return None if self._is_unfit else super().failure(opened)

    def flush(self) -> bytes:
        """Return the held events when a stream breaks; empty unless the client has seen other parts of the answer."""
        return self._pass_held() if self.has_content and self._streamed else b""

    def _release(self) -> bytes:
        self._is_released = True
        self._raw.clear()
        return super()._release()

    def _pass_block(self, block: bytes, deltas: Sequence[Delta]) -> bytes:
        """Return what may be forwarded after an event or line has arrived; empty while events are held."""
        decoder = self._decoder
        self._held += block
        if any(delta.refusal or delta.tool_calls for delta in deltas):
            return self._release()
        for delta in deltas:
            index = delta.index or 0
            if delta.content:
                answer = self._answers.setdefault(index, AnswerStream(self._request.answer_schema))
                answer.feed(delta.content)
            self._waiting.append(delta)
            self._has_reasoning = self._has_reasoning or bool(delta.reasoning)
        finished = decoder.finish_reasons
        if any(finished.get(index) in _CUT_OFF and answer.is_plain for index, answer in self._answers.items()):
            return self._release()
        self._is_unfit = any(
            not answer.is_plain or ((index in finished or decoder.done) and not answer.is_complete)
            for index, answer in self._answers.items()
        )
        is_over = self._is_ending()
        if self._is_unfit or (any(answer.is_holding for answer in self._answers.values()) and not is_over):
            return b""
        self.has_content = self.has_content or bool(self._answers)
        if is_over and not self.has_content:
            return b""
        return self._pass_held()

    def _pass_held(self) -> bytes:
        """Return all held events, and count their characters as forwarded to the client."""
        for delta in self._waiting:
            before = self._forwarded.get(delta.index or 0, Forwarded())
            counted = Forwarded(before.reasoning + len(delta.reasoning), before.text + len(delta.content))
            self._forwarded[delta.index or 0] = counted
        self._waiting.clear()
        data = bytes(self._held)
        self._held.clear()
        return data

    def _is_whole_unfit(self) -> bool:
        """Return whether any choice of an unstreamed reply has content that is not in the requested format."""
        decoder = self._decoder
        if not decoder.body:  # not decoded yet, since it was a plain answer
            decoder.feed(bytes(self._held))
        deltas = decoder.close()
        return not (decoder.server_error or decoder.decode_error) and any(map(self._is_choice_unfit, deltas))

    def _is_choice_unfit(self, delta: Delta) -> bool:
        if delta.refusal or delta.tool_calls or not delta.content.strip():
            return False
        finish = self._decoder.finish_reasons.get(delta.index or 0)
        return finish not in _CUT_OFF and bool(format_error(self._request, delta.content))
