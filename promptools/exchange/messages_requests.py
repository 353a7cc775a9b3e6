"""Requests of the Messages API: a message, and the number of its tokens."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from promptools.errors import UsageError
from promptools.exchange.downstream.error_responses import respond_bad_request
from promptools.exchange.downstream.response_writer import encode_json
from promptools.exchange.effects import Head, Headers
from promptools.exchange.exchange_state import ExchangeState
from promptools.exchange.runner import run
from promptools.harmony.rendering.token_count import estimate_tokens
from promptools.wire.json_types import as_list, as_object, as_text
from promptools.wire.message_content import split_content

if TYPE_CHECKING:
    from collections.abc import Mapping

    from promptools.exchange.context import ClientRequest, Context
    from promptools.exchange.runner import Exchange
    from promptools.profiles import Profile

_OWN_PREFIX = "anthropic-"
_KEY_FIELD = "x-api-key"
_JSON: Headers = (("content-type", "application/json"),)
_TOKENS_PER_MESSAGE = 4
"""Tokens of the markers around a message."""
_TOKENS_PER_PART = 1_500
"""Tokens of an image or a file, about those of a large image."""


def serve_message(request: ClientRequest, context: Context) -> Exchange:
    """Serve a message; its headers are sent on in the form of Chat Completions."""
    sent = replace(request.request, headers=_convert_headers(request.request.headers))
    return run(replace(request, request=sent), context)


def _convert_headers(headers: Headers) -> Headers:
    """Return the fields without the API's own; the key becomes a bearer token unless there is one."""
    kept = tuple(pair for pair in headers if not pair[0].lower().startswith(_OWN_PREFIX))
    key = next((value for name, value in kept if name.lower() == _KEY_FIELD), "")
    kept = tuple(pair for pair in kept if pair[0].lower() != _KEY_FIELD)
    if not key or any(name.lower() == "authorization" for name, _ in kept):
        return kept
    return (*kept, ("authorization", f"Bearer {key}"))


def count_message_tokens(request: ClientRequest, context: Context) -> Exchange:
    """Respond with an estimate of a message's tokens; the server is not asked."""
    state = ExchangeState(request, context)
    try:
        tokens = yield from state.compute(partial(_count_tokens, state))
        yield from state.emit(encode_json({"input_tokens": tokens}), lambda: Head(200, _JSON))
    except UsageError as error:
        yield from respond_bad_request(state, error)
    finally:
        state.observe_end([], None)
    return None


def _count_tokens(state: ExchangeState) -> int:
    try:
        data: Any = json.loads(state.request.body)
    except (ValueError, RecursionError):
        data = None
    if not as_list(as_object(data).get("messages")):
        raise UsageError("the request's body is not a JSON object with 'messages'")
    profile: Profile = state.context.route(as_text(data.get("model")) or None, None).target.profile
    body, _ = state.client_api.decode_request(data, profile)
    tools = sum(_estimate_json(tool) for tool in as_list(body.get("tools")))
    return tools + sum(_count_message(as_object(message)) for message in body["messages"])


def _count_message(message: Mapping[str, Any]) -> int:
    text, others = split_content(message.get("content"))
    calls = sum(_estimate_json(as_object(call).get("function")) for call in as_list(message.get("tool_calls")))
    thoughts = estimate_tokens(as_text(message.get("reasoning_content")))
    return _TOKENS_PER_MESSAGE + estimate_tokens(text) + thoughts + calls + _TOKENS_PER_PART * len(others)


def _estimate_json(value: Any) -> int:
    return estimate_tokens(json.dumps(value, ensure_ascii=False))
