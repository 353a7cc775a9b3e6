"""Intercepting transports, and copies of HTTP clients that use them.

A client is never changed, so its other users see nothing of promptools. It is copied shallowly, so that the copy keeps
its proxies, TLS, hooks, limits and timeouts. Only the copy's transports are replaced, including those of proxy mounts.
The new transports subclass the base classes of the client's HTTP library. They run an exchange for every request that
is intercepted, and forward everything else to the inner transport, byte for byte, except for one correction of paths
(`forwarded`).
"""

from __future__ import annotations

import copy
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import aclosing
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, Self, cast

from promptools.exchange import EffectResult, Emit, Exchange, Failed, Request, ResponseHead
from promptools.exchange.client_api import CHAT_API, ClientApi
from promptools.log import log
from promptools.transport.async_driver import AsyncDriver
from promptools.transport.endpoints import MESSAGES_ENDPOINTS, OPENAI_ENDPOINTS, Endpoint, find_endpoint
from promptools.transport.http_library import HttpLibrary, decode_headers, library_of
from promptools.transport.sync_driver import SyncDriver

if TYPE_CHECKING:
    from types import TracebackType

    from promptools.types import Reply


# The error boundary around an exchange: a bug becomes an HTTP 500, because the SDKs retry and hide exceptions.


def with_error_boundary(
    exchange: Exchange, api: ClientApi = CHAT_API, *, may_decline: bool = False, request_id: str = ""
) -> Exchange:
    """Run `exchange`; respond with a 500 if it raises before it emits the response's head (status and headers).

    Errors of the HTTP library pass through. An exchange that ends without a response is answered with a 500 too, unless
    `may_decline` is true.
    """
    outcome: EffectResult | None = None
    started = False
    try:
        effect = next(exchange)
        while True:
            outcome = yield effect
            started = started or isinstance(effect, Emit)
            effect = exchange.send(outcome)
    except StopIteration as stop:
        reply: Reply | None = stop.value
        if started or may_decline:
            return reply
        failure: Exception = RuntimeError("no answer was given")
    except Exception as error:  # a bug can be of any class
        if started or (isinstance(outcome, Failed) and outcome.error is error):
            raise
        log.exception("the exchange broke; the client gets a 500")
        failure = error
    finally:
        exchange.close()
    message = f"promptools failed on this request ({type(failure).__name__}: {failure}); the log holds the traceback"
    body = api.encode_error(message, kind="InternalError", code="promptools_bug", request_id=request_id)
    yield Emit(ResponseHead(500, (("content-type", "application/json"), ("x-should-retry", "false"))))
    yield Emit(body)
    return None


StartExchange = Callable[[Request, Endpoint], Exchange]
"""A function that starts the exchange of one client request."""


class InterceptingTransport:
    """Base class of the sync and async transports that run an exchange for each intercepted request.

    `inner` is the client's own transport, which sends all other requests.
    """

    def __init__(
        self,
        inner: Any,
        original_client: Any,
        library: HttpLibrary,
        start: StartExchange,
        endpoints: tuple[Endpoint, ...],
    ) -> None:
        self.inner = inner
        self.original_client = original_client
        self.library = library
        self.start = start
        self.endpoints = endpoints

    def find_endpoint(self, request: Any) -> Endpoint | None:
        """Return the endpoint that a request matches; None if the request is not intercepted."""
        return find_endpoint(self.endpoints, request.method, request.url.path, request.url.host)

    def forwarded(self, request: Any) -> Any:
        """Return a request to forward; if its path has `/v1` twice because of the anthropic SDK, remove one.

        The SDK's paths begin with `/v1`. If the base URL ends with `/v1` too, as is usual for open-model servers, no
        server knows the resulting path.
        """
        if self.endpoints is MESSAGES_ENDPOINTS and b"/v1/v1/" in request.url.raw_path.partition(b"?")[0]:
            request.url = request.url.copy_with(raw_path=request.url.raw_path.replace(b"/v1/v1/", b"/v1/", 1))
        return request

    def check_open(self) -> None:
        """Raise RuntimeError, as the HTTP library does, if the original client has been closed."""
        if self.original_client.is_closed:
            raise RuntimeError("Cannot send a request, as the client has been closed.")

    def inner_for(self, request: Any) -> Any:
        """Return the transport that the client would choose for a request, since hosts may need different proxies."""
        return self.original_client._transport_for_url(request.url)  # noqa: SLF001 - neither library has a public name for it

    def driver_arguments(self, request: Any, endpoint: Endpoint) -> dict[str, Any]:
        """Start the exchange for the client's request; return the keyword arguments for the exchange's driver."""
        body = b"" if endpoint.may_decline else request.content
        client_request = Request(request.method, str(request.url), decode_headers(request.headers), body)
        exchange = with_error_boundary(
            self.start(client_request, endpoint), endpoint.api, may_decline=endpoint.may_decline
        )
        return {"exchange": exchange, "library": self.library, "extensions": request.extensions, "url": request.url}


class SyncInterceptingTransport(InterceptingTransport):
    """The sync transport.

    `transport_classes` derives a class from this one and the HTTP library's own base class.
    """

    def handle_request(self, request: Any) -> Any:
        """Handle one request of the HTTP client."""
        self.check_open()
        endpoint = self.find_endpoint(request)
        if endpoint is None:
            return self.inner.handle_request(self.forwarded(request))
        if not endpoint.may_decline:
            request.read()
        driver = SyncDriver(send=self.send, read_body=request.read, **self.driver_arguments(request, endpoint))
        head = driver.head()
        if head is None:
            return self.inner.handle_request(self.forwarded(request))
        return self.library.build_response(
            head, transport_classes(self.library).sync_body(driver), driver.response_extensions
        )

    def send(self, request: Any) -> Any:
        """Send an upstream request, and return the response before its body is read."""
        return self.inner_for(request).handle_request(request)

    def close(self) -> None:
        """Close the original client, including all inner transports."""
        self.original_client.close()

    def __enter__(self) -> Self:
        self.inner.__enter__()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None = None,
        error: BaseException | None = None,
        trace: TracebackType | None = None,
    ) -> None:
        self.inner.__exit__(kind, error, trace)
        self.close()


class AsyncInterceptingTransport(InterceptingTransport):
    """The async transport.

    `transport_classes` derives a class from this one and the HTTP library's own base class.
    """

    async def handle_async_request(self, request: Any) -> Any:
        """Handle one request of the HTTP client."""
        self.check_open()
        endpoint = self.find_endpoint(request)
        if endpoint is None:
            return await self.inner.handle_async_request(self.forwarded(request))
        if not endpoint.may_decline:
            await request.aread()
        driver = AsyncDriver(send=self.send, read_body=request.aread, **self.driver_arguments(request, endpoint))
        head = await driver.head()
        if head is None:
            return await self.inner.handle_async_request(self.forwarded(request))
        return self.library.build_response(
            head, transport_classes(self.library).async_body(driver), driver.response_extensions
        )

    async def send(self, request: Any) -> Any:
        """Send an upstream request, and return the response before its body is read."""
        return await self.inner_for(request).handle_async_request(request)

    async def aclose(self) -> None:
        """Close the original client, including all inner transports."""
        await self.original_client.aclose()

    async def __aenter__(self) -> Self:
        await self.inner.__aenter__()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None = None,
        error: BaseException | None = None,
        trace: TracebackType | None = None,
    ) -> None:
        await self.inner.__aexit__(kind, error, trace)
        await self.aclose()


class SyncBodyStream:
    """The body of a sync response.

    `transport_classes` derives a class from this one and the HTTP library's own base class.
    """

    def __init__(self, driver: SyncDriver) -> None:
        self.driver = driver

    def __iter__(self) -> Iterator[bytes]:
        yield from self.driver.body()

    def close(self) -> None:
        """Close the exchange and its upstream response, finished or not."""
        self.driver.close()


class AsyncBodyStream:
    """The body of an async response.

    `transport_classes` derives a class from this one and the HTTP library's own base class.
    """

    def __init__(self, driver: AsyncDriver) -> None:
        self.driver = driver

    async def __aiter__(self) -> AsyncIterator[bytes]:
        async with aclosing(self.driver.body()) as body:
            async for piece in body:
                yield piece

    async def aclose(self) -> None:
        """Close the exchange and its upstream response, finished or not."""
        await self.driver.close()


@dataclass(frozen=True, slots=True)
class TransportClasses:
    """The transport and stream classes for one HTTP library."""

    sync_transport: Any
    async_transport: Any
    sync_body: Any
    async_body: Any


@cache
def transport_classes(library: HttpLibrary) -> TransportClasses:
    """Build the transport and body classes for a library; they subclass its base classes, as its clients require."""
    module = library.module
    return TransportClasses(
        type("PromptoolsTransport", (SyncInterceptingTransport, module.BaseTransport), {}),
        type("AsyncPromptoolsTransport", (AsyncInterceptingTransport, module.AsyncBaseTransport), {}),
        type("PromptoolsBody", (SyncBodyStream, module.SyncByteStream), {}),
        type("AsyncPromptoolsBody", (AsyncBodyStream, module.AsyncByteStream), {}),
    )


def intercept(client: Any, start: StartExchange, endpoints: tuple[Endpoint, ...] = OPENAI_ENDPOINTS) -> Any:
    """Return a copy of an httpx or httpx2 client whose requests to `endpoints` go through exchanges made by `start`.

    If `client` is such a copy itself, its original client is copied, so that no exchange runs inside another; a copy
    with the same `start` is returned as it is. Raises `UsageError` for anything that is not an httpx or httpx2 client.
    """
    library_of(client)
    transport: Any = client.__dict__["_transport"]
    if not isinstance(transport, InterceptingTransport):
        return _intercepting_copy(client, start, endpoints)
    return client if transport.start is start else _intercepting_copy(transport.original_client, start, endpoints)


def _intercepting_copy(client: Any, start: StartExchange, endpoints: tuple[Endpoint, ...]) -> Any:
    family = library_of(client)
    built = transport_classes(family)
    build = built.sync_transport if isinstance(client, family.module.Client) else built.async_transport
    attributes: dict[str, Any] = client.__dict__  # neither library has a public name for a client's transports
    main: Any = attributes["_transport"]
    mounts: dict[Any, Any] = attributes["_mounts"]
    ours = {
        id(transport): build(transport, client, family, start, endpoints)
        for transport in (main, *mounts.values())
        if transport is not None
    }
    carried: Any = copy.copy(client)
    kind: Any = cast("Any", type(client))
    carried.__class__ = _without_finalizer(kind)
    carried.__dict__["_transport"] = ours[id(main)]
    carried.__dict__["_mounts"] = {pattern: transport and ours[id(transport)] for pattern, transport in mounts.items()}
    return carried


@cache
def _without_finalizer(client_class: Any) -> Any:
    """Return a client class whose `__del__` does nothing, as only the original client may close shared connections.

    The SDK's clients have a `__del__`, as do the clients that frameworks share among many models
    (langchain-openai 1.7).
    """
    if not hasattr(client_class, "__del__"):
        return client_class
    return type(client_class.__name__, (client_class,), {"__module__": client_class.__module__, "__del__": _do_nothing})


def _do_nothing(client: object) -> None:
    """Do nothing, because the original client closes itself."""
