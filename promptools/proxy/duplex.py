"""Connections that are read while a body is still being written to them.

A server may answer before it has the whole request: 401, 413, 404. HTTP libraries look at the answer only after they
have written all, and by then the server may have closed the connection and the answer may be lost; or it reads no more,
and they wait for each other. So a connection that writes the body of a request that streams through is listened to in
the meantime. When the answer begins, writing ends with the `WriteError` that makes the library read it.

`httpcore` takes such connections from a network backend. httpx and httpx2 have no public name for its place: where it
is not found, bodies are sent as the library does it.
"""

from __future__ import annotations

import re
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Any, TypeVar

import anyio
from anyio.lowlevel import checkpoint

from promptools.proxy.body import STREAMED

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from promptools.transport.family import Family

T = TypeVar("T")

PIECE = 1 << 16
MOST = 1 << 16
"""Bytes of interim answers (1xx) that are read ahead; with more of them writing ends, too."""
TURNS = 4
"""Turns of the event loop in which what a socket holds reaches the task that reads it."""
_INTERIM = re.compile(rb"HTTP/1\.[01] 1[0-9][0-9][^0-9].*?\r\n\r\n", re.DOTALL)
_MAY_BE_INTERIM = re.compile(rb"HTTP/1\.[01] 1")
_STATUS_AT = len(b"HTTP/1.1 1")


def listen_while_writing(client: Any, family: Family) -> None:
    """Have a client of ours open such connections."""
    core = import_module(family.name.replace("httpx", "httpcore"))
    inside: dict[str, Any] = client.__dict__
    for transport in (inside["_transport"], *inside["_mounts"].values()):
        pool = getattr(transport, "_pool", None)
        backend = getattr(pool, "_network_backend", None)
        if backend is not None:
            vars(pool)["_network_backend"] = DuplexBackend(backend, core.WriteError)


class DuplexBackend:
    """A network backend whose connections are read while they are written to."""

    def __init__(self, inner: Any, write_error: type[Exception]) -> None:
        self._inner = inner
        self._write_error = write_error

    async def connect_tcp(self, *given: Any, **named: Any) -> DuplexStream:
        """Connect as the inner backend does."""
        return DuplexStream(await self._inner.connect_tcp(*given, **named), self._write_error)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


class DuplexStream:
    """A connection that keeps what was read while it was written to."""

    def __init__(self, inner: Any, write_error: type[Exception]) -> None:
        self._inner = inner
        self._write_error = write_error
        self._ahead = b""

    async def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        """Read what has come, or wait for more."""
        if not self._ahead:
            return bytes(await self._inner.read(max_bytes, timeout))
        piece, self._ahead = self._ahead[:max_bytes], self._ahead[max_bytes:]
        return piece

    async def write(self, buffer: bytes, timeout: float | None = None) -> None:
        """Write, and end with an error if the answer to a body that is still coming begins."""
        body = STREAMED.get()
        if body is None:
            await self._inner.write(buffer, timeout)
            return
        body.upstream = self
        await self.unless_answered(partial(self._write, buffer, timeout))

    async def start_tls(self, *given: Any, **named: Any) -> DuplexStream:
        """Return the encrypted connection."""
        return DuplexStream(await self._inner.start_tls(*given, **named), self._write_error)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    async def unless_answered(self, work: Callable[[], Awaitable[T]]) -> T:
        """Return what `work` returns; where the server's answer begins first, cancel it and raise a `WriteError`."""
        done: list[T] = []
        failed: list[Exception] = []
        async with anyio.create_task_group() as tasks:

            async def listen() -> None:
                await self._answer()
                tasks.cancel_scope.cancel()

            tasks.start_soon(listen)
            try:
                done.append(await work())
            except Exception as error:  # noqa: BLE001 - raised below: a task group would wrap it
                failed.append(error)
            tasks.cancel_scope.cancel()
        if failed:
            raise failed[0]
        for result in done:
            return result
        raise self._write_error("the server answered before the request was whole")

    async def _write(self, buffer: bytes, timeout: float | None) -> None:
        """Write, once what has come already has been read: a write to a connection that was closed would lose it."""
        for _ in range(TURNS if self._inner.get_extra_info("is_readable") else 0):
            await checkpoint()
        await self._inner.write(buffer, timeout)

    async def _answer(self) -> None:
        """Return when the final answer has begun, or the server has closed the connection."""
        while not begins_to_answer(self._ahead):
            try:
                piece = await self._inner.read(PIECE, None)
            except Exception:  # noqa: BLE001 - it is raised again to who reads the answer
                return
            if not piece:
                return
            self._ahead += piece


def begins_to_answer(data: bytes) -> bool:
    """Whether a server's bytes hold the beginning of an answer that is not an interim one (1xx)."""
    if len(data) >= MOST:
        return True
    at = 0
    while (interim := _INTERIM.match(data, at)) is not None:
        at = interim.end()
    rest = data[at : at + _STATUS_AT]
    return len(rest) == _STATUS_AT and _MAY_BE_INTERIM.match(rest) is None
