"""Ollama's routes: left to an Ollama, and to a server that has them of its own; answered here for any other.

A route other than chat begins without the request's body, since a model that is uploaded may have many gigabytes. First
the server is detected: one that may have the route itself gets the request unchanged.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from promptools.errors import UsageError, without_credentials
from promptools.exchange.downstream.error_responses import respond_bad_request
from promptools.exchange.downstream.ollama.embedding_routes import respond_embed, respond_embeddings
from promptools.exchange.downstream.ollama.generate_route import respond_chat_load, serve_generate
from promptools.exchange.downstream.ollama.model_routes import (
    list_models,
    list_running_models,
    respond_version,
    show_model,
)
from promptools.exchange.downstream.ollama.served_route import (
    ServedRequest,
    parse_json,
    requested_model,
    serve_route,
)
from promptools.exchange.effects import Body, Failed, Head, ReadBody
from promptools.exchange.exchange_state import ExchangeState
from promptools.exchange.runner import run
from promptools.exchange.upstream.detection import resolve_route
from promptools.profiles import load_builtin
from promptools.profiles.profile import GENERIC
from promptools.profiles.server_detection import OLLAMA, may_serve_ollama

if TYPE_CHECKING:
    from collections.abc import Callable

    from promptools.exchange.context import ClientRequest, Context
    from promptools.exchange.exchange_state import Steps
    from promptools.exchange.runner import Exchange
    from promptools.profiles import Target
    from promptools.types import ServerInfo

_MAX_LOAD_REQUEST = 4096
"""The most bytes of a chat that is searched for its messages, which are missing if it only loads a model."""
_RUNNING = b"Ollama is running"
_ABSENT_STATUSES = frozenset({404, 405})
_INSTEAD = {
    "pull": "load the model with the server's own tools; `list` names those that it serves",
    "push": "publish the model with the tools of its registry",
    "create": "start the server with the model, or write what the Modelfile sets into the requests",
    "copy": "give the model another name in the config (`aliases`), or with the server's own options",
    "delete": "remove the model with the server's own tools",
    "blobs": "put the file where the server loads its models from",
}
"""What to do in place of the routes that manage the models of an Ollama."""


def serve_ollama_route(request: ClientRequest, context: Context) -> Exchange:
    """Respond to a request for a route other than chat; emit nothing if it is to be forwarded unchanged."""
    state = ExchangeState(request, replace(context, observer=None))
    try:
        own = yield from _may_have_own_routes(state)
    except UsageError as error:
        yield from respond_bad_request(state, error)
        return None
    if own:
        return None
    name = request.request.url.partition("?")[0].rpartition("/api/")[2].split("/")[0]
    if name not in _ROUTES:
        return (yield from serve_route(request, context, partial(_respond_unavailable, name)))
    read = yield ReadBody()
    assert isinstance(read, Body), read
    return (yield from _ROUTES[name](replace(request, request=replace(request.request, body=read.data)), context))


def serve_ollama_chat(request: ClientRequest, context: Context) -> Exchange:
    """Serve a chat. One without messages only loads the model on Ollama; on any other server it is loaded."""
    body = request.request.body
    data = parse_json(body) if len(body) <= _MAX_LOAD_REQUEST else {}
    return run(request, context) if not data or data.get("messages") else _serve_load(request, context)


def serve_root(request: ClientRequest, context: Context) -> Exchange:
    """Respond to a request for `/`, which clients of Ollama probe: as the server does, or if it has none, as Ollama."""
    state = ExchangeState(request, replace(context, observer=None))
    try:
        route = context.route(None, None)
    except UsageError as error:
        yield from respond_bad_request(state, error)
        return None
    state.url, state.headers = route.url, route.headers
    opened = yield from state.send(b"", "/", method=request.request.method)
    if isinstance(opened, Failed):
        assert opened.error is not None, opened
        raise opened.error
    if opened.status in _ABSENT_STATUSES:
        yield from state.abandon()
        head = Head(200, (("content-type", "text/plain; charset=utf-8"), ("content-length", str(len(_RUNNING)))))
        yield from state.emit(b"" if request.request.method == "HEAD" else _RUNNING, lambda: head)
        return None
    head = Head(opened.status, opened.headers)
    yield from state.emit(b"", lambda: head)
    while isinstance(chunk := (yield from state.read()), bytes):
        yield from state.emit(chunk, lambda: head)
    if isinstance(chunk, Failed) and chunk.error is not None:
        raise chunk.error
    return None


def _serve_load(request: ClientRequest, context: Context) -> Exchange:
    state = ExchangeState(request, replace(context, observer=None))
    try:
        own = yield from _may_have_own_routes(state)
    except UsageError:
        own = True  # the same error follows
    return (yield from run(request, context) if own else serve_route(request, context, respond_chat_load))


def _may_have_own_routes(state: ExchangeState) -> Steps[bool]:
    """Whether the server may have Ollama's routes itself: it is Ollama, emulates it, or could not be detected.

    It is that of the request's model, where that is known before the body is read.
    """
    data = parse_json(state.request.body)
    route = yield from resolve_route(state, state.context.route(requested_model(data) or None, None), "")
    return _emulates_ollama(route.target, state.seen)


def _emulates_ollama(target: Target, seen: ServerInfo | None) -> bool:
    kind = target.profile.kind
    if kind != GENERIC:
        return kind == OLLAMA
    return may_serve_ollama(seen) if seen is not None and seen.answered else target.provider is None


def _respond_unavailable(name: str, served: ServedRequest) -> Steps[None]:
    """Respond that a route manages the models of an Ollama, which this server is not."""
    root = served.state.request.url.partition("?")[0].rpartition("/api/")[0]
    kind = served.target.profile.kind
    title = "an OpenAI-compatible server" if kind == GENERIC else load_builtin(kind).title
    why = next((reason for reason in served.target.reasons if reason.startswith("kind ")), "")
    advice = _INSTEAD.get(name, "use the server's own API")
    message = (
        f"{'create_blob' if name == 'blobs' else name!r} needs an Ollama server, and {without_credentials(root)} is"
        f" {title} ({why}). Its models are managed in another way: {advice}"
    )
    yield from served.emit({"error": message}, 501)


def _served(respond: Callable[[ServedRequest], Steps[None]]) -> Callable[[ClientRequest, Context], Exchange]:
    return lambda request, context: serve_route(request, context, respond)


_ROUTES: dict[str, Callable[[ClientRequest, Context], Exchange]] = {
    "generate": serve_generate,
    "tags": _served(list_models),
    "ps": _served(list_running_models),
    "show": _served(show_model),
    "version": _served(respond_version),
    "embed": _served(respond_embed),
    "embeddings": _served(respond_embeddings),
}
