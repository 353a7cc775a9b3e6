"""Describe failed attempts as `Failure` objects, and shorten long server errors."""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from pydantic_core import from_json, to_json

from promptools.errors import clip
from promptools.exchange.effects import ResponseHead
from promptools.exchange.response_writer import DIGEST_FIELDS
from promptools.fallback import FailureKind, Overflow, classify, read_overflow
from promptools.fallback.rules import introduces_model_text
from promptools.json_values import is_array, is_object
from promptools.patterns import lazy_pattern
from promptools.wire.chat_decoder import ErrorBody, error_of
from promptools.wire.json_body import as_object, as_text

if TYPE_CHECKING:
    from promptools.exchange.effects import Failed, Opened
    from promptools.modes.prepared_request import PreparedRequest
    from promptools.modes.verdict import Verdict, VerdictKind
    from promptools.profiles.profile import Api
    from promptools.types import Malformed, Reply


# Long server errors: how much of them is read, and the shorter error that replaces a long one.
#
# An error is short, except where it quotes the request or the model: validators repeat the whole conversation, with
# its images; parsers repeat the call that they failed on. An error of up to `MAX_ERROR` bytes is read whole, and
# reaches the client unchanged. Of a longer error, `SHOWN_ERROR` bytes are kept. They decide what kind of error it is,
# and the client gets them, in the same JSON structure and with a mark at the end. The rest is read, up to `max_reply`,
# only if these bytes introduce what the model wrote; the error's message is then decoded in slices.
#
# These limits bound the time for which other threads wait: `json` and regular expressions block them all.


MAX_ERROR = 1 << 20
"""Maximum size in bytes of an error that is read whole. Parsing an error of this size with `json` takes up to 50 ms."""
SHOWN_ERROR = 1 << 16
"""Number of bytes that are kept from the beginning of an error that is longer than `MAX_ERROR`."""
CLIPPED = (
    f"... [clipped by promptools: the server's error is longer than {MAX_ERROR:,} bytes, of which these are the first "
    f"{SHOWN_ERROR:,}]"
)
"""The mark at the end of a clipped error."""
_SLICE = 1 << 18
"""How many characters of a string are decoded at a time."""
_STRING = lazy_pattern(
    r'(?:[^"\\]++|\\[^u]|\\u(?![dD][89abAB])[0-9a-fA-F]{4}|\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2})*+'
)
"""Matches a part of a JSON string; the part never ends inside an escape or between the halves of a surrogate pair."""
_KEY = lazy_pattern(r'"(?:error|message)"\s*:\s*"')
_COMPARED = 1_000
"""Number of characters at the start of an error's message by which the message is recognized in the JSON."""
_NUMBER = "-+.0123456789eE"
"""Characters that occur in numbers.

They are removed from the end of a clipped text, where a number may have lost digits.
"""


def clip_error(body: bytes) -> bytes:
    """Return the start of an error's body, with a note that it was clipped; clipped JSON is still valid JSON.

    Takes constant time.
    """
    start = _whole_characters(body[:SHOWN_ERROR])
    value = _parse_start(start.decode("utf-8", "replace"))
    return start + CLIPPED.encode() if value is None else to_json(_mark(value), inf_nan_mode="null")


def clip_reported_error(text: str) -> Any:
    """Return the error at the start of a long JSON text, with a note that it was clipped; None if there is no error."""
    value = _parse_start(text[:SHOWN_ERROR])
    reports = value is not None and "choices" not in as_object(value) and error_of(value) is not None
    return _mark(value) if reports else None


def introduces_reply(body: bytes) -> bool:
    """Return whether an error's message says that it quotes text that the model wrote."""
    return bool(_start_of_message(body[:SHOWN_ERROR].decode("utf-8", "replace")))


def quoting_message(text: str) -> str:
    """Return the whole message of a long error if it is complete and quotes the model, else an empty string.

    The text is decoded in slices, in linear time; other threads wait for at most one slice.
    """
    beginning = _start_of_message(text[:SHOWN_ERROR])
    if not beginning:
        return ""
    for key in _KEY.finditer(text, 0, SHOWN_ERROR):
        message = _decode_string(text, key.end(), beginning[:_COMPARED])
        if message:
            return message
    return ""


def _start_of_message(text: str) -> str:
    """Return the error message at the start of a JSON text if the message says that it quotes the model, else ""."""
    error = error_of(_parse_start(text))
    return error.message if error is not None and introduces_model_text(error.message) else ""


def _decode_string(text: str, at: int, beginning: str) -> str:
    """Decode the JSON string whose content begins at offset `at`.

    Returns an empty string if the decoded text does not start with `beginning`, or if the string is not closed.
    """
    parts: list[str] = []
    while (end := _match_end(text, at)) > at:
        try:
            part = from_json(f'"{text[at:end]}"')
        except ValueError:
            return ""
        if not (parts or part.startswith(beginning)):
            return ""
        parts.append(part)
        at = end
    return "".join(parts) if text.startswith('"', at) else ""


def _match_end(text: str, at: int) -> int:
    match = _STRING.match(text, at, at + _SLICE)
    return at if match is None else match.end()


def _parse_start(text: str) -> Any:
    """Parse the start of a JSON object or list, as far as possible; None for any other text."""
    try:
        value = from_json(text.rstrip(_NUMBER), allow_partial="trailing-strings")
    except ValueError:
        return None
    return value if is_object(value) or is_array(value) else None


def _mark(value: Any) -> Any:
    """Return a copy of an error whose message ends with a note that the error was clipped."""
    if is_array(value):
        return [_mark(value[0])] if value else [CLIPPED]
    data = as_object(value)
    if is_object(data.get("error")):
        error = data["error"]
        return {**data, "error": {**error, "message": as_text(error.get("message")) + CLIPPED}}
    key = next((key for key in ("error", "message", "detail") if isinstance(data.get(key), str)), "message")
    return {**data, key: as_text(data.get(key)) + CLIPPED}


def _whole_characters(data: bytes) -> bytes:
    """Return the start of UTF-8 bytes, without an incomplete character at the end."""
    while data and data[-1] & 0b1100_0000 == 0b1000_0000:
        data = data[:-1]
    return data[:-1] if data and data[-1] & 0b1100_0000 == 0b1100_0000 else data


# Failures: from a status, an error in a reply, a connection, a verdict or a call that was streamed.


OLLAMA_APIS: frozenset[Api] = frozenset({"ollama", "generate"})
"""Ollama's own APIs, whose errors are a plain string."""
_RAW_APIS: frozenset[Api] = frozenset({"completions", "llamacpp", "generate"})
_BODY_FIELDS = frozenset({"content-length", "etag", *DIGEST_FIELDS})
"""Header fields that are wrong for a clipped body."""
_UNSUPPORTED_STATUSES = frozenset({400, 404, 405, 415, 422, 501})


@dataclass(frozen=True, slots=True)
class Failure:
    """A failed attempt, or a failed choice of an attempt."""

    kind: FailureKind
    why: str
    """The reason, as one line for the trace."""
    text: str = ""
    """The server's error text: all of it, unless the error is clipped."""
    opened: Opened | None = None
    body: bytes = b""
    """The server's error response, unchanged or clipped; for an error in a stream, the JSON of the error."""
    server_error: ErrorBody | None = None
    """The error that the server reported, whatever the HTTP status of the response."""
    wire: Api = "chat"
    """The API in whose format the server responded."""
    error: BaseException | None = None
    """The HTTP library's exception, if the connection failed."""
    verdict: Verdict | None = None
    """The verdict on a reply that was read to its end."""
    partial_reply: Reply | None = None
    """The reply as far as it was read before the failure."""
    call_signalled: bool = False
    """Whether the server signaled a call but sent none."""
    overflow: Overflow = field(default_factory=Overflow)
    """The token counts of a prompt that is longer than the context."""
    context_limit: int | None = None
    """The largest context, in tokens, that may be requested; None if promptools may not choose the context."""
    prepared: PreparedRequest | None = field(default=None, repr=False)
    """The request as the attempt sent it; None if the client's own request was forwarded, or nothing was sent."""

    @property
    def status(self) -> int | None:
        """The HTTP status of the response; None if there was no response."""
        return self.opened.status if self.opened else None

    @property
    def size(self) -> int:
        """The number of characters of error text to search when the failure is handled."""
        return len(self.text) + (len(self.server_error.whole_message) if self.server_error else 0)

    @property
    def error_status(self) -> int | None:
        """The status with which to report the server's error to the client; None if the server reported no error.

        This is the status of the response if that is 400 or higher. If it is lower, this is the status in the error
        itself or, if the error has none, 502.
        """
        if self.server_error is None or self.opened is None:
            return None
        return self.opened.status if self.opened.status >= 400 else self.server_error.status or 502

    @property
    def names_status(self) -> bool:
        """Whether the server itself chose the status of the error."""
        return self.server_error is not None and self.error_status in {self.status, self.server_error.status}


def failure_of_status(opened: Opened, body: bytes, wire: Api = "chat") -> Failure:
    """Return the failure for a response with an error status; a body over `MAX_ERROR` bytes is clipped."""
    whole, is_clipped = "", len(body) > MAX_ERROR
    if is_clipped:
        whole, body = quoting_message(body.decode("utf-8", "replace")), clip_error(body)
    text = body.decode("utf-8", "replace")
    try:
        problem = error_of(json.loads(text))
    except (ValueError, RecursionError):
        problem = None
    problem = replace(problem or ErrorBody(text), is_clipped=is_clipped, whole_message=whole)
    return failure_of_error(problem, opened, body, wire=wire)


def failure_of_error(
    problem: ErrorBody, opened: Opened, body: bytes, partial_reply: Reply | None = None, wire: Api = "chat"
) -> Failure:
    """Return the failure for an error that the server reports, whatever the HTTP status of the response."""
    why = clip(" ".join(problem.message.split())) or "an error without a text"
    overflow = read_overflow(problem.message, prompt=problem.prompt_tokens, context=problem.context_tokens)
    kind = classify(problem.message)
    # vLLM's parsers raise arbitrary Python exceptions, and only the 500 identifies them (vllm#10589, vllm#36849)
    if kind == "refused" and 500 in {opened.status, problem.status}:
        kind = "crashed"
    # Ollama refuses a request by its status; an error after a 200 means that the model, or its parser, failed
    if kind == "refused" and wire in OLLAMA_APIS and opened.status == 200:
        kind = "cut"
    if kind == "refused" and wire in _RAW_APIS and opened.status in _UNSUPPORTED_STATUSES:
        kind = "no_raw"
    return Failure(
        kind,
        why,
        problem.message,
        opened,
        body or json.dumps(problem.body).encode(),
        problem,
        wire,
        partial_reply=partial_reply,
        overflow=overflow,
    )


def head_of_error(opened: Opened, failure: Failure) -> ResponseHead:
    """Return the status and headers for forwarding a server's error.

    If the body is clipped, the fields that are then wrong, such as `content-length`, are left out.
    """
    error = failure.server_error
    dropped = _BODY_FIELDS if error is not None and error.is_clipped else ()
    return ResponseHead(opened.status, tuple(pair for pair in opened.headers if pair[0].lower() not in dropped))


def failure_of_connection(failed: Failed, opened: Opened | None = None, partial_reply: Reply | None = None) -> Failure:
    """Return the failure for a connection that could not be made, or broke."""
    if failed.kind == "timeout":
        kind: FailureKind = "timeout"
    else:
        kind = "cut" if opened else "connect"
    return Failure(
        kind,
        f"{failed.kind}: {clip(failed.text)}",
        failed.text,
        opened,
        error=failed.error,
        partial_reply=partial_reply,
    )


_KIND_BY_VERDICT: dict[VerdictKind, FailureKind] = {
    "malformed": "malformed",
    "truncated": "truncated",
    "unknown_tool": "unknown_tool",
    "no_call": "choice",
    "forbidden": "choice",
    "swallowed": "swallowed",
    "empty_calls": "empty_calls",
    "format": "format",
    "cut": "cut",
}


def failure_of_verdict(verdict: Verdict, opened: Opened, *, call_signalled: bool = False) -> Failure:
    """Return the failure for a reply that does not satisfy the request."""
    return Failure(
        _KIND_BY_VERDICT[verdict.kind], verdict.reason, opened=opened, verdict=verdict, call_signalled=call_signalled
    )


def failure_of_live_call(call: Malformed, reply: Reply, opened: Opened) -> Failure:
    """Return the failure for a reply with a call that proved malformed after a part of the call was streamed."""
    why = f"{call.name or 'a call'}: {call.reason}, after its arguments had been streamed"
    return Failure("malformed", why, opened=opened, partial_reply=reply)
