"""The routes of stored responses: GET and DELETE, its input items, and cancel. No server is asked.

A stored response is complete, so none can be cancelled: that is for background responses, which are not served here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, unquote

from promptools.errors import clip
from promptools.exchange.downstream.response_writer import encode_json
from promptools.exchange.downstream.responses.response_store import StoredResponse
from promptools.exchange.effects import Head
from promptools.exchange.exchange_state import ExchangeState
from promptools.wire.chat_encoder import error_body
from promptools.wire.responses.output_items import ID_PREFIX

if TYPE_CHECKING:
    from promptools.exchange.context import ClientRequest, Context
    from promptools.exchange.runner import Exchange

_ROUTE = "/responses/"
STORED_ROUTE = f"{_ROUTE}{ID_PREFIX}"
"""How the paths of stored responses begin; other ids are not ours."""
_INPUT_ITEMS = "input_items"
_ROUTES = frozenset({("GET", ""), ("GET", _INPUT_ITEMS), ("DELETE", ""), ("POST", "cancel")})
"""Method, and what follows the response's id in the path."""
_DEFAULT_LIMIT = 20
_MAX_LIMIT = 100


def serve_stored_response(request: ClientRequest, context: Context) -> Exchange:
    """Respond to a request for a stored response."""
    state = ExchangeState(request, context)
    status, body = _respond(request, context)
    if request.caller.request_id and "error" in body and status >= 400:
        body["error"]["request_id"] = request.caller.request_id
    yield from state.emit(encode_json(body), lambda: Head(status, (("content-type", "application/json"),)))
    state.observe_end([], None)
    return None


def _respond(request: ClientRequest, context: Context) -> tuple[int, dict[str, Any]]:
    address, _, query = request.request.url.partition("?")
    response_id, _, part = unquote(address.rstrip("/").rpartition(_ROUTE)[2]).partition("/")
    owner, store = request.owner, context.response_store
    stored, method = store.get(owner, response_id), request.request.method
    if (method, part) not in _ROUTES:
        return 404, _error(f"{method} {_ROUTE}ID/{clip(part)} is not a route of the Responses API")
    if stored is None:
        return 404, _error(f"Response with id {clip(repr(response_id))} not found.")
    if method == "POST":
        return 400, _error("Cannot cancel a synchronous response.")
    if method == "DELETE":
        store.delete(owner, response_id)
        return 200, {"id": response_id, "object": "response", "deleted": True}
    parameters = parse_qs(query)
    if part:
        return _list_input_items(stored, parameters)
    if parameters.get("stream") == ["true"]:
        return 400, _error("a stored response cannot be streamed: that is for background responses, not served here")
    return 200, stored.body


def _list_input_items(stored: StoredResponse, parameters: dict[str, list[str]]) -> tuple[int, dict[str, Any]]:
    """Return a page of the items that the response answers, the latest first unless `order` is `asc`."""
    limit = parameters.get("limit", [str(_DEFAULT_LIMIT)])[0]
    if not (limit.isdecimal() and len(limit) < 4 and 1 <= int(limit) <= _MAX_LIMIT):
        return 400, _error(f"'limit' must be from 1 to {_MAX_LIMIT}, not {clip(limit)}")
    items = list(stored.input) if parameters.get("order") == ["asc"] else [*reversed(stored.input)]
    after = parameters.get("after", [""])[0]
    start = next((position for position, item in enumerate(items, 1) if item.get("id") == after), 0) if after else 0
    page = [_as_listed(item) for item in items[start : start + int(limit)]]
    return 200, {
        "object": "list",
        "data": page,
        "first_id": page[0]["id"] if page else None,
        "last_id": page[-1]["id"] if page else None,
        "has_more": start + len(page) < len(items),
    }


def _as_listed(item: dict[str, Any]) -> dict[str, Any]:
    """Return an item with the type that a message may lack, and its content as parts."""
    listed = {"type": "message", **item}
    if listed["type"] == "message" and isinstance(listed.get("content"), str):
        kind = "output_text" if listed.get("role") == "assistant" else "input_text"
        listed["content"] = [{"type": kind, "text": listed["content"]}]
    return listed


def _error(message: str) -> dict[str, Any]:
    return error_body(message, kind="invalid_request_error")
