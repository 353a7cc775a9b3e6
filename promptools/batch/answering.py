"""Turn one request of a batch into one result: parse its line, and send it once to one of the possible servers.

This module knows neither files nor other requests: `request_pool` sends many requests concurrently, and retries.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from http import HTTPStatus
from time import monotonic, time
from typing import TYPE_CHECKING, Any, cast

from promptools.errors import UpstreamError, clip, without_credentials
from promptools.json_values import is_object, reject_constant, try_json
from promptools.transport import library_of
from promptools.wire.json_body import as_object

if TYPE_CHECKING:
    from collections.abc import Mapping

    import openai

    from promptools.client import AsyncOpenAI


# One line or row of a batch file: the request in it, or what is wrong with it.


ENDPOINTS = ("/v1/chat/completions", "/v1/responses", "/v1/completions", "/v1/embeddings")
"""The values that a request's `url` may have."""
BYTE_ORDER_MARK = b"\xef\xbb\xbf"


@dataclass(frozen=True, slots=True)
class BatchRequest:
    """A request in a batch file."""

    line: int
    """The number of the request's line, or of its row in a Parquet file, counted from 1."""
    custom_id: str
    url: str
    """One of `ENDPOINTS`."""
    body: dict[str, Any]


@dataclass(frozen=True, slots=True)
class LineProblem:
    """Describes why a request failed. It is written to the error file."""

    line: int
    custom_id: str | None
    code: str
    """`invalid_line`, `no_model`, `http_error`, `invalid_response` or `no_response`."""
    message: str
    advice: str
    """What to do about the problem."""
    status_code: int | None = None
    """The HTTP status of the response, if there was one."""

    def to_dict(self) -> dict[str, Any]:
        """Return the problem as a JSON object."""
        return {
            "custom_id": self.custom_id,
            "line": self.line,
            "code": self.code,
            "status_code": self.status_code,
            "message": self.message,
            "advice": self.advice,
        }


def read_request(text: bytes, line: int) -> BatchRequest | LineProblem:
    """Parse a line of a batch file; return a `LineProblem` if the request is invalid.

    `line` is the number of the line. The request's `body` may be an object, or a string with the JSON of an object.
    """
    try:
        value: Any = _load(text.removeprefix(BYTE_ORDER_MARK))
    except (ValueError, RecursionError) as error:
        return _invalid(
            line, None, f"the line is not valid JSON: {clip(str(error))}", "write one JSON object in each line"
        )
    if not is_object(value):
        return _invalid(line, None, f"the line is not a JSON object: {clip(repr(value), 80)}", "write one in each line")
    custom_id = value.get("custom_id")
    if not isinstance(custom_id, str) or not custom_id:
        return _invalid(
            line, None, f"'custom_id' is {clip(repr(custom_id), 80)}", "write a text that no other line has"
        )
    if isinstance(value.get("body"), str):
        try:
            value["body"] = _load(value["body"])
        except (ValueError, RecursionError) as error:
            return _invalid(line, custom_id, f"'body' is not valid JSON: {clip(str(error))}", "write a JSON object")
    if wrong := _check_keys(value):
        return _invalid(line, custom_id, *wrong)
    return BatchRequest(line, custom_id, value["url"], value["body"])


def _check_keys(value: dict[str, Any]) -> tuple[str, str] | None:
    """Return what is wrong with a request and how to fix it; None if it is valid."""
    method, url, body = value.get("method", "POST"), value.get("url"), value.get("body")
    if method != "POST":
        return f"'method' is {clip(repr(method), 80)}", "write POST"
    if url not in ENDPOINTS:
        return f"'url' is {clip(repr(url), 80)}", f"write one of {', '.join(ENDPOINTS)}"
    if not is_object(body):
        return f"'body' is {clip(repr(body), 80)}", "write the body of the request, a JSON object"
    if body.get("stream"):
        return "'stream' is set in the body", "remove it: the result of a batch is the whole response"
    model = body.get("model")
    if model is not None and not isinstance(model, str):
        return f"'model' is {clip(repr(model), 80)}", "write the name of a model, or none and --model"
    return None


def _load(text: str | bytes) -> Any:
    """Parse JSON, but reject NaN and infinity.

    Only Python accepts these values, so they must not be sent to a server.
    """
    return json.loads(text, parse_constant=reject_constant)


def _invalid(line: int, custom_id: str | None, message: str, advice: str) -> LineProblem:
    return LineProblem(line, custom_id, "invalid_line", message, advice)


# Send one request, and return one result.


BUSY_STATUSES = frozenset({408, 425, 429, 502, 503, 504, 529})
"""Statuses that mean that the server, or a gateway in front of it, cannot answer now; `RequestPool` keeps retrying."""
SHORT_LIVED_STATUSES = frozenset({500})
"""Statuses of failures that may be temporary, but that the request itself may also have caused.

A request that fails with one of them is sent again only a few times.
"""
CONNECTION_CODES = frozenset({"connect", "timeout", "closed"})
"""Error codes in the 502 responses that promptools itself makes if no server answered."""
ADVICE = {
    400: "correct the request",
    404: "check the model's name and the base URL",
    413: "shorten the request",
    422: "correct the request",
}


class TemporaryFailureError(Exception):
    """Raised for a request that has no result now, but may get one if it is sent again.

    `retry_after` is the wait that the server asked for, in seconds; None if it named no time.
    """

    def __init__(self, message: str, *, retry_after: float | None = None, may_be_request: bool = False) -> None:
        super().__init__(message)
        self.retry_after = retry_after
        self.may_be_request = may_be_request
        """Whether the request itself may be the cause of the failure; it is then sent again only a few times."""
        self.answer: BatchAnswer | None = None
        """The result to use if the request is not sent again. None if the server gave no response."""


@dataclass(frozen=True, slots=True)
class BatchAnswer:
    """The result of a request: its line in the output and, if the request failed, its line in the error file."""

    line: int
    result: dict[str, Any]
    problem: LineProblem | None = None

    @property
    def usage(self) -> tuple[int, int]:
        """The numbers of tokens in the prompt and in the completion, as the server reported them; 0 if it did not."""
        usage = as_object(as_object(as_object(self.result.get("response")).get("body")).get("usage"))
        # the Responses API has its own names
        prompt = usage.get("prompt_tokens", usage.get("input_tokens"))
        completion = usage.get("completion_tokens", usage.get("output_tokens"))
        return prompt if isinstance(prompt, int) else 0, completion if isinstance(completion, int) else 0


class RequestAnswerer:
    """Sends requests through a promptools client.

    `model` replaces the model of each request; if it is None, requests keep their models. `default_model` is used for
    requests that name no model. The client must not retry by itself (`max_retries=0`).
    """

    def __init__(self, client: AsyncOpenAI, *, model: str | None = None, default_model: str | None = None) -> None:
        self._client = client
        self._model = model
        self._default_model = default_model
        http: Any = client.__dict__["_client"]
        self._response_class: Any = library_of(http).module.Response

    async def answer(self, request: BatchRequest) -> BatchAnswer:
        """Send a request once and return its result, which may be an error response from the server.

        Raises `TemporaryFailureError` if the server cannot answer now, and `UpstreamError` if it refuses the key.
        """
        import openai

        body = dict(request.body)
        if model := self._model or body.get("model") or self._default_model:
            body["model"] = model
        else:
            message = "the request names no model, and the server has none that all requests are for"
            advice = "write the name of a model into the body, or pass --model"
            return failed_answer(LineProblem(request.line, request.custom_id, "no_model", message, advice))
        try:
            response: Any = await self._client.post(
                request.url.removeprefix("/v1"), cast_to=self._response_class, body=body
            )
        except openai.APIStatusError as error:
            return _answer_error(request, error.response)
        except openai.APIConnectionError as error:
            server = without_credentials(str(self._client.base_url)).rstrip("/")
            reason = without_credentials(str(error.__cause__ or error))
            raise TemporaryFailureError(f"no answer from {server} ({reason})") from error
        return _answer_success(request, response)


def failed_answer(problem: LineProblem) -> BatchAnswer:
    """Return the result of a request that got no usable response."""
    error = {"code": problem.code, "message": problem.message}
    return BatchAnswer(problem.line, _result(problem.custom_id or "", None, error), problem)


def _answer_success(request: BatchRequest, response: Any) -> BatchAnswer:
    try:
        body = json.loads(response.content)
    except (ValueError, RecursionError):
        message = f"the server's response is not valid JSON: {clip(repr(response.content))}"
        advice = "check that the base URL is the root of an API, with /v1"
        problem = LineProblem(
            request.line, request.custom_id, "invalid_response", message, advice, response.status_code
        )
        return failed_answer(problem)
    return BatchAnswer(request.line, _result(request.custom_id, _describe_response(response, body), None))


def _answer_error(request: BatchRequest, response: Any) -> BatchAnswer:
    """Return the result of a request that the server answered with an error.

    Raises `TemporaryFailureError` if a retry may help, and `UpstreamError` if the server refuses the key.
    """
    status: int = response.status_code
    no_json = {"error": {"message": clip(response.text), "type": "invalid_response"}}
    body = try_json(response.content, no_json)
    message = _error_message(body, status)
    if status == HTTPStatus.UNAUTHORIZED:
        raise UpstreamError(f"the server refuses the API key: {message}; set another one", status=status)
    advice = ADVICE.get(status, "read the message; send the request again in another batch")
    problem = LineProblem(request.line, request.custom_id, "http_error", message, advice, status)
    answer = BatchAnswer(request.line, _result(request.custom_id, _describe_response(response, body), None), problem)
    if failure := _temporary_failure(status, body, message, response.headers):
        failure.answer = answer
        raise failure
    return answer


def _temporary_failure(
    status: int, body: Any, message: str, headers: Mapping[str, str]
) -> TemporaryFailureError | None:
    """Return the error to raise for a response after which a retry may succeed; None if the response is final."""
    code = as_object(as_object(body).get("error")).get("code")
    if headers.get("x-should-retry") == "false":  # from promptools itself, which has tried all that it could
        if code in CONNECTION_CODES:
            return TemporaryFailureError(message)
        return TemporaryFailureError(message, may_be_request=True) if code == "cut" else None
    if status in BUSY_STATUSES:
        return TemporaryFailureError(f"HTTP {status}: {message}", retry_after=read_retry_after(headers))
    if status in SHORT_LIVED_STATUSES:
        return TemporaryFailureError(f"HTTP {status}: {message}", may_be_request=True)
    return None


def read_retry_after(headers: Mapping[str, str]) -> float | None:
    """Return how many seconds the server asks the client to wait; None if it states no valid time.

    The server states the time in `retry-after-ms` or in `Retry-After` (a number or a date).
    """
    for name, scale in (("retry-after-ms", 1000.0), ("retry-after", 1.0)):
        text = headers.get(name)
        if text is None:
            continue
        try:
            seconds = float(text) / scale
        except ValueError:
            try:
                seconds = parsedate_to_datetime(text).timestamp() - time()
            except ValueError:
                continue
        if 0 <= seconds < float("inf"):
            return seconds
    return None


def _error_message(body: Any, status: int) -> str:
    error: Any = as_object(body).get("error")
    message: Any = as_object(error).get("message") if isinstance(error, dict) else error
    return clip(without_credentials(message)) if isinstance(message, str) and message else f"HTTP {status}"


def _describe_response(response: Any, body: Any) -> dict[str, Any]:
    headers = cast("Mapping[str, str]", response.headers)
    return {"status_code": response.status_code, "request_id": headers.get("x-request-id") or "", "body": body}


def _result(custom_id: str, response: dict[str, Any] | None, error: dict[str, Any] | None) -> dict[str, Any]:
    return {"id": f"batch_req_{uuid.uuid4().hex}", "custom_id": custom_id, "response": response, "error": error}


# The servers of a batch: the server of a client, or all base URLs of the client's provider.


CONNECT_SECONDS = 10.0
"""Maximum number of seconds to wait for a connection to a server."""
PAUSE_SECONDS = 5.0
"""Seconds for which a server gets no request after a failure, if another server can take the request."""


class RequestServers:
    """Distributes requests over all servers of the client's provider.

    Each request goes to the server that has the fewest requests in progress. `model` replaces the model of each
    request; if it is None, requests keep their models. `default_model` is used for requests that name no model. The
    client must not retry by itself (`max_retries=0`). `clock` returns the time in seconds.
    """

    def __init__(
        self,
        client: AsyncOpenAI,
        *,
        model: str | None = None,
        default_model: str | None = None,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        clients = [client, *(client.copy(base_url=url) for url in _replicas(client))]
        answerers = (RequestAnswerer(one, model=model, default_model=default_model) for one in clients)
        self._servers = [_BatchServer(answerer) for answerer in answerers]
        self._clock = clock

    async def answer(self, request: BatchRequest) -> BatchAnswer:
        """Send a request once and return its result; see `RequestAnswerer.answer`."""
        now = self._clock()
        ready = [server for server in self._servers if server.paused_until <= now]
        server = min(ready or self._servers, key=lambda server: (server.in_flight, server.taken))
        server.in_flight += 1
        server.taken += 1
        try:
            return await server.answerer.answer(request)
        except TemporaryFailureError:
            server.paused_until = self._clock() + PAUSE_SECONDS
            raise
        finally:
            server.in_flight -= 1


class _BatchServer:
    def __init__(self, answerer: RequestAnswerer) -> None:
        self.answerer = answerer
        self.in_flight = 0
        self.taken = 0
        self.paused_until = float("-inf")


def answer_timeout(seconds: float) -> openai.Timeout:
    """Return a timeout that allows `seconds` for an answer, and less for connecting."""
    import openai

    return openai.Timeout(seconds, connect=min(seconds, CONNECT_SECONDS))


def _replicas(client: AsyncOpenAI) -> tuple[str, ...]:
    """Return all base URLs of the client's provider except the first.

    If the client's base URL is not the first one, the result is empty, and no other server is used.
    """
    session = client.promptools
    provider = session.config.providers.get(session.provider or "")
    if provider is None or not provider.base_url:
        return ()
    return provider.replicas if _without_slash(str(client.base_url)) == _without_slash(provider.base_url) else ()


def _without_slash(url: str) -> str:
    return url.rstrip("/")
