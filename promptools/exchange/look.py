"""The look at a server before it is first spoken to: what is asked of it, what is remembered, when there is none."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from promptools.exchange.effects import Request
from promptools.exchange.ledger import Ledger, base_of, upstream_headers
from promptools.profiles.detect import (
    OLLAMA,
    about_model,
    about_server,
    about_version,
    is_certain,
    read_model,
    read_server,
    read_version,
    root_of,
)
from promptools.types import Seen

if TYPE_CHECKING:
    from collections.abc import Sequence

    from promptools.exchange.context import ClientRequest, Context, Route
    from promptools.exchange.effects import Headers
    from promptools.exchange.ledger import Steps
    from promptools.profiles.detect import Answer, Question

SECONDS = 2.0
"""For all that is asked of a server together."""
_NAMED = "the server is named; only the model was asked about"
_OF_THE_BODY = frozenset({"accept", "accept-encoding", "content-type", "user-agent"})


class Sights:
    """What was seen, by a server's root, and for Ollama by its root and the model.

    At most `limit` are kept, the oldest go first. Threads may share it: each step is one operation of a dict.
    """

    def __init__(self, *, limit: int = 1024) -> None:
        self.limit = limit
        self._seen: dict[tuple[str, str], Seen] = {}

    def get(self, root: str, model: str = "") -> Seen | None:
        """Give what was seen there; it costs nothing any more."""
        return self._seen.get((root, model))

    def put(self, root: str, model: str, seen: Seen) -> None:
        """Remember what was seen there."""
        self._seen.pop((root, model), None)
        self._seen[root, model] = replace(seen, seconds=0.0)
        if len(self._seen) > self.limit:
            for key in tuple(self._seen)[: -self.limit]:
                self._seen.pop(key, None)

    def forget(self, root: str) -> None:
        """Forget a server: it is not there any more, and what comes back may be another."""
        for key in [key for key in tuple(self._seen) if key[0] == root]:
            self._seen.pop(key, None)


def look(ledger: Ledger, route: Route, model: str) -> Steps[Route]:
    """Look at the server of a route, unless that is settled or was done before; gives the route with what was seen."""
    if route.resolve is None:
        return route
    base, sights, began = base_of(route.url or ledger.client.url), ledger.context.sights, ledger.now
    root = root_of(base)
    seen = sights.get(root, model)
    if seen is None:
        ask = _Asking(ledger, route.headers)
        if route.target.look == "model":
            seen = Seen(OLLAMA, why=_NAMED)
        else:
            seen = sights.get(root) or (yield from _server(ask, sights, base))
        if seen.kind == OLLAMA and model:
            seen = yield from _model(ask, sights, base, seen, model)
        seen = replace(seen, seconds=ledger.now - began)
    ledger.seen = seen
    return replace(route, target=route.resolve(seen))


def examine(request: ClientRequest, context: Context, model: str) -> Steps[tuple[Route, Seen]]:
    """Look at the server of a request, and leave it at that."""
    ledger = Ledger(request, context)
    route = yield from look(ledger, context.route(model or None, None), model)
    return route, ledger.seen or Seen(why="what server it is has been settled")


def _server(ask: _Asking, sights: Sights, base: str) -> Steps[Seen]:
    """Find out what server it is."""
    questions = about_server(base)
    answers = yield from ask(questions)
    seen = read_server(questions, answers)
    certain = is_certain(seen, answers)
    more = about_version(base, seen)
    if more:
        seen = read_version(seen, more, (yield from ask(more)))
    if certain:
        sights.put(root_of(base), "", seen)
    return seen


def _model(ask: _Asking, sights: Sights, base: str, seen: Seen, model: str) -> Steps[Seen]:
    """Find out what a model of Ollama's can do; one that is not there yet is asked about again the next time."""
    questions = about_model(base, model)
    answers = yield from ask(questions)
    seen = read_model(seen, questions, answers)
    if any(each and each.status == 200 for each in answers):
        sights.put(root_of(base), model, seen)
    return seen


class _Asking:
    """Asks questions with the client's own fields, its key among them, within the time that is left for a look."""

    def __init__(self, ledger: Ledger, route: Headers) -> None:
        self._ledger = ledger
        fields = upstream_headers(ledger.client.headers, route)
        kept = tuple(pair for pair in fields if pair[0].lower() not in _OF_THE_BODY)
        # closed at once: a server with one worker would wait on a connection that is kept
        own = (("accept", "application/json"), ("connection", "close"), ("user-agent", "promptools"))
        self._headers = (*kept, *own)
        self._until = ledger.now + SECONDS

    def __call__(self, questions: Sequence[Question]) -> Steps[tuple[Answer | None, ...]]:
        left = self._ledger.policy.left(self._ledger.now)
        seconds = self._until - self._ledger.now
        seconds = seconds if left is None else min(seconds, left)
        if seconds <= 0:
            return (None,) * len(questions)
        return (yield from self._ledger.look(tuple(self._request(each) for each in questions), seconds))

    def _request(self, question: Question) -> Request:
        typed = (("content-type", "application/json"),) if question.body else ()
        return Request(question.method, question.url, (*self._headers, *typed), question.body)
