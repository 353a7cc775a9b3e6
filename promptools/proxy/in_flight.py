"""The requests in flight: a proxy that shuts down gives them some time to finish, then ends them with an error.

The error is well-formed in the client's API wherever that is possible. If nothing was sent yet, the error is an HTTP
503. If a stream was sent up to the end of an event, the error follows as its last event. Otherwise the connection is
closed in the middle of the response, which every client treats as a failure: a partial response never looks complete.

Each request has an id, which appears in the response, in errors, in log lines and in the inspector.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from secrets import token_hex
from typing import TYPE_CHECKING

import anyio

from promptools.exchange.client_api import CHAT_API, ClientApi
from promptools.exchange.messages_api import MESSAGES_API
from promptools.masking import key_in, keys_in
from promptools.proxy.asgi import JSON_CONTENT_TYPE, retry_fields, send_response

if TYPE_CHECKING:
    from promptools.proxy.asgi import Fields, Message, Scope, Send


# The id of a request: in the response, in errors, in log lines and in the inspector.
#
# Gateways and clients that already have an id for a request send it in `x-request-id`. A valid id is kept, so that
# their logs can be matched with those of the proxy. All other requests get an id here.


FIELD = b"x-request-id"
MESSAGES_FIELD = b"request-id"
"""The response header field in which Anthropic's SDKs (Messages API) look for the request's id."""
UPSTREAM_FIELD = b"x-promptools-upstream-request-id"
"""The response header field with the server's own id for the request, if that id differs from the proxy's."""
PROXY_FIELD = b"x-promptools-proxy"
"""The header field that marks each response of a proxy, so that nobody takes the proxy for the server behind it."""
_VALID = re.compile(rb"[A-Za-z0-9._:/+=@-]{1,128}")
_RANDOM_BYTES = 12


def request_id(scope: Scope) -> str:
    """Return the id in a request's header if the id is valid and is not an API key, else a new id."""
    given = [value for name, value in scope["headers"] if name.lower() == FIELD]
    if len(given) == 1 and _VALID.fullmatch(given[0]):
        text: str = given[0].decode("ascii")
        fields = [(name.decode("latin-1"), value.decode("latin-1")) for name, value in scope["headers"]]
        if key_in("", text) not in keys_in(fields):
            return text
    return f"req_{token_hex(_RANDOM_BYTES)}"


def with_request_id(fields: Fields, request_id: str, *, messages: bool) -> list[tuple[bytes, bytes]]:
    """Return the header fields of a response with the request's id added.

    If the server sent a different id, the server's id moves to `UPSTREAM_FIELD`. If `messages` is true (the client uses
    Anthropic's Messages API), the request's id is also added where Anthropic's SDKs look for it.
    """
    own = request_id.encode("ascii")
    kept = [
        (UPSTREAM_FIELD if name == FIELD else name, value)
        for name, value in fields
        if not (name == FIELD and value == own) and not (messages and name == MESSAGES_FIELD)
    ]
    return [*kept, (FIELD, own), *([(MESSAGES_FIELD, own)] if messages else [])]


CUT_MESSAGE = "the proxy is shutting down, and this request was not complete in time; send it again"
CUT_CODE = "shutting_down"
RETRY_SECONDS = 1.0
SEND_SECONDS = 1.0
"""Maximum number of seconds to wait for a slow client to accept the error that ends its request."""
_STREAM_ENDS = {b"text/event-stream": b"\n\n", b"application/x-ndjson": b"\n"}
"""Maps each streamed media type to the bytes that end an event or a line."""


class RequestInFlight:
    """A request whose response is not complete yet; records how much of the response has been sent."""

    def __init__(self, scope: Scope, send: Send) -> None:
        self.scope = scope
        self.began_at = time.monotonic()
        self.request_id = request_id(scope)
        """The id by which the client, the logs and the inspector know the request."""
        self.status: int | None = None
        """The status of the response; None if the response has not begun."""
        self.refusal = ""
        """The code of the error with which the request was refused; empty if it was not refused."""
        self.passes = False
        """Whether extensions get a `RequestReport` even if the request is not refused; observers then get no exchange.

        This is so for a request that is forwarded unread, for `/`, and for a list of models that the proxy makes.
        """
        self.is_unanswered = False
        """Whether the request to the server failed before the client got anything."""
        self._send = send
        self.api: ClientApi = CHAT_API
        self.cancel: Callable[[], None] | None = None
        """Cancels the work on the request."""
        self._fields: Fields = ()
        self._last_piece = b""
        self.is_complete = False
        """Whether the whole response was sent."""
        self.is_cut = False

    async def send(self, message: Message) -> None:
        """Send a message of the response."""
        if message["type"] == "http.response.start":
            self.status = message["status"]
            fields = with_request_id(message["headers"], self.request_id, messages=self.api is MESSAGES_API)
            self._fields = [*(pair for pair in fields if pair[0] != PROXY_FIELD), (PROXY_FIELD, b"true")]
            message = {**message, "headers": self._fields}
        else:
            self._last_piece = message.get("body", b"") or self._last_piece
            self.is_complete = not message.get("more_body", False)
        await self._send(message)

    def use_api(self, api: ClientApi) -> None:
        """Set the API in whose format `finish` sends errors."""
        self.api = api

    def cut(self) -> None:
        """End the request early; `finish` then sends the error."""
        self.is_cut = True
        if self.cancel is not None:
            self.cancel()

    async def finish(self) -> None:
        """Send an error if the request was ended early and its response is not complete."""
        if self.is_complete or not self.is_cut:
            return
        with anyio.move_on_after(SEND_SECONDS, shield=True):
            error = self.api.encode_error(CUT_MESSAGE, kind="server_error", code=CUT_CODE, request_id=self.request_id)
            if self.status is None:
                self.refusal = CUT_CODE
                await send_response(self.send, 503, [JSON_CONTENT_TYPE, *retry_fields(RETRY_SECONDS)], error)
                return
            media_type = dict(self._fields).get(b"content-type", b"").partition(b";")[0].strip().lower()
            end = _STREAM_ENDS.get(media_type)
            if end is not None and (self._last_piece or end).endswith(end):
                await self._send({"type": "http.response.body", "body": self.api.encode_stream_error(error)})


class RequestsInFlight:
    """The requests whose responses are not complete yet."""

    def __init__(self) -> None:
        self._requests: set[RequestInFlight] = set()
        self._idle = anyio.Event()

    def __len__(self) -> int:
        return len(self._requests)

    @contextmanager
    def tracking(self, request: RequestInFlight) -> Generator[None]:
        """Count a request as in flight during the block."""
        self._requests.add(request)
        try:
            yield
        finally:
            self._requests.discard(request)
            if not self._requests:
                self._idle.set()

    async def wait(self, seconds: float) -> None:
        """Wait until no request is left, or the time is up."""
        with anyio.move_on_after(seconds):
            while self._requests:
                self._idle = anyio.Event()
                await self._idle.wait()

    def cut(self) -> None:
        """End all requests in flight."""
        for request in tuple(self._requests):
            request.cut()
