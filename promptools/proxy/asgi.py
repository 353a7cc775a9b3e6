"""The parts of ASGI that the proxy needs: types, the errors of the proxy itself, and the messages of a response."""

from __future__ import annotations

import math
import re
from collections.abc import Awaitable, Callable, Iterable, MutableMapping
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    from promptools.exchange.client_api import ClientApi

Message: TypeAlias = MutableMapping[str, Any]
Scope: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[Message]]
Send: TypeAlias = Callable[[Message], Awaitable[None]]
Fields: TypeAlias = Iterable[tuple[bytes, bytes]]

JSON_CONTENT_TYPE = (b"content-type", b"application/json")
HOP_BY_HOP_FIELDS = frozenset(
    {b"connection", b"keep-alive", b"proxy-authenticate", b"proxy-authorization", b"proxy-connection", b"te"}
    | {b"trailer", b"transfer-encoding", b"upgrade"}
)
"""Hop-by-hop fields, which are never forwarded (RFC 9110, section 7.6.1)."""


WITHOUT_BODY = frozenset({204, 304})
"""Statuses whose responses never have a body, whatever their header fields say (RFC 9112, section 6.3)."""
UPSTREAM_STATUS_FIELD = b"x-promptools-upstream-status"
"""Header field that holds the server's status code if HTTP does not allow this code; the client then gets a 502."""
_TOKEN = re.compile(rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_LINE_BREAK = re.compile(rb"[\x00\n\v\f\r]")


class DisconnectedError(Exception):
    """Raised if the client disconnects before its request is complete."""


class RefusedError(Exception):
    """Raised if the proxy itself refuses a request; the client gets an error, and nothing is sent upstream."""

    def __init__(
        self,
        status: int,
        message: str,
        *,
        code: str,
        kind: str = "UsageError",
        headers: Fields = (),
        retry_after: float | None = None,
    ) -> None:
        super().__init__(message)
        self.retry_after = retry_after
        """Seconds after which the same request may succeed; None if it never will."""
        self.status = status
        self.kind = kind
        self.code = code
        self.headers = headers


async def send_response(send: Send, status: int, headers: Fields, body: bytes) -> None:
    """Send a complete response."""
    await send_head(send, status, [*headers, (b"content-length", str(len(body)).encode())])
    await send({"type": "http.response.body", "body": body})


async def send_head(send: Send, status: int, headers: Fields) -> None:
    """Send the status and the header fields of a response.

    ASGI servers fail on a status outside of 200 to 599 and on malformed fields. So an upstream response with such a
    status becomes a 502 with the same body, and malformed fields are dropped. The `Content-Length` of a response
    without a body is dropped too: a 304 may state the length of the response to a GET, and uvicorn breaks the
    connection if that many bytes do not follow.
    """
    fields = [
        (name.lower(), value.strip(b" \t"))
        for name, value in headers
        if _TOKEN.fullmatch(name) and not _LINE_BREAK.search(value)
    ]
    if status in WITHOUT_BODY:
        fields = [pair for pair in fields if pair[0] != b"content-length"]
    if not 200 <= status <= 599:
        fields, status = [*fields, (UPSTREAM_STATUS_FIELD, str(status).encode())], 502
    await send({"type": "http.response.start", "status": status, "headers": fields})


def end_to_end_fields(headers: Fields) -> list[tuple[bytes, bytes]]:
    """Return all header fields except hop-by-hop fields and the fields that `Connection` names."""
    fields = list(headers)
    named = {
        option.strip().lower()
        for name, value in fields
        if name.lower() == b"connection"
        for option in value.split(b",")
    }
    dropped = HOP_BY_HOP_FIELDS | named if named else HOP_BY_HOP_FIELDS
    return [(name, value) for name, value in fields if name.lower() not in dropped]


def retry_fields(seconds: float | None) -> list[tuple[bytes, bytes]]:
    """Return header fields that tell clients to retry after `seconds`, or not to retry if `seconds` is None.

    Besides `Retry-After`, these include the fields that SDKs read.
    """
    if seconds is None:
        return [(b"x-should-retry", b"false")]
    return [
        (b"retry-after", str(max(1, math.ceil(seconds))).encode()),
        (b"retry-after-ms", str(max(1, math.ceil(seconds * 1000))).encode()),
        (b"x-should-retry", b"true"),
    ]


async def send_refusal(send: Send, error: RefusedError, api: ClientApi, request_id: str = "") -> None:
    """Send the error response for a refused request."""
    body = api.encode_error(str(error), kind=error.kind, code=error.code, request_id=request_id)
    headers = [JSON_CONTENT_TYPE, *retry_fields(error.retry_after), *error.headers]
    await send_response(send, error.status, headers, body)
