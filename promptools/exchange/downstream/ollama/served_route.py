"""What Ollama's routes share before a server that lacks them: the routed request, and questions to the server."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias

from promptools.exchange.downstream.error_responses import run_route
from promptools.exchange.downstream.response_writer import encode_json
from promptools.exchange.effects import Failed, Head, Headers
from promptools.exchange.exchange_state import ExchangeState
from promptools.exchange.upstream.detection import resolve_route
from promptools.exchange.upstream.failure import failure_of_status
from promptools.wire import lenient_json
from promptools.wire.json_types import as_object, as_text

if TYPE_CHECKING:
    from collections.abc import Mapping

    from promptools.exchange.context import ClientRequest, Context
    from promptools.exchange.exchange_state import Steps
    from promptools.exchange.runner import Exchange
    from promptools.profiles import Target

JSON: Headers = (("content-type", "application/json"),)


@dataclass(frozen=True, slots=True)
class ServedRequest:
    """A request to a route of Ollama's that is answered here."""

    state: ExchangeState
    data: dict[str, Any]
    """Its body; empty without one."""
    target: Target
    model: str
    """The server's name of the model; empty if the request names none."""
    requested_model: str
    """The name in the request."""

    @property
    def now(self) -> int:
        """Seconds since 1970; 0 without a clock."""
        clock = self.state.context.wall_clock
        return int(clock().timestamp()) if clock is not None else 0

    def emit(self, body: Mapping[str, Any], status: int = 200) -> Steps[None]:
        """Send the whole response."""
        yield from self.state.emit(encode_json(body), lambda: Head(status, JSON))

    def ask(self, path: str, body: Mapping[str, Any] | None = None) -> Steps[dict[str, Any] | None]:
        """Return the server's JSON from a route of OpenAI's API; None if it failed, and the client got the error.

        It is a GET without a `body`.
        """
        state = self.state
        opened = yield from state.send(encode_json(body) if body else b"", path, method="POST" if body else "GET")
        if isinstance(opened, Failed):
            if opened.error is not None:
                raise opened.error
            yield from self.emit({"error": f"no answer from the server ({opened.kind}: {opened.text})"}, 502)
            return None
        if not 200 <= opened.status < 300:
            answer = yield from state.read_error()
            error = state.client_api.encode_server_error(failure_of_status(opened, answer))
            yield from state.emit(error, lambda: Head(opened.status if opened.status >= 400 else 502, JSON))
            return None
        answer = yield from state.read_all()
        reply = yield from state.compute(partial(parse_json, answer), len(answer))
        if not isinstance(reply.get("data"), list):
            yield from self.emit({"error": f"the server's response to /{path} is not that of OpenAI's API"}, 502)
            return None
        return reply


Respond: TypeAlias = "Callable[[ServedRequest], Steps[None]]"
"""Responds to a request."""


def serve_route(request: ClientRequest, context: Context, respond: Respond) -> Exchange:
    """Route a request and have `respond` answer it."""
    state = ExchangeState(request, context)
    return run_route(state, _respond(state, respond))


def _respond(state: ExchangeState, respond: Respond) -> Steps[None]:
    data = parse_json(state.request.body)
    name = requested_model(data)
    route = state.context.route(name or None, None)
    model = route.target.model or name
    route = yield from resolve_route(state, route, model)
    state.url, state.headers = route.url, route.headers
    target = route.target
    state.provider_model = (target.provider or target.base_url or state.request.url, model)
    yield from respond(ServedRequest(state, data, target, model, name))


def requested_model(data: Mapping[str, Any]) -> str:
    """Return the model that a request names; `name` is what older clients call it."""
    return as_text(data.get("model")) or as_text(data.get("name"))


def parse_json(body: bytes) -> dict[str, Any]:
    """Parse a JSON object; empty if it is none."""
    try:
        return as_object(lenient_json.parse_json(body))
    except (ValueError, RecursionError):
        return {}
