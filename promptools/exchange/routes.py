"""Ollama's routes other than chat: forwarded unless the server is known not to be Ollama, else answered here.

An unknown server gets the request itself. Only the list of models has an equivalent on all servers, `/v1/models`; for
any other route the response is an error that says so.
"""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from promptools.errors import UsageError, without_credentials
from promptools.exchange.answers import refuse
from promptools.exchange.effects import Failed, Head, Headers
from promptools.exchange.failure import Failure, of_link, of_status
from promptools.exchange.ledger import Ledger
from promptools.exchange.look import look
from promptools.exchange.outlet import dump
from promptools.profiles import Target, load_builtin
from promptools.profiles.profile import GENERIC
from promptools.wire.shapes import as_count, as_list, as_object, as_text, as_time

if TYPE_CHECKING:
    from collections.abc import Mapping

    from promptools.exchange.context import ClientRequest, Context
    from promptools.exchange.ledger import Steps
    from promptools.exchange.run import Exchange

LIST = "tags"
_JSON: Headers = (("content-type", "application/json"),)
_NAMES = {LIST: "list", "blobs": "create_blob"}
"""Functions of the ollama package whose name is not that of their route, by route."""


def other(request: ClientRequest, context: Context) -> Exchange:
    """Respond to a request for a route that only Ollama has; emit nothing if it has to be forwarded to the server."""
    state = Ledger(request, context)
    try:
        route = yield from look(state, context.route(None, None), "")
        state.url, state.headers = route.url, route.headers
        if _is_other(route.target):
            yield from _answer(state, route.target)
    except UsageError as error:
        yield from refuse(state, error)
    return None


def _is_other(target: Target) -> bool:
    """Whether the server is known not to be Ollama."""
    kind = target.profile.kind
    return kind != "ollama" and (kind != GENERIC or target.provider is not None)


def _answer(ledger: Ledger, target: Target) -> Steps[None]:
    root, _, rest = ledger.client.url.partition("?")[0].rpartition("/api/")
    route = rest.split("/")[0]
    if route == LIST:
        yield from _list(ledger)
        return
    title = load_builtin(target.profile.kind).title
    why = next((reason for reason in target.reasons if reason.startswith("kind ")), "")
    message = (
        f"{_NAMES.get(route, route)!r} needs an Ollama server, and {without_credentials(root)} is {title} ({why})."
        f" There, chat and list work; for anything else use what {title} has of its own"
    )
    body = ledger.front.error(message, kind="UsageError", code="ollama_only")
    yield from ledger.emit(body, lambda: Head(501, _JSON))


def _list(ledger: Ledger) -> Steps[None]:
    """Request the server's models, and list them in Ollama's format."""
    opened = yield from ledger.send(b"", "models", method="GET")
    if isinstance(opened, Failed):
        if opened.error:
            raise opened.error
        yield from _unlisted(ledger, 502, of_link(opened))
        return
    answer = yield from ledger.read_all()
    body = as_object(_read(answer))
    if not 200 <= opened.status < 300 or not isinstance(body.get("data"), list):
        status = opened.status if opened.status >= 400 else 502
        yield from _unlisted(ledger, status, of_status(opened, answer))
        return
    models = dump({"models": [_model(as_object(model)) for model in as_list(body["data"])]})
    yield from ledger.emit(models, lambda: Head(200, _JSON))


def _unlisted(ledger: Ledger, status: int, failure: Failure) -> Steps[None]:
    http = f"HTTP {failure.status}: " if failure.status else ""
    message = f"the server's models could not be listed ({http}{failure.why})"
    error = ledger.front.error(message, kind="UpstreamError", code=failure.kind)
    yield from ledger.emit(error, lambda: Head(status, _JSON))


def _read(body: bytes) -> Any:
    try:
        return json.loads(body)
    except (ValueError, RecursionError):
        return None


def _model(listed: Mapping[str, Any]) -> dict[str, Any]:
    """Return one model in Ollama's format, without the fields that `/v1/models` lacks."""
    name = as_text(listed.get("id"))
    created = as_time(listed.get("created"))
    size = as_count(as_object(listed.get("meta")).get("size"))  # only llama.cpp sends it
    model: dict[str, Any] = {"name": name, "model": name}
    if created:
        model["modified_at"] = datetime.fromtimestamp(created, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    return model | ({"size": size} if size is not None else {})
