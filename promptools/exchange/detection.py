"""Probe a server before the first request to it, to detect its software and model.

`resolve_route` probes a server if no valid result is cached. Probing takes at most `PROBE_TIMEOUT` seconds in total; a
server that does not respond is treated as unknown. There are up to three rounds of small requests: for the kind of
server, then for its version if the software is known, then (Ollama only) for what the model can do.

`DetectionCache` caches results by server, model and the kind named in the config. A result about the server alone is
cached only if it is certain, so that a server that is still starting is probed again.
"""

from __future__ import annotations

from dataclasses import replace
from math import inf
from typing import TYPE_CHECKING

from promptools.exchange.effects import Request
from promptools.exchange.state import ExchangeState, api_base, upstream_headers
from promptools.profiles.server_detection import (
    OLLAMA,
    is_kind_final,
    is_server_final,
    kind_requests,
    model_requests,
    read_kind,
    read_model,
    read_models,
    read_server,
    read_version,
    server_requests,
    server_root,
    version_requests,
    with_model,
)
from promptools.types import ServerInfo

if TYPE_CHECKING:
    from collections.abc import Sequence

    from promptools.exchange.context import ClientRequest, Context, Route
    from promptools.exchange.effects import Headers
    from promptools.exchange.state import Steps
    from promptools.profiles.model_family import ModelDescription
    from promptools.profiles.server_detection import ProbeRequest, ProbeResponse


PROBE_TIMEOUT = 2.0
"""The time limit for all probes of a server together."""
DEADLINE_SHARE = 0.25
"""Maximum fraction of the remaining time that probing may take, if the request has a deadline.

The rest is kept for the request, because a server that is slow to answer probes may still serve requests.
"""
ANY_NAME_TTL = 60.0
"""Number of seconds for which a server's probe results are valid if the server accepts any model name.

The time is limited because such a server may load another model.
"""
_REPLACED_HEADERS = frozenset({"accept", "accept-encoding", "content-type", "user-agent"})


class DetectionCache:
    """Caches probe results by the server's root URL, the model, and the kind of server that the config names.

    For results about the server alone, the model is an empty string. If the config names no kind, the kind is an empty
    string. At most `limit` results are kept; the oldest are evicted first. Thread-safe, because each step is a single
    dict operation.
    """

    def __init__(self, *, limit: int = 1024) -> None:
        self.limit = limit
        self._entries: dict[tuple[str, str, str], tuple[ServerInfo, tuple[ModelDescription, ...], float]] = {}

    def get(self, root: str, model: str = "", kind: str = "", *, at: float = 0.0) -> ServerInfo | None:
        """Return the cached result if it is still valid at the time `at`; `kind` is the kind named in the config."""
        seen, _, until = self._entries.get((root, model, kind), (None, (), 0.0))
        return seen if at < until else None

    def models(self, root: str, kind: str = "") -> tuple[ModelDescription, ...]:
        """Return the models that the server listed, as the server describes them."""
        entry = self._entries.get((root, "", kind))
        return entry[1] if entry else ()

    def put(
        self,
        root: str,
        model: str,
        seen: ServerInfo,
        kind: str = "",
        models: tuple[ModelDescription, ...] = (),
        *,
        at: float = 0.0,
    ) -> None:
        """Cache the probe result `seen`, and the models that the server listed."""
        key = (root, model, kind)
        self._entries.pop(key, None)
        until = at + ANY_NAME_TTL if any(described.serves_any_name for described in models) else inf
        self._entries[key] = (replace(seen, seconds=0.0), models, until)
        if len(self._entries) > self.limit:
            for old in tuple(self._entries)[: -self.limit]:
                self._entries.pop(old, None)

    def evict(self, root: str) -> None:
        """Evict the results for an unreachable server, because another server may run at its address next."""
        for key in [key for key in tuple(self._entries) if key[0] == root]:
            self._entries.pop(key, None)


def resolve_route(state: ExchangeState, route: Route, model: str) -> Steps[Route]:
    """Return the route with its target (server, model and profile) adapted to the result of probing the server.

    The server is probed only if no valid result is cached.
    """
    if route.resolve is None:
        return route
    base, began = api_base(route.url or state.request.url), state.now
    kind = route.target.profile.kind if route.target.probe == "model" else ""
    cache, key = state.context.detection_cache, (server_root(base), model, kind)
    seen = cache.get(*key, at=began) if model else None  # without a model, the entry is about the server alone
    if seen is None:
        expired = cache.get(*key)
        seen = yield from _Detector(_Prober(state, route.headers), cache, base, kind, began).detect(model)
        if expired and not cache.get(*key, at=began):
            seen = expired  # a server that is too busy to respond is most likely still the same
        seen = replace(seen, seconds=state.now - began)
    state.seen = seen
    return replace(route, target=route.resolve(seen))


def probe_server(request: ClientRequest, context: Context, model: str) -> Steps[tuple[Route, ServerInfo]]:
    """Probe the server of a request without sending the request; return the route and the result."""
    state = ExchangeState(request, context)
    route = yield from resolve_route(state, context.route(model or None, None), model)
    return route, state.seen or ServerInfo(why="what server it is has been settled")


class _Detector:
    """Detects one server's software; `kind` is the kind that the config names, or empty if the config names none."""

    def __init__(self, prober: _Prober, cache: DetectionCache, base: str, kind: str, started_at: float) -> None:
        self._prober, self._cache, self._base, self._kind, self._started_at = prober, cache, base, kind, started_at
        self._root = server_root(base)

    def detect(self, model: str) -> Steps[ServerInfo]:
        """Detect the server's software, and facts about the model that the server calls `model`."""
        seen, listed = self._cached(), self._cache.models(self._root, self._kind)
        if seen is None:
            seen, listed = yield from self._detect_server()
        if seen.kind == OLLAMA and model:
            return (yield from self._detect_model(seen, model))
        detected = with_model(seen, listed, model)
        if model and self._cached():
            self._cache.put(self._root, model, detected, self._kind, listed, at=self._started_at)
        return detected

    def _cached(self) -> ServerInfo | None:
        """Return the cached result about the server alone, which has no facts about a model."""
        return self._cache.get(self._root, "", self._kind, at=self._started_at)

    def _detect_server(self) -> Steps[tuple[ServerInfo, tuple[ModelDescription, ...]]]:
        """Detect the server's software, or only its details if the config names the kind.

        The result is cached only if it is certain, so that a server that is still starting is probed again.
        """
        named = self._kind
        questions = kind_requests(self._base, named) if named else server_requests(self._base)
        answers = (yield from self._prober(questions)) if questions else ()
        seen = read_kind(named, questions, answers) if named else read_server(questions, answers)
        certain = is_kind_final(answers) if named else is_server_final(seen, answers)
        more = () if named else version_requests(self._base, seen)
        if more:
            told = yield from self._prober(more)
            seen = read_version(seen, more, told)
            questions, answers = (*questions, *more), (*answers, *told)
        listed = read_models(questions, answers)
        if certain:
            self._cache.put(self._root, "", seen, named, listed, at=self._started_at)
        return seen, listed

    def _detect_model(self, seen: ServerInfo, model: str) -> Steps[ServerInfo]:
        """Detect what one of Ollama's models can do; a model that is not installed yet is probed again next time."""
        questions = model_requests(self._base, model)
        answers = yield from self._prober(questions)
        seen = read_model(seen, questions, answers, model)
        if any(answer and answer.status == 200 for answer in answers):
            self._cache.put(self._root, model, seen, self._kind)
        return seen


class _Prober:
    """Sends probes with the client's own headers, including credentials, within the time left for probing."""

    def __init__(self, state: ExchangeState, route: Headers) -> None:
        self._state = state
        fields = upstream_headers(state.request.headers, route)
        kept = tuple(pair for pair in fields if pair[0].lower() not in _REPLACED_HEADERS)
        # close: a server with a single worker would block on a connection that is kept alive
        probe_headers = (("accept", "application/json"), ("connection", "close"), ("user-agent", "promptools"))
        self._headers = (*kept, *probe_headers)
        left = state.policy.seconds_left(state.now)
        self._deadline = state.now + (PROBE_TIMEOUT if left is None else min(PROBE_TIMEOUT, DEADLINE_SHARE * left))

    def __call__(self, questions: Sequence[ProbeRequest]) -> Steps[tuple[ProbeResponse | None, ...]]:
        seconds = self._deadline - self._state.now
        if seconds <= 0:
            return (None,) * len(questions)
        return (yield from self._state.probe(tuple(self._request(question) for question in questions), seconds))

    def _request(self, question: ProbeRequest) -> Request:
        content_type = (("content-type", "application/json"),) if question.body else ()
        return Request(question.method, question.url, (*self._headers, *content_type), question.body)
