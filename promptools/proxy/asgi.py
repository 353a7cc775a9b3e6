"""The little of ASGI that the proxy needs: its types, a request's body, an answer's messages, a client that leaves."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Iterable, MutableMapping
from typing import Any, TypeAlias

Message: TypeAlias = MutableMapping[str, Any]
Scope: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[Message]]
Send: TypeAlias = Callable[[Message], Awaitable[None]]
Fields: TypeAlias = Iterable[tuple[bytes, bytes]]

HOP = frozenset(
    {b"connection", b"keep-alive", b"proxy-authenticate", b"proxy-authorization", b"proxy-connection", b"te"}
    | {b"trailer", b"transfer-encoding", b"upgrade"}
)
"""Fields that speak of one connection and never travel on (RFC 9110, section 7.6.1)."""


ODD_STATUS = b"x-promptools-upstream-status"
"""Holds the status of an answer that no HTTP status code is, and that goes on as 502."""
_DIGITS = 20
_TOKEN = re.compile(rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_BREAK = re.compile(rb"[\x00\n\v\f\r]")


class DisconnectedError(Exception):
    """The client went away before its request was whole."""


class RefusedError(Exception):
    """The proxy answers a request itself, with an error; nothing is sent for it."""

    def __init__(self, status: int, message: str, *, code: str, kind: str = "UsageError", headers: Fields = ()) -> None:
        super().__init__(message)
        self.status = status
        self.kind = kind
        self.code = code
        self.headers = headers


async def read_body(receive: Receive, headers: Fields, limit: int) -> bytes:
    """Read the whole body of a request; `DisconnectedError` when the client leaves first.

    `RefusedError` as soon as it is known to be longer than `limit` bytes.
    """
    lengths = [int(value[:_DIGITS]) for name, value in headers if name.lower() == b"content-length" and value.isdigit()]
    _check_size(max(lengths, default=0), limit)
    pieces: list[bytes] = []
    size = 0
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise DisconnectedError
        piece = message.get("body", b"")
        size += len(piece)
        _check_size(size, limit)
        pieces.append(piece)
        if not message.get("more_body", False):
            return b"".join(pieces)


def _check_size(size: int, limit: int) -> None:
    if size > limit:
        message = (
            f"the request's body is longer than the {limit} bytes that this proxy reads; its operator may raise that"
            " with --max-body"
        )
        raise RefusedError(413, message, code="body_too_large")


async def until_gone(receive: Receive) -> None:
    """Return when the client has gone away."""
    while (await receive())["type"] != "http.disconnect":
        pass


async def answer(send: Send, status: int, headers: Fields, body: bytes) -> None:
    """Send a whole answer."""
    await start(send, status, [*headers, (b"content-length", str(len(body)).encode())])
    await send({"type": "http.response.body", "body": body})


async def start(send: Send, status: int, headers: Fields) -> None:
    """Send the head of an answer.

    ASGI servers fail on a status outside of 200 to 599 and on malformed fields. A server's own goes on as 502, with
    the body that it sent; fields that cannot be written are left out.
    """
    fields = [
        (name.lower(), value.strip(b" \t"))
        for name, value in headers
        if _TOKEN.fullmatch(name) and not _BREAK.search(value)
    ]
    if not 200 <= status <= 599:
        fields, status = [*fields, (ODD_STATUS, str(status).encode())], 502
    await send({"type": "http.response.start", "status": status, "headers": fields})


def travelling(headers: Fields) -> list[tuple[bytes, bytes]]:
    """Leave out the fields that speak of one connection, those that `Connection` names too."""
    fields = list(headers)
    named = {
        word.strip().lower() for name, value in fields if name.lower() == b"connection" for word in value.split(b",")
    }
    return [(name, value) for name, value in fields if name.lower() not in HOP | named]
