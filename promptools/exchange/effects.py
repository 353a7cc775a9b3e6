"""The effects (I/O operations) that an exchange yields, and their results.

An exchange serves one client request. It is a generator that does no I/O: a driver (sync, async, or a test) performs
each effect that it yields, and sends back one result:

    Probe(requests) -> Probed              send small requests concurrently, and finish them all
    Send(request)   -> Opened | Failed     send a request to the server; only one is open at a time
    Read()          -> Piece | Ended | Failed
    Abandon()       -> Done                close the open request, even if its reply was not read to the end
    Wait(seconds)   -> Done                sleep
    Compute(work)   -> Computed            call a function that only computes, but may take long
    Consult(work)   -> Computed            call a function that may ask the server small questions while it runs
    ReadBody()      -> Body                read the body of the client's request, if the exchange began without it
    Emit(head)      -> Done                the status and headers for the client; once, before any bytes
    Emit(bytes)     -> Done                bytes of the body for the client

While a Probe, Send, Read or Wait is pending, a driver may send `Tick`. The exchange then yields what it has to emit in
the meantime, and after that the pending effect again; the driver continues to wait for it.

Every result carries the driver's time, `at`, in seconds of a monotonic clock. A driver that is closed early (the client
disconnected) throws `GeneratorExit` into the exchange, and closes the request to the server itself.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

from promptools.profiles.server_detection import ProbeResponse

Headers: TypeAlias = tuple[tuple[str, str], ...]
"""Header fields in order, as pairs of name and value. Names keep their case, but are compared ignoring case."""


@dataclass(frozen=True, slots=True)
class Request:
    """An HTTP request, from the client or to the server, with its complete `body`."""

    method: str
    url: str
    headers: Headers = field(repr=False)
    body: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class ResponseHead:
    """The status and headers of the response to the client."""

    status: int
    headers: Headers


@dataclass(frozen=True, slots=True)
class Probe:
    """Send all of `requests` concurrently, without following redirects, and finish within `timeout` seconds."""

    requests: tuple[Request, ...]
    timeout: float


@dataclass(frozen=True, slots=True)
class Send:
    """Send `request` to the server; the result has the status and headers of the response.

    `timeout` limits the time for the request and its reply, in seconds (None: only the HTTP client's own timeouts).
    """

    request: Request
    timeout: float | None = None


@dataclass(frozen=True, slots=True)
class Read:
    """Read the next chunk of the body of the server's reply, with any content encoding decoded."""


@dataclass(frozen=True, slots=True)
class Abandon:
    """Close the server's reply, even if it was not read to its end."""


@dataclass(frozen=True, slots=True)
class Wait:
    """Sleep for `seconds`."""

    seconds: float


@dataclass(frozen=True, slots=True)
class Emit:
    """Send the status and headers to the client or, after them, bytes of the body."""

    data: ResponseHead | bytes


@dataclass(frozen=True, slots=True)
class Compute:
    """Call `work`, which does no I/O. Under an event loop it runs in another thread, so as not to block the loop."""

    work: Callable[[], Any]


Ask: TypeAlias = Callable[[Request], ProbeResponse | None]
"""Sends a small request and waits for its response; returns None if no response comes in time."""


@dataclass(frozen=True, slots=True)
class Consult:
    """Call `work` with an `Ask`, a function that sends small requests to the server.

    After `timeout` seconds, the `Ask` sends nothing more. Under an event loop, `work` runs in another thread.
    """

    work: Callable[[Ask], Any]
    timeout: float


@dataclass(frozen=True, slots=True)
class ReadBody:
    """Read the body of the client's request; only for endpoints whose exchange begins before the body is read."""


Effect: TypeAlias = Probe | Send | Read | Abandon | Wait | Emit | Compute | Consult | ReadBody


@dataclass(frozen=True, slots=True)
class Probed:
    """The responses in the order of the requests; None stands for a request that got no response."""

    answers: tuple[ProbeResponse | None, ...]
    at: float


@dataclass(frozen=True, slots=True)
class Opened:
    """The server responded with a status and headers."""

    status: int
    headers: Headers
    at: float


@dataclass(frozen=True, slots=True)
class Piece:
    """A chunk of the reply's body."""

    data: bytes
    at: float


@dataclass(frozen=True, slots=True)
class Ended:
    """The end of the reply's body; the reply is complete as far as HTTP can tell."""

    at: float


TransportFailureKind = Literal["connect", "timeout", "closed", "protocol"]


@dataclass(frozen=True, slots=True)
class Failed:
    """No response arrived, or the response broke off.

    `error` is the HTTP library's exception, which is raised if no retry helps.
    """

    kind: TransportFailureKind
    text: str
    at: float
    error: BaseException | None = None


@dataclass(frozen=True, slots=True)
class Done:
    """The result of an effect that returns nothing."""

    at: float


@dataclass(frozen=True, slots=True)
class Computed:
    """The return value of the work, or the exception that the work raised."""

    value: Any
    error: Exception | None
    at: float


@dataclass(frozen=True, slots=True)
class Body:
    """The body of the client's request."""

    data: bytes = field(repr=False)
    at: float


@dataclass(frozen=True, slots=True)
class Tick:
    """Time has passed, and the effect is still pending."""

    at: float


EffectResult: TypeAlias = Probed | Opened | Piece | Ended | Failed | Done | Computed | Body | Tick
