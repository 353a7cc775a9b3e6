"""A failed attempt: its kind, and everything of it that may still be used."""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from promptools.errors import clip
from promptools.exchange.downstream.response_writer import DIGEST_FIELDS
from promptools.exchange.effects import Head
from promptools.exchange.upstream.error_body import MAX_ERROR, clip_error, quoting_message
from promptools.fallback import FailureKind, Overflow, classify, read_overflow
from promptools.wire.chat_decoder import ErrorBody, error_of

if TYPE_CHECKING:
    from promptools.exchange.effects import Failed, Opened
    from promptools.modes.replies.verdict import Verdict, VerdictKind
    from promptools.profiles.profile import Api
    from promptools.types import Malformed, Reply


OLLAMA_APIS: frozenset[Api] = frozenset({"ollama", "generate"})
"""Ollama's own APIs, whose errors are a plain string."""
_RAW_APIS: frozenset[Api] = frozenset({"completions", "llamacpp", "generate"})
_BODY_FIELDS = frozenset({"content-length", "etag", *DIGEST_FIELDS})
"""Header fields that are wrong for a clipped body."""
_UNSUPPORTED_STATUSES = frozenset({400, 404, 405, 415, 422, 501})


@dataclass(frozen=True, slots=True)
class Failure:
    """One failed attempt, or one failed choice of it."""

    kind: FailureKind
    why: str
    """One line for the trace."""
    text: str = ""
    """The server's error text: all of it, unless the error is clipped."""
    opened: Opened | None = None
    body: bytes = b""
    """The server's error response, unchanged or clipped; of an error in a stream its JSON."""
    server_error: ErrorBody | None = None
    """The error that the server reported, under any HTTP status."""
    wire: Api = "chat"
    """The API that the response came from."""
    error: BaseException | None = None
    """The driver's own exception."""
    verdict: Verdict | None = None
    """The verdict on a reply that was read to its end."""
    partial_reply: Reply | None = None
    """What was read before the failure."""
    call_signalled: bool = False
    """Whether the server signalled a call and sent none."""
    overflow: Overflow = field(default_factory=Overflow)
    """The token counts of a prompt that is longer than the context."""
    context_limit: int | None = None
    """How far we may raise the context, in tokens, if it is too short; None if that is not up to us."""

    @property
    def status(self) -> int | None:
        """The HTTP status of the response; None without one."""
        return self.opened.status if self.opened else None

    @property
    def size(self) -> int:
        """How many characters of its text there are to be read."""
        return len(self.text) + (len(self.server_error.whole_message) if self.server_error else 0)

    @property
    def error_status(self) -> int | None:
        """The status that tells the client of the server's error; None if the server reported none.

        It is the response's; under HTTP 200 the one that the error names itself, or 502.
        """
        if self.server_error is None or self.opened is None:
            return None
        return self.opened.status if self.opened.status >= 400 else self.server_error.status or 502

    @property
    def names_status(self) -> bool:
        """Whether the status of the error is the server's own."""
        return self.server_error is not None and self.error_status in {self.status, self.server_error.status}


def failure_of_status(opened: Opened, body: bytes, wire: Api = "chat") -> Failure:
    """Return the failure for a response whose HTTP status is an error; a body over `MAX_ERROR` bytes is clipped."""
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
    """Return the failure for an error that the server reports, under any HTTP status."""
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


def head_of_error(opened: Opened, failure: Failure) -> Head:
    """Return the head of the server's error, for its body as it was read."""
    error = failure.server_error
    dropped = _BODY_FIELDS if error is not None and error.is_clipped else ()
    return Head(opened.status, tuple(pair for pair in opened.headers if pair[0].lower() not in dropped))


def failure_of_connection(failed: Failed, opened: Opened | None = None, partial_reply: Reply | None = None) -> Failure:
    """Return the failure for a connection that was not made, or broke."""
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
    """Return the failure for a reply that is not what the request asked for."""
    return Failure(
        _KIND_BY_VERDICT[verdict.kind], verdict.reason, opened=opened, verdict=verdict, call_signalled=call_signalled
    )


def failure_of_live_call(call: Malformed, reply: Reply, opened: Opened) -> Failure:
    """Return the failure for a call that broke after part of it was streamed; nothing of its reply can be returned."""
    why = f"{call.name or 'a call'}: {call.reason}, after its arguments had been streamed"
    return Failure("malformed", why, opened=opened, partial_reply=reply)
