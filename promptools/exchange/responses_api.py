"""Serve clients of OpenAI's Responses API: convert their requests, write and store the responses.

Each request has its own `ResponsesApi`, created by `serve_response`, because a response repeats parts of its request.
The shared `RESPONSES_API` only encodes errors. Responses are a stream of numbered events or one JSON body, and have a
single choice. Responses that clients may continue or fetch later are kept in `response_store`. The formats are in
`wire.responses_in` and `wire.responses_out`.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias
from urllib.parse import parse_qs, unquote

from promptools.errors import UsageError, clip, without_credentials
from promptools.exchange.client_api import CHAT_API, respond_no_answer, respond_token_count, run_route
from promptools.exchange.effects import Failed, ResponseHead
from promptools.exchange.failures import failure_of_status, head_of_error
from promptools.exchange.response_store import ResponseStore, StoredResponse
from promptools.exchange.response_writer import JsonWriter, SseWriter, encode_json
from promptools.exchange.runner import run
from promptools.exchange.state import ExchangeState
from promptools.wire.chat_decoder import error_of
from promptools.wire.chat_encoder import error_body
from promptools.wire.json_body import as_object, as_text, parse_object
from promptools.wire.responses_in import ResponsesRequest, decode_responses_request
from promptools.wire.responses_out import ID_PREFIX, ResponseEvents, ResponseFrame, encode_output, incomplete_reason
from promptools.wire.sse import encode_comment

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from promptools.exchange.client_api import ClientApi
    from promptools.exchange.commit_point import ChoiceWriter
    from promptools.exchange.context import ClientRequest, Context
    from promptools.exchange.effects import Opened
    from promptools.exchange.failures import Failure
    from promptools.exchange.response_writer import ResponseWriter, Summary
    from promptools.exchange.runner import Exchange
    from promptools.exchange.state import Steps
    from promptools.modes.tool_request import ToolRequest
    from promptools.profiles import Profile
    from promptools.profiles.profile import Wire
    from promptools.types import Attempt, Reply
    from promptools.wire.chat_decoder import Envelope


OnResponse: TypeAlias = Callable[[dict[str, Any], tuple[str, ...]], None]
"""A function that is called with each response whose status is `completed` or `incomplete`, but not `failed`.

The response contains only the last attempt's output. The second argument holds the ids of the items that earlier
attempts streamed.
"""


class ResponsesStreamWriter(SseWriter):
    """Writes a response as a stream of server-sent events."""

    def __init__(self, request: ToolRequest, frame: ResponseFrame, on_response: OnResponse) -> None:
        super().__init__(request)
        self._frame = frame
        self._on_response = on_response
        self._events = ResponseEvents(frame)
        self._sequence_number = 0

    def end(self, summary: Summary) -> bytes:
        """Return the events that end the open item and the response, and then the summary's note as a comment.

        The last event contains the response, with the usage.
        """
        reply = self._events.reply
        assert reply is not None, "the choice was finished"
        ended = self._events.end("incomplete" if incomplete_reason(reply) else "completed")
        completed_at = self._frame.created_at + round(summary.seconds)
        output, discarded = self._events.output, self._events.discarded_ids
        body = self._frame.encode_end(reply, output, summary.usage, completed_at)
        self._on_response({**body, "output": output[len(discarded) :]}, discarded)
        last = {"type": f"response.{body['status']}", "response": summary.with_report(body)}
        return self._encode([*ended, last]) + encode_comment(summary.note)

    def fail(self, message: str, code: str, request_id: str = "") -> bytes:
        """Return the events that end the response with an error."""
        ended = self._events.end("incomplete")
        error = {"code": code, "message": message}
        named = {"request_id": request_id} if request_id else {}
        body = self._frame.encode("failed", self._events.output, error=error)
        last = {"type": "response.failed", "response": body}
        return self._encode([*ended, {"type": "error", **error, "param": None, **named}, last])

    def _encode(self, bodies: Iterable[Mapping[str, Any]]) -> bytes:
        """Encode events with sequence numbers; before the very first one, insert the events that begin a response."""
        events = list(bodies)
        if events and not self._sequence_number:
            begun = self._frame.encode("in_progress", [])
            names = ("response.created", "response.in_progress")
            events = [*({"type": name, "response": begun} for name in names), *events]
        return b"".join(map(self._encode_event, events))

    def _encode_event(self, event: Mapping[str, Any]) -> bytes:
        numbered = {**event, "sequence_number": self._sequence_number}
        self._sequence_number += 1
        return b"event: %b\ndata: %b\n\n" % (event["type"].encode(), encode_json(numbered))

    def _make_writer(self, index: int, envelope: Envelope) -> ChoiceWriter:  # noqa: ARG002 one signature for all writers
        self._frame.model = envelope.model or self._frame.model
        return self._events


class ResponsesJsonWriter(JsonWriter):
    """Collects a whole response and writes it as one JSON body."""

    def __init__(self, request: ToolRequest, frame: ResponseFrame, on_response: OnResponse) -> None:
        super().__init__(request)
        self._frame = frame
        self._on_response = on_response
        self._reply: Reply | None = None

    def finish(self, index: int, reply: Reply, envelope: Envelope, extra: Mapping[str, Any], *, valid: bool) -> bytes:  # noqa: ARG002 one signature for all writers
        """Keep the reply for `end`."""
        self._reply = reply
        self._frame.model = envelope.model or self._frame.model
        return b""

    def end(self, summary: Summary) -> bytes:
        """Return the whole response."""
        assert self._reply is not None, "the choice was finished"
        output = encode_output(self._frame, self._reply, self._logprobs.get(0))
        completed_at = self._frame.created_at + round(summary.seconds)
        body = self._frame.encode_end(self._reply, output, summary.usage, completed_at)
        self._on_response(body, ())
        return encode_json(summary.with_report(body))


_FAILURE_CODES = frozenset({"context_length_exceeded", "shutting_down"})
"""Error codes that clients may act on; any other code becomes `server_error` in a failed response."""


class ResponsesApi:
    """Implements the Responses API for one request.

    `token` is a random string from which the ids in the response are made. `owner` will own the stored response.
    """

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

    def decode_request(self, body: dict[str, Any], profile: Profile) -> tuple[dict[str, Any], tuple[str, ...]]:
        """Convert the request, and the conversation that it continues, to Chat Completions."""
        self._previous = self._find_previous(as_text(body.get("previous_response_id")))
        history = self._previous.conversation if self._previous else ()
        self._request = decode_responses_request(
            body, history, lambda item_id: self._store.find_item(self._owner, item_id), profile.family
        )
        return self._request.body, self._request.notes

    def response_writer(self, request: ToolRequest, *, begun: bool = False) -> ResponseWriter:  # noqa: ARG002 one signature for all APIs
        """Return a writer of server-sent events if a stream is requested, else a writer of one JSON body."""
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
        """Return the events that end the stream with an error, and `note` as a comment."""
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
        """Store a response, unless the request says not to."""
        assert self._request is not None, "the request was decoded"
        if self._request.stored:
            items = (
                {**item, "id": item.get("id") or f"in_{self._token}_{position}"}
                for position, item in enumerate(self._request.items)
            )
            self._store.put(self._owner, body, (*items,), self._previous, discarded)


def serve_response(request: ClientRequest, context: Context) -> Exchange:
    """Serve a request that creates a response."""
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
    """Respond with an estimate of a request's tokens, including the stored conversation that the request continues."""
    api = ResponsesApi(context.response_store, owner=request.owner)
    return respond_token_count(replace(request, client_api=api), context, {"object": "response.input_tokens"})


RESPONSES_API: ClientApi = ResponsesApi()


# The routes of stored responses: GET or DELETE a response, GET its input items, or cancel it. No server is asked.
#
# A stored response is complete, so none can be cancelled: that is for background responses, which are not served
# here.


_STORED_PATH = "/responses/"
STORED_ROUTE = f"{_STORED_PATH}{ID_PREFIX}"
"""The beginning of the path of every stored response. It includes the prefix of promptools' response ids."""
_INPUT_ITEMS = "input_items"
_ROUTES = frozenset({("GET", ""), ("GET", _INPUT_ITEMS), ("DELETE", ""), ("POST", "cancel")})
"""The routes for a stored response, as pairs of the method and the part of the path after the response's id."""
_DEFAULT_LIMIT = 20
_MAX_LIMIT = 100


def serve_stored_response(request: ClientRequest, context: Context) -> Exchange:
    """Respond to a request for a stored response."""
    state = ExchangeState(request, context)
    status, body = _respond(request, context)
    if request.caller.request_id and "error" in body and status >= 400:
        body["error"]["request_id"] = request.caller.request_id
    yield from state.emit(encode_json(body), lambda: ResponseHead(status, (("content-type", "application/json"),)))
    state.observe_end([], None)
    return None


def _respond(request: ClientRequest, context: Context) -> tuple[int, dict[str, Any]]:
    address, _, query = request.request.url.partition("?")
    response_id, _, part = unquote(address.rstrip("/").rpartition(_STORED_PATH)[2]).partition("/")
    owner, store = request.owner, context.response_store
    stored, method = store.get(owner, response_id), request.request.method
    if (method, part) not in _ROUTES:
        return 404, _error(f"{method} {_STORED_PATH}ID/{clip(part)} is not a route of the Responses API")
    if stored is None:
        return 404, _error(f"Response with id {clip(repr(response_id))} not found.")
    if method == "POST":
        return 400, _error("Cannot cancel a synchronous response.")
    if method == "DELETE":
        store.delete(owner, response_id)
        return 200, {"id": response_id, "object": "response", "deleted": True}
    parameters = parse_qs(query)
    if part:
        return _list_input_items(stored, parameters)
    if parameters.get("stream") == ["true"]:
        return 400, _error("a stored response cannot be streamed: that is for background responses, not served here")
    return 200, stored.body


def _list_input_items(stored: StoredResponse, parameters: dict[str, list[str]]) -> tuple[int, dict[str, Any]]:
    """Return a page of the response's input items, the latest first unless `order` is `asc`."""
    limit = parameters.get("limit", [str(_DEFAULT_LIMIT)])[0]
    if not (limit.isdecimal() and len(limit) < 4 and 1 <= int(limit) <= _MAX_LIMIT):
        return 400, _error(f"'limit' must be from 1 to {_MAX_LIMIT}, not {clip(limit)}")
    items = list(stored.input) if parameters.get("order") == ["asc"] else [*reversed(stored.input)]
    after = parameters.get("after", [""])[0]
    start = next((position for position, item in enumerate(items, 1) if item.get("id") == after), 0) if after else 0
    page = [_as_listed(item) for item in items[start : start + int(limit)]]
    return 200, {
        "object": "list",
        "data": page,
        "first_id": page[0]["id"] if page else None,
        "last_id": page[-1]["id"] if page else None,
        "has_more": start + len(page) < len(items),
    }


def _as_listed(item: dict[str, Any]) -> dict[str, Any]:
    """Return an input item as it appears in lists: with a `type`, and with a message's content as a list of parts."""
    listed = {"type": "message", **item}
    if listed["type"] == "message" and isinstance(listed.get("content"), str):
        kind = "output_text" if listed.get("role") == "assistant" else "input_text"
        listed["content"] = [{"type": kind, "text": listed["content"]}]
    return listed


def _error(message: str) -> dict[str, Any]:
    return error_body(message, kind="invalid_request_error")


# `/responses/compact`: the request is forwarded; if the server lacks the route, the client is told so.
#
# The route returns a part of the conversation in a form that only the server itself can read, so promptools cannot
# provide a substitute.


_COMPACTION_ROUTE = "responses/compact"
_ABSENT_STATUSES = frozenset({404, 405, 501})
"""Statuses that servers return for a route they do not have. Some send an error or a page with HTTP 200 instead."""


def serve_compaction(request: ClientRequest, context: Context) -> Exchange:
    """Forward a request to compact a conversation, with the model name replaced by the server's name for the model."""
    state = ExchangeState(request, context)
    return run_route(state, _pass_on(state))


def _pass_on(state: ExchangeState) -> Steps[None]:
    body = state.request.body
    data = parse_object(body)
    name = as_text(data.get("model"))
    route = state.context.route(name or None, None)
    state.url, state.headers = route.url, route.headers
    target = route.target
    state.provider_model = (target.provider or target.base_url or state.request.url, target.model or name)
    renamed = bool(data and target.model and target.model != name)
    opened = yield from state.send(encode_json({**data, "model": target.model}) if renamed else body, _COMPACTION_ROUTE)
    if isinstance(opened, Failed):
        yield from respond_no_answer(state, opened)
        return
    if not 200 <= opened.status < 300:
        yield from _pass_error(state, opened)
        return
    pieces: list[bytes] = []
    while isinstance(piece := (yield from state.read()), bytes):
        pieces.append(piece)
    if isinstance(piece, Failed) and piece.error is not None:
        raise piece.error
    answer = b"".join(pieces)
    parsed = yield from state.compute(partial(parse_object, answer), len(answer))
    if opened.status == 200 and (not parsed or error_of(parsed)):
        failure = failure_of_status(opened, answer)
        yield from _respond_absent(state, f"HTTP {opened.status}: {without_credentials(failure.why)}")
    else:
        yield from state.emit(answer, lambda: ResponseHead(opened.status, opened.headers))


def _pass_error(state: ExchangeState, opened: Opened) -> Steps[None]:
    failure = failure_of_status(opened, (yield from state.read_error()))
    if opened.status in _ABSENT_STATUSES:
        yield from _respond_absent(state, f"HTTP {opened.status}: {without_credentials(failure.why)}")
        return
    yield from state.emit(failure.body, lambda: head_of_error(opened, failure))


def _respond_absent(state: ExchangeState, reason: str) -> Steps[None]:
    message = (
        f"/v1/{_COMPACTION_ROUTE} is not served here: promptools compacts no conversation, and neither does the server"
        f" ({reason}). Send the whole conversation in 'input', or a summary of it"
    )
    error = state.encode_error(message, kind="invalid_request_error", code="route_not_served")
    head = ResponseHead(404, (("content-type", "application/json"), ("x-should-retry", "false")))
    yield from state.emit(error, lambda: head)
