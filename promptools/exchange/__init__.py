"""Serve one client request, which may take several requests to the server; `run` is a generator that does no I/O.

The modules are:

runner            serves the request from start to end; `effects` defines what it yields, `context` defines its inputs
client_api        the interface of all client APIs, and Chat Completions itself; the other APIs have a module each:
                  `ollama_api`, `messages_api`, `responses_api`
response_writer   writes the response to the client; `commit_point` decides which part may be sent, and when
upstream          encodes requests to the server, and decodes its replies; `detection` finds out the kind of server
passthrough       forwards requests without tools unchanged, and watches the replies for failures
retry             makes attempts until one succeeds: `plan` chooses the next attempt, `attempt` makes it, `failures`
                  finds out what failed, `rewording` changes requests that a server refused, `salvage` recovers calls
"""

from promptools.exchange.context import Caller, ClientRequest, Context, Route, Router
from promptools.exchange.detection import DetectionCache
from promptools.exchange.effects import (
    Abandon,
    Body,
    Compute,
    Computed,
    Consult,
    Done,
    Effect,
    EffectResult,
    Emit,
    Ended,
    Failed,
    Headers,
    Opened,
    Piece,
    Probe,
    Probed,
    Read,
    ReadBody,
    Request,
    ResponseHead,
    Send,
    Tick,
    Wait,
)
from promptools.exchange.observer import (
    ExchangeEnd,
    ObservedAttempt,
    ObservedExchange,
    Observer,
    SentRequest,
    WrittenChoice,
)
from promptools.exchange.runner import Exchange, run

__all__ = [
    "Abandon",
    "Body",
    "Caller",
    "ClientRequest",
    "Compute",
    "Computed",
    "Consult",
    "Context",
    "DetectionCache",
    "Done",
    "Effect",
    "EffectResult",
    "Emit",
    "Ended",
    "Exchange",
    "ExchangeEnd",
    "Failed",
    "Headers",
    "ObservedAttempt",
    "ObservedExchange",
    "Observer",
    "Opened",
    "Piece",
    "Probe",
    "Probed",
    "Read",
    "ReadBody",
    "Request",
    "ResponseHead",
    "Route",
    "Router",
    "Send",
    "SentRequest",
    "Tick",
    "Wait",
    "WrittenChoice",
    "run",
]
