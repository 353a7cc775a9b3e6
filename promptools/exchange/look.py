"""The look at a server before it is first spoken to: what is asked of it, what is remembered, when there is none."""

from __future__ import annotations

from dataclasses import replace
from math import inf
from typing import TYPE_CHECKING

from promptools.exchange.effects import Request
from promptools.exchange.ledger import Ledger, base_of, upstream_headers
from promptools.profiles.detect import (
    OLLAMA,
    about_kind,
    about_model,
    about_server,
    about_version,
    is_certain,
    is_settled,
    of_model,
    read_kind,
    read_model,
    read_models,
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
    from promptools.profiles.told import Told

SECONDS = 2.0
"""For all that is asked of a server together."""
SHARE = 0.25
"""What of a deadline a look may take: a server may be slow to tell of itself and still answer."""
FRESH = 60.0
"""Seconds that it holds what model answers to any name: the next one behind it answers to the same names."""
_OF_THE_BODY = frozenset({"accept", "accept-encoding", "content-type", "user-agent"})


class Sights:
    """What was seen, by a server's root, the model (none: the server alone), and the kind that somebody named.

    At most `limit` are kept, the oldest go first. Threads may share it: each step is one operation of a dict.
    """

    def __init__(self, *, limit: int = 1024) -> None:
        self.limit = limit
        self._seen: dict[tuple[str, str, str], tuple[Seen, tuple[Told, ...], float]] = {}

    def get(self, root: str, model: str = "", kind: str = "", *, at: float = 0.0) -> Seen | None:
        """Return what was seen there, if it still holds `at` that time; `kind` is the one that somebody named."""
        seen, _, until = self._seen.get((root, model, kind), (None, (), 0.0))
        return seen if at < until else None

    def listed(self, root: str, kind: str = "") -> tuple[Told, ...]:
        """Return what the server told of its models."""
        found = self._seen.get((root, "", kind))
        return found[1] if found else ()

    def put(
        self, root: str, model: str, seen: Seen, kind: str = "", listed: tuple[Told, ...] = (), *, at: float = 0.0
    ) -> None:
        """Remember what was seen there."""
        key = (root, model, kind)
        self._seen.pop(key, None)
        until = at + FRESH if any(each.any_name for each in listed) else inf
        self._seen[key] = (replace(seen, seconds=0.0), listed, until)
        if len(self._seen) > self.limit:
            for old in tuple(self._seen)[: -self.limit]:
                self._seen.pop(old, None)

    def forget(self, root: str) -> None:
        """Forget a server: it is not there any more, and what comes back may be another."""
        for key in [key for key in tuple(self._seen) if key[0] == root]:
            self._seen.pop(key, None)


def look(ledger: Ledger, route: Route, model: str) -> Steps[Route]:
    """Look at the server of a route, unless that is settled or was done before; gives the route with what was seen."""
    if route.resolve is None:
        return route
    base, began = base_of(route.url or ledger.client.url), ledger.now
    kind = route.target.profile.kind if route.target.look == "model" else ""
    sights, place = ledger.context.sights, (root_of(base), model, kind)
    seen = sights.get(*place, at=began)
    if seen is None:
        before = sights.get(*place)
        seen = yield from _Looking(_Asking(ledger, route.headers), sights, base, kind, began).at(model)
        if before and not sights.get(*place, at=began):
            seen = before  # a server that is too busy to tell is still the one that it was
        seen = replace(seen, seconds=ledger.now - began)
    ledger.seen = seen
    return replace(route, target=route.resolve(seen))


def examine(request: ClientRequest, context: Context, model: str) -> Steps[tuple[Route, Seen]]:
    """Look at the server of a request, and leave it at that."""
    ledger = Ledger(request, context)
    route = yield from look(ledger, context.route(model or None, None), model)
    return route, ledger.seen or Seen(why="what server it is has been settled")


class _Looking:
    """A look at one server, whose `kind` is empty where nobody named it."""

    def __init__(self, ask: _Asking, sights: Sights, base: str, kind: str, began: float) -> None:
        self._ask, self._sights, self._base, self._kind, self._began = ask, sights, base, kind, began
        self._root = root_of(base)

    def at(self, model: str) -> Steps[Seen]:
        """Find out what server it is, and what the model that answers to a name."""
        seen, listed = self._kept(), self._sights.listed(self._root, self._kind)
        if seen is None:
            seen, listed = yield from self._server()
        if not model:
            return seen
        if seen.kind == OLLAMA:
            return (yield from self._model(seen, model))
        found = of_model(seen, listed, model)
        if self._kept():
            self._sights.put(self._root, model, found, self._kind, listed, at=self._began)
        return found

    def _kept(self) -> Seen | None:
        """Return what is remembered of the server itself."""
        return self._sights.get(self._root, "", self._kind, at=self._began)

    def _server(self) -> Steps[tuple[Seen, tuple[Told, ...]]]:
        """Find out what server it is, or its version where that is known; what may change is asked again."""
        named = self._kind
        questions = about_kind(self._base, named) if named else about_server(self._base)
        answers = (yield from self._ask(questions)) if questions else ()
        seen = read_kind(named, questions, answers) if named else read_server(questions, answers)
        certain = is_settled(answers) if named else is_certain(seen, answers)
        more = () if named else about_version(self._base, seen)
        if more:
            seen = read_version(seen, more, (yield from self._ask(more)))
        listed = read_models(questions, answers)
        if certain:
            self._sights.put(self._root, "", seen, named, listed, at=self._began)
        return seen, listed

    def _model(self, seen: Seen, model: str) -> Steps[Seen]:
        """Find out what a model of Ollama's can do; one that is not there yet is asked about again the next time."""
        questions = about_model(self._base, model)
        answers = yield from self._ask(questions)
        seen = read_model(seen, questions, answers, model)
        if any(each and each.status == 200 for each in answers):
            self._sights.put(self._root, model, seen, self._kind)
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
        left = ledger.policy.left(ledger.now)
        self._until = ledger.now + (SECONDS if left is None else min(SECONDS, SHARE * left))

    def __call__(self, questions: Sequence[Question]) -> Steps[tuple[Answer | None, ...]]:
        seconds = self._until - self._ledger.now
        if seconds <= 0:
            return (None,) * len(questions)
        return (yield from self._ledger.look(tuple(self._request(each) for each in questions), seconds))

    def _request(self, question: Question) -> Request:
        typed = (("content-type", "application/json"),) if question.body else ()
        return Request(question.method, question.url, (*self._headers, *typed), question.body)
