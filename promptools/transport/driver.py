"""The base of the sync and async driver, which perform an exchange's effects over HTTP and pass on its output.

An exchange is a generator without I/O. It yields effects (open an upstream request, read a piece of the reply, abandon
the reply, probe a server, wait, compute, run a function that asks the server small questions, read the client's body,
emit output), and is resumed with the outcome of each. A driver is the loop around it: take the next effect, perform it,
send the outcome back, until the generator returns. The sync and the async driver differ only in `await` and in how they
wait; all decisions are in the base class.

Invariants:

- At most one upstream reply is open. It is closed however the exchange ends: normally, by an error, by the client's
  early `break`, or in a cancelled task. If the end of a reply has been received, the driver first reads the reply to
  this end, so that the connection can be reused.
- What the exchange emits is collected in `pending_output`. It is passed on before every effect that takes time, and at
  the end. So the exchange is over, with its trace reported, before the client gets the last bytes: many clients close
  the response as soon as they see those. The head (status and headers) comes first, and only once.
- An error of the exchange is kept in `error`, and raised after everything that was emitted before it.
- Errors of the HTTP library become outcomes (`Failed`); all other exceptions, such as a bug in a client's hook, are
  raised to the caller.
- `running` is set while the driver itself runs, and unset while the caller handles an item. If `close()` is called from
  another thread or task while `running` is set, it only sets `closing` and closes the upstream reply. The exchange may
  then report to the client that the reply broke off; this output is still passed on. But nothing more is sent, read or
  waited for, and the caller that reads the output gets a `ReadError`, unless the output is complete.
- `waiting` (async only) is set while the driver performs an effect that allows `tick` to resume the exchange.
"""

from __future__ import annotations

import threading
import time
from contextlib import aclosing, closing
from functools import partial
from typing import TYPE_CHECKING, Any

import anyio
import anyio.from_thread
import anyio.to_thread

from promptools.exchange import (
    Abandon,
    Compute,
    Computed,
    Consult,
    Done,
    EffectResult,
    Emit,
    Ended,
    Exchange,
    Failed,
    Opened,
    Piece,
    Probe,
    Probed,
    Read,
    ReadBody,
    ResponseHead,
    Send,
    Tick,
    Wait,
)
from promptools.exchange.state import DEFAULT_PORTS
from promptools.profiles.server_detection import ProbeResponse
from promptools.transport.http_library import decode_headers, error_text
from promptools.transport.response_content import aiter_content, is_readable, iter_content, supported_encodings

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from promptools.exchange import Request
    from promptools.exchange.effects import TransportFailureKind
    from promptools.transport.async_driver import AsyncDriver
    from promptools.transport.http_library import HttpLibrary
    from promptools.transport.sync_driver import SyncDriver
    from promptools.types import Reply


# Redirects: followed within an origin only, so that no key and no prompt reach a server that was not named.
#
# On a redirect to another origin, httpx drops `authorization`, but sends the body and every other field: `x-api-key`,
# `api-key`, what the caller set. An upgrade from http to https on the default ports is the one redirect to another
# origin that is followed, as in httpx.


MAX_REDIRECTS = 20
"""Maximum number of redirects that are followed in a row, as in httpx."""
_BODY_FIELDS = frozenset({b"content-length", b"transfer-encoding", b"content-type", b"content-encoding"})


def redirect_location(library: HttpLibrary, request: Any, response: Any) -> Any:
    """Return the URL that a response redirects to; None if the response is not a redirect."""
    if not response.has_redirect_location:
        return None
    try:
        return request.url.join(response.headers["location"]).copy_with(userinfo=b"")
    except library.module.InvalidURL:
        return library.module.URL("")  # it has no origin, so it is never followed


def is_same_origin_redirect(url: Any, location: Any) -> bool:
    """Return whether a location has the same origin as a URL, or upgrades the URL to https on the default ports."""
    if _origin(url) == _origin(location):
        return True
    return url.host == location.host and (_origin(url)[::2], _origin(location)[::2]) == (("http", 80), ("https", 443))


def _origin(url: Any) -> tuple[str, str, int | None]:
    return url.scheme, url.host, url.port or DEFAULT_PORTS.get(url.scheme)


def build_redirect(library: HttpLibrary, request: Any, status: int, location: Any) -> Any:
    """Build the request for a redirect. As in httpx, a 303 leads to a GET, and so does a 301 or 302 after a POST."""
    if request.method != "HEAD" and (status == 303 or (status in {301, 302} and request.method == "POST")):
        fields = [pair for pair in request.headers.raw if pair[0].lower() not in _BODY_FIELDS]
        return library.module.Request("GET", location, headers=fields, extensions=request.extensions)
    fields = [pair for pair in request.headers.raw if pair[0].lower() not in {b"content-length", b"transfer-encoding"}]
    content = request.content
    return library.module.Request(
        request.method, location, headers=fields, content=content, extensions=request.extensions
    )


def cross_origin_message(location: Any) -> str:
    """Return the error message for a redirect to another origin; the URL in it has no credentials and no query."""
    target = (
        f"{location.scheme}://{location.netloc.decode('ascii')}{location.path}"
        if location.host
        else "something that is not a URL"
    )
    return f"redirected to {target}: another origin gets neither the prompt nor a key; if it is right, make it base_url"


HOP_BY_HOP = frozenset(
    {"transfer-encoding", "connection", "keep-alive", "proxy-connection", "te", "trailer", "upgrade"}
)
"""Header fields that concern only the connection; a `Connection` field may name more (RFC 9110, section 7.6.1)."""
BODY_FIELDS = frozenset({"content-encoding", "content-length"})
"""Header fields of a response that no longer apply once its body is decoded."""
TIMEOUT_PHASES = ("connect", "read", "write", "pool")
STALE_CONNECTION_SECONDS = 1.0
"""If a reused connection breaks within this many seconds after sending, the server had probably already closed it."""
FRAMING_FIELDS = frozenset({"content-length", "transfer-encoding"})
"""Header fields that the HTTP library itself sets for a request's body."""


class ExchangeDriver:
    """Base class of the sync and async drivers; holds the exchange, the open reply, and the clock."""

    def __init__(
        self,
        exchange: Exchange,
        library: HttpLibrary,
        *,
        extensions: Any = None,
        url: Any = None,
        read_body: Callable[[], Any] | None = None,
    ) -> None:
        self.exchange = exchange
        self.library = library
        self.extensions: dict[str, Any] = dict(extensions or {})
        self.client_url = url
        """URL of the client's request if an HTTP client made it, else None.

        Redirects from this URL are left to that client.
        """
        self._client_address = None if url is None else str(url)
        self.host: str | None = url and url.host
        self.read_body = read_body
        """Reads the body of the client's request, for an exchange that begins without the body."""
        self.response: Any = None
        self.response_extensions: dict[str, Any] = {}
        self.deadline: float | None = None
        self.sent_at = 0.0
        self.trace_events: list[str] = []
        """Trace events of the HTTP library for the last request."""
        self.reply: Reply | None = None
        self.running = False
        self.closing = False
        """Whether `close` was called."""
        self.whole = False
        """Whether the exchange ran to its end, and the last of its output has been passed on."""
        self.waiting = False
        """Whether `tick` may resume the exchange: an effect that allows this is being performed."""
        self.pending_output: list[ResponseHead | bytes] = []
        self.error: Exception | None = None
        self.has_emitted = False
        self.finished = False
        """Whether the exchange ran to its end. If so, a reply that is still open has no more content."""
        self.clock = time.monotonic
        self.library_error: type[Exception] = library.module.RequestError

    def step(
        self, outcome: EffectResult | None
    ) -> Probe | Send | Read | Abandon | Wait | Compute | Consult | ReadBody | None:
        """Resume the exchange with an outcome; return its next effect, or None when it has ended or failed.

        What the exchange emits before that effect is appended to `pending_output`.
        """
        while True:
            try:
                effect = next(self.exchange) if outcome is None else self.exchange.send(outcome)
            except StopIteration as stop:
                self.reply, self.finished = stop.value, True
                return None
            except Exception as error:  # noqa: BLE001 - raised again once all that the exchange emitted has been passed on
                self.error = error
                return None
            if not isinstance(effect, Emit):
                return effect
            if effect.data:
                self.pending_output.append(effect.data)
                self.has_emitted = True
            outcome = Done(self.clock())

    def tick(self) -> list[ResponseHead | bytes]:
        """Tell the exchange that time has passed, if it is waiting; return the output that it then emits."""
        if not self.waiting:
            return []
        self.step(Tick(self.clock()))
        return self.take_output()

    def last_output(self) -> Iterator[ResponseHead | bytes]:
        """Yield the remaining output after the end of the exchange; set `whole` before the last item is yielded."""
        left = self.take_output()
        self.whole = self.finished and not left
        while left:
            item = left.pop(0)
            self.whole = self.finished and not left
            yield item

    def closed_error(self) -> Exception:
        """Return the error to raise if a response is read after another thread or task has closed it."""
        error: Exception = self.library.module.ReadError("the response was closed")
        return error

    def check_whole(self) -> None:
        """Raise an error if the response was closed before the client had received all of it."""
        if self.closing and not self.whole:
            raise self.error or self.closed_error()

    def take_output(self) -> list[ResponseHead | bytes]:
        """Return and clear the pending output, with all bytes joined."""
        ready, self.pending_output = self.pending_output, []
        body = b"".join(item for item in ready if isinstance(item, bytes))
        heads: list[ResponseHead | bytes] = [item for item in ready if isinstance(item, ResponseHead)]
        return [*heads, body] if body else heads

    def build_send(self, send: Send) -> Any:
        """Build the HTTP request for a `Send` effect, and start the request's timeout."""
        self.sent_at = self.clock()
        self.deadline = None if send.timeout is None else self.sent_at + send.timeout
        request = self.build_request(send.request, send.timeout)
        self.trace_events = []
        request.extensions["trace"] = self.trace
        return request

    def trace(self, event: str, info: Any) -> Any:
        """Record a trace event of the HTTP library, and call the client's own trace callback."""
        self.trace_events.append(event)
        callback = self.extensions.get("trace")
        return callback(event, info) if callback is not None else None

    def hit_stale_connection(self, error: Exception) -> bool:
        """Return whether the request failed because the server closed the kept-alive connection that was reused.

        A server may close a kept-alive connection at any time; llama.cpp does so after each stream. The server did not
        read the request, so the request is sent again. Every retry uses up one kept-alive connection. When none is
        left, a new connection is made.
        """
        connected = not self.trace_events or any("connect_" in event for event in self.trace_events)
        return (
            not connected
            and self._failure_kind(error) == "closed"
            and self.clock() - self.sent_at < STALE_CONNECTION_SECONDS
        )

    def build_request(self, wanted: Request, timeout: float | None) -> Any:
        """Build an upstream request with the client's own `extensions`; cap their timeouts at `timeout` seconds."""
        extensions = dict(self.extensions)
        if timeout is not None:
            extensions["timeout"] = capped_timeouts(extensions.get("timeout", {}), timeout)
        # parsing a URL takes longer than all else here, and most requests have the same URL as the client's own
        url = self.client_url if wanted.url == self._client_address else wanted.url
        headers = tuple(
            (name, supported_encodings(value)) if name.lower() == "accept-encoding" else (name, value)
            for name, value in wanted.headers
            if self._keeps_field(name.lower(), url)
        )
        return self.library.build_request(wanted.method, url, headers, wanted.body, extensions)

    def _keeps_field(self, name: str, url: Any) -> bool:
        """Return whether a header field is sent to `url`.

        `FRAMING_FIELDS` are never sent. If an HTTP client made the request, `Host` is sent only to that request's host.
        """
        if name == "host":
            return self.host is None or url is self.client_url or self.library.module.URL(url).host == self.host
        return name not in FRAMING_FIELDS

    def opened_outcome(self, request: Any, response: Any) -> Opened | Failed:
        """Return the outcome of a `Send` that got a response. The outcome's headers describe the decoded body.

        A redirect to another origin is a failure, since the other origin must get neither a key nor the prompt. So are
        more than `MAX_REDIRECTS` redirects.
        """
        self.response = response
        response.request = request
        self.response_extensions = {key: value for key, value in response.extensions.items() if key != "network_stream"}
        location = redirect_location(self.library, request, response)
        if location is not None and not is_same_origin_redirect(request.url, location):
            return Failed("protocol", cross_origin_message(location), self.clock())
        if location is not None and request.url != self.client_url:
            return Failed("protocol", f"redirected more than {MAX_REDIRECTS} times", self.clock())
        dropped = HOP_BY_HOP
        if "connection" in response.headers:
            dropped |= {option.strip().lower() for option in response.headers["connection"].split(",")}
        if "content-encoding" in response.headers and is_readable(response):
            dropped |= BODY_FIELDS
        headers = tuple(pair for pair in decode_headers(response.headers) if pair[0].lower() not in dropped)
        return Opened(response.status_code, headers, self.clock())

    def next_redirect(self, request: Any, response: Any, hops: int) -> Any:
        """Return the request that follows a redirect within the origin; None if the driver must not follow one."""
        location = redirect_location(self.library, request, response)
        if location is None or request.url == self.client_url:
            return None
        if not is_same_origin_redirect(request.url, location) or hops >= MAX_REDIRECTS:
            return None
        return build_redirect(self.library, request, response.status_code, location)

    def client_redirect(self, outcome: EffectResult) -> ResponseHead | None:
        """Return the head of a redirect for the client to follow; None if the outcome is not such a redirect.

        When the client follows the redirect, its next request starts a new exchange.
        """
        if self.has_emitted or not isinstance(outcome, Opened) or not self.response.has_redirect_location:
            return None
        return ResponseHead(
            outcome.status, tuple(pair for pair in outcome.headers if pair[0].lower() not in BODY_FIELDS)
        )

    def read_outcome(self, piece: bytes | None) -> Piece | Ended:
        """Return the outcome of a read; a `piece` of None means the end of the reply."""
        return Ended(self.clock()) if piece is None else Piece(piece, self.clock())

    def failed_outcome(self, error: Exception) -> Failed:
        """Return the outcome for an error that the HTTP library raised."""
        return Failed(self._failure_kind(error), error_text(error), self.clock(), error)

    def _failure_kind(self, error: BaseException) -> TransportFailureKind:
        module = self.library.module
        if isinstance(
            error, (module.ConnectError, module.ConnectTimeout, module.ProxyError, module.UnsupportedProtocol)
        ):
            return "connect"
        if isinstance(error, module.TimeoutException):
            return "timeout"
        if isinstance(error, (module.NetworkError, module.RemoteProtocolError)):
            return "closed"
        return "protocol"

    def compute_outcome(self, work: Callable[[], Any]) -> Computed:
        """Call a function that does no I/O, and return its result or its exception as an outcome."""
        try:
            return Computed(work(), None, self.clock())
        except Exception as error:  # noqa: BLE001 - the exchange raises it where it asked for the work
            return Computed(None, error, self.clock())

    def timeout_outcome(self) -> Failed | None:
        """Return a timeout outcome if the deadline has passed, else None.

        The deadline is checked only after each piece, and each read may wait for the whole time limit. So a server
        that stalls may take up to twice the limit.
        """
        if self.deadline is None or self.clock() < self.deadline:
            return None
        error = self.library.module.ReadTimeout("the time for this request is up")
        return Failed("timeout", str(error), self.clock(), error)


def capped_timeouts(configured: Mapping[str, float | None], bound: float) -> dict[str, float]:
    """Return the timeout in seconds of each phase of a request (`connect`, `read`, ...), at most `bound`."""
    own = ((phase, configured.get(phase)) for phase in TIMEOUT_PHASES)
    return {phase: bound if seconds is None else min(seconds, bound) for phase, seconds in own}


# Probes over HTTP: a few small concurrent requests, bounded in time and size. A failed probe yields None.


MAX_RESPONSE = 1_000_000
"""Maximum number of bytes of a probe's response that are read; the rest is ignored."""


def probe(driver: SyncDriver, effect: Probe) -> Probed:
    """Send a probe's requests in threads; at the deadline, abandon unfinished threads and ignore their responses."""
    until = driver.clock() + effect.timeout
    answers: list[ProbeResponse | None] = [None] * len(effect.requests)

    def ask(number: int, request: Request) -> None:
        answers[number] = _send_probe(driver, request, until)

    asking = [
        threading.Thread(target=ask, args=args, name="promptools-probe", daemon=True)
        for args in enumerate(effect.requests)
    ]
    for thread in asking:
        thread.start()
    for thread in asking:
        thread.join(max(0.0, until - driver.clock()))
    return Probed(tuple(answers), driver.clock())


def _send_probe(driver: SyncDriver, request: Request, deadline: float) -> ProbeResponse | None:
    try:
        built = driver.build_request(request, max(0.0, deadline - driver.clock()))
        with closing(driver.send(built)) as response:
            response.request = built
            body = bytearray()
            for piece in iter_content(response, driver.library):
                body += piece
                if len(body) >= MAX_RESPONSE:
                    break
                if driver.clock() > deadline:
                    return None
            return ProbeResponse(response.status_code, bytes(body[:MAX_RESPONSE]))
    except Exception:  # noqa: BLE001 - a probe never fails the request; it has no response
        return None


async def probe_async(driver: AsyncDriver, effect: Probe) -> Probed:
    """Send a probe's requests in tasks, which are cancelled at the deadline."""
    answers: list[ProbeResponse | None] = [None] * len(effect.requests)

    async def ask(number: int, request: Request) -> None:
        answers[number] = await _send_probe_async(driver, request, effect.timeout)

    with anyio.move_on_after(effect.timeout):
        async with anyio.create_task_group() as tasks:
            for number, request in enumerate(effect.requests):
                tasks.start_soon(ask, number, request)
    return Probed(tuple(answers), driver.clock())


async def _send_probe_async(driver: AsyncDriver, request: Request, timeout: float) -> ProbeResponse | None:
    try:
        built = driver.build_request(request, timeout)
        response: Any = await driver.send(built)
        try:
            response.request = built
            body = bytearray()
            async with aclosing(aiter_content(response, driver.library)) as read:
                async for piece in read:
                    body += piece
                    if len(body) >= MAX_RESPONSE:
                        break
            return ProbeResponse(response.status_code, bytes(body[:MAX_RESPONSE]))
        finally:
            with anyio.CancelScope(shield=True):
                await response.aclose()
    except Exception:  # noqa: BLE001 - a probe never fails the request; it has no response
        return None


# Work that asks the server questions while it runs. Its requests are sent like probes, but one after the other.


def consult(driver: SyncDriver, effect: Consult) -> Computed:
    """Run the work of a `Consult` effect in this thread. Requests that it makes after the deadline are not sent."""
    until = driver.clock() + effect.timeout

    def ask(request: Request) -> ProbeResponse | None:
        return _send_probe(driver, request, until) if driver.clock() < until else None

    return driver.compute_outcome(partial(effect.work, ask))


async def consult_async(driver: AsyncDriver, effect: Consult) -> Computed:
    """Run the work of a `Consult` effect in a thread, and send the work's requests on the event loop.

    If a cancel scope is cancelled meanwhile, this function waits until the work is done.
    """
    until = driver.clock() + effect.timeout

    async def send(request: Request) -> ProbeResponse | None:
        left = until - driver.clock()
        with anyio.move_on_after(left):
            return await _send_probe_async(driver, request, left) if left > 0 else None
        return None

    def ask(request: Request) -> ProbeResponse | None:
        answer: ProbeResponse | None = anyio.from_thread.run(send, request)
        return answer

    return await anyio.to_thread.run_sync(driver.compute_outcome, partial(effect.work, ask))
