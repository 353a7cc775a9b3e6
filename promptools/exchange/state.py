"""The state of a client's request: clock, attempts, token usage and notes. Its methods run single I/O operations."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias, TypeVar

from promptools.dialects import using_own
from promptools.errors import clip, without_credentials
from promptools.exchange.effects import (
    Abandon,
    Ask,
    Compute,
    Computed,
    Consult,
    Effect,
    EffectResult,
    Emit,
    Ended,
    Failed,
    Headers,
    Opened,
    Piece,
    Probe,
    Probed,
    Read,
    Request,
    ResponseHead,
    Send,
    Tick,
    Wait,
)
from promptools.exchange.failures import MAX_ERROR, introduces_reply
from promptools.exchange.observer import ExchangeEnd, Observation, ObservedExchange
from promptools.exchange.upstream import is_stream
from promptools.fallback import RetryPolicy
from promptools.profiles.server_detection import server_root
from promptools.types import Attempt, Reply, ServerInfo
from promptools.wire.chat_encoder import add_usage

if TYPE_CHECKING:
    from promptools.dialects.own_dialects import OwnDialects
    from promptools.exchange.context import ClientRequest, Context
    from promptools.exchange.failures import Failure
    from promptools.exchange.observer import WrittenChoice
    from promptools.modes.prepared_request import PreparedRequest
    from promptools.modes.tool_request import ToolRequest
    from promptools.profiles.profile import Api
    from promptools.profiles.server_detection import ProbeResponse


T = TypeVar("T")
Steps: TypeAlias = Generator[Effect, EffectResult, T]
"""A generator that yields effects (I/O operations) and returns a `T`; it is run with `yield from`."""

LARGE_WORK = 32 * 1024
"""Minimum size in bytes of a request, or of a part of a reply, that may be processed in another thread.

Fifty tools, which take 8 ms if they were not seen before, are about this large. So are 150 short calls in a reply,
which take 20 ms.
"""
OWN_FIELDS = {"accept": "application/json", "content-type": "application/json", "user-agent": "promptools"}
"""Header fields for the requests that `ExchangeState.template_request` creates."""
DEFAULT_PORTS = {"http": 80, "https": 443}
"""Maps the scheme of a URL to the port that is used if the URL names none."""
MAX_CACHED_URLS = 256
"""Maximum size of the caches of `api_base` and of `route_url`."""
_ROUTES = (
    "/chat/completions",
    "/responses",
    "/responses/compact",
    "/responses/input_tokens",
    "/messages",
    "/messages/count_tokens",
)
"""The routes of the clients' APIs, relative to a server's API base URL."""
_HOP_BY_HOP = frozenset({"content-length", "transfer-encoding", "connection", "keep-alive", "te", "trailer", "upgrade"})


class AttemptFacts(NamedTuple):
    """Facts about an attempt. Observers receive them as fields of `SentRequest`, along with the attempt's request."""

    prepared: PreparedRequest
    tool_request: ToolRequest
    reply_api: Api
    choices: int


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """The bytes to send to the client after `seconds` of silence, so that no proxy or client times out."""

    seconds: float
    data: bytes
    head: Callable[[], ResponseHead]


def _begin_observation(client: ClientRequest, context: Context) -> Observation | None:
    if context.observer is None:
        return None
    api, caller = client.client_api, client.caller
    exchange = ObservedExchange(
        context.new_id(), client.request, api.wire or api.path, client.at, caller.request_id, caller.secrets
    )
    return Observation(context.observer, exchange, context.response_bytes)


class ExchangeState:
    """The state of one client request; its methods run single effects (I/O operations) and record the results."""

    def __init__(self, client: ClientRequest, context: Context) -> None:
        self.request = client.request
        self.client_api = client.client_api
        self.request_id = client.caller.request_id
        self.context = context
        self.now = client.at
        self.url: str | None = None
        self.headers: Headers = ()
        self.provider_model: tuple[str, str] = ("", "")
        """The provider and the model; a provider without a name is identified by the server's base URL."""
        self.policy = RetryPolicy(client.at, stop=context.stop, wait=context.wait, deadline=context.deadline)
        self.attempts: list[Attempt] = []
        self.notes: list[str] = []
        self.unfit_calls = 0
        """The number of calls that the client gets although they failed the checks."""
        self.usage: dict[str, Any] | None = None
        self.opened: Opened | None = None
        """The last response's status and headers."""
        self._fetched: dict[tuple[str, bytes], bytes] = {}
        self.head_sent = False
        self.error_kind = ""
        """The kind of the failure that was reported to the client; empty if there was none."""
        self.heartbeat: Heartbeat | None = None
        """The heartbeat of the response; None while no heartbeat may be sent to the client."""
        self.seen: ServerInfo | None = None
        """The result of probing the server; None if the server was not probed."""
        self._started_at = self._attempt_started_at = self._last_emit_at = client.at
        self._reply_began_at: float | None = None
        """When the first byte of the last response's body arrived."""
        self._head: ResponseHead | None = None
        self._first_byte_at: float | None = None
        self._observation = _begin_observation(client, context)

    @property
    def seconds(self) -> float:
        """The seconds since the request began."""
        return self.now - self._started_at

    def encode_error(self, message: str, *, kind: str, code: str, attempts: Sequence[Attempt] = ()) -> bytes:
        """Encode an error that promptools itself reports, with the id of the request."""
        return self.client_api.encode_error(
            message, kind=kind, code=code, attempts=attempts, request_id=self.request_id
        )

    def phases(self, *, whole: bool) -> tuple[float, float]:
        """Return how many seconds the last attempt took before the reply's first byte, and how many from then on.

        If `whole` is true, the first number is 0, and the second includes all seconds.
        """
        first = self._attempt_started_at if whole or self._reply_began_at is None else self._reply_began_at
        return first - self._attempt_started_at, self.now - first

    # -- effects

    def probe(self, requests: tuple[Request, ...], seconds: float) -> Steps[tuple[ProbeResponse | None, ...]]:
        """Send small requests concurrently; return the responses, with None for each that failed or was late."""
        result = yield from self._perform(Probe(requests, seconds))
        assert isinstance(result, Probed), result
        return result.answers

    def send(
        self,
        body: bytes,
        path: str = "chat/completions",
        mode: str = "native",
        attempt: AttemptFacts | None = None,
        *,
        method: str = "POST",
    ) -> Steps[Opened | Failed]:
        """Send a request with this body to the server; return the status and headers of the response, or the failure.

        `path` is relative to the API's base URL, or to the server's root if it begins with `/`. `attempt` holds facts
        about an attempt in `mode`; None means that the request is only forwarded.
        """
        self._attempt_started_at = self.now
        self.policy.count_attempt()
        request = self._request(body, path, method)
        if self._observation is not None:
            facts = {} if attempt is None else attempt._asdict()
            self._observation.sent("forward" if attempt is None else "attempt", mode, request, self.now, **facts)
        return (yield from self._open(request))

    def fetch(self, body: bytes, path: str, mode: str) -> Steps[Opened | Failed | bytes]:
        """Send a request that prepares an attempt in `mode`, and return the body of its response.

        The request does not count as an attempt. Responses are kept until the exchange ends, and reused for an equal
        request. If the response has an error status, only its status and headers are read and returned.
        """
        kept = self._fetched.get((path, body))
        if kept is not None:
            return kept
        self._attempt_started_at = self.now
        request = self._request(body, path)
        if self._observation is not None:
            self._observation.sent("template", mode, request, self.now)
        opened = yield from self._open(request)
        if isinstance(opened, Failed) or not 200 <= opened.status < 300:
            return opened
        data = yield from self.read_all()
        self._fetched[path, body] = data
        return data

    def _open(self, request: Request) -> Steps[Opened | Failed]:
        self._reply_began_at = None
        result = yield from self._perform(Send(request, self._send_timeout()))
        if self.opened is not None and isinstance(result, Failed) and result.kind == "closed":
            # uvicorn closes the connection after an HTTP 500 without announcing it: the next request on it fails
            self.notes.append("the server had closed the connection after its last answer: sent again on another")
            result = yield from self._perform(Send(request, self._send_timeout()))
        assert isinstance(result, (Opened, Failed)), result
        if isinstance(result, Opened):
            self.opened = result
        elif result.kind == "connect":
            self.context.detection_cache.evict(server_root(api_base(request.url)))
        if self._observation is not None:
            self._observation.received(result)
        return result

    def _send_timeout(self) -> float | None:
        """Return how many seconds a request and its reply may take; None: no limit."""
        bounds = (self.policy.seconds_left(self.now), self.context.attempt_timeout)
        return min((bound for bound in bounds if bound is not None), default=None)

    def _request(self, body: bytes, path: str, method: str = "POST") -> Request:
        url = route_url(self.url or self.request.url, path)
        return Request(method, url, upstream_headers(self.request.headers, self.headers), body)

    def template_request(self, body: bytes, path: str) -> Request:
        """Return a request that asks the server to render a template, with the same credentials as other requests."""
        request = self._request(body, path)
        kept = tuple(pair for pair in request.headers if pair[0].lower() not in OWN_FIELDS)
        return replace(request, headers=(*kept, *OWN_FIELDS.items()))

    def read(self) -> Steps[bytes | Failed | None]:
        """Return the next chunk of the body, None at its end, or the failure if the connection broke."""
        result = yield from self._perform(Read())
        if isinstance(result, (Piece, Ended, Failed)) and self._observation is not None:
            self._observation.received(result)
        if isinstance(result, Piece):
            if self._reply_began_at is None:
                self._reply_began_at = self.now
            return result.data
        return result if isinstance(result, Failed) else None

    def read_all(self, limit: int | None = None) -> Steps[bytes]:
        """Return the rest of the body, as far as it arrives; stop reading once it exceeds `limit` bytes."""
        limit = self.context.max_reply if limit is None else limit
        chunks: list[bytes] = []
        size = 0
        while size <= limit and isinstance(chunk := (yield from self.read()), bytes):
            chunks.append(chunk)
            size += len(chunk)
        return b"".join(chunks)

    def read_error(self) -> Steps[bytes]:
        """Return the rest of an error's body, as far as it arrives; stop reading once it exceeds `MAX_ERROR` bytes.

        If the error may contain the model's text, the limit is `max_reply` bytes instead.
        """
        body = yield from self.read_all(MAX_ERROR)
        limit = self.context.max_reply
        if MAX_ERROR < len(body) <= limit and introduces_reply(body):
            body += yield from self.read_all(limit - len(body))
        if len(body) > MAX_ERROR:
            yield from self.abandon()
        return body

    def abandon(self) -> Steps[None]:
        """Close the open request to the server."""
        self.now = (yield Abandon()).at

    def wait(self, seconds: float) -> Steps[None]:
        """Sleep. If `seconds` is 0, no effect is yielded."""
        if seconds > 0:
            yield from self._perform(Wait(seconds))

    def compute(self, work: Callable[[], T], size: int | None = None) -> Steps[T]:
        """Call a function that only computes, and return its result.

        Work on many bytes is yielded as a `Compute` effect, so that it can run in another thread. `size` is the number
        of bytes; None stands for the size of the request.
        """
        if (len(self.request.body) if size is None else size) < LARGE_WORK:
            return work()
        result = yield Compute(work)
        self.now = result.at
        assert isinstance(result, Computed), result
        if result.error is not None:
            raise result.error
        value: T = result.value
        return value

    def consult(self, work: Callable[[Ask], T], seconds: float) -> Steps[T]:
        """Call a function that may send small requests to the server, for at most `seconds`; return its result."""
        result = yield Consult(work, seconds)
        self.now = result.at
        assert isinstance(result, Computed), result
        if result.error is not None:
            raise result.error
        value: T = result.value
        return value

    def emit(self, data: bytes, head: Callable[[], ResponseHead]) -> Steps[None]:
        """Send bytes of the response to the client; before the first bytes, send the status and headers from `head`."""
        if not self.head_sent:
            self.head_sent = True
            self._head = head()
            self.now = (yield Emit(self._head)).at
        if data:
            if self._observation is not None:
                self._observation.emitted(data)
            self.now = (yield Emit(data)).at
            if self._first_byte_at is None:
                self._first_byte_at = self.now
        self._last_emit_at = self.now

    def send_heartbeat(self) -> Steps[None]:
        """Send the heartbeat to the client if nothing was sent for too long."""
        beat = self.heartbeat
        if beat is not None and self.now - self._last_emit_at >= beat.seconds:
            first_byte_at = self._first_byte_at
            yield from self.emit(beat.data, beat.head)
            self._first_byte_at = first_byte_at  # a heartbeat is not an answer

    def _perform(self, effect: Effect) -> Steps[EffectResult]:
        """Yield an effect and return its result; while the effect is pending, send heartbeats."""
        while isinstance(result := (yield effect), Tick):
            self.now = result.at
            yield from self.send_heartbeat()
        self.now = result.at
        return result

    def observe_end(self, replies: Sequence[Reply], error: BaseException | None) -> None:
        """Report the end of the exchange to the observer."""
        if self._observation is not None:
            head = self._head
            self._observation.ended(
                self.attempts,
                ExchangeEnd(
                    self.now,
                    *self.provider_model,
                    head.status if head else None,
                    tuple(replies),
                    error,
                    first_byte_at=self._first_byte_at,
                    error_kind=self.error_kind,
                    streamed=head is not None and is_stream(head.headers, asked=False),
                ),
            )

    # -- account

    def record(
        self,
        mode: str,
        failure: Failure | None,
        usage: dict[str, Any] | None,
        written: Callable[[], tuple[WrittenChoice, ...]] = tuple,
    ) -> None:
        """Record the outcome of an attempt; `written` returns the choices as the server sent them, for observers."""
        opened = failure.opened if failure else self.opened
        status = opened.status if opened else None
        outcome, why = (failure.kind, failure.why) if failure else ("answered", "")
        self.attempts.append(Attempt(mode, status, outcome, why, self.now - self._attempt_started_at, usage))
        self.usage = add_usage(self.usage, usage)
        if self._observation is not None:
            failed_reply = (failure.verdict.reply if failure.verdict else failure.partial_reply) if failure else None
            self._observation.attempt_ended(failed_reply, written())

    def note_remedy(self, failure: Failure, remedy: str) -> None:
        """Note in the trace and the log what is tried after a failed attempt."""
        same_kind = (i for i, attempt in reversed(list(enumerate(self.attempts))) if attempt.outcome == failure.kind)
        number = next(same_kind, len(self.attempts) - 1)
        failed = self.attempts[number]
        self.attempts[number] = replace(failed, why="; ".join(filter(None, (failed.why, remedy))))
        status = "no answer" if failure.status is None else f"HTTP {failure.status}"
        self._write(
            self.context.log, f"send {number + 1} in {failed.mode} mode failed: {failure.kind} ({status}); {remedy}"
        )

    def warn(self, text: str) -> None:
        """Write a warning to the log; `text` must not contain anything that the model wrote."""
        self._write(self.context.warn, text)

    def _write(self, write: Callable[[str], None] | None, text: str) -> None:
        """Write a line with the provider and the model to the log."""
        if write:
            provider = without_credentials(self.provider_model[0].partition("?")[0])
            model = clip(self.provider_model[1])
            request = f", request {self.request_id}" if self.request_id else ""
            write(f"{text} (provider {provider!r}, model {model!r}{request})")

    def with_trace(self, reply: Reply, mode: str) -> Reply:
        """Return `reply` with the attempts and notes in its trace."""
        notes = (*dict.fromkeys((*self.notes, *reply.trace.notes)),)
        return reply.with_trace(attempts=tuple(self.attempts), mode=mode, notes=notes, seen=self.seen)


def knowing(own: OwnDialects, steps: Steps[T], *, last: bool = False) -> Steps[T]:
    """Run the steps of an exchange, and the `Compute` work that they yield, with additional dialects `own`.

    If `last` is true, the dialects in `own` are tried after all other known dialects; if not, they are tried first.
    """
    outcome: EffectResult | None = None
    try:
        while True:
            with using_own(own, last=last):
                try:
                    effect = next(steps) if outcome is None else steps.send(outcome)
                except StopIteration as stop:
                    value: T = stop.value
                    return value
            if isinstance(effect, Compute):
                effect = Compute(partial(_work_knowing, own, effect.work, last))
            outcome = yield effect
    finally:
        with using_own(own, last=last):  # closing reports the end to the observers, which may parse replies
            steps.close()


def _work_knowing(own: OwnDialects, work: Callable[[], T], last: bool) -> T:
    with using_own(own, last=last):
        return work()


@lru_cache(maxsize=MAX_CACHED_URLS)
def api_base(url: str) -> str:
    """Return the base URL of a server's API, given the URL of one of the `_ROUTES` or of Ollama's own routes.

    For example, `http://host/v1/chat/completions` and Ollama's `http://host/api/chat` both give `http://host/v1`.
    """
    address = url.partition("?")[0].rstrip("/")
    root, api, _ = address.rpartition("/api/")
    route = next((route for route in _ROUTES if address.endswith(route)), "")
    if route or not api:
        base = address.removesuffix(route)
        return base.removesuffix("/v1") if base.endswith("/v1/v1") else base  # the SDK adds a second `/v1`
    return server_root(root) + "/v1"


@lru_cache(maxsize=MAX_CACHED_URLS)
def route_url(url: str, path: str) -> str:
    """Return the URL of the route `path` on the server to which `url` belongs; the query of `url` is kept."""
    address, mark, query = url.partition("?")
    base = api_base(url)
    target = server_root(base) + path if path.startswith("/") else f"{base}/{path}"
    return url if target == address.rstrip("/") else target + mark + query


def upstream_headers(client: Headers, route: Headers) -> Headers:
    """Return the client's header fields, overridden by those in `route`; a field that is empty in `route` is removed.

    Fields that concern only the connection from the client are left out.
    """
    dropped = _HOP_BY_HOP | {key.lower() for key, _ in route} if route else _HOP_BY_HOP
    kept = tuple(pair for pair in client if pair[0].lower() not in dropped)
    return (*kept, *(pair for pair in route if pair[1]))
