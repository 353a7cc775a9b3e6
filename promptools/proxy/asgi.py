"""The little of ASGI that the proxy needs: its types, its own errors, an answer's messages."""

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
