"""Error responses to the client: our own errors as HTTP, the upstream's error unchanged, and errors inside a stream."""

from __future__ import annotations

from typing import TYPE_CHECKING

from promptools.errors import UsageError
from promptools.exchange.downstream.response_writer import response_headers
from promptools.exchange.effects import Head
from promptools.exchange.upstream.upstream_reply import get_header, is_stream

if TYPE_CHECKING:
    from promptools.exchange.exchange_state import ExchangeState, Steps
    from promptools.exchange.runner import Exchange
    from promptools.exchange.upstream.failure import Failure

_JSON = "application/json"
_MODEL_KINDS = frozenset({"malformed", "truncated", "unknown_tool", "choice"})
LONGER_CONTEXT_HINT = (
    "Shorten it, or give the model a longer context (Ollama: num_ctx, up to num_ctx_limit in its profile; vLLM: "
    "--max-model-len; llama.cpp: --ctx-size; SGLang: --context-length; LM Studio: in the model's settings)"
)


MAX_QUOTED = 2_000
"""Characters of a server's error text that an error of ours quotes."""


def run_route(state: ExchangeState, steps: Steps[None]) -> Exchange:
    """Run the steps of a route without a reply to read; an invalid request is answered with HTTP 400."""
    problem: BaseException | None = None
    try:
        yield from steps
    except UsageError as error:
        yield from respond_bad_request(state, error)
    except BaseException as error:
        problem = error
        raise
    finally:
        state.observe_end([], problem)
    return None


def respond_bad_request(state: ExchangeState, error: UsageError) -> Steps[None]:
    """Respond to an invalid request with HTTP 400, and tell the SDK not to retry it."""
    state.error_kind = "usage"
    body = state.encode_error(str(error), kind="UsageError", code=error.code)
    head = Head(400, (("content-type", _JSON), ("x-should-retry", "false")))
    yield from state.emit(state.client_api.encode_stream_error(body) if state.head_sent else body, lambda: head)


def respond_failure(state: ExchangeState, failure: Failure, mode: str, *, servers_own: bool = False) -> Steps[None]:
    """Respond to a request that failed for good; with `servers_own` by the server's own error, if one can be.

    Raises the driver's own exception if the server did not respond, so that the SDK retries as it would without us.
    """
    state.error_kind = failure.kind
    sends, notes = len(state.attempts), len(state.notes)
    status, body = (
        (400, _overflow_body(state, failure)) if failure.kind == "overflow" else (502, _error_body(state, failure))
    )
    head = Head(status, (*response_headers((), _JSON, mode, sends, notes), ("x-should-retry", "false")))
    if state.head_sent:
        summary = f"promptools mode={mode} attempts={sends}"
        yield from state.emit(state.client_api.encode_stream_error(body, summary), lambda: head)
        return
    deadline_passed = state.policy.seconds_left(state.now) == 0
    if failure.error and not deadline_passed and (failure.kind in {"connect", "timeout"} or sends == 1):
        raise failure.error
    servers_own = _returns_server_error(failure, sends) or (servers_own and failure.kind != "overflow")
    if failure.opened and failure.error_status and servers_own:
        body = state.client_api.encode_server_error(failure)
        headers = failure.opened.headers
        unchanged = body is failure.body and not is_stream(headers, asked=False)
        media_type = get_header(headers, "content-type") if unchanged else _JSON
        advice = () if failure.names_status else (("x-should-retry", "false"),)  # nothing says that it would pass
        fields = response_headers(headers, media_type or _JSON, mode, sends, notes)
        head = Head(failure.error_status, (*fields, *advice))
    yield from state.emit(body, lambda: head)


def _returns_server_error(failure: Failure, sends: int) -> bool:
    """Whether to return the server's own error: no remedy was tried, or none exists."""
    return failure.kind in {"refused", "crashed"} or (sends == 1 and failure.kind != "overflow")


def _overflow_body(state: ExchangeState, failure: Failure) -> bytes:
    """Return the error for a prompt that is too long: the server's words, then ours, and OpenAI's error code.

    Clients know it by the server's words (litellm 1.106, opencode 1.18), by the code (langchain-openai 1.7), or in the
    Messages API by "prompt is too long" (Claude Code 2.1), and then shorten the conversation.
    """
    raised = "" if failure.context_limit is None else f"; it may be raised to {failure.context_limit} (num_ctx_limit)"
    numbers = f"{failure.overflow}{raised}"
    ours = f"The conversation does not fit: {numbers}. {LONGER_CONTEXT_HINT}. Tried: {_attempts_text(state)}"
    said = failure.text.strip()[:MAX_QUOTED]
    sent = failure.server_error.type if failure.server_error else ""
    return state.encode_error(
        f"{said} {ours}" if said else ours,
        kind=sent or "invalid_request_error",
        code="context_length_exceeded",
        attempts=state.attempts,
    )


def _attempts_text(state: ExchangeState) -> str:
    return "; ".join(f"{n}. {attempt.mode} mode: {attempt.outcome}" for n, attempt in enumerate(state.attempts, 1))


def _error_body(state: ExchangeState, failure: Failure) -> bytes:
    attempts = state.attempts
    if failure.kind in _MODEL_KINDS:
        kind, what = "ModelError", "the model's reply cannot be used"
    elif len(attempts) == 1:
        kind, what = "UpstreamError", "the server failed"
    else:
        kind, what = "Exhausted", "every attempt failed"
    message = f"{what} ({failure.kind}: {failure.why}). Tried: {_attempts_text(state)}"
    return state.encode_error(message, kind=kind, code=failure.kind, attempts=attempts)
