"""Run checks over HTTP, one request after the other: directly against the server, or through promptools in a mode."""

from __future__ import annotations

import json
from collections.abc import Callable, Generator, Iterable
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from promptools.errors import UpstreamError, UsageError
from promptools.exchange import DetectionCache, ExchangeEnd, ObservedExchange, Piece, Request, SentRequest
from promptools.exchange.observer import Received
from promptools.json_values import try_json
from promptools.probing.checks import CHECKS, PLAIN
from promptools.probing.findings import CHAT, Answer, Finding, Steps, Subject, TrialRequest, read_answer
from promptools.profiles import Config
from promptools.transport import CHAT_ENDPOINT, Session, SyncDriver, installed_library, with_error_boundary
from promptools.types import Attempt, Reply
from promptools.wire.json_body import as_list, as_object, as_text

MAX_RESPONSE = 8 * 1024 * 1024
"""Maximum number of bytes of a response that are read."""
MAX_LISTED = 12
"""Maximum number of models that a message lists."""


@dataclass(slots=True)
class Cost:
    """The cost of the checks so far, in requests and tokens."""

    requests: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0

    def add(self, usage: dict[str, Any] | None) -> None:
        """Add the usage of an answer, as counted by the server."""
        answer = Answer(usage=usage)
        self.prompt_tokens += answer.prompt_tokens
        self.completion_tokens += answer.completion_tokens


class Prober:
    """Sends the requests of checks to one server, and counts their cost.

    `detections` caches which kind of server was detected at an address. `authorization` is sent with every request.
    """

    def __init__(self, base_url: str, authorization: str | None, *, timeout: float, detections: DetectionCache) -> None:
        self._base_url = base_url.rstrip("/")
        self._authorization = authorization
        self._headers = {"authorization": authorization} if authorization else {}
        self._detections = detections
        self._library = installed_library()
        # a new connection for each request: llama.cpp closes a kept connection after a stream, which would look like
        # an error of the next request
        limits = self._library.module.Limits(max_keepalive_connections=0)
        self._http: Any = self._library.module.Client(timeout=timeout, headers=self._headers, limits=limits)
        self.cost = Cost()

    def __enter__(self) -> Prober:
        return self

    def __exit__(self, *_: object) -> None:
        self._http.close()

    def find_model(self) -> str:
        """Return the only model that the server lists; raise `UsageError` if there are none or several."""
        self.cost.requests += 1
        with self._errors():
            listed = self._http.get(f"{self._base_url}/models")
        try:
            body = listed.json()
        except ValueError:
            body = None
        names = [as_text(as_object(entry).get("id")) for entry in as_list(as_object(body).get("data"))]
        if len(names) == 1:
            return names[0]
        which = f"it lists {', '.join(names[:MAX_LISTED])}" if names else f"GET /models: HTTP {listed.status_code}"
        raise UsageError(f"which model? Name it with --model ({which})")

    def check_plain_chat(self, subject: Subject) -> None:
        """Send a chat request without tools, which every server must answer; raise `UpstreamError` if it fails."""
        with self._errors():
            answer = self.ask(subject.chat(PLAIN))
        if answer.failed:
            raise UpstreamError(
                f"the server does not answer a plain chat request: {answer.describe_error()}", status=answer.status
            )
        subject.reasoning_field = answer.reasoning_field

    def run(self, subject: Subject, groups: Iterable[str], show: Callable[[Finding], None]) -> list[Finding]:
        """Run groups of checks, and return the findings; call `show` with each finding as soon as it is known."""
        findings: list[Finding] = []
        for group in CHECKS:
            if group not in groups:
                continue
            for check in CHECKS[group]:
                for finding in self._run_check(check(subject), subject):
                    subject.findings[finding.check] = finding
                    findings.append(finding)
                    show(finding)
        return findings

    def _run_check(self, steps: Steps, subject: Subject) -> list[Finding]:
        try:
            request = next(steps)
            while True:
                answer = self._try(request)
                subject.reasoning_field = subject.reasoning_field or answer.reasoning_field
                request = steps.send(answer)
        except StopIteration as stop:
            findings: list[Finding] = stop.value
            return findings

    def _try(self, request: TrialRequest) -> Answer:
        """Send a request; return the answer with the API key masked. A connection error is returned as an answer."""
        try:
            answer = self.ask_in_mode(request) if request.mode else self.ask(request)
        except self._library.module.HTTPError as error:
            answer = Answer(None, error=f"{type(error).__name__}: {error}")
        return replace(
            answer,
            error=self._without_key(answer.error),
            content=self._without_key(answer.content) or "",
            attempts=tuple(replace(one, why=self._without_key(one.why) or "") for one in answer.attempts),
        )

    def ask(self, request: TrialRequest) -> Answer:
        """Send a request directly to the server."""
        self.cost.requests += 1
        url = f"{self._base_url}{request.path}"
        with self._http.stream("POST", url, json=request.body, follow_redirects=False) as response:
            body = b""
            for piece in response.iter_bytes():
                body += piece
                if len(body) > MAX_RESPONSE:
                    return Answer(None, error=f"the response is longer than {MAX_RESPONSE} bytes")
        answer = read_answer(response.status_code, body, streamed=request.body.get("stream") is True)
        self.cost.add(answer.usage)
        return answer

    def ask_in_mode(self, request: TrialRequest) -> Answer:
        """Send a request through promptools in one mode."""
        observer, replies = _ModeObserver(), list[Reply]()
        session = Session(
            {"config": Config(), "on_reply": replies.append, "observer": observer, "max_reply": MAX_RESPONSE},
            self._detections,
        )
        body = {**request.body, "promptools": {"mode": request.mode}}
        headers = (("content-type", "application/json"), *self._headers.items())
        client_request = Request("POST", f"{self._base_url}{CHAT}", headers, json.dumps(body).encode())
        exchange = with_error_boundary(session(client_request, CHAT_ENDPOINT))
        driver = SyncDriver(exchange, self._library, self._send)
        head = driver.head()
        assert head is not None, "a chat request always has a response"
        answer = read_answer(head.status, b"".join(driver.body()))
        self.cost.add(answer.usage)
        reply = replies[0] if replies else None
        return replace(answer, reply=reply, attempts=observer.attempts, raw=observer.text())

    def _send(self, request: Any) -> Any:
        self.cost.requests += 1
        return self._http.send(request, stream=True, follow_redirects=False)

    def _without_key(self, text: str | None) -> str | None:
        """Return a server's text with the API key masked, since some servers repeat the key in their errors."""
        key = (self._authorization or "").partition(" ")[2]
        return text.replace(key, "***") if text and key else text

    @contextmanager
    def _errors(self) -> Generator[None]:
        """Return a context manager that converts connection errors into `UpstreamError`."""
        try:
            yield
        except self._library.module.HTTPError as error:
            raise UpstreamError(f"{self._base_url} does not answer: {type(error).__name__}: {error}") from error


class _ModeObserver:
    """Observer that keeps the attempts of one request through promptools, and the body of the last response."""

    def __init__(self) -> None:
        self.attempts: tuple[Attempt, ...] = ()
        self._pieces: list[bytes] = []

    def began(self, exchange: ObservedExchange) -> None:
        """Do nothing."""

    def sent(self, exchange: ObservedExchange, sent: SentRequest) -> None:  # noqa: ARG002
        """Forget the body of an earlier response."""
        self._pieces.clear()

    def received(self, exchange: ObservedExchange, received: Received) -> None:  # noqa: ARG002
        """Keep a piece of the response's body."""
        if isinstance(received, Piece):
            self._pieces.append(received.data)

    def ended(self, exchange: ObservedExchange, end: ExchangeEnd) -> None:  # noqa: ARG002
        """Keep the attempts of the exchange."""
        self.attempts = tuple(observed.attempt for observed in end.attempts)

    def text(self) -> str:
        """Return the generated text in the body of a response from a raw endpoint.

        Everything else in the body is ignored, because llama.cpp and Ollama repeat the prompt there.
        """
        body = as_object(try_json(b"".join(self._pieces)))
        choices = as_list(body.get("choices"))
        text = as_object(choices[0]).get("text") if choices else body.get("content") or body.get("response")
        return as_text(text)
