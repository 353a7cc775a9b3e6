"""Send a client's request to a server, processed by an exchange or unchanged, and relay the response.

An exchange is a generator that processes one request to a model API. `RequestSender` sends requests, and
`ExchangeRelay` writes the response of an exchange to the client.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import anyio
from anyio.lowlevel import checkpoint

from promptools.errors import without_credentials
from promptools.exchange import Caller, Request, ResponseHead
from promptools.exchange.responses_api import RESPONSES_API
from promptools.log import log
from promptools.masking import MIN_KEY_LENGTH, SecretMask, secrets_in
from promptools.proxy.asgi import (
    JSON_CONTENT_TYPE,
    RefusedError,
    end_to_end_fields,
    retry_fields,
    send_head,
    send_response,
)
from promptools.proxy.header_fields import (
    ACCEPT_ENCODING,
    client_authorization,
    decode_fields,
    forwarded_fields,
    owner_of_connections,
    replace_fields,
)
from promptools.proxy.incoming_request import streaming_body
from promptools.transport import with_error_boundary
from promptools.transport.endpoints import ROOT_ENDPOINTS
from promptools.transport.http_library import encode_headers, error_text

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from promptools.exchange.client_api import ClientApi
    from promptools.proxy.asgi import Send
    from promptools.proxy.incoming_request import IncomingRequest
    from promptools.proxy.request_tasks import RequestTasks
    from promptools.proxy.routing import Failover
    from promptools.proxy.shared_state import SharedState
    from promptools.proxy.upstream_client import UpstreamClient
    from promptools.transport import AsyncDriver
    from promptools.transport.endpoints import Endpoint


# Relay what an exchange emits to an ASGI client, and tick its clock, so that it can send heartbeats in a long silence.


TICK_SECONDS = 1.0
"""Seconds between two ticks of an exchange's clock."""


class ExchangeRelay:
    """Writes the response of an exchange to an ASGI client.

    One task runs the exchange (`run`), and another ticks its clock (`tick`), so that the exchange can send heartbeats
    during a long silence. Only one of the two tasks writes at a time. A tick takes effect only while the exchange
    waits. The exchange's next output is written after the bytes that the tick emitted.
    """

    def __init__(self, driver: AsyncDriver, send: Send, failover: Failover | None = None) -> None:
        self._driver = driver
        self._send = send
        self._failover = failover
        self._writing: anyio.Event | None = None
        self.has_ended = False
        """Whether the last message of the response has been sent."""
        self.has_begun = False
        """Whether anything was written."""

    async def run(self) -> bool:
        """Run the exchange and write its response; return False, with nothing written, if another server must be tried.

        If the whole response is known when its head is written, the head states the length, because HTTP/1.0 clients
        do not understand chunks.
        """
        held: ResponseHead | None = None
        async for item in self._driver.output:
            while self._writing is not None:
                await self._writing.wait()
            if self._is_rejected(item):
                return False
            self.has_ended = not isinstance(item, ResponseHead) and self._driver.finished  # bytes come last
            if isinstance(item, ResponseHead) and self._driver.finished:
                held = item
                continue
            if held is not None and isinstance(item, bytes):
                await self._write(_with_length(held, len(item)))
                held = None
            await self._write(item)
        if held is not None:
            await self._write(held)
        return True

    async def tick(self) -> None:
        """Tick the clock of the exchange until the task is cancelled, or writing to the client fails."""
        while True:
            ready = self._driver.tick()
            if not ready:
                await anyio.sleep(TICK_SECONDS)
                continue
            self._writing = anyio.Event()
            try:
                for item in ready:
                    if isinstance(item, ResponseHead) and self._failover is not None:
                        self._failover.committed = True
                    await self._write(item)
            except Exception:  # noqa: BLE001 - the other task notices too that the client is gone
                return
            finally:
                self._writing.set()
                self._writing = None

    def _is_rejected(self, item: ResponseHead | bytes) -> bool:
        """Return whether `item` is the head of a response that makes the proxy try another server."""
        if self._failover is None or not isinstance(item, ResponseHead):
            return False
        return self._failover.rejects(item.status, item.headers)

    async def _write(self, item: ResponseHead | bytes) -> None:
        self.has_begun = True
        if isinstance(item, ResponseHead):
            await send_head(self._send, item.status, end_to_end_fields(encode_headers(item.headers)))
        else:
            await self._send({"type": "http.response.body", "body": item, "more_body": not self.has_ended})


def _with_length(head: ResponseHead, length: int) -> ResponseHead:
    """Return the head of a response, with a `Content-Length` field added if the head has none."""
    if any(name.lower() == "content-length" for name, _ in head.headers):
        return head
    return ResponseHead(head.status, (*head.headers, ("content-length", str(length))))


RETRY_SECONDS = 1.0
"""Seconds in the `Retry-After` field of a 504."""


def _exchange_request(incoming: IncomingRequest, content: bytes) -> tuple[Request, str | None]:
    """Return the request that an exchange processes, with `content` as its body, and the client's authorization.

    The authorization is None if it is not forwarded to the server.
    """
    served = incoming.served
    fields = [pair for pair in forwarded_fields(served, incoming.scope) if pair[0].lower() != ACCEPT_ENCODING]
    request = Request(incoming.method, incoming.url, decode_fields(fields), content)
    return request, client_authorization(served, fields)


class RequestSender:
    """Sends clients' requests to the servers, and writes the responses to the clients."""

    def __init__(self, client: UpstreamClient, shared: SharedState | None) -> None:
        self._client = client
        self._shared = shared

    async def send(
        self, incoming: IncomingRequest, endpoint: Endpoint | None, api: ClientApi, tasks: RequestTasks, send: Send
    ) -> None:
        """Send a request to a server, and write the response with `send`.

        With an `endpoint`, which stands for a known API route, an exchange processes the request. Without one, the
        request is forwarded unchanged. The proxy's own errors are in the format of `api`.
        """
        work = partial(self._forward, incoming)
        if endpoint is not None:
            work = partial(self._run_exchange, incoming, endpoint, tasks)
        await self._with_error_responses(work, incoming, api, send)

    async def _with_error_responses(
        self, work: Callable[[Send], Awaitable[None]], incoming: IncomingRequest, api: ClientApi, send: Send
    ) -> None:
        """Run `work`; if the request to the server fails before the client got anything, respond with 502 or 504."""
        begun = False

        async def watched(message: Any) -> None:
            nonlocal begun
            begun = True
            await send(message)
            if message.get("more_body", False):
                await checkpoint()  # pieces that arrived together: the client may disconnect between two of them

        module = self._client.library.module
        try:
            await work(watched)
        except module.RequestError as error:
            reason = _without_keys(error_text(error), incoming)
            if begun:
                log.warning(
                    "the answer from %s broke off: %s (request %s)",
                    incoming.base_url,
                    reason,
                    incoming.in_flight.request_id,
                )
                raise
            incoming.in_flight.is_unanswered = True
            status, code = (504, "timeout") if isinstance(error, module.TimeoutException) else (502, "no_answer")
            message = f"no answer from {incoming.base_url}: {reason}"
            answer = api.encode_error(
                message, kind="UpstreamError", code=code, request_id=incoming.in_flight.request_id
            )
            retry = retry_fields(RETRY_SECONDS) if status == 504 else []
            await send_response(send, status, [JSON_CONTENT_TYPE, *retry], answer)
        except module.InvalidURL as error:  # an ASGI server accepts longer targets than the HTTP library
            raise RefusedError(414, f"the request target is refused: {error}", code="bad_target") from error

    async def _run_exchange(
        self, incoming: IncomingRequest, endpoint: Endpoint, tasks: RequestTasks, send: Send
    ) -> None:
        """Run an exchange and relay its response, while its clock ticks in another task.

        If the exchange may decline the request, it starts without the body, so that an upload can still be streamed.
        But if there are several servers, a JSON body is read first: the model's name in the body decides which server
        gets the request. If the exchange declines the request, the request is forwarded.
        """
        served, router = incoming.served, incoming.router
        read_body = partial(incoming.body.read, served.max_body)
        content = (await incoming.peek() or b"") if endpoint.may_decline else await read_body()
        request, authorization = _exchange_request(incoming, content)
        route = None if router is None else partial(router.exchange_route, request, endpoint)
        failover, at = (None, None) if router is None else (router.failover, router.failover.started_at)
        owner = served.access.owner(incoming.scope) if endpoint.api is RESPONSES_API else ""
        caller = Caller(owner, incoming.secrets(), incoming.in_flight.request_id, incoming.in_flight.use_api)
        send = await self._sharing_responses(owner, request, send)
        begun = ended = False
        incoming.in_flight.passes = endpoint in ROOT_ENDPOINTS  # its exchange has no observer

        async def attempt() -> bool:
            nonlocal begun, ended
            started = served.session(request, endpoint, route, at, caller)
            exchange = with_error_boundary(
                started, endpoint.api, may_decline=endpoint.may_decline, request_id=caller.request_id
            )
            driver = self._client.driver(
                exchange, authorization, owner_of_connections(incoming.scope), read_body=read_body
            )
            writer = ExchangeRelay(driver, send, failover)
            tasks.start(writer.tick, after=TICK_SECONDS)
            try:
                return await writer.run()
            finally:
                await driver.close()
                begun, ended = writer.has_begun, writer.has_ended

        await (attempt() if router is None else router.run(attempt, self._client.library.module))
        if not begun:  # the request was declined
            await self._forward(incoming, send)
        elif not ended:
            await send({"type": "http.response.body", "body": b""})

    async def _sharing_responses(self, owner: str, request: Request, send: Send) -> Send:
        """Fetch from Redis the responses that a request refers to; return a `send` that writes new ones to Redis."""
        if not owner or self._shared is None:
            return send
        await self._shared.responses.fetch(owner, request.url.partition("?")[0], request.body)
        return self._shared.responses.writing(send)

    async def _forward(self, incoming: IncomingRequest, send: Send) -> None:
        """Forward a request unchanged."""
        body, router = incoming.body, incoming.router
        incoming.in_flight.passes = True
        if router is None:
            await self._pass_through(incoming, incoming.url, await body.to_forward(), send)
            return
        content = await incoming.peek() or await body.to_forward()
        work = partial(self._pass_through, incoming)
        await router.pass_through(incoming.method, content, work, self._client.library.module, send)

    async def _pass_through(self, incoming: IncomingRequest, url: str, content: Any, send: Send) -> bool:
        """Stream a request and its response unchanged; return False if another server is to be tried."""
        body, router = incoming.body, incoming.router
        fields = client_fields = forwarded_fields(incoming.served, incoming.scope)
        if router is not None:
            fields = replace_fields(fields, router.credentials(decode_fields(fields)))
        timeout = incoming.served.session.context.attempt_timeout
        request = self._client.build_request(incoming.method, url, fields, content, timeout)
        authorization, owner = (
            client_authorization(incoming.served, client_fields),
            owner_of_connections(incoming.scope),
        )
        with streaming_body(body):
            response = await self._client.send(request, client_authorization=authorization, owner=owner)
        try:
            if router is not None and router.failover.rejects(response.status_code, ()):
                return False
            await send_head(send, response.status_code, end_to_end_fields(response.headers.raw))
            async for piece in response.aiter_raw():
                await send({"type": "http.response.body", "body": piece, "more_body": True})
        finally:
            with anyio.CancelScope(shield=True):
                await response.aclose()
        await send({"type": "http.response.body", "body": b""})
        return True


def _without_keys(text: str, incoming: IncomingRequest) -> str:
    """Return an error's text with credentials masked, since the text may quote the server's response."""
    served, router = incoming.served, incoming.router
    fields = (("authorization", served.authorization or ""), *(() if router is None else router.keys()))
    return SecretMask(secrets_in(fields, min_length=MIN_KEY_LENGTH)).text(without_credentials(text))
