"""`/responses/compact`: a server that has it gets the request; of any other the client learns that there is none.

What it returns is a part of the conversation in a form that only its maker can read, so nothing can be made up for it.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from promptools.errors import without_credentials
from promptools.exchange.downstream.error_responses import run_route
from promptools.exchange.downstream.response_writer import encode_json
from promptools.exchange.effects import Failed, Head
from promptools.exchange.exchange_state import ExchangeState
from promptools.exchange.upstream.failure import failure_of_status, head_of_error
from promptools.wire.chat_decoder import error_of
from promptools.wire.json_types import as_object, as_text
from promptools.wire.lenient_json import parse_json

if TYPE_CHECKING:
    from promptools.exchange.context import ClientRequest, Context
    from promptools.exchange.effects import Opened
    from promptools.exchange.exchange_state import Steps
    from promptools.exchange.runner import Exchange

_ROUTE = "responses/compact"
_ABSENT_STATUSES = frozenset({404, 405, 501})
"""How servers refuse a route that they do not have; some do it with an error or a page under HTTP 200."""


def serve_compaction(request: ClientRequest, context: Context) -> Exchange:
    """Pass a request on, with the server's name of the model."""
    state = ExchangeState(request, context)
    return run_route(state, _pass_on(state))


def _pass_on(state: ExchangeState) -> Steps[None]:
    body = state.request.body
    data = _parse(body)
    name = as_text(data.get("model"))
    route = state.context.route(name or None, None)
    state.url, state.headers = route.url, route.headers
    target = route.target
    state.provider_model = (target.provider or target.base_url or state.request.url, target.model or name)
    renamed = bool(data and target.model and target.model != name)
    opened = yield from state.send(encode_json({**data, "model": target.model}) if renamed else body, _ROUTE)
    if isinstance(opened, Failed):
        assert opened.error is not None, opened
        raise opened.error
    if not 200 <= opened.status < 300:
        yield from _pass_error(state, opened)
        return
    pieces: list[bytes] = []
    while isinstance(piece := (yield from state.read()), bytes):
        pieces.append(piece)
    if isinstance(piece, Failed) and piece.error is not None:
        raise piece.error
    answer = b"".join(pieces)
    parsed = yield from state.compute(partial(_parse, answer), len(answer))
    if opened.status == 200 and (not parsed or error_of(parsed)):
        failure = failure_of_status(opened, answer)
        yield from _respond_absent(state, f"HTTP {opened.status}: {without_credentials(failure.why)}")
    else:
        yield from state.emit(answer, lambda: Head(opened.status, opened.headers))


def _pass_error(state: ExchangeState, opened: Opened) -> Steps[None]:
    failure = failure_of_status(opened, (yield from state.read_error()))
    if opened.status in _ABSENT_STATUSES:
        yield from _respond_absent(state, f"HTTP {opened.status}: {without_credentials(failure.why)}")
        return
    yield from state.emit(failure.body, lambda: head_of_error(opened, failure))


def _respond_absent(state: ExchangeState, reason: str) -> Steps[None]:
    message = (
        f"/v1/{_ROUTE} is not served here: promptools compacts no conversation, and neither does the server ({reason})."
        " Send the whole conversation in 'input', or a summary of it"
    )
    error = state.encode_error(message, kind="invalid_request_error", code="route_not_served")
    head = Head(404, (("content-type", "application/json"), ("x-should-retry", "false")))
    yield from state.emit(error, lambda: head)


def _parse(body: bytes) -> dict[str, Any]:
    try:
        return as_object(parse_json(body))
    except (ValueError, RecursionError):
        return {}
