"""Answers that are no replies: our own errors as HTTP, an upstream's as it was, and errors inside a stream."""

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
    """Answer a request that cannot be: 400, and nothing to retry."""
    body = ledger.front.error(str(error), kind="UsageError", code="usage")
    head = Head(400, (("content-type", _JSON), ("x-should-retry", "false")))
    yield from ledger.emit(ledger.front.in_stream(body) if ledger.head_sent else body, lambda: head)


def conclude(ledger: Ledger, failure: Failure, mode: str) -> Steps[None]:
    """Answer a request that nothing could mend.

    Raises the shell's own exception where there was no answer, so that the SDK retries it as it would without us.
    """
    sends = len(ledger.attempts)
    status, body = (400, _overflow(ledger, failure)) if failure.kind == "overflow" else (502, _body(ledger, failure))
    head = Head(status, (*own_headers((), _JSON, mode, sends), ("x-should-retry", "false")))
    if ledger.head_sent:
        said = f"promptools mode={mode} attempts={sends}"
        yield from ledger.emit(ledger.front.in_stream(body, said), lambda: head)
        return
    late = ledger.policy.left(ledger.now) == 0
    if failure.error and not late and (failure.kind in {"connect", "timeout"} or sends == 1):
        raise failure.error
    if _as_it_was(failure, sends) and failure.opened:
        body = ledger.front.server_error(failure)
        kind = header(failure.opened.headers, "content-type") if body is failure.body else _JSON
        head = Head(failure.opened.status, own_headers(failure.opened.headers, kind or _JSON, mode, sends))
    yield from ledger.emit(body, lambda: head)


def _as_it_was(failure: Failure, sends: int) -> bool:
    """Tell whether the server's own answer is the best there is: nothing was tried on it, or nothing can be."""
    if failure.opened is None or failure.opened.status < 400 or failure.kind == "overflow":
        return False
    return sends == 1 or failure.kind in {"refused", "crashed"}


def _overflow(ledger: Ledger, failure: Failure) -> bytes:
    """Say that the prompt is too long: in the same words, and under OpenAI's code, whatever server it was."""
    raised = "" if failure.limit is None else f"; it may be raised to {failure.limit} (num_ctx_limit)"
    numbers = f"{failure.overflow}{raised}"
    message = f"the conversation does not fit: {numbers}. {LONGER}. Tried: {_tried(ledger)}"
    attempts = ledger.attempts
    return ledger.front.error(message, kind="UpstreamError", code="context_length_exceeded", attempts=attempts)


def _tried(ledger: Ledger) -> str:
    return "; ".join(f"{n}. {each.mode} mode: {each.outcome}" for n, each in enumerate(ledger.attempts, 1))


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
