"""The interface of observers, which follow exchanges; used by recordings, metrics, spans and the inspector.

An exchange is everything that happens between one client request and its response.
An observer sees everything that the trace of a reply leaves out: prompts, bodies and raw replies. It is called in the
thread of the exchange, which waits for it, so it must return quickly. Without an observer nothing is collected.

Bodies and headers contain users' text and credentials. An observer that stores or shows them must remove the
credentials.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeAlias

from promptools.exchange.effects import Ended, Failed, Opened, Piece

if TYPE_CHECKING:
    from collections.abc import Sequence

    from promptools.exchange.effects import Request
    from promptools.modes.prepared_request import PreparedRequest
    from promptools.modes.tool_request import ToolRequest
    from promptools.profiles.profile import Api
    from promptools.types import Attempt, Reply

Purpose = Literal["attempt", "forward", "template"]
"""Why a request is sent: to make an attempt, to forward the client's body unchanged, or to have a template rendered.

Other requests to the server, such as one for its list of models, also have the purpose `forward`.
"""
Received: TypeAlias = "Opened | Piece | Ended | Failed"
"""What arrived from the server: status and headers, pieces of the body, or its end; or a failure at any point."""


@dataclass(frozen=True, slots=True, eq=False)
class ObservedExchange:
    """One exchange. Every call to the observer about this exchange passes the same object, so it can be a dict key."""

    id: str
    """Nine random letters and digits."""
    request: Request
    """The client's request."""
    api: str
    """The client's API: `chat` or `ollama`; for any other API its path, such as `messages`."""
    at: float
    """When the request arrived, in seconds of a monotonic clock; all other times are from the same clock."""
    request_id: str = ""
    """The id by which the client knows the request, if any; a client may use the same id more than once."""
    secrets: frozenset[str] = field(default=frozenset(), repr=False)
    """Credentials that were removed from the client's request, but that an observer must still mask in bodies."""


@dataclass(frozen=True, slots=True)
class SentRequest:
    """One request to the server."""

    number: int
    """The request's number, counted from 1 within the exchange."""
    purpose: Purpose
    mode: str
    """The mode of the attempt that this request makes, or that it prepares by having a prompt rendered."""
    request: Request
    at: float
    prepared: PreparedRequest | None = field(default=None, repr=False)
    """The client's request as the mode rewrote it, if `purpose` is `attempt`; else None."""
    tool_request: ToolRequest | None = field(default=None, repr=False)
    """The client's request as parsed, with its tools, options and profile, if `purpose` is `attempt`; else None."""
    reply_api: Api = "chat"
    """The API in whose format the server replies, if `purpose` is `attempt`."""
    choices: int = 1
    """The number of choices that are asked for, if `purpose` is `attempt`."""


@dataclass(frozen=True, slots=True)
class WrittenChoice:
    """A choice as the server sent it."""

    text: str = field(repr=False)
    """The content as it was read, with all markup.

    In harmony mode this is the whole reply, for `promptools.harmony.examine`. Reasoning and calls that the server
    itself extracted are not included.
    """
    finish_reason: str | None
    """The server's finish reason; None if it sent none."""
    stop_reason: str | int | None = None
    """The token or string that ended the choice, if the server named it."""


@dataclass(frozen=True, slots=True)
class ObservedAttempt:
    """An attempt and its results."""

    attempt: Attempt
    sent: int
    """The number of the attempt's request; if no request was sent, the number of the previous request, or 0."""
    failed_reply: Reply | None = field(default=None, repr=False)
    """The reply as far as it was read, if the attempt failed."""
    written: tuple[WrittenChoice, ...] = ()
    """The choices as the server sent them; empty if the server sent no reply."""


@dataclass(frozen=True, slots=True)
class ExchangeEnd:
    """The outcome of an exchange."""

    at: float
    provider: str
    """The name of the provider, or else the base URL of the server."""
    model: str
    """The server's name for the model."""
    status: int | None
    """The HTTP status that the client got; None if it got no response."""
    replies: tuple[Reply, ...] = field(default=(), repr=False)
    """The replies that were read, with their traces; none if the response was forwarded unchanged."""
    error: BaseException | None = None
    """The exception that ended the exchange, if any; `GeneratorExit` if the client disconnected."""
    attempts: tuple[ObservedAttempt, ...] = ()
    """All attempts; forwarding a request successfully does not count as an attempt."""
    first_byte_at: float | None = None
    """When the client got the first byte of the response's body, not counting keep-alive comments."""
    error_kind: str = ""
    """The kind of the failure that was reported to the client, or `usage` for an invalid request; else empty."""
    streamed: bool = False
    """Whether the response to the client was a stream of events or lines."""
    response: bytes = field(default=b"", repr=False)
    """The beginning of the response's body, up to as many bytes as the observer's `response_bytes` says."""


class Observer(Protocol):
    """Follows exchanges. Its methods may be called from any thread; the calls about one exchange come in order.

    An observer may have an attribute `response_bytes`. `ExchangeEnd.response` then holds up to that many bytes of each
    response to a client.
    """

    def began(self, exchange: ObservedExchange) -> None:
        """Handle the beginning of an exchange: a request from a client."""
        ...

    def sent(self, exchange: ObservedExchange, sent: SentRequest) -> None:
        """Handle a request to the server, before it is sent."""
        ...

    def received(self, exchange: ObservedExchange, received: Received) -> None:
        """Handle a part of the response to the last request that was sent."""
        ...

    def ended(self, exchange: ObservedExchange, end: ExchangeEnd) -> None:
        """Handle the end of an exchange: the response to the client is complete, broke off, or was never sent."""
        ...


class Observation:
    """Reports one exchange to the observer."""

    def __init__(self, observer: Observer, exchange: ObservedExchange, response_bytes: int) -> None:
        self._observer = observer
        self._exchange = exchange
        self._sent_count = 0
        self._attempt_ends: list[tuple[int, Reply | None, tuple[WrittenChoice, ...]]] = []
        """Each attempt's results: the number of its request, its failed reply (or None), and the server's choices."""
        self._response: list[bytes] = []
        self._response_room = response_bytes
        observer.began(exchange)

    def sent(self, purpose: Purpose, mode: str, request: Request, at: float, **facts: Any) -> None:
        """Report to the observer that a request is about to be sent to the server.

        `facts` are the fields of `SentRequest` that only an attempt has: `prepared`, `tool_request`, and so on.
        """
        self._sent_count += 1
        self._observer.sent(self._exchange, SentRequest(self._sent_count, purpose, mode, request, at, **facts))

    def received(self, received: Received) -> None:
        """Report a part of the server's response."""
        self._observer.received(self._exchange, received)

    def emitted(self, data: bytes) -> None:
        """Keep a part of the response to the client, up to the observer's `response_bytes` in total."""
        if self._response_room > 0:
            self._response.append(data[: self._response_room])
            self._response_room -= len(data)

    def attempt_ended(self, failed_reply: Reply | None, written: tuple[WrittenChoice, ...]) -> None:
        """Keep the results of an attempt."""
        self._attempt_ends.append((self._sent_count, failed_reply, written))

    def ended(self, attempts: Sequence[Attempt], end: ExchangeEnd) -> None:
        """Report the end of the exchange, with the results of its attempts and the response to the client."""
        observed = (ObservedAttempt(each, *results) for each, results in zip(attempts, self._attempt_ends, strict=True))
        complete = replace(end, attempts=tuple(observed), response=b"".join(self._response))
        self._observer.ended(self._exchange, complete)
