"""Define the inputs for serving a client request: the request, its route, and objects that all requests share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

from promptools.exchange.client_api import CHAT_API, ClientApi
from promptools.exchange.detection import DetectionCache
from promptools.exchange.response_store import ResponseStore, owner_of
from promptools.exchange.upstream import MAX_REPLY
from promptools.fallback import Breaker, ContextSizes, Refusals, Stop, WaitFor

if TYPE_CHECKING:
    from datetime import datetime

    from promptools.exchange.effects import Headers, Request
    from promptools.exchange.learning import LearnedDialects
    from promptools.exchange.observer import Observer
    from promptools.harmony.bpe_vocabulary import TokenCodec
    from promptools.modes.options import Options
    from promptools.profiles import Target
    from promptools.types import NewId, Reply, ServerInfo


@dataclass(frozen=True, slots=True)
class Caller:
    """Facts about the sender of a request, apart from the header fields that are passed on to the server."""

    owner: str = ""
    """The owner of the responses that the request stores; if empty, the API keys in the request identify the owner."""
    secrets: frozenset[str] = field(default=frozenset(), repr=False)
    """Credentials that were removed from the header fields, such as a key of the proxy; observers must mask them."""
    request_id: str = ""
    """The id of the request in responses, errors and log lines; empty if the request has none."""
    on_client_api: Callable[[ClientApi], None] | None = None
    """Called with the `ClientApi` object of this request, if the request gets an object of its own.

    Only that object can encode errors inside the stream of the response.
    """


@dataclass(frozen=True, slots=True)
class ClientRequest:
    """A request from the client: its complete body, the time when it arrived, and its API."""

    request: Request
    at: float
    client_api: ClientApi = CHAT_API
    caller: Caller = Caller()

    @property
    def owner(self) -> str:
        """The owner of the responses that the request stores."""
        return self.caller.owner or owner_of(self.request.headers)


@dataclass(frozen=True, slots=True)
class Route:
    """The destination of a chat request: the server's URL and profile, and header fields to add."""

    target: Target
    url: str | None = None
    """The full URL of the server's Chat Completions route (None: the URL of the client's request)."""
    headers: Headers = field(default=(), repr=False)
    """Header fields for every request to the server, such as `authorization`.

    They replace fields of the same name in the client's request.
    """
    resolve: Callable[[ServerInfo], Target] | None = None
    """Called with the result of probing the server; returns the `Target`. If None, the server is not probed."""
    notes: tuple[str, ...] = ()
    """Notes for the trace, for example that another server was tried first."""


Router: TypeAlias = Callable[[str | None, str | None], Route]
"""A function that returns the route of a request, given the model and the provider that the request names.

If it raises `UsageError`, the client gets an HTTP 400.
"""


@dataclass(frozen=True, slots=True)
class Context:
    """Settings, caches and clocks that all requests share. Times are in seconds."""

    route: Router
    new_id: NewId
    breaker: Breaker = field(default_factory=Breaker)
    context_sizes: ContextSizes = field(default_factory=ContextSizes)
    refusals: Refusals = field(default_factory=Refusals)
    """Remembers how requests had to be changed before a server accepted them."""
    detection_cache: DetectionCache = field(default_factory=DetectionCache)
    learned: LearnedDialects | None = None
    """The formats of calls that were learned from chat templates. If None, nothing is learned."""
    response_store: ResponseStore = field(default_factory=ResponseStore)
    """The responses that clients of the Responses API may continue."""
    options: Options | None = None
    """Defaults for the request's `promptools` key."""
    stop: Stop | None = None
    wait: WaitFor | None = None
    deadline: float | None = None
    """The time limit for all attempts of one request together."""
    attempt_timeout: float | None = None
    """The time limit for each request to the server, including the reply."""
    max_tools: int | None = None
    """Maximum number of tools that one request may offer (None: unlimited)."""
    max_reply: int = MAX_REPLY
    """Maximum number of bytes of one reply to buffer; a reply that is forwarded unchanged is not buffered."""
    on_reply: Callable[[Reply], None] | None = None
    """Called with every reply that was read and passed to the client, including replies that failed."""
    observer: Observer | None = None
    """Follows every exchange, and gets the bodies of requests and of the server's responses; None for no observer."""
    response_bytes: int = 0
    """Number of bytes to keep from the beginning of each response, for the observer."""
    wall_clock: Callable[[], datetime] | None = None
    """Returns the current date and time, with time zone."""
    vocabulary: Callable[[], TokenCodec | None] | None = None
    """Returns the vocabulary of gpt-oss, if it is available."""
    log: Callable[[str], None] | None = None
    """Called with one line for each failed attempt; the line never contains text that the model or the user wrote."""
    warn: Callable[[str], None] | None = None
    """Called with one line for each invalid call from the server that is returned as text or left out.

    The line contains no text that the model wrote.
    """
