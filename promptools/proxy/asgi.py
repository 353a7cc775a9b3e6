"""The little of ASGI that the proxy needs: its types, a request's body, an answer's messages, a client that leaves."""

from __future__ import annotations

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


class DisconnectedError(Exception):
    """The client went away before its request was whole."""


async def read_body(receive: Receive) -> bytes:
    """Read the whole body of a request; `DisconnectedError` when the client leaves first."""
    pieces: list[bytes] = []
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise DisconnectedError
        pieces.append(message.get("body", b""))
        if not message.get("more_body", False):
            return b"".join(pieces)


async def until_gone(receive: Receive) -> None:
    """Return when the client has gone away."""
    while (await receive())["type"] != "http.disconnect":
        pass


async def answer(send: Send, status: int, headers: Fields, body: bytes) -> None:
    """Send a whole answer."""
    await start(send, status, [*headers, (b"content-length", str(len(body)).encode())])
    await send({"type": "http.response.body", "body": body})


async def start(send: Send, status: int, headers: Fields) -> None:
    """Send the head of an answer."""
    fields = [(name.lower(), value) for name, value in headers]
    await send({"type": "http.response.start", "status": status, "headers": fields})


def travelling(headers: Fields) -> list[tuple[bytes, bytes]]:
    """Leave out the fields that speak of one connection, those that `Connection` names too."""
    fields = list(headers)
    named = {
        word.strip().lower() for name, value in fields if name.lower() == b"connection" for word in value.split(b",")
    }
    return [(name, value) for name, value in fields if name.lower() not in HOP | named]
