"""One user request, perhaps several upstream sends: `run` plans it without doing any I/O."""

from promptools.exchange.context import ClientRequest, Context, Route, Router
from promptools.exchange.effects import (
    Abandon,
    Done,
    Effect,
    Emit,
    Ended,
    Failed,
    Happening,
    Head,
    Headers,
    Look,
    Looked,
    Opened,
    Piece,
    Read,
    Request,
    Send,
    Wait,
)
from promptools.exchange.look import Sights
from promptools.exchange.run import Exchange, run

__all__ = [
    "Abandon",
    "ClientRequest",
    "Context",
    "Done",
    "Effect",
    "Emit",
    "Ended",
    "Exchange",
    "Failed",
    "Happening",
    "Head",
    "Headers",
    "Look",
    "Looked",
    "Opened",
    "Piece",
    "Read",
    "Request",
    "Route",
    "Router",
    "Send",
    "Sights",
    "Wait",
    "run",
]
