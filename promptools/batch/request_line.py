"""One line or row of a batch file: the request in it, or what is wrong with it."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from promptools.errors import clip
from promptools.json_values import is_object

ENDPOINTS = ("/v1/chat/completions", "/v1/responses", "/v1/completions", "/v1/embeddings")
"""The values of `url` that are accepted."""
BYTE_ORDER_MARK = b"\xef\xbb\xbf"


@dataclass(frozen=True, slots=True)
class BatchRequest:
    """A request of a batch file."""

    line: int
    """Its line, from 1, or its row of a Parquet file."""
    custom_id: str
    url: str
    """One of `ENDPOINTS`."""
    body: dict[str, Any]


@dataclass(frozen=True, slots=True)
class LineProblem:
    """Why a request has no result, for the file of errors."""

    line: int
    custom_id: str | None
    code: str
    """`invalid_line`, `http_error`, `invalid_response` or `no_response`."""
    message: str
    advice: str
    """What to do about it."""
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
    """Parse the line `line` of a batch file; `body` may be an object, or its JSON as a string."""
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
    """Return what is wrong with a request and what to do, or None."""
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
    """Parse JSON without the numbers that only Python's has: no server gets them."""
    return json.loads(text, parse_constant=_refuse_constant)


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is not a JSON number")


def _invalid(line: int, custom_id: str | None, message: str, advice: str) -> LineProblem:
    return LineProblem(line, custom_id, "invalid_line", message, advice)
