"""Error responses to the client: our own errors as HTTP, the upstream's error unchanged, and errors inside a stream."""

from __future__ import annotations

from typing import TYPE_CHECKING

from promptools.exchange.effects import Head
from promptools.exchange.intake import header
from promptools.exchange.outlet import own_headers

if TYPE_CHECKING:
    from promptools.errors import UsageError
    from promptools.exchange.failure import Failure
    from promptools.exchange.ledger import Ledger, Steps

_JSON = "application/json"
_MODEL = frozenset({"malformed", "truncated", "unknown_tool", "choice"})
LONGER = (
    "Shorten it, or give the model a longer context (Ollama: num_ctx, up to num_ctx_limit in its profile; vLLM: "
    "--max-model-len; llama.cpp: --ctx-size; SGLang: --context-length; LM Studio: in the model's settings)"
)


def refuse(ledger: Ledger, error: UsageError) -> Steps[None]:
    """Respond to an invalid request with HTTP 400, and tell the SDK not to retry it."""
    body = ledger.front.error(str(error), kind="UsageError", code="usage")
    head = Head(400, (("content-type", _JSON), ("x-should-retry", "false")))
    yield from ledger.emit(ledger.front.in_stream(body) if ledger.head_sent else body, lambda: head)


def conclude(ledger: Ledger, failure: Failure, mode: str) -> Steps[None]:
    """Respond to a request that failed for good.

    Raises the shell's own exception if the server did not respond, so that the SDK retries as it would without us.
    """
    sends = len(ledger.attempts)
    status, body = (400, _overflow(ledger, failure)) if failure.kind == "overflow" else (502, _body(ledger, failure))
    head = Head(status, (*own_headers((), _JSON, mode, sends), ("x-should-retry", "false")))
    if ledger.head_sent:
        summary = f"promptools mode={mode} attempts={sends}"
        yield from ledger.emit(ledger.front.in_stream(body, summary), lambda: head)
        return
    deadline_passed = ledger.policy.left(ledger.now) == 0
    if failure.error and not deadline_passed and (failure.kind in {"connect", "timeout"} or sends == 1):
        raise failure.error
    if _as_it_was(failure, sends) and failure.opened:
        body = ledger.front.server_error(failure)
        media_type = header(failure.opened.headers, "content-type") if body is failure.body else _JSON
        head = Head(failure.opened.status, own_headers(failure.opened.headers, media_type or _JSON, mode, sends))
    yield from ledger.emit(body, lambda: head)


def _as_it_was(failure: Failure, sends: int) -> bool:
    """Whether to return the server's own error response: no remedy was tried, or none exists."""
    if failure.opened is None or failure.opened.status < 400 or failure.kind == "overflow":
        return False
    return sends == 1 or failure.kind in {"refused", "crashed"}


def _overflow(ledger: Ledger, failure: Failure) -> bytes:
    """Return the error for a prompt that is too long: the same text and OpenAI's error code for every server."""
    raised = "" if failure.limit is None else f"; it may be raised to {failure.limit} (num_ctx_limit)"
    numbers = f"{failure.overflow}{raised}"
    message = f"the conversation does not fit: {numbers}. {LONGER}. Tried: {_tried(ledger)}"
    attempts = ledger.attempts
    return ledger.front.error(message, kind="UpstreamError", code="context_length_exceeded", attempts=attempts)


def _tried(ledger: Ledger) -> str:
    return "; ".join(f"{n}. {attempt.mode} mode: {attempt.outcome}" for n, attempt in enumerate(ledger.attempts, 1))


def _body(ledger: Ledger, failure: Failure) -> bytes:
    attempts = ledger.attempts
    if failure.kind in _MODEL:
        kind, what = "ModelError", "the model's reply cannot be used"
    elif len(attempts) == 1:
        kind, what = "UpstreamError", "the server failed"
    else:
        kind, what = "Exhausted", "every attempt failed"
    message = f"{what} ({failure.kind}: {failure.why}). Tried: {_tried(ledger)}"
    return ledger.front.error(message, kind=kind, code=failure.kind, attempts=attempts)
