"""What an exchange asks of the world, and what it is told: the whole seam between the plan of a request and its I/O.

The exchange is a generator. It yields an effect and is sent one happening:

    Look(requests)  -> Looked              send small requests side by side; none is open afterwards
    Send(request)   -> Opened | Failed     open one upstream request; one is open at a time
    Read()          -> Piece | Ended | Failed
    Abandon()       -> Done                close the open upstream request, read or not
    Wait(seconds)   -> Done                let time pass
    Compute(work)   -> Computed            call a function that only computes, and may take long
    Emit(head)      -> Done                the status and headers for the client; once, before any bytes
    Emit(bytes)     -> Done                bytes of the body for the client

While a Look, Send, Read or Wait takes its time, a shell may send `Tick` in between: the exchange answers with what it
emits meanwhile, and then with the same effect, which goes on.

Every happening carries the shell's clock, `at`, in seconds of any monotonic origin. A shell that is closed early (the
client went away) throws `GeneratorExit` into the exchange and closes the upstream itself.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

from promptools.profiles.detect import Answer

Headers: TypeAlias = tuple[tuple[str, str], ...]
"""Header fields in order; names as the peer wrote them, compared without case."""


@dataclass(frozen=True, slots=True)
class Request:
    """One HTTP request: the client's to us, or ours to the server. `body` is whole."""

    method: str
    url: str
    headers: Headers = field(repr=False)
    body: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class Head:
    """Status and headers of the answer to the client."""

    status: int
    headers: Headers


@dataclass(frozen=True, slots=True)
class Look:
    """Send all of `requests` side by side, follow no redirection, and be done with all after `timeout` seconds."""

    requests: tuple[Request, ...]
    timeout: float


@dataclass(frozen=True, slots=True)
class Send:
    """Open `request` upstream; `timeout` bounds the whole send in seconds (None: as the client set it)."""

    request: Request
    timeout: float | None = None


@dataclass(frozen=True, slots=True)
class Read:
    """Give the next piece of the open reply's body, decoded from any content encoding."""


@dataclass(frozen=True, slots=True)
class Abandon:
    """Close the open reply."""


@dataclass(frozen=True, slots=True)
class Wait:
    """Let `seconds` pass."""

    seconds: float


@dataclass(frozen=True, slots=True)
class Emit:
    """Hand the head, then bytes of the body, to the client."""

    what: Head | bytes


@dataclass(frozen=True, slots=True)
class Compute:
    """Call `work`, which does no I/O: in another thread where there is an event loop, which goes on meanwhile."""

    work: Callable[[], Any]


Effect: TypeAlias = Look | Send | Read | Abandon | Wait | Emit | Compute


@dataclass(frozen=True, slots=True)
class Looked:
    """What came back, in the order of the requests; None where nothing did, whatever the reason."""

    answers: tuple[Answer | None, ...]
    at: float


@dataclass(frozen=True, slots=True)
class Opened:
    """The server answered with a status and headers."""

    status: int
    headers: Headers
    at: float


@dataclass(frozen=True, slots=True)
class Piece:
    """Bytes of the reply."""

    data: bytes
    at: float


@dataclass(frozen=True, slots=True)
class Ended:
    """The reply is complete as far as HTTP can tell."""

    at: float


FailKind = Literal["connect", "timeout", "closed", "protocol"]


@dataclass(frozen=True, slots=True)
class Failed:
    """No answer, or it broke off. `error` is the shell's own exception, to be raised again where nothing mends it."""

    kind: FailKind
    text: str
    at: float
    error: BaseException | None = None


@dataclass(frozen=True, slots=True)
class Done:
    """The effect is done."""

    at: float


@dataclass(frozen=True, slots=True)
class Computed:
    """What the work returned, or the exception that it raised."""

    value: Any
    error: Exception | None
    at: float


@dataclass(frozen=True, slots=True)
class Tick:
    """Time has passed, and the effect is not done yet."""

    at: float


Happening: TypeAlias = Looked | Opened | Piece | Ended | Failed | Done | Computed | Tick
