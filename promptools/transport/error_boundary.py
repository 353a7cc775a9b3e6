"""The error boundary around an exchange: a bug becomes an HTTP 500, because the SDKs retry and hide exceptions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from promptools.exchange import EffectResult, Emit, Exchange, Failed, Head
from promptools.exchange.client_api import CHAT_API, ClientApi
from promptools.log import log

if TYPE_CHECKING:
    from promptools.types import Reply


def with_error_boundary(
    exchange: Exchange, api: ClientApi = CHAT_API, *, may_decline: bool = False, request_id: str = ""
) -> Exchange:
    """Run `exchange`; respond with a 500 if it raises before its head. Errors of the HTTP library pass through.

    A `may_decline` exchange may end without a response; any other that does is a bug, too.
    """
    outcome: EffectResult | None = None
    started = False
    try:
        effect = next(exchange)
        while True:
            outcome = yield effect
            started = started or isinstance(effect, Emit)
            effect = exchange.send(outcome)
    except StopIteration as stop:
        reply: Reply | None = stop.value
        if started or may_decline:
            return reply
        failure: Exception = RuntimeError("no answer was given")
    except Exception as error:  # a bug can be of any class
        if started or (isinstance(outcome, Failed) and outcome.error is error):
            raise
        log.exception("the exchange broke; the client gets a 500")
        failure = error
    finally:
        exchange.close()
    message = f"promptools failed on this request ({type(failure).__name__}: {failure}); the log holds the traceback"
    body = api.encode_error(message, kind="InternalError", code="promptools_bug", request_id=request_id)
    yield Emit(Head(500, (("content-type", "application/json"), ("x-should-retry", "false"))))
    yield Emit(body)
    return None
