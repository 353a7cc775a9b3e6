"""OpenAI's Responses API: each request has its own `ResponsesApi`, since a response repeats its request.

The endpoint's `RESPONSES_API` only encodes errors; `serve_response` makes the one that serves.
"""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from promptools.errors import UsageError, clip
from promptools.exchange.downstream.client_api import CHAT_API
from promptools.exchange.downstream.responses.response_store import ResponseStore
from promptools.exchange.downstream.responses.responses_writer import ResponsesJsonWriter, ResponsesStreamWriter
from promptools.exchange.downstream.token_counts import respond_token_count
from promptools.exchange.runner import run
from promptools.wire.json_types import as_object, as_text
from promptools.wire.responses.output_items import ResponseFrame
from promptools.wire.responses.responses_request import ResponsesRequest, decode_responses_request
from promptools.wire.sse import encode_comment

if TYPE_CHECKING:
    from collections.abc import Iterable

    from promptools.exchange.context import ClientRequest, Context
    from promptools.exchange.downstream.client_api import ClientApi
    from promptools.exchange.downstream.response_writer import ResponseWriter
    from promptools.exchange.downstream.responses.response_store import StoredResponse
    from promptools.exchange.runner import Exchange
    from promptools.exchange.upstream.failure import Failure
    from promptools.modes.requests.tool_request import ToolRequest
    from promptools.profiles import Profile
    from promptools.profiles.profile import Wire
    from promptools.types import Attempt

_FAILURE_CODES = frozenset({"context_length_exceeded", "shutting_down"})
"""Our codes that clients may act on in a failed response; every other failure is a `server_error`."""


class ResponsesApi:
    """Serves one request, whose ids are made of `token`; `owner` is whom its response belongs to."""

    wire: Wire | None = None
    streams_arguments = True
    path = "responses"

    def __init__(
        self, store: ResponseStore | None = None, *, owner: str = "", token: str = "", created_at: int = 0
    ) -> None:
        self._store = store if store is not None else ResponseStore()
        self._owner = owner
        self._token = token
        self._created_at = created_at
        self._request: ResponsesRequest | None = None
        self._previous: StoredResponse | None = None
        self._stream: ResponsesStreamWriter | None = None

    def decode_request(self, body: dict[str, Any], profile: Profile) -> tuple[dict[str, Any], tuple[str, ...]]:  # noqa: ARG002 one signature for all APIs
        """Convert the request, and the conversation that it continues, to Chat Completions."""
        self._previous = self._find_previous(as_text(body.get("previous_response_id")))
        history = self._previous.conversation if self._previous else ()
        self._request = decode_responses_request(
            body, history, lambda item_id: self._store.find_item(self._owner, item_id)
        )
        return self._request.body, self._request.notes

    def response_writer(self, request: ToolRequest, *, begun: bool = False) -> ResponseWriter:  # noqa: ARG002 one signature for all APIs
        """Return a writer of events, or of one JSON body."""
        assert self._request is not None, "the request was decoded"
        frame = ResponseFrame(self._request, self._token, self._created_at, request.model)
        if not request.stream:
            return ResponsesJsonWriter(request, frame, self._keep)
        self._stream = ResponsesStreamWriter(request, frame, self._keep)
        return self._stream

    def encode_error(
        self, message: str, *, kind: str, code: str, attempts: Iterable[Attempt] = (), request_id: str = ""
    ) -> bytes:
        """Encode an error as in Chat Completions."""
        return CHAT_API.encode_error(message, kind=kind, code=code, attempts=attempts, request_id=request_id)

    def encode_stream_error(self, error: bytes, note: str = "") -> bytes:
        """End the stream: an `error` event and the failed response, then a comment."""
        assert self._stream is not None, "the stream has begun"
        fields = as_object(as_object(json.loads(error)).get("error"))
        code = as_text(fields.get("code"))
        code = code if code in _FAILURE_CODES else "server_error"
        failed = self._stream.fail(as_text(fields.get("message")), code, as_text(fields.get("request_id")))
        return failed + (encode_comment(note) if note else b"")

    def encode_server_error(self, failure: Failure) -> bytes:
        """Encode the server's error as in Chat Completions."""
        return CHAT_API.encode_server_error(failure)

    def _find_previous(self, response_id: str) -> StoredResponse | None:
        if not response_id:
            return None
        previous = self._store.get(self._owner, response_id)
        if previous is None:
            raise UsageError(
                f"previous_response_id {clip(repr(response_id))}: no response with this id is stored here; it was never"
                " stored, deleted, or made room for newer ones. Send the whole conversation in 'input'",
                code="previous_response_not_found",
            )
        return previous

    def _keep(self, body: dict[str, Any], discarded: tuple[str, ...]) -> None:
        """Store a response, unless its request says not to."""
        assert self._request is not None, "the request was decoded"
        if self._request.stored:
            items = (
                {**item, "id": item.get("id") or f"in_{self._token}_{position}"}
                for position, item in enumerate(self._request.items)
            )
            self._store.put(self._owner, body, (*items,), self._previous, discarded)


def serve_response(request: ClientRequest, context: Context) -> Exchange:
    """Begin the exchange of a request for a new response."""
    api = ResponsesApi(
        context.response_store,
        owner=request.owner,
        token="".join(context.new_id() for _ in range(3)),
        created_at=int(context.wall_clock().timestamp()) if context.wall_clock else 0,
    )
    if request.caller.on_client_api is not None:
        request.caller.on_client_api(api)
    return run(replace(request, client_api=api), context)


def count_input_tokens(request: ClientRequest, context: Context) -> Exchange:
    """Respond with an estimate of a request's tokens, with those of the conversation that it continues."""
    api = ResponsesApi(context.response_store, owner=request.owner)
    return respond_token_count(replace(request, client_api=api), context, {"object": "response.input_tokens"})


RESPONSES_API: ClientApi = ResponsesApi()
