"""The last net under an exchange: a bug in it becomes an HTTP answer, because the SDKs retry and hide exceptions."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from promptools.exchange import Emit, Exchange, Failed, Happening, Head
from promptools.exchange.front import CHAT, Front

if TYPE_CHECKING:
    from promptools.types import Reply

log = logging.getLogger("promptools")


def guarded(exchange: Exchange, front: Front = CHAT, *, quiet: bool = False) -> Exchange:
    """Run `exchange`, answering 500 where it breaks before its head; what the HTTP library raised passes as it is.

    A `quiet` one may end without an answer.
    """
    told: Happening | None = None
    begun = False
    try:
        effect = next(exchange)
        while True:
            told = yield effect
            begun = begun or isinstance(effect, Emit)
            effect = exchange.send(told)
    except StopIteration as stop:
        reply: Reply | None = stop.value
        if begun or quiet:
            return reply
        failure: Exception = RuntimeError("no answer was given")
    except Exception as error:  # a bug is not known by its class
        if begun or (isinstance(told, Failed) and told.error is error):
            raise
        log.exception("promptools: the exchange broke; the client gets a 500")
        failure = error
    finally:
        exchange.close()
    said = f"promptools failed on this request ({type(failure).__name__}: {failure}); the log holds the traceback"
    body = front.error(said, kind="InternalError", code="promptools_bug")
    yield Emit(Head(500, (("content-type", "application/json"), ("x-should-retry", "false"))))
    yield Emit(body)
    return None
