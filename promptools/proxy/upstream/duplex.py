"""Connections that are read while a request body is still being written to them.

A server may respond before it has the whole request: 401, 413, 404. HTTP libraries read the response only after they
have written everything. By then the server may have closed the connection, and the response may be lost; or the server
stops reading, and both sides wait for each other. So while the body of a streamed request is written, the connection is
read too. When a response begins, writing ends with a `WriteError`, which makes the library read the response.

`httpcore` gets its connections from a network backend. httpx and httpx2 have no public name for it: if it is not found,
bodies are sent as the library does it.
"""

from __future__ import annotations

import re
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Any, TypeVar

import anyio
from anyio.lowlevel import checkpoint

from promptools.proxy.requests.request_body import STREAMED_BODY

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from promptools.transport.driver.http_library import HttpLibrary

T = TypeVar("T")

READ_SIZE = 1 << 16
MAX_READ_AHEAD = 1 << 16
"""Maximum number of bytes of interim responses (1xx) that are read ahead; with more of them writing ends, too."""
EVENT_LOOP_TURNS = 4
"""Turns of the event loop after which the data in a socket has reached the task that reads it."""
_INTERIM = re.compile(rb"HTTP/1\.[01] 1[0-9][0-9][^0-9].*?\r\n\r\n", re.DOTALL)
_MAY_BE_INTERIM = re.compile(rb"HTTP/1\.[01] 1")
_PREFIX_LENGTH = len(b"HTTP/1.1 1")


def use_duplex_connections(client: Any, library: HttpLibrary) -> None:
    """Make an HTTP client open duplex connections."""
    core = import_module(library.name.replace("httpx", "httpcore"))
    attributes: dict[str, Any] = client.__dict__
    for transport in (attributes["_transport"], *attributes["_mounts"].values()):
        pool = getattr(transport, "_pool", None)
        backend = getattr(pool, "_network_backend", None)
        if backend is not None:
            vars(pool)["_network_backend"] = DuplexBackend(backend, core.WriteError)


class DuplexBackend:
    """A network backend that opens duplex connections."""

    def __init__(self, inner: Any, write_error: type[Exception]) -> None:
        self._inner = inner
        self._write_error = write_error

    async def connect_tcp(self, *args: Any, **kwargs: Any) -> DuplexStream:
        """Connect with the inner backend."""
        return DuplexStream(await self._inner.connect_tcp(*args, **kwargs), self._write_error)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


class DuplexStream:
    """A connection that is read while it is written to, and buffers what was read."""

    def __init__(self, inner: Any, write_error: type[Exception]) -> None:
        self._inner = inner
        self._write_error = write_error
        self._read_ahead = b""

    async def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        """Read from the buffer, or else from the connection."""
        if not self._read_ahead:
            return bytes(await self._inner.read(max_bytes, timeout))
        piece, self._read_ahead = self._read_ahead[:max_bytes], self._read_ahead[max_bytes:]
        return piece

    async def write(self, buffer: bytes, timeout: float | None = None) -> None:
        """Write; raise `WriteError` if the response begins while a body is being streamed."""
        body = STREAMED_BODY.get()
        if body is None:
            await self._inner.write(buffer, timeout)
            return
        body.upstream = self
        await self.until_response(partial(self._write, buffer, timeout))

    async def start_tls(self, *args: Any, **kwargs: Any) -> DuplexStream:
        """Return the encrypted connection."""
        return DuplexStream(await self._inner.start_tls(*args, **kwargs), self._write_error)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    async def until_response(self, work: Callable[[], Awaitable[T]]) -> T:
        """Return the result of `work`; if the server's response begins first, cancel it and raise `WriteError`."""
        done: list[T] = []
        failed: list[Exception] = []
        async with anyio.create_task_group() as tasks:

            async def listen() -> None:
                await self._wait_for_response()
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
        """Write, after reading what has arrived already: writing to a connection that was closed would lose it."""
        for _ in range(EVENT_LOOP_TURNS if self._inner.get_extra_info("is_readable") else 0):
            await checkpoint()
        await self._inner.write(buffer, timeout)

    async def _wait_for_response(self) -> None:
        """Return when the final response has begun, or the server has closed the connection."""
        while not begins_final_response(self._read_ahead):
            try:
                piece = await self._inner.read(READ_SIZE, None)
            except Exception:  # noqa: BLE001 - it is raised again to who reads the answer
                return
            if not piece:
                return
            self._read_ahead += piece


def begins_final_response(data: bytes) -> bool:
    """Whether a server's bytes hold the beginning of a response that is not an interim one (1xx)."""
    if len(data) >= MAX_READ_AHEAD:
        return True
    at = 0
    while (interim := _INTERIM.match(data, at)) is not None:
        at = interim.end()
    head = data[at : at + _PREFIX_LENGTH]
    return len(head) == _PREFIX_LENGTH and _MAY_BE_INTERIM.match(head) is None
