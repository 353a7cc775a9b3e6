"""Our transports, built for the family of the HTTP client that carries them, and the copy of that client.

A client is never changed: it is copied shallowly, so that its proxies, TLS, hooks, limits and time-outs stay its own
and whoever else uses it sees nothing of us. Only the copy's transports, proxy mounts included, are ours; each hands
what is ours to an exchange and everything else to the transport below, byte for byte.
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
"""Makes the exchange of one client request."""


class Carrier:
    """What both colours share: the transport below, the client copied from, what is ours and how it starts."""

    def __init__(self, below: Any, origin: Any, family: Family, start: Start, doors: tuple[Door, ...]) -> None:
        self.below = below
        self.origin = origin
        self.family = family
        self.start = start
        self.doors = doors

    def door(self, request: Any) -> Door | None:
        """Give the door that a request comes in by; None when it is not ours."""
        door = door_for(self.doors, request.method, request.url.path)
        if door is None and isinstance(self.start, Session):
            self.start.note_passed(request.method, request.url.path)
        return door

    def check(self) -> None:
        """Refuse as httpx does when the client that we were copied from has been closed."""
        if self.origin.is_closed:
            raise RuntimeError("Cannot send a request, as the client has been closed.")

    def below_for(self, request: Any) -> Any:
        """Choose the transport as the client would: a send to another place may need another proxy, or none."""
        return self.origin._transport_for_url(request.url)  # noqa: SLF001 - neither library has a public name for it

    def exchange(self, request: Any, door: Door) -> dict[str, Any]:
        """Start the exchange of the client's request, and give a pump what it takes over from that request."""
        body = b"" if door.quiet else request.content
        asked = Request(request.method, str(request.url), decoded(request.headers), body)
        exchange = guarded(self.start(asked, door), door.front, quiet=door.quiet)
        return {"exchange": exchange, "family": self.family, "extensions": request.extensions, "url": request.url}


class SyncCarrier(Carrier):
    """Base of the sync transport of either family."""

    def handle_request(self, request: Any) -> Any:
        """Answer one request of the HTTP client."""
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
        """Open an upstream request."""
        return self.below_for(request).handle_request(request)

    def close(self) -> None:
        """Close the client that we were copied from, and with it every transport below."""
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
    """Base of the async transport of either family."""

    async def handle_async_request(self, request: Any) -> Any:
        """Answer one request of the HTTP client."""
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
        """Open an upstream request."""
        return await self.below_for(request).handle_async_request(request)

    async def aclose(self) -> None:
        """Close the client that we were copied from, and with it every transport below."""
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
    """Base of the sync body stream of either family."""

    def __init__(self, pump: SyncPump) -> None:
        self.pump = pump

    def __iter__(self) -> Iterator[bytes]:
        yield from self.pump.body()

    def close(self) -> None:
        """Close the exchange and its upstream, wherever they stand."""
        self.pump.close()


class AsyncBody:
    """Base of the async body stream of either family."""

    def __init__(self, pump: AsyncPump) -> None:
        self.pump = pump

    async def __aiter__(self) -> AsyncIterator[bytes]:
        async with aclosing(self.pump.body()) as body:
            async for piece in body:
                yield piece

    async def aclose(self) -> None:
        """Close the exchange and its upstream, wherever they stand."""
        await self.pump.close()


@dataclass(frozen=True, slots=True)
class Classes:
    """Our classes in one family."""

    sync_transport: Any
    async_transport: Any
    sync_body: Any
    async_body: Any


@cache
def classes(family: Family) -> Classes:
    """Build our classes on a family's own bases, which its clients insist on."""
    module = family.module
    return Classes(
        type("PromptoolsTransport", (SyncCarrier, module.BaseTransport), {}),
        type("AsyncPromptoolsTransport", (AsyncCarrier, module.AsyncBaseTransport), {}),
        type("PromptoolsBody", (SyncBody, module.SyncByteStream), {}),
        type("AsyncPromptoolsBody", (AsyncBody, module.AsyncByteStream), {}),
    )


def carry(client: Any, start: Start, doors: tuple[Door, ...] = OPENAI_DOORS) -> Any:
    """Give the copy of an httpx or httpx2 client; what comes in by `doors` goes through exchanges made by `start`.

    A copy that `carry` made is replaced by one of the same original, so that no exchange runs inside another.
    """
    family_of(client)
    carrier: Any = client.__dict__["_transport"]
    if not isinstance(carrier, Carrier):
        return _copied(client, start, doors)
    return client if carrier.start is start else _copied(carrier.origin, start, doors)


def _copied(client: Any, start: Start, doors: tuple[Door, ...]) -> Any:
    family = family_of(client)
    made = classes(family)
    build = made.sync_transport if isinstance(client, family.module.Client) else made.async_transport
    inside: dict[str, Any] = client.__dict__  # neither library has a public name for a client's transports
    main: Any = inside["_transport"]
    mounts: dict[Any, Any] = inside["_mounts"]
    ours = {
        id(each): build(each, client, family, start, doors) for each in (main, *mounts.values()) if each is not None
    }
    carried: Any = copy.copy(client)
    kind: Any = cast("Any", type(client))
    carried.__class__ = _quiet(kind)
    carried.__dict__["_transport"] = ours[id(main)]
    carried.__dict__["_mounts"] = {pattern: each and ours[id(each)] for pattern, each in mounts.items()}
    return carried


@cache
def _quiet(kind: Any) -> Any:
    """Give a class of client whose end closes nothing: the original closes itself when it is dropped, if it does.

    The SDK's own clients have such an end, and so have those that frameworks share among many models
    (langchain-openai 1.7).
    """
    if not hasattr(kind, "__del__"):
        return kind
    return type(kind.__name__, (kind,), {"__module__": kind.__module__, "__del__": _leave})


def _leave(client: object) -> None:
    """Do nothing at the end of a client."""
