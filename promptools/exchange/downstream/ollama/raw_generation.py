"""`/api/generate` with `raw` before a server that is no Ollama: the prompt goes to `/v1/completions` as it is.

There is no second attempt: the app wrote the prompt itself, and gets the text that the model adds to it, unread.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from promptools.exchange.downstream.error_responses import respond_failure
from promptools.exchange.downstream.ollama.ollama_response import NDJSON
from promptools.exchange.downstream.ollama.served_route import JSON, ServedRequest
from promptools.exchange.downstream.response_writer import encode_json
from promptools.exchange.effects import Failed, Head, Opened
from promptools.exchange.upstream.failure import Failure, failure_of_connection, failure_of_error, failure_of_status
from promptools.exchange.upstream.upstream_reply import ReplyDecoder, is_stream
from promptools.modes.raw.answer_room import MIN_ANSWER_TOKENS, text_tokens
from promptools.wire.chat_decoder import Envelope
from promptools.wire.json_types import as_text
from promptools.wire.ollama.encode_response import encode_generated, encode_line, encode_message, encode_usage
from promptools.wire.ollama.generate_request import check_generate_request, encode_as_completion

if TYPE_CHECKING:
    from collections.abc import Iterable

    from promptools.exchange.exchange_state import Steps
    from promptools.wire.chat_decoder import Delta

_MODE = "native"


def respond_raw(served: ServedRequest) -> Steps[None]:
    """Have the server continue the prompt, and respond with what it adds."""
    check_generate_request(served.data)
    state, profile = served.state, served.target.profile
    size = text_tokens(as_text(served.data.get("prompt")))
    room = MIN_ANSWER_TOKENS if profile.context is None else max(MIN_ANSWER_TOKENS, profile.context - size)
    body, notes = encode_as_completion(served.data, profile, room)
    state.notes += notes
    opened = yield from state.send(encode_json({**body, "model": served.model}), "completions")
    streamed = body["stream"] is True
    failure = yield from _relay(served, opened, streamed=streamed)
    state.record(_MODE, failure, None)
    if failure is not None:
        yield from respond_failure(state, failure, _MODE)


def _relay(served: ServedRequest, opened: Opened | Failed, *, streamed: bool) -> Steps[Failure | None]:
    """Pass the text on, line by line or at the end; return the failure if there is one."""
    state = served.state
    if isinstance(opened, Failed):
        return failure_of_connection(opened)
    if not 200 <= opened.status < 300:
        return failure_of_status(opened, (yield from state.read_error()))
    reader = _RawReply(served, ReplyDecoder(is_stream(opened.headers, asked=streamed), "completions"))
    head = Head(opened.status, (("content-type", NDJSON),) if streamed else JSON)
    decoder, failed = reader.decoder, None
    while not (decoder.server_error or decoder.decode_error or decoder.limit_error or decoder.done):
        chunk = yield from state.read()
        if isinstance(chunk, Failed):
            return failure_of_connection(chunk, opened)
        lines = reader.lines(decoder.close() if chunk is None else decoder.feed(chunk))
        if streamed and lines:
            yield from state.emit(lines, lambda: head)
        if chunk is None:
            break
    failed = reader.failure(opened)
    if failed is None:
        yield from state.emit(reader.last_line(whole=not streamed), lambda: head)
    return failed


class _RawReply:
    """The server's reply as it is read."""

    def __init__(self, served: ServedRequest, decoder: ReplyDecoder) -> None:
        self.decoder = decoder
        self._served = served
        self._text: list[str] = []

    def lines(self, deltas: Iterable[Delta]) -> bytes:
        """Return a line for each piece of text."""
        texts = [delta.content for delta in deltas if delta.content]
        self._text += texts
        return b"".join(b"%b\n" % encode_json(self._line(text)) for text in texts)

    def failure(self, opened: Opened) -> Failure | None:
        """Return what is wrong with the reply at its end."""
        decoder = self.decoder
        if decoder.server_error:
            return failure_of_error(decoder.server_error, opened, decoder.body)
        if decoder.limit_error:
            return Failure("too_large", decoder.limit_error, opened=opened)
        if decoder.decode_error:
            return Failure("garbled", decoder.decode_error, opened=opened)
        if not decoder.finish_reasons:
            return Failure("cut", "the reply ended without a finish reason", opened=opened)
        return None

    def last_line(self, *, whole: bool) -> bytes:
        """Return the last line, with the usage; the text is in it if the response is `whole`."""
        decoder, state = self.decoder, self._served.state
        reason = next(iter(decoder.finish_reasons.values()))
        line = self._line("".join(self._text) if whole else "")
        extra = decoder.last_extra or decoder.envelope.extra
        figures = encode_usage(decoder.usage, extra, state.seconds, state.phases(whole=whole))
        return encode_json({**line, "done": True, "done_reason": reason, **figures}) + (b"" if whole else b"\n")

    def _line(self, text: str) -> dict[str, object]:
        served = self._served
        envelope = Envelope(
            model=self.decoder.envelope.model or served.model, created=self.decoder.envelope.created or served.now
        )
        return encode_generated(encode_line(envelope, encode_message(text)))
