"""Requests of the Messages API: a message, and the number of its tokens."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from promptools.exchange.downstream.token_counts import respond_token_count
from promptools.exchange.runner import run

if TYPE_CHECKING:
    from promptools.exchange.context import ClientRequest, Context
    from promptools.exchange.effects import Headers
    from promptools.exchange.runner import Exchange

_OWN_PREFIX = "anthropic-"
_KEY_FIELD = "x-api-key"


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
    return respond_token_count(request, context, {})
