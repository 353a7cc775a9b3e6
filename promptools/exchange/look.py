"""Probe a server before the first request to it, to detect what software and which model it runs.

`look` probes when the cache has no valid result, within `SECONDS` in all; a server that does not respond is treated as
unknown. A probe has up to three rounds of small requests: which server it is, then its version if the software is
known, then (Ollama only) what the model can do. Results are cached in `Sights` by server, model and the kind that the
config names; the result for the server alone only if it is certain, so that a server that is still starting is probed
again.
"""

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
"""The time limit for all probes of a server together."""
SHARE = 0.25
"""The share of a deadline that probing may take: a server may be slow to respond to probes and still serve requests."""
FRESH = 60.0
"""Seconds for which results hold for a server that answers to any model name: it may load another model meanwhile."""
_OF_THE_BODY = frozenset({"accept", "accept-encoding", "content-type", "user-agent"})


class Sights:
    """A cache of probe results by the server's root, the model (empty: the server alone), and the config's `kind`.

    At most `limit` are kept; the oldest are evicted first. Threads may share it: each step is one operation of a dict.
    """

    def __init__(self, *, limit: int = 1024) -> None:
        self.limit = limit
        self._seen: dict[tuple[str, str, str], tuple[Seen, tuple[Told, ...], float]] = {}

    def get(self, root: str, model: str = "", kind: str = "", *, at: float = 0.0) -> Seen | None:
        """Return the cached result if it is still valid `at` that time; `kind` is the one that the config names."""
        seen, _, until = self._seen.get((root, model, kind), (None, (), 0.0))
        return seen if at < until else None

    def listed(self, root: str, kind: str = "") -> tuple[Told, ...]:
        """Return the models that the server listed, as it described them."""
        entry = self._seen.get((root, "", kind))
        return entry[1] if entry else ()

    def put(
        self, root: str, model: str, seen: Seen, kind: str = "", listed: tuple[Told, ...] = (), *, at: float = 0.0
    ) -> None:
        """Cache a result."""
        key = (root, model, kind)
        self._seen.pop(key, None)
        until = at + FRESH if any(described.any_name for described in listed) else inf
        self._seen[key] = (replace(seen, seconds=0.0), listed, until)
        if len(self._seen) > self.limit:
            for old in tuple(self._seen)[: -self.limit]:
                self._seen.pop(old, None)

    def forget(self, root: str) -> None:
        """Evict a server that cannot be reached any more: another may run there next."""
        for key in [key for key in tuple(self._seen) if key[0] == root]:
            self._seen.pop(key, None)


def look(ledger: Ledger, route: Route, model: str) -> Steps[Route]:
    """Probe the server of a route, unless it is known or in the cache; return the route resolved with the result."""
    if route.resolve is None:
        return route
    base, began = base_of(route.url or ledger.client.url), ledger.now
    kind = route.target.profile.kind if route.target.look == "model" else ""
    cache, key = ledger.context.sights, (root_of(base), model, kind)
    seen = cache.get(*key, at=began)
    if seen is None:
        expired = cache.get(*key)
        seen = yield from _Looking(_Asking(ledger, route.headers), cache, base, kind, began).at(model)
        if expired and not cache.get(*key, at=began):
            seen = expired  # a server that is too busy to respond is most likely still the same
        seen = replace(seen, seconds=ledger.now - began)
    ledger.seen = seen
    return replace(route, target=route.resolve(seen))


def examine(request: ClientRequest, context: Context, model: str) -> Steps[tuple[Route, Seen]]:
    """Probe the server of a request without sending the request; return the route and the result."""
    state = Ledger(request, context)
    route = yield from look(state, context.route(model or None, None), model)
    return route, state.seen or Seen(why="what server it is has been settled")


class _Looking:
    """The probe of one server; `kind` is empty if the config names none."""

    def __init__(self, ask: _Asking, sights: Sights, base: str, kind: str, began: float) -> None:
        self._ask, self._sights, self._base, self._kind, self._began = ask, sights, base, kind, began
        self._root = root_of(base)

    def at(self, model: str) -> Steps[Seen]:
        """Detect the server, and the model that answers to the name `model`."""
        seen, listed = self._kept(), self._sights.listed(self._root, self._kind)
        if seen is None:
            seen, listed = yield from self._server()
        if not model:
            return seen
        if seen.kind == OLLAMA:
            return (yield from self._model(seen, model))
        detected = of_model(seen, listed, model)
        if self._kept():
            self._sights.put(self._root, model, detected, self._kind, listed, at=self._began)
        return detected

    def _kept(self) -> Seen | None:
        """Return the cached result for the server itself."""
        return self._sights.get(self._root, "", self._kind, at=self._began)

    def _server(self) -> Steps[tuple[Seen, tuple[Told, ...]]]:
        """Detect the server, or only its details if the config names its kind; cache the result if it is certain."""
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
        """Detect what one of Ollama's models can do; one that is not installed yet is probed again the next time."""
        questions = about_model(self._base, model)
        answers = yield from self._ask(questions)
        seen = read_model(seen, questions, answers, model)
        if any(answer and answer.status == 200 for answer in answers):
            self._sights.put(self._root, model, seen, self._kind)
        return seen


class _Asking:
    """Sends probes with the client's own headers, credentials included, within the time that is left for probing."""

    def __init__(self, ledger: Ledger, route: Headers) -> None:
        self._ledger = ledger
        fields = upstream_headers(ledger.client.headers, route)
        kept = tuple(pair for pair in fields if pair[0].lower() not in _OF_THE_BODY)
        # close: a server with a single worker would block on a connection that is kept alive
        probe_headers = (("accept", "application/json"), ("connection", "close"), ("user-agent", "promptools"))
        self._headers = (*kept, *probe_headers)
        left = ledger.policy.left(ledger.now)
        self._until = ledger.now + (SECONDS if left is None else min(SECONDS, SHARE * left))

    def __call__(self, questions: Sequence[Question]) -> Steps[tuple[Answer | None, ...]]:
        seconds = self._until - self._ledger.now
        if seconds <= 0:
            return (None,) * len(questions)
        return (yield from self._ledger.look(tuple(self._request(question) for question in questions), seconds))

    def _request(self, question: Question) -> Request:
        content_type = (("content-type", "application/json"),) if question.body else ()
        return Request(question.method, question.url, (*self._headers, *content_type), question.body)
