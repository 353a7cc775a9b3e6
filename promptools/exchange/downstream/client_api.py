"""The APIs that clients speak to us: requests are converted to Chat Completions, responses written in the same API.

Nothing in between depends on which API it is.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Protocol

from promptools.exchange.downstream.messages_response import MessagesJsonWriter, MessagesSseWriter
from promptools.exchange.downstream.ollama.ollama_response import NdjsonWriter, OllamaJsonWriter
from promptools.exchange.downstream.response_writer import JsonWriter, ResponseWriter, SseWriter, encode_json
from promptools.exchange.upstream.failure import OLLAMA_APIS
from promptools.wire.chat_encoder import error_body
from promptools.wire.json_types import as_object, as_text
from promptools.wire.messages import message_body
from promptools.wire.messages.message_request import decode_messages_request
from promptools.wire.ollama.decode_request import decode_chat_request
from promptools.wire.sse import encode_comment

if TYPE_CHECKING:
    from collections.abc import Iterable

    from promptools.exchange.upstream.failure import Failure
    from promptools.modes.requests.tool_request import ToolRequest
    from promptools.profiles import Profile
    from promptools.profiles.profile import Wire
    from promptools.types import Attempt


class ClientApi(Protocol):
    """One API that clients speak to us."""

    wire: Wire | None
    """The same API on the server's side; a request that concerns no tools is forwarded to such a server unchanged.

    None: no server is asked in it, so every request is converted.
    """
    streams_arguments: bool
    """Whether a call can be streamed in deltas."""
    path: str
    """Its route, relative to a server's API base, or to the server's root if it begins with `/`."""

    def decode_request(self, body: dict[str, Any], profile: Profile) -> tuple[dict[str, Any], tuple[str, ...]]:
        """Convert a request to a Chat Completions body for a server with this profile; return it and notes on loss."""
        ...

    def response_writer(self, request: ToolRequest, *, begun: bool = False) -> ResponseWriter:
        """Return the writer for the response that `request` wants; `begun` if part of a stream was already sent."""
        ...

    def encode_error(
        self, message: str, *, kind: str, code: str, attempts: Iterable[Attempt] = (), request_id: str = ""
    ) -> bytes:
        """Encode one of our own errors."""
        ...

    def encode_stream_error(self, error: bytes, note: str = "") -> bytes:
        """Encode an error inside a stream that has begun, with the comment `note` if the API has comments."""
        ...

    def encode_server_error(self, failure: Failure) -> bytes:
        """Encode the error that the server responded with."""
        ...


class ChatCompletionsApi:
    """OpenAI's Chat Completions."""

    wire: Wire | None = "chat"
    streams_arguments = True
    path = "chat/completions"

    def decode_request(self, body: dict[str, Any], profile: Profile) -> tuple[dict[str, Any], tuple[str, ...]]:  # noqa: ARG002 one signature for all APIs
        """Return the body unchanged."""
        return body, ()

    def response_writer(self, request: ToolRequest, *, begun: bool = False) -> ResponseWriter:
        """Return a writer of server-sent events, or of one JSON body."""
        return SseWriter(request, begun=begun) if request.stream else JsonWriter(request)

    def encode_error(
        self, message: str, *, kind: str, code: str, attempts: Iterable[Attempt] = (), request_id: str = ""
    ) -> bytes:
        """Encode an error object that lists the attempts."""
        return encode_json(error_body(message, kind=kind, code=code, attempts=attempts, request_id=request_id))

    def encode_stream_error(self, error: bytes, note: str = "") -> bytes:
        """Encode an `error` event, and a comment."""
        return b"event: error\ndata: %b\n\n" % error + (encode_comment(note) if note else b"")

    def encode_server_error(self, failure: Failure) -> bytes:
        """Return the error unchanged; one from Ollama's own APIs in the form of Ollama's /v1."""
        if failure.wire not in OLLAMA_APIS:
            return failure.body
        kind = {400: "invalid_request_error", 404: "not_found_error"}.get(failure.error_status or 0, "api_error")
        return encode_json({"error": {"message": failure.text, "type": kind, "param": None, "code": None}})


class OllamaApi:
    """Ollama's `/api/chat`."""

    wire: Wire | None = "ollama"
    streams_arguments = False  # its arguments are an object
    path = "/api/chat"

    def decode_request(self, body: dict[str, Any], profile: Profile) -> tuple[dict[str, Any], tuple[str, ...]]:
        """Convert the request to Chat Completions."""
        return decode_chat_request(body, profile)

    def response_writer(self, request: ToolRequest, *, begun: bool = False) -> ResponseWriter:
        """Return a writer of NDJSON lines, or of one JSON body."""
        return NdjsonWriter(request, begun=begun) if request.stream else OllamaJsonWriter(request)

    def encode_error(
        self,
        message: str,
        *,
        kind: str,  # noqa: ARG002 one signature for all APIs
        code: str,  # noqa: ARG002 one signature for all APIs
        attempts: Iterable[Attempt] = (),  # noqa: ARG002 one signature for all APIs
        request_id: str = "",
    ) -> bytes:
        """Encode the message, and the id beside it: this API's errors have no other fields."""
        return encode_json({"error": message, **({"request_id": request_id} if request_id else {})})

    def encode_stream_error(self, error: bytes, note: str = "") -> bytes:  # noqa: ARG002 one signature for all APIs
        """Encode a line; NDJSON has no comments."""
        return error + b"\n"

    def encode_server_error(self, failure: Failure) -> bytes:
        """Return an error of Ollama's unchanged; of any other server's, the text alone."""
        try:
            body: Any = json.loads(failure.body)
        except (ValueError, RecursionError):
            body = None
        return (
            failure.body
            if as_text(as_object(body).get("error"))
            else encode_json({"error": failure.text or failure.why})
        )


class MessagesApi:
    """Anthropic's Messages."""

    wire: Wire | None = None
    streams_arguments = True
    path = "messages"

    def decode_request(self, body: dict[str, Any], profile: Profile) -> tuple[dict[str, Any], tuple[str, ...]]:
        """Convert the request to Chat Completions."""
        return decode_messages_request(body, profile)

    def response_writer(self, request: ToolRequest, *, begun: bool = False) -> ResponseWriter:
        """Return a writer of events, or of one JSON body."""
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
        """Encode the message, with the API's type for the error; Claude Code compacts a prompt that is "too long"."""
        if code == "context_length_exceeded":
            message = f"prompt is too long: {message}"
        return encode_json(
            message_body.encode_error(message, message_body.own_error_type(kind, code), code, request_id)
        )

    def encode_stream_error(self, error: bytes, note: str = "") -> bytes:
        """Encode an `error` event after a comment; it is the last event."""
        return (encode_comment(note) if note else b"") + b"event: error\ndata: %b\n\n" % error

    def encode_server_error(self, failure: Failure) -> bytes:
        """Encode the text of the server's error, with the API's type for its status."""
        kind = message_body.error_type(failure.error_status or 502)
        return encode_json(message_body.encode_error(failure.text or failure.why, kind))


CHAT_API: ClientApi = ChatCompletionsApi()
OLLAMA_API: ClientApi = OllamaApi()
MESSAGES_API: ClientApi = MessagesApi()
