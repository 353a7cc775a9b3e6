"""The number of tokens of a request that is not sent: an estimate, for which no server is asked."""

from __future__ import annotations

import json
from functools import partial
from typing import TYPE_CHECKING, Any

from promptools.errors import UsageError
from promptools.exchange.downstream.error_responses import run_route
from promptools.exchange.downstream.response_writer import encode_json
from promptools.exchange.effects import Head, Headers
from promptools.exchange.exchange_state import ExchangeState
from promptools.harmony.renderer import estimate_tokens
from promptools.wire.json_types import as_list, as_object, as_text
from promptools.wire.lenient_json import parse_body
from promptools.wire.message_content import split_content

if TYPE_CHECKING:
    from collections.abc import Mapping

    from promptools.exchange.context import ClientRequest, Context
    from promptools.exchange.exchange_state import Steps
    from promptools.exchange.runner import Exchange
    from promptools.profiles import Profile

_JSON: Headers = (("content-type", "application/json"),)
_TOKENS_PER_MESSAGE = 4
"""Tokens of the markers around a message."""
_TOKENS_PER_PART = 1_500
"""Tokens of an image or a file, about those of a large image."""


def respond_token_count(request: ClientRequest, context: Context, response: Mapping[str, Any]) -> Exchange:
    """Respond with an estimate of the tokens of a request in any client API: `input_tokens`, beside `response`."""
    state = ExchangeState(request, context)
    return run_route(state, _respond(state, response))


def _respond(state: ExchangeState, response: Mapping[str, Any]) -> Steps[None]:
    tokens = yield from state.compute(partial(_count_tokens, state))
    yield from state.emit(encode_json({**response, "input_tokens": tokens}), lambda: Head(200, _JSON))


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
