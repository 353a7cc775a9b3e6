"""Intercepting transports, built on the classes of the HTTP client's own library, and the client copy that uses them.

A client is never changed: it is copied shallowly, so that it keeps its proxies, TLS, hooks, limits and timeouts, and
its other users see nothing of promptools. Only the copy's transports are replaced, proxy mounts included. Each one runs
an exchange for the requests that are intercepted, and forwards everything else to the inner transport, byte for byte.
"""

from __future__ import annotations

import copy
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import aclosing
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, Self, cast

from promptools.exchange import Exchange, Request
from promptools.transport.answer import guarded
from promptools.transport.doors import OPENAI_DOORS, Door, door_for
from promptools.transport.family import Family, decoded, family_of
from promptools.transport.pump import AsyncPump, SyncPump
from promptools.transport.session import Session

if TYPE_CHECKING:
    from types import TracebackType

Start = Callable[[Request, Door], Exchange]
"""Starts the exchange of one client request."""


class Carrier:
    """What the sync and async transports share: the inner transport, the original client, and what is intercepted."""

    def __init__(self, below: Any, origin: Any, family: Family, start: Start, doors: tuple[Door, ...]) -> None:
        self.below = below
        self.origin = origin
        self.family = family
        self.start = start
        self.doors = doors

    def door(self, request: Any) -> Door | None:
        """Return the endpoint that a request matches; None if it is not intercepted."""
        door = door_for(self.doors, request.method, request.url.path)
        if door is None and isinstance(self.start, Session):
            self.start.note_passed(request.method, request.url.path)
        return door

    def check(self) -> None:
        """Raise as httpx does if the original client has been closed."""
        if self.origin.is_closed:
            raise RuntimeError("Cannot send a request, as the client has been closed.")

    def below_for(self, request: Any) -> Any:
        """Choose the transport as the client would: a request to another host may need another proxy, or none."""
        return self.origin._transport_for_url(request.url)  # noqa: SLF001 - neither library has a public name for it

    def exchange(self, request: Any, door: Door) -> dict[str, Any]:
        """Start the exchange of the client's request; return the keyword arguments of its driver."""
        body = b"" if door.quiet else request.content
        client_request = Request(request.method, str(request.url), decoded(request.headers), body)
        exchange = guarded(self.start(client_request, door), door.front, quiet=door.quiet)
        return {"exchange": exchange, "family": self.family, "extensions": request.extensions, "url": request.url}


class SyncCarrier(Carrier):
    """Base of the sync transport of either library."""

    def handle_request(self, request: Any) -> Any:
        """Handle one request of the HTTP client."""
        self.check()
        door = self.door(request)
        if door is None:
            return self.below.handle_request(request)
        if not door.quiet:
            request.read()
        pump = SyncPump(send=self.send, **self.exchange(request, door))
        head = pump.head()
        if head is None:
            return self.below.handle_request(request)
        return self.family.response(head, classes(self.family).sync_body(pump), pump.facts)

    def send(self, request: Any) -> Any:
        """Send an upstream request; its response is not read yet."""
        return self.below_for(request).handle_request(request)

    def close(self) -> None:
        """Close the original client, and with it every inner transport."""
        self.origin.close()

    def __enter__(self) -> Self:
        self.below.__enter__()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None = None,
        error: BaseException | None = None,
        trace: TracebackType | None = None,
    ) -> None:
        self.below.__exit__(kind, error, trace)
        self.close()


class AsyncCarrier(Carrier):
    """Base of the async transport of either library."""

    async def handle_async_request(self, request: Any) -> Any:
        """Handle one request of the HTTP client."""
        self.check()
        door = self.door(request)
        if door is None:
            return await self.below.handle_async_request(request)
        if not door.quiet:
            await request.aread()
        pump = AsyncPump(send=self.send, **self.exchange(request, door))
        head = await pump.head()
        if head is None:
            return await self.below.handle_async_request(request)
        return self.family.response(head, classes(self.family).async_body(pump), pump.facts)

    async def send(self, request: Any) -> Any:
        """Send an upstream request; its response is not read yet."""
        return await self.below_for(request).handle_async_request(request)

    async def aclose(self) -> None:
        """Close the original client, and with it every inner transport."""
        await self.origin.aclose()

    async def __aenter__(self) -> Self:
        await self.below.__aenter__()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None = None,
        error: BaseException | None = None,
        trace: TracebackType | None = None,
    ) -> None:
        await self.below.__aexit__(kind, error, trace)
        await self.aclose()


class SyncBody:
    """Base of the sync body stream of either library."""

    def __init__(self, pump: SyncPump) -> None:
        self.pump = pump

    def __iter__(self) -> Iterator[bytes]:
        yield from self.pump.body()

    def close(self) -> None:
        """Close the exchange and its upstream response, finished or not."""
        self.pump.close()


class AsyncBody:
    """Base of the async body stream of either library."""

    def __init__(self, pump: AsyncPump) -> None:
        self.pump = pump

    async def __aiter__(self) -> AsyncIterator[bytes]:
        async with aclosing(self.pump.body()) as body:
            async for piece in body:
                yield piece

    async def aclose(self) -> None:
        """Close the exchange and its upstream response, finished or not."""
        await self.pump.close()


@dataclass(frozen=True, slots=True)
class Classes:
    """The transport and stream classes for one library."""

    sync_transport: Any
    async_transport: Any
    sync_body: Any
    async_body: Any


@cache
def classes(family: Family) -> Classes:
    """Build the classes on a library's own base classes, which its clients check for."""
    module = family.module
    return Classes(
        type("PromptoolsTransport", (SyncCarrier, module.BaseTransport), {}),
        type("AsyncPromptoolsTransport", (AsyncCarrier, module.AsyncBaseTransport), {}),
        type("PromptoolsBody", (SyncBody, module.SyncByteStream), {}),
        type("AsyncPromptoolsBody", (AsyncBody, module.AsyncByteStream), {}),
    )


def carry(client: Any, start: Start, doors: tuple[Door, ...] = OPENAI_DOORS) -> Any:
    """Return a copy of an httpx or httpx2 client whose requests to `doors` go through exchanges made by `start`.

    Given such a copy, it copies the original client instead, so that no exchange runs inside another. Raises
    `UsageError` for anything that is no httpx or httpx2 client.
    """
    family_of(client)
    carrier: Any = client.__dict__["_transport"]
    if not isinstance(carrier, Carrier):
        return _copied(client, start, doors)
    return client if carrier.start is start else _copied(carrier.origin, start, doors)


def _copied(client: Any, start: Start, doors: tuple[Door, ...]) -> Any:
    family = family_of(client)
    built = classes(family)
    build = built.sync_transport if isinstance(client, family.module.Client) else built.async_transport
    attributes: dict[str, Any] = client.__dict__  # neither library has a public name for a client's transports
    main: Any = attributes["_transport"]
    mounts: dict[Any, Any] = attributes["_mounts"]
    ours = {
        id(transport): build(transport, client, family, start, doors)
        for transport in (main, *mounts.values())
        if transport is not None
    }
    carried: Any = copy.copy(client)
    kind: Any = cast("Any", type(client))
    carried.__class__ = _quiet(kind)
    carried.__dict__["_transport"] = ours[id(main)]
    carried.__dict__["_mounts"] = {pattern: transport and ours[id(transport)] for pattern, transport in mounts.items()}
    return carried


@cache
def _quiet(kind: Any) -> Any:
    """Return a subclass of a client class without its `__del__`: only the original may close the shared connections.

    The SDK's own clients have a `__del__`, and so have those that frameworks share among many models
    (langchain-openai 1.7).
    """
    if not hasattr(kind, "__del__"):
        return kind
    return type(kind.__name__, (kind,), {"__module__": kind.__module__, "__del__": _leave})


def _leave(client: object) -> None:
    """Do nothing: the original client closes itself."""
