"""Watch the reply to a request that is forwarded and wants its answer in a form: one that is not in it is taken over.

Content that is JSON already passes byte for byte, as all else that the server sends. A whole reply is checked at its
end. A stream passes event by event for as long as what has arrived is JSON; what may still become a slip is held, and
the events after it. Where the content turns out not to be plain JSON, `take` hands over all that was read, and an
attempt goes on with it as if it had made the request itself: it leaves out what the client has already.

A refusal, a call, a reply that was cut off at its limit and one that is too long to be kept pass as they come.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

from promptools.exchange.upstream.passthrough import Forwarded, PassthroughMonitor, TakenReply
from promptools.exchange.upstream.upstream_reply import ReplyDecoder
from promptools.modes.replies.healed_answer import AnswerStream
from promptools.modes.requests.response_format import format_error

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from promptools.exchange.effects import Opened
    from promptools.exchange.upstream.failure import Failure
    from promptools.modes.requests.tool_request import ToolRequest
    from promptools.profiles.profile import Wire
    from promptools.wire.chat_decoder import Delta

_CUT_OFF = frozenset({"length", "content_filter"})


class FormMonitor(PassthroughMonitor):
    """Parses a reply to the end; `limit` is the most bytes of a stream that are kept for a takeover."""

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
        """What is in the events that are held."""
        self._is_released = self._is_unfit = False

    @cached_property
    def _decoder(self) -> ReplyDecoder:
        """Reads the reply, all its choices."""
        return ReplyDecoder(streamed=self._streamed, wire=self.wire, choices=self._request.n)

    def feed(self, data: bytes) -> bytes:
        """Return the bytes that may be forwarded now that `data` has arrived."""
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
        """Read what is held at the end of the reply; unless it is taken over or there is a `failure`, it may pass."""
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
        """Return the reply so far, if it is not in the form; None if it is, or may still be."""
        if not self._is_unfit:
            return None
        data = bytes(self._raw if self._streamed else self._held)
        seen = max((index for index in self._decoder.seen_choices), default=0) + 1
        return TakenReply(data, ended, min(seen, self._request.n), self._forwarded)

    def failure(self, opened: Opened) -> Failure | None:
        """Return what is wrong with the reply so far; None where an attempt goes on with it, and will find out."""
        return None if self._is_unfit else super().failure(opened)

    def flush(self) -> bytes:
        """Return the events that are held when a stream breaks, if the client has seen others of the answer."""
        return self._pass_held() if self.has_content and self._streamed else b""

    def _release(self) -> bytes:
        self._is_released = True
        self._raw.clear()
        return super()._release()

    def _pass_block(self, block: bytes, deltas: Sequence[Delta]) -> bytes:
        """Return what may be forwarded now that an event, or line, has arrived; empty for one that is held."""
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
        """Return all events that are held, and count what is in them."""
        for delta in self._waiting:
            before = self._forwarded.get(delta.index or 0, Forwarded())
            counted = Forwarded(before.reasoning + len(delta.reasoning), before.text + len(delta.content))
            self._forwarded[delta.index or 0] = counted
        self._waiting.clear()
        data = bytes(self._held)
        self._held.clear()
        return data

    def _is_whole_unfit(self) -> bool:
        """Whether the content of any choice of a whole reply is not in the form."""
        decoder = self._decoder
        if not decoder.body:  # it was plain enough not to be decoded so far
            decoder.feed(bytes(self._held))
        deltas = decoder.close()
        return not (decoder.server_error or decoder.decode_error) and any(map(self._is_choice_unfit, deltas))

    def _is_choice_unfit(self, delta: Delta) -> bool:
        if delta.refusal or delta.tool_calls or not delta.content.strip():
            return False
        finish = self._decoder.finish_reasons.get(delta.index or 0)
        return finish not in _CUT_OFF and bool(format_error(self._request, delta.content))
