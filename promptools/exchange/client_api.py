"""The APIs that clients use: requests are converted to Chat Completions, responses are written in the client's API.

The code between these two conversions does not depend on the client's API. This module contains `ClientApi`, which is
the interface of all client APIs, and the implementation of Chat Completions. Each of the other APIs has a module
(`ollama_api`, `messages_api`, `responses_api`).

The second half contains two kinds of response that do not come from a model's reply: errors and estimates of token
counts. They work in the same way for every API.
"""

from __future__ import annotations

import json
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

from promptools.errors import UsageError
from promptools.exchange.effects import Failed, Headers, ResponseHead
from promptools.exchange.failures import OLLAMA_APIS
from promptools.exchange.response_writer import JsonWriter, ResponseWriter, SseWriter, encode_json, response_headers
from promptools.exchange.state import ExchangeState
from promptools.exchange.upstream import get_header, is_stream
from promptools.harmony.renderer import estimate_tokens
from promptools.types import HealingCost
from promptools.wire.chat_encoder import error_body
from promptools.wire.json_body import as_list, as_object, as_text, parse_body, split_content
from promptools.wire.sse import encode_comment

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from promptools.exchange.context import ClientRequest, Context
    from promptools.exchange.failures import Failure
    from promptools.exchange.runner import Exchange
    from promptools.exchange.state import Steps
    from promptools.modes.tool_request import ToolRequest
    from promptools.profiles import Profile
    from promptools.profiles.profile import Wire
    from promptools.types import Attempt


class ClientApi(Protocol):
    """The interface of an API that clients use."""

    wire: Wire | None
    """The API's name in server profiles; requests without tools are forwarded unchanged to a server that has this API.

    If None, promptools never sends requests in this API, and converts every request.
    """
    streams_arguments: bool
    """Whether a call's arguments can be streamed in deltas."""
    path: str
    """The API's route, relative to a server's API base URL, or to the server's root if it begins with `/`."""

    def decode_request(self, body: dict[str, Any], profile: Profile) -> tuple[dict[str, Any], tuple[str, ...]]:
        """Convert a request to Chat Completions for a server with this profile; also return notes on what is lost."""
        ...

    def response_writer(self, request: ToolRequest, *, begun: bool = False) -> ResponseWriter:
        """Return the writer for the response to `request`; `begun` says whether part of a stream was already sent."""
        ...

    def encode_error(
        self, message: str, *, kind: str, code: str, attempts: Iterable[Attempt] = (), request_id: str = ""
    ) -> bytes:
        """Encode an error that promptools itself reports."""
        ...

    def encode_stream_error(self, error: bytes, note: str = "") -> bytes:
        """Encode an error for a stream that has already begun, and `note` as a comment if the API allows comments."""
        ...

    def encode_server_error(self, failure: Failure) -> bytes:
        """Encode the error that the server responded with."""
        ...


class ChatCompletionsApi:
    """Implements OpenAI's Chat Completions."""

    wire: Wire | None = "chat"
    streams_arguments = True
    path = "chat/completions"

    def decode_request(self, body: dict[str, Any], profile: Profile) -> tuple[dict[str, Any], tuple[str, ...]]:  # noqa: ARG002 one signature for all APIs
        """Return the body unchanged."""
        return body, ()

    def response_writer(self, request: ToolRequest, *, begun: bool = False) -> ResponseWriter:
        """Return a writer of server-sent events if a stream is requested, else a writer of one JSON body."""
        return SseWriter(request, begun=begun) if request.stream else JsonWriter(request)

    def encode_error(
        self, message: str, *, kind: str, code: str, attempts: Iterable[Attempt] = (), request_id: str = ""
    ) -> bytes:
        """Encode an error object that lists the attempts."""
        return encode_json(error_body(message, kind=kind, code=code, attempts=attempts, request_id=request_id))

    def encode_stream_error(self, error: bytes, note: str = "") -> bytes:
        """Encode an `error` event, followed by `note` as a comment."""
        return b"event: error\ndata: %b\n\n" % error + (encode_comment(note) if note else b"")

    def encode_server_error(self, failure: Failure) -> bytes:
        """Return the error unchanged; convert an error from Ollama's own APIs to the form of Ollama's /v1."""
        if failure.wire not in OLLAMA_APIS:
            return failure.body
        kind = {400: "invalid_request_error", 404: "not_found_error"}.get(failure.error_status or 0, "api_error")
        return encode_json({"error": {"message": failure.text, "type": kind, "param": None, "code": None}})


CHAT_API: ClientApi = ChatCompletionsApi()


# Error responses to the client: our own errors as HTTP, the upstream's error unchanged, and errors inside a stream.


_JSON = "application/json"
_MODEL_KINDS = frozenset({"malformed", "truncated", "unknown_tool", "choice"})
LONGER_CONTEXT_HINT = (
    "Shorten it, or give the model a longer context (Ollama: num_ctx, up to num_ctx_limit in its profile; vLLM: "
    "--max-model-len; llama.cpp: --ctx-size; SGLang: --context-length; LM Studio: in the model's settings)"
)


MAX_QUOTED = 2_000
"""Maximum number of characters of a server's error text that promptools quotes in its own error."""


def run_route(state: ExchangeState, steps: Steps[None]) -> Exchange:
    """Serve a route that does not need the retry loop: run its `steps`, and answer an invalid request with HTTP 400."""
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
    """Respond to an invalid request with HTTP 400, and tell the client's SDK not to retry the request."""
    state.error_kind = "usage"
    body = state.encode_error(str(error), kind="UsageError", code=error.code)
    head = ResponseHead(400, (("content-type", _JSON), ("x-should-retry", "false")))
    yield from state.emit(state.client_api.encode_stream_error(body) if state.head_sent else body, lambda: head)


def respond_no_answer(state: ExchangeState, failed: Failed) -> Steps[None]:
    """Report that the server gave no answer: raise the HTTP library's exception, or respond with HTTP 502.

    There is no exception if the server answered with a redirect, which is not followed.
    """
    if failed.error is not None:
        raise failed.error
    state.error_kind = "connect"
    why = f"no answer from the server ({failed.kind}: {failed.text})"
    body = state.encode_error(why, kind="UpstreamError", code="no_answer")
    yield from state.emit(body, lambda: ResponseHead(502, (("content-type", _JSON),)))


def respond_failure(state: ExchangeState, failure: Failure, mode: str, *, servers_own: bool = False) -> Steps[None]:
    """Respond with an error after the last possible attempt has failed.

    The client gets the server's own error, if there is one, when only one attempt was made or when no other attempt
    could have helped. If `servers_own` is true, the client gets the server's error after several attempts too. But if
    the conversation is too long, the client always gets an error that promptools writes.

    Raises the HTTP library's exception if nothing has been sent to the client, time is left, and the server could not
    be reached, was too slow, or broke off the only attempt. The SDK then retries as it would without promptools.
    """
    state.error_kind = failure.kind
    sends, notes = len(state.attempts), len(state.notes)
    status, body = (
        (400, _overflow_body(state, failure)) if failure.kind == "overflow" else (502, _error_body(state, failure))
    )
    healing = HealingCost.of(state.attempts)
    fields = response_headers((), _JSON, mode, sends, notes, healing=healing)
    head = ResponseHead(status, (*fields, ("x-should-retry", "false")))
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
        advice = () if failure.names_status else (("x-should-retry", "false"),)  # a retry may not help
        fields = response_headers(headers, media_type or _JSON, mode, sends, notes, healing=healing)
        head = ResponseHead(failure.error_status, (*fields, *advice))
    yield from state.emit(body, lambda: head)


def _returns_server_error(failure: Failure, sends: int) -> bool:
    """Return whether to pass the server's own error to the client. True if no remedy was tried or none exists.

    False if the conversation is too long, because promptools then writes the error.
    """
    return failure.kind in {"refused", "crashed"} or (sends == 1 and failure.kind != "overflow")


def _overflow_body(state: ExchangeState, failure: Failure) -> bytes:
    """Return the error for a prompt that is too long: the server's message, promptools' own, and OpenAI's error code.

    Clients recognize an overflow by the server's message (litellm 1.106, opencode 1.18), by the code (langchain-openai
    1.7), or in the Messages API by "prompt is too long" (Claude Code 2.1), and then shorten the conversation.
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


# The number of tokens of a request that is not sent: an estimate, for which no server is asked.


_JSON_FIELDS: Headers = (("content-type", "application/json"),)
_TOKENS_PER_MESSAGE = 4
"""Number of tokens that are estimated for the markers around a message."""
_TOKENS_PER_PART = 1_500
"""Number of tokens that are estimated for an image or a file: about as many as a large image takes."""


def respond_token_count(request: ClientRequest, context: Context, response: Mapping[str, Any]) -> Exchange:
    """Respond with the fields in `response` and, as `input_tokens`, the estimated number of tokens in the request."""
    state = ExchangeState(request, context)
    return run_route(state, _respond_count(state, response))


def _respond_count(state: ExchangeState, response: Mapping[str, Any]) -> Steps[None]:
    tokens = yield from state.compute(partial(_count_tokens, state))
    yield from state.emit(encode_json({**response, "input_tokens": tokens}), lambda: ResponseHead(200, _JSON_FIELDS))


def _count_tokens(state: ExchangeState) -> int:
    parsed, unread = parse_body(state.request.body)
    if unread:
        raise UsageError(unread)
    data = as_object(parsed)
    profile: Profile = state.context.route(as_text(data.get("model")) or None, None).target.profile
    body, _ = state.client_api.decode_request(data, profile)
    messages = as_list(body.get("messages"))
    if not messages:
        raise UsageError("the request has no messages to count")
    tools = sum(_estimate_json(tool) for tool in as_list(body.get("tools")))
    return tools + sum(_count_message(as_object(message)) for message in messages)


def _count_message(message: Mapping[str, Any]) -> int:
    text, others = split_content(message.get("content"))
    calls = sum(_estimate_json(as_object(call).get("function")) for call in as_list(message.get("tool_calls")))
    thoughts = estimate_tokens(as_text(message.get("reasoning_content")))
    return _TOKENS_PER_MESSAGE + estimate_tokens(text) + thoughts + calls + _TOKENS_PER_PART * len(others)


def _estimate_json(value: Any) -> int:
    return estimate_tokens(json.dumps(value, ensure_ascii=False))
