"""One request of a batch to one result: a single try, without files and without other requests."""

from __future__ import annotations

import json
import uuid
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from http import HTTPStatus
from time import time
from typing import TYPE_CHECKING, Any, cast

from promptools.batch.request_line import BatchRequest, LineProblem
from promptools.errors import UpstreamError, clip, without_credentials
from promptools.transport import library_of
from promptools.wire.json_body import as_object

if TYPE_CHECKING:
    from collections.abc import Mapping

    from promptools.client import AsyncOpenAI

BUSY_STATUSES = frozenset({408, 425, 429, 502, 503, 504, 529})
"""The server, or a gateway before it, cannot answer now: the request is sent again until it can."""
SHORT_LIVED_STATUSES = frozenset({500})
"""The request may be the reason: it is sent again a few times."""
CONNECTION_CODES = frozenset({"connect", "timeout", "closed"})
"""Codes of promptools' own 502: nobody answered."""
ADVICE = {
    400: "correct the request",
    404: "check the model's name and the base URL",
    413: "shorten the request",
    422: "correct the request",
}


class TemporaryFailureError(Exception):
    """A request had no result, and may have one later. `retry_after` is in seconds, if the server named it."""

    def __init__(self, message: str, *, retry_after: float | None = None, may_be_request: bool = False) -> None:
        super().__init__(message)
        self.retry_after = retry_after
        self.may_be_request = may_be_request
        """Whether the request itself may be the reason, so that it is not sent often."""
        self.answer: BatchAnswer | None = None
        """The server's response, if there was one: the result of a request that is not sent again."""


@dataclass(frozen=True, slots=True)
class BatchAnswer:
    """The result of a request: its line of the output, and its line of the file of errors if it failed."""

    line: int
    result: dict[str, Any]
    problem: LineProblem | None = None

    @property
    def usage(self) -> tuple[int, int]:
        """The tokens of the prompt and of the completion, as the server reports them."""
        usage = as_object(as_object(as_object(self.result.get("response")).get("body")).get("usage"))
        # the Responses API has names of its own
        prompt = usage.get("prompt_tokens", usage.get("input_tokens"))
        completion = usage.get("completion_tokens", usage.get("output_tokens"))
        return prompt if isinstance(prompt, int) else 0, completion if isinstance(completion, int) else 0


class RequestAnswerer:
    """Sends requests through a client of promptools. `model` replaces the model of each request (None: its own).

    `default_model` is for requests that name none. The client must not retry by itself (`max_retries=0`).
    """

    def __init__(self, client: AsyncOpenAI, *, model: str | None = None, default_model: str | None = None) -> None:
        self._client = client
        self._model = model
        self._default_model = default_model
        http: Any = client.__dict__["_client"]
        self._response_class: Any = library_of(http).module.Response

    async def answer(self, request: BatchRequest) -> BatchAnswer:
        """Send a request once and return its result, an error of the server included.

        Raises `TemporaryFailureError` if the server cannot answer now, and `UpstreamError` if it refuses the key.
        """
        import openai

        body = dict(request.body)
        if model := self._model or body.get("model") or self._default_model:
            body["model"] = model
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
    """Return the result of a request that got no response."""
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
    """Return the result of a request that the server answered with an error, or raise if that may change."""
    status: int = response.status_code
    try:
        body: Any = json.loads(response.content)
    except (ValueError, RecursionError):
        body = {"error": {"message": clip(response.text), "type": "invalid_response"}}
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
    """Return the failure of a response after which the request may be sent again; None if it is final."""
    code = as_object(as_object(body).get("error")).get("code")
    if headers.get("x-should-retry") == "false":  # promptools' own: all that could be tried was
        if code in CONNECTION_CODES:
            return TemporaryFailureError(message)
        return TemporaryFailureError(message, may_be_request=True) if code == "cut" else None
    if status in BUSY_STATUSES:
        return TemporaryFailureError(f"HTTP {status}: {message}", retry_after=read_retry_after(headers))
    if status in SHORT_LIVED_STATUSES:
        return TemporaryFailureError(f"HTTP {status}: {message}", may_be_request=True)
    return None


def read_retry_after(headers: Mapping[str, str]) -> float | None:
    """Return the seconds of `retry-after-ms` or `Retry-After`, a number or a date; None without one."""
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
