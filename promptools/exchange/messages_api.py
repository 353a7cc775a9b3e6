"""Serve clients of Anthropic's Messages API: convert their requests, and write the responses.

Responses are a stream of events or one JSON body, and have a single choice. There are two routes: one creates a
message, the other counts the tokens of a request. The formats are in `wire.messages_in` and `wire.messages_out`.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from promptools.exchange.client_api import ClientApi, respond_token_count
from promptools.exchange.response_writer import JsonWriter, ResponseWriter, SseWriter, encode_json
from promptools.exchange.runner import run
from promptools.wire import messages_out
from promptools.wire.chat_decoder import Envelope
from promptools.wire.json_body import as_list
from promptools.wire.messages_in import decode_messages_request
from promptools.wire.messages_out import (
    MESSAGE_STOP,
    PING,
    BlockWriter,
    encode_content,
    encode_message,
    encode_stop,
    encode_usage,
)
from promptools.wire.sse import encode_comment

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from promptools.exchange.commit_point import ChoiceWriter
    from promptools.exchange.context import ClientRequest, Context
    from promptools.exchange.effects import Headers
    from promptools.exchange.failures import Failure
    from promptools.exchange.response_writer import Summary
    from promptools.exchange.runner import Exchange
    from promptools.modes.tool_request import ToolRequest
    from promptools.profiles import Profile
    from promptools.profiles.profile import Wire
    from promptools.types import Attempt, Reply


def _encode_event(event: Mapping[str, Any]) -> bytes:
    return b"event: %b\ndata: %b\n\n" % (str(event["type"]).encode(), encode_json(event))


class MessagesSseWriter(SseWriter):
    """Writes a message as a stream of server-sent events."""

    heartbeat = _encode_event(PING)

    def __init__(self, request: ToolRequest, *, begun: bool = False) -> None:
        super().__init__(request, begun=begun)
        self._blocks: BlockWriter | None = None
        self._stop: dict[str, Any] = {}

    def finish(self, index: int, reply: Reply, envelope: Envelope, extra: Mapping[str, Any], *, valid: bool) -> bytes:
        """End the choice; `end` then writes the end of the message, with the usage."""
        self._stop = _encode_stop(self._request, reply, envelope)
        return super().finish(index, reply, envelope, extra, valid=valid)

    def end(self, summary: Summary) -> bytes:
        """Return the events that end the last content block and the message."""
        blocks = self._blocks.close() if self._blocks is not None else []
        last = {**(self._held_chunk or {}), "delta": self._stop, "usage": encode_usage(summary.usage)}
        return encode_comment(summary.note) + self._encode([*blocks, summary.with_report(last), MESSAGE_STOP])

    def _encode(self, bodies: Iterable[Mapping[str, Any]]) -> bytes:
        return b"".join(map(_encode_event, bodies))

    def _make_writer(self, index: int, envelope: Envelope) -> ChoiceWriter:  # noqa: ARG002 one signature for all writers
        self._blocks = BlockWriter(envelope)
        return self._blocks


class MessagesJsonWriter(JsonWriter):
    """Collects a message and writes it as one JSON body."""

    def finish(self, index: int, reply: Reply, envelope: Envelope, extra: Mapping[str, Any], *, valid: bool) -> bytes:  # noqa: ARG002 one signature for all writers
        """Store the message."""
        stop = _encode_stop(self._request, reply, envelope)
        self._choices[index] = {**encode_message(envelope), "content": encode_content(reply), **stop}
        return b""

    def end(self, summary: Summary) -> bytes:
        """Return the whole message, with the usage."""
        message = self._choices.get(0) or encode_message(Envelope())
        return encode_json(summary.with_report({**message, "usage": encode_usage(summary.usage)}))


def _encode_stop(request: ToolRequest, reply: Reply, envelope: Envelope) -> dict[str, Any]:
    stop = request.body.get("stop")
    return encode_stop(reply, envelope.stop_reason, [stop] if isinstance(stop, str) else as_list(stop))


class MessagesApi:
    """Implements Anthropic's Messages API."""

    wire: Wire | None = None
    streams_arguments = True
    path = "messages"

    def decode_request(self, body: dict[str, Any], profile: Profile) -> tuple[dict[str, Any], tuple[str, ...]]:
        """Convert the request to Chat Completions."""
        return decode_messages_request(body, profile)

    def response_writer(self, request: ToolRequest, *, begun: bool = False) -> ResponseWriter:
        """Return a writer of server-sent events if a stream is requested, else a writer of one JSON body."""
        return MessagesSseWriter(request, begun=begun) if request.stream else MessagesJsonWriter(request)

    def encode_error(
        self,
        message: str,
        *,
        kind: str,
        code: str,
        attempts: Iterable[Attempt] = (),  # noqa: ARG002 one signature for all APIs
        request_id: str = "",
    ) -> bytes:
        """Encode an error with its message, and with the API's name for this type of error.

        The message of an overflow contains "too long", so that Claude Code compacts its prompt.
        """
        if code == "context_length_exceeded":
            message = f"prompt is too long: {message}"
        return encode_json(
            messages_out.encode_error(message, messages_out.own_error_type(kind, code), code, request_id)
        )

    def encode_stream_error(self, error: bytes, note: str = "") -> bytes:
        """Encode `note` as a comment, then an `error` event, which is the last event."""
        return (encode_comment(note) if note else b"") + b"event: error\ndata: %b\n\n" % error

    def encode_server_error(self, failure: Failure) -> bytes:
        """Encode the text of the server's error, with the API's error type for the HTTP status."""
        kind = messages_out.error_type(failure.error_status or 502)
        return encode_json(messages_out.encode_error(failure.text or failure.why, kind))


MESSAGES_API: ClientApi = MessagesApi()


_OWN_PREFIX = "anthropic-"
_KEY_FIELD = "x-api-key"


def serve_message(request: ClientRequest, context: Context) -> Exchange:
    """Serve a request for a message, with its header fields converted to those of Chat Completions."""
    sent = replace(request.request, headers=_convert_headers(request.request.headers))
    return run(replace(request, request=sent), context)


def _convert_headers(headers: Headers) -> Headers:
    """Return the header fields without those of the Messages API; if needed, make `authorization` from `x-api-key`."""
    kept = tuple(pair for pair in headers if not pair[0].lower().startswith(_OWN_PREFIX))
    key = next((value for name, value in kept if name.lower() == _KEY_FIELD), "")
    kept = tuple(pair for pair in kept if pair[0].lower() != _KEY_FIELD)
    if not key or any(name.lower() == "authorization" for name, _ in kept):
        return kept
    return (*kept, ("authorization", f"Bearer {key}"))


def count_message_tokens(request: ClientRequest, context: Context) -> Exchange:
    """Respond with an estimate of a request's tokens, without asking the server."""
    return respond_token_count(request, context, {})
