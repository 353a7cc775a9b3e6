"""Ollama's routes other than chat: forwarded unless the server is known not to be Ollama, else answered here.

An unknown server gets the request itself. Only the list of models has an equivalent on all servers, `/v1/models`; for
any other route the response is an error that says so.
"""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from promptools.errors import UsageError, without_credentials
from promptools.exchange.downstream.error_responses import respond_bad_request
from promptools.exchange.downstream.response_writer import encode_json
from promptools.exchange.effects import Failed, Head, Headers
from promptools.exchange.exchange_state import ExchangeState
from promptools.exchange.upstream.detection import resolve_route
from promptools.exchange.upstream.failure import Failure, failure_of_connection, failure_of_status
from promptools.profiles import Target, load_builtin
from promptools.profiles.profile import GENERIC
from promptools.wire.json_types import as_count, as_list, as_object, as_text, as_timestamp

if TYPE_CHECKING:
    from collections.abc import Mapping

    from promptools.exchange.context import ClientRequest, Context
    from promptools.exchange.exchange_state import Steps
    from promptools.exchange.runner import Exchange

LIST_ROUTE = "tags"
_JSON: Headers = (("content-type", "application/json"),)
_FUNCTION_NAMES = {LIST_ROUTE: "list", "blobs": "create_blob"}
"""Functions of the ollama package whose name is not that of their route, by route."""


def serve_ollama_route(request: ClientRequest, context: Context) -> Exchange:
    """Respond to a request for a route that only Ollama has; emit nothing if it has to be forwarded to the server."""
    state = ExchangeState(request, context)
    try:
        route = yield from resolve_route(state, context.route(None, None), "")
        state.url, state.headers = route.url, route.headers
        if _is_not_ollama(route.target):
            yield from _respond(state, route.target)
    except UsageError as error:
        yield from respond_bad_request(state, error)
    return None


def _is_not_ollama(target: Target) -> bool:
    """Whether the server is known not to be Ollama."""
    kind = target.profile.kind
    return kind != "ollama" and (kind != GENERIC or target.provider is not None)


def _respond(state: ExchangeState, target: Target) -> Steps[None]:
    root, _, rest = state.request.url.partition("?")[0].rpartition("/api/")
    route = rest.split("/")[0]
    if route == LIST_ROUTE:
        yield from _list_models(state)
        return
    title = load_builtin(target.profile.kind).title
    why = next((reason for reason in target.reasons if reason.startswith("kind ")), "")
    message = (
        f"{_FUNCTION_NAMES.get(route, route)!r} needs an Ollama server, and "
        f"{without_credentials(root)} is {title} ({why})."
        f" There, chat and list work; for anything else use what {title} has of its own"
    )
    body = state.client_api.encode_error(message, kind="UsageError", code="ollama_only")
    yield from state.emit(body, lambda: Head(501, _JSON))


def _list_models(state: ExchangeState) -> Steps[None]:
    """Request the server's models, and list them in Ollama's format."""
    opened = yield from state.send(b"", "models", method="GET")
    if isinstance(opened, Failed):
        if opened.error:
            raise opened.error
        yield from _respond_list_error(state, 502, failure_of_connection(opened))
        return
    answer = yield from state.read_all()
    body = as_object(_parse_json(answer))
    if not 200 <= opened.status < 300 or not isinstance(body.get("data"), list):
        status = opened.status if opened.status >= 400 else 502
        yield from _respond_list_error(state, status, failure_of_status(opened, answer))
        return
    models = encode_json({"models": [_ollama_model(as_object(model)) for model in as_list(body["data"])]})
    yield from state.emit(models, lambda: Head(200, _JSON))


def _respond_list_error(state: ExchangeState, status: int, failure: Failure) -> Steps[None]:
    http = f"HTTP {failure.status}: " if failure.status else ""
    message = f"the server's models could not be listed ({http}{failure.why})"
    error = state.client_api.encode_error(message, kind="UpstreamError", code=failure.kind)
    yield from state.emit(error, lambda: Head(status, _JSON))


def _parse_json(body: bytes) -> Any:
    try:
        return json.loads(body)
    except (ValueError, RecursionError):
        return None


def _ollama_model(entry: Mapping[str, Any]) -> dict[str, Any]:
    """Return one model in Ollama's format, without the fields that `/v1/models` lacks."""
    name = as_text(entry.get("id"))
    created = as_timestamp(entry.get("created"))
    size = as_count(as_object(entry.get("meta")).get("size"))  # only llama.cpp sends it
    model: dict[str, Any] = {"name": name, "model": name}
    if created:
        model["modified_at"] = datetime.fromtimestamp(created, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    return model | ({"size": size} if size is not None else {})
