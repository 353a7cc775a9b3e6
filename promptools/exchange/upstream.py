"""Encode requests in the server's API, and decode the server's replies into deltas (pieces of a choice).

`encode_request` converts a mode's Chat Completions body to the API. `ReplyDecoder` turns the bytes of a reply, whole or
streamed, into deltas, which look the same for every API.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, NamedTuple, assert_never

from promptools.exchange.failures import MAX_ERROR, clip_reported_error, quoting_message
from promptools.exchange.response_writer import encode_json
from promptools.numbers import as_count
from promptools.wire import chat_decoder, raw_endpoints
from promptools.wire import ollama_upstream as ollama
from promptools.wire.chat_decoder import Delta, Envelope, ErrorBody
from promptools.wire.json_body import decode_json
from promptools.wire.ollama_upstream import PATH, encode_chat_request
from promptools.wire.ollama_upstream import requested_context as own_context
from promptools.wire.sse import DONE, LineDecoder, ServerSentEvent, SseDecoder

if TYPE_CHECKING:
    from promptools.exchange.effects import Headers
    from promptools.modes.prepared_request import PreparedRequest
    from promptools.modes.tool_request import ToolRequest
    from promptools.profiles.profile import Api
    from promptools.wire.raw_endpoints import RawPrompt


@dataclass(frozen=True, slots=True)
class UpstreamRequest:
    """The HTTP request to send to the server."""

    body: dict[str, Any]
    path: str
    """The route relative to the API's base URL, or to the server's root if it begins with `/`."""
    wire: Api = "chat"
    """The API in whose format the server writes its reply."""
    notes: tuple[str, ...] = ()
    """Notes for the trace on parts of the request that could not be passed on."""
    context_limit: int | None = None
    """The largest context, in tokens, that may be requested; None if promptools may not choose the context."""


def encode_request(upstream: PreparedRequest, request: ToolRequest) -> UpstreamRequest:
    """Encode a mode's request for the profile's API, or for Chat Completions if the profile's API cannot express it.

    A raw prompt is sent to the profile's raw endpoint.
    """
    if upstream.prompt is not None:
        return _encode_raw_request(upstream.body, upstream.prompt, request)
    match request.profile.wire:
        case "chat":
            return UpstreamRequest(upstream.body, upstream.path)
        case "ollama":
            written = encode_chat_request(upstream.body, num_ctx=requested_context(request))
            if written.body is None:
                return UpstreamRequest(upstream.body, upstream.path, notes=written.notes)
            return UpstreamRequest(written.body, PATH, "ollama", written.notes, _context_limit(request))
        case _:
            assert_never(request.profile.wire)


def _encode_raw_request(body: Mapping[str, Any], prompt: RawPrompt, request: ToolRequest) -> UpstreamRequest:
    raw = request.profile.raw
    assert raw is not None, "a prompt is written only where there is a raw endpoint to take it"
    match raw:
        case "completions":
            written = raw_endpoints.encode_completions_request(body, prompt, ids=request.profile.raw_ids)
            return UpstreamRequest(written.body, raw_endpoints.COMPLETIONS_PATH, "completions", written.notes)
        case "llamacpp":
            written = raw_endpoints.encode_llamacpp_request(body, prompt)
            return UpstreamRequest(written.body, raw_endpoints.LLAMACPP_PATH, "llamacpp", written.notes)
        case "generate":
            written = raw_endpoints.encode_generate_request(body, prompt, num_ctx=requested_context(request))
            return UpstreamRequest(
                written.body, raw_endpoints.GENERATE_PATH, "generate", written.notes, _context_limit(request)
            )
        case _:
            assert_never(raw)


def _context_limit(request: ToolRequest) -> int | None:
    ours = request.profile.num_ctx == "fit" and own_context(request.body) is None
    return request.profile.num_ctx_limit if ours else None


def requested_context(request: ToolRequest) -> int | None:
    """Return the context size to request, in tokens; None leaves it to the server."""
    num_ctx = request.profile.num_ctx
    return num_ctx if isinstance(num_ctx, int) else request.num_ctx


def available_context(request: ToolRequest) -> int | None:
    """Return how many tokens a prompt and its reply may have together; None if unknown.

    For Ollama, this is the largest context that may be requested, because promptools requests a larger context than the
    default for a prompt that needs it.
    """
    profile = request.profile
    if profile.wire != "ollama":
        return profile.context
    own = own_context(request.body)
    if isinstance(own, int) and own > 0:
        return own
    if isinstance(profile.num_ctx, int):
        return profile.num_ctx
    return profile.num_ctx_limit if profile.num_ctx == "fit" and profile.context is not None else profile.context


# The reply. A stream is split into events (SSE) or lines (NDJSON), each parsed as JSON as it completes; a whole reply
# is buffered and parsed by `close`. What belongs to one choice becomes a delta. What belongs to the reply (envelope,
# usage, finish and stop reasons, an error) is kept as an attribute of the decoder.
#
# Decoding ends, and nothing further is read, once one of these is set: `server_error` (the server reports an error),
# `decode_error` (something is not JSON, so content may be lost), `limit_error` (more than `limit` was buffered), or
# `done` (the server signalled the end).


class _ReplyFormat(NamedTuple):
    """Holds the functions that read replies in the format of one API."""

    read_reply: Callable[[Any], list[Delta]]
    read_chunk: Callable[[Any], list[Delta]]
    read_envelope: Callable[[Any], Envelope]
    is_ndjson: bool = False
    """Whether a stream consists of lines (NDJSON) rather than events (SSE)."""
    ends_with_finish: bool = False
    """Whether the finish reason comes with the last event or line, so that nothing follows it."""


REPLY_FORMATS: Mapping[Api, _ReplyFormat] = {
    "chat": _ReplyFormat(chat_decoder.decode_reply, chat_decoder.decode_chunk, chat_decoder.decode_envelope),
    "ollama": _ReplyFormat(
        ollama.decode_reply, ollama.decode_reply, ollama.decode_envelope, is_ndjson=True, ends_with_finish=True
    ),
    "completions": _ReplyFormat(
        raw_endpoints.decode_completions_reply, raw_endpoints.decode_completions_reply, chat_decoder.decode_envelope
    ),
    "llamacpp": _ReplyFormat(
        raw_endpoints.decode_llamacpp_reply,
        raw_endpoints.decode_llamacpp_reply,
        raw_endpoints.decode_llamacpp_envelope,
        ends_with_finish=True,
    ),
    "generate": _ReplyFormat(
        raw_endpoints.decode_generate_reply,
        raw_endpoints.decode_generate_reply,
        raw_endpoints.decode_generate_envelope,
        is_ndjson=True,
        ends_with_finish=True,
    ),
}


MAX_REPLY = 1 << 26
"""Default maximum size of a reply, in bytes.

This is about 16 million tokens, or a million if the reply is streamed with one token per event.
"""
_STRING_OVERHEAD = 60
"""Number of bytes that a string takes in memory besides its characters."""


def get_header(headers: Headers, name: str) -> str:
    """Return the value of the first header field with this name, ignoring case; empty if there is none."""
    return next((value for key, value in headers if key.lower() == name), "")


@dataclass(slots=True)
class ReplyDecoder:
    """Decodes the body of an HTTP 200 response, and keeps the parts of the reply that are outside its choices."""

    streamed: bool
    """Whether the body is a stream, of events or of lines."""
    wire: Api = "chat"
    """The API in whose format the server writes the reply."""
    default_envelope: Callable[[], Envelope] = Envelope
    """Returns defaults for the id, model and time that the server leaves out."""
    choices: int = 1
    """Number of choices requested. If it is 1, indexes are ignored, because some servers number the chunks instead."""
    envelope: Envelope = field(default_factory=Envelope)
    server_error: ErrorBody | None = None
    """The error that the body reports; nothing after it is read."""
    usage: dict[str, Any] | None = None
    seen_choices: set[int] = field(default_factory=set[int])
    """The indexes of the choices for which a delta was received."""
    finish_reasons: dict[int, str] = field(default_factory=dict[int, str])
    """The finish reason of each choice."""
    stop_reasons: dict[int, str | int] = field(default_factory=dict[int, "str | int"])
    """vLLM's stop reason of each choice."""
    choice_extra: dict[int, dict[str, Any]] = field(default_factory=dict[int, dict[str, Any]])
    """Maps the index of each choice to the JSON fields of the choice that this decoder does not decode."""
    message_extra: dict[int, dict[str, Any]] = field(default_factory=dict[int, dict[str, Any]])
    """Maps the index of each choice to the JSON fields of its message that this decoder does not decode."""
    last_extra: dict[str, Any] = field(default_factory=dict[str, Any])
    """Fields of the server's last chunks, such as `timings`, that this decoder does not decode."""
    done: bool = False
    """Whether the server signaled the end of the stream."""
    decode_error: str | None = None
    """Why the body, or the rest of the body, is not a valid reply; nothing more is read after such an error."""
    limit: int = MAX_REPLY
    """The maximum number of bytes that are buffered.

    For a whole reply, this limits the size of the body. For a stream, it limits the sum of two sizes: the approximate
    size in memory of the content so far, and the bytes of an incomplete event or line.
    """
    limit_error: str | None = None
    """The error message if the limit was exceeded, else None. After this error, nothing more is read."""
    fixes: dict[str, None] = field(default_factory=dict[str, None])
    """Descriptions of the fixes that were needed to parse the server's JSON, without duplicates."""
    _splitter: SseDecoder | LineDecoder | None = None
    """Splits a stream into events, or into lines; created when the first bytes arrive."""
    _body_chunks: list[bytes] = field(default_factory=list[bytes])
    _envelope_read: bool = False
    _is_clipped: bool = False
    """Whether only the beginning of the error was kept."""
    _whole_error: str = ""
    """The whole message of a clipped error, if it may contain the model's text."""
    _buffered: int = 0
    """How many bytes of `limit` are used so far."""
    _usage_by_choice: dict[int | None, dict[str, Any]] = field(default_factory=dict[int | None, dict[str, Any]])
    """Maps the index of each choice to its latest usage; None stands for all choices together."""

    @property
    def body(self) -> bytes:
        """The unchanged bytes of a whole reply."""
        return b"".join(self._body_chunks)

    @property
    def ended(self) -> bool:
        """Whether the server announced the end of the stream; always true for a reply that is not streamed."""
        return self.done or not self.streamed

    def bytes_to_decode(self, data: bytes | None) -> int:
        """Return how many bytes `feed(data)` would decode or, if `data` is None, how many `close` would decode."""
        if not self.streamed:
            return self._buffered if data is None else 0
        if data is not None and b"\n" not in data and b"\r" not in data:
            return 0
        return len(data or b"") + (0 if self._splitter is None else self._splitter.buffered)

    def feed(self, data: bytes) -> list[Delta]:
        """Return the deltas that `data` completes."""
        if self.streamed:
            deltas = [delta for event in self._split(data) for delta in self._decode_event(event)]
            self._check_limit(0 if self._splitter is None else self._splitter.buffered)
            return deltas
        self._body_chunks.append(data)
        self._buffered += len(data)
        self._check_limit(0)
        return []

    def _check_limit(self, releasable: int) -> None:
        """Set `limit_error` if the kept data and an incomplete event (`releasable` bytes) together exceed the limit."""
        if self._buffered + releasable > self.limit and self.limit_error is None:
            self._body_chunks.clear()
            self.limit_error = f"the reply is longer than {self.limit:,} bytes; a higher max_reply lets it through"

    def close(self) -> list[Delta]:
        """Return the remaining deltas at the end of the body."""
        if self.streamed:
            return [delta for event in self._split(None) for delta in self._decode_event(event)]
        bodies = self._parse_json(self.body.decode("utf-8", "replace"))
        if self._is_clipped:
            self._body_chunks = [encode_json(bodies[0])]
        if len(bodies) != 1:
            self.decode_error = "the reply is not JSON"
            return []
        self._set_envelope(bodies[0])
        return self._record(self._select_choices(REPLY_FORMATS[self.wire].read_reply(bodies[0])))

    def _split(self, data: bytes | None) -> list[ServerSentEvent]:
        """Return the events that `data` completes; a line counts as an event. If `data` is None, the body has ended."""
        if self._splitter is None:
            self._splitter = LineDecoder() if REPLY_FORMATS[self.wire].is_ndjson else SseDecoder()
        if isinstance(self._splitter, SseDecoder):
            return self._splitter.close() if data is None else self._splitter.feed(data)
        lines = self._splitter.close() if data is None else self._splitter.feed(data)
        return [ServerSentEvent(data=line) for line in lines]

    def _decode_event(self, event: ServerSentEvent) -> list[Delta]:
        """Return the deltas of an event or line; empty for a comment."""
        if self.server_error or self.decode_error or self.limit_error or self.done or not event.data:
            return []
        if event.data.lstrip().startswith(DONE):
            self.done = True
            return []
        deltas = [delta for body in self._json_values(event) for delta in self._decode_chunk(body)]
        other = any(delta.logprobs or delta.choice_extra or delta.message_extra for delta in deltas)
        self._buffered += sum(map(_memory_size, deltas)) + (len(event.data) if other else 0)
        self._check_limit(0)
        return deltas

    def _json_values(self, event: ServerSentEvent) -> list[Any]:
        """Return the JSON values in an event's data; set `decode_error` if unreadable data may be part of a reply."""
        if "{" not in event.data:
            return []
        bodies = self._parse_json(event.data)
        # raw lines, which are not SSE fields, are ignored unless they may be JSON or a `data` field without its colon
        if not bodies and (event.event != "raw" or event.data.lstrip().startswith(("{", "data"))):
            self.decode_error = "a part of the stream is not JSON"
        return bodies

    def _parse_json(self, text: str) -> list[Any]:
        if len(text) > MAX_ERROR and (error := clip_reported_error(text)) is not None:
            self._is_clipped, self._whole_error = True, quoting_message(text)
            return [error]
        try:
            decoded = decode_json(text)
        except ValueError:
            return []
        self.fixes |= dict.fromkeys(decoded.fixes)
        return decoded.values

    def _decode_chunk(self, body: Any) -> list[Delta]:
        """Return the deltas of a chunk."""
        shapes = REPLY_FORMATS[self.wire]
        deltas = self._record(self._select_choices(shapes.read_chunk(body)))
        if deltas and not self._envelope_read:  # Azure's first chunk has no choices and no id, model or time
            self._envelope_read = True
            self._set_envelope(body)
        if any(delta.finish_reason for delta in deltas):
            self.last_extra = dict(shapes.read_envelope(body).extra)
            # in these APIs the finish reason comes with the last line or event
            self.done = self.done or (shapes.ends_with_finish and len(self.finish_reasons) >= self.choices)
        elif self.finish_reasons and not deltas:  # llama.cpp: `timings` come with the usage, if that is asked for
            self.last_extra |= shapes.read_envelope(body).extra
        return deltas

    def _select_choices(self, deltas: list[Delta]) -> list[Delta]:
        """If one choice was requested, keep only the first choice, with index 0, because clients ignore all others."""
        if self.choices > 1:
            return deltas
        first = next((delta.index for delta in deltas if delta.index is not None), None)
        return [
            delta if delta.index in {None, 0} else replace(delta, index=0)
            for delta in deltas
            if delta.index in {None, first}
        ]

    def _set_envelope(self, body: Any) -> None:
        envelope = REPLY_FORMATS[self.wire].read_envelope(body)
        if not (envelope.id and envelope.model and envelope.created):
            spare = self.default_envelope()
            envelope = replace(
                envelope,
                id=envelope.id or spare.id,
                model=envelope.model or spare.model,
                created=envelope.created or spare.created,
            )
        self.envelope = envelope

    def _record(self, deltas: list[Delta]) -> list[Delta]:
        """Record errors, usage and finish reasons; return the deltas that belong to choices."""
        for delta in deltas:
            if delta.error:
                error, is_clipped = delta.error, self._is_clipped
                self.server_error = replace(error, is_clipped=is_clipped, whole_message=self._whole_error)
                return []
            if delta.usage is not None:
                self._usage_by_choice[delta.index] = delta.usage
                self.usage = _sum_usage(self._usage_by_choice.values())
            if delta.index is None:
                continue
            self.seen_choices.add(delta.index)
            if delta.finish_reason:
                self.finish_reasons[delta.index] = delta.finish_reason
            if delta.stop_reason is not None:
                self.stop_reasons[delta.index] = delta.stop_reason
            if delta.choice_extra:
                chat_decoder.add_fields(self.choice_extra.setdefault(delta.index, {}), delta.choice_extra)
            if delta.message_extra:
                chat_decoder.add_fields(self.message_extra.setdefault(delta.index, {}), delta.message_extra)
        return [delta for delta in deltas if delta.index is not None]


def _memory_size(delta: Delta) -> int:
    """Return the approximate number of bytes that a delta's text takes in memory."""
    calls = sum(
        _STRING_OVERHEAD + len(call.arguments) + len(call.id or "") + len(call.name or "") for call in delta.tool_calls
    )
    text = len(delta.content) + len(delta.reasoning) + len(delta.refusal)
    return calls + (_STRING_OVERHEAD + text if text else 0)


def _sum_usage(usages: Iterable[dict[str, Any]]) -> dict[str, Any]:
    """Sum the usage of several choices, counting the prompt once, as OpenAI's API does."""
    first, *others = usages
    if not others:
        return first
    completion = sum(as_count(usage.get("completion_tokens")) or 0 for usage in (first, *others))
    return first | {
        "completion_tokens": completion,
        "total_tokens": (as_count(first.get("prompt_tokens")) or 0) + completion,
    }


def is_stream(headers: Headers, *, asked: bool) -> bool:
    """Return whether a reply is a stream, judging by its content type or, if that is unclear, by what was requested."""
    media_type = get_header(headers, "content-type").lower()
    if "event-stream" in media_type or "ndjson" in media_type:
        return True
    return asked and "json" not in media_type
