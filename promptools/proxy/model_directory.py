"""The models of all providers: requested from their servers, listed under `/v1/models`, and used for routing.

A name that the config does not list may still be a model of one of the servers. So all providers are asked for their
models before the first request. A server may start later, or load another model. So all providers are asked again if
one of them did not respond or if a request named an unknown model, but at most once in `REFRESH_SECONDS`.
"""

from __future__ import annotations

import logging
import time
from collections import Counter
from typing import TYPE_CHECKING, Any, TypeAlias
from urllib.parse import unquote

import anyio

from promptools.errors import clip
from promptools.exchange import Probe, Probed, Request
from promptools.exchange.client_api import CHAT_API
from promptools.exchange.ollama_api import OLLAMA_API
from promptools.exchange.response_writer import encode_json
from promptools.json_values import try_json
from promptools.log import log
from promptools.profiles.facts import family_of
from promptools.proxy.asgi import send_response
from promptools.transport.session import CREDENTIAL_FIELDS
from promptools.wire.json_body import as_list, as_object, as_text
from promptools.wire.ollama_out import ListedModel

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Mapping

    from promptools.exchange import Exchange, Headers
    from promptools.profiles.server_detection import ProbeResponse
    from promptools.proxy.asgi import Send
    from promptools.proxy.routing import Replica, RoutedProvider, RouteTable


REFRESH_SECONDS = 60.0
LEARN_TIMEOUT = 2.0
"""Maximum number of seconds that a request waits while the providers are asked for their models."""
LIST_TIMEOUT = 5.0
"""Maximum number of seconds that a request for the list of models waits for the servers."""
_MODELS_PATH = "/models"
_LIST_PATH = "/v1/models"
_OLLAMA_LISTS = {"/api/tags": ListedModel.encode_listed, "/api/ps": ListedModel.encode_running}
_PROBE_FIELDS: Headers = (("accept", "application/json"), ("user-agent", "promptools"))

RunExchange: TypeAlias = "Callable[[Exchange], Awaitable[None]]"
"""A function that runs an exchange which sends requests to servers, but has no response for a client."""


class ModelDirectory:
    """Asks all providers for their models, to list them and to route requests by model."""

    def __init__(self, table: RouteTable, run: RunExchange, *, ask: bool = True) -> None:
        self._table = table
        self._run = run
        self._ask = ask
        self._asked_at: float | None = None
        self._due = False
        self._lock = anyio.Lock()

    async def prepare(self) -> None:
        """Ask the providers for their models if they have not been asked yet, or must be asked again."""
        if not self._ask or not self._is_due():
            return
        async with self._lock:  # all requests wait for the first answers; for later answers only one request waits
            if self._is_due():
                asked = [routed for routed in self._table.providers.values() if routed.provider.detect is not False]
                await self._ask_for_models(asked, (), LEARN_TIMEOUT, logging.DEBUG)

    def report_unknown(self) -> None:
        """Remember that a request named an unknown model, so that the providers are asked again."""
        self._due = True

    async def respond(self, path: str, client: Headers, send: Send, request_id: str = "") -> None:
        """Respond to a request for all models, or for one of them."""
        status, body = await self._response(path, client, request_id)
        await send_response(send, status, [(b"content-type", b"application/json")], body)

    async def _response(self, path: str, client: Headers, request_id: str) -> tuple[int, bytes]:
        entries = await self.list_models(client)
        ollama = path in _OLLAMA_LISTS
        if not entries:
            message = "no provider listed its models"
            api = OLLAMA_API if ollama else CHAT_API
            return 502, api.encode_error(message, kind="UpstreamError", code="no_answer", request_id=request_id)
        if ollama:
            models = [ListedModel(entry, family_of(name) or "") for name, entry in entries.items()]
            return 200, encode_json({"models": [_OLLAMA_LISTS[path](model) for model in models]})
        name = unquote(path.rstrip("/").removeprefix(_LIST_PATH).lstrip("/"))
        if not name:
            return 200, encode_json({"object": "list", "data": list(entries.values())})
        entry = self.find_model(name, entries)
        if entry is not None:
            return 200, encode_json(entry)
        message = f"The model {clip(repr(name))} does not exist"
        kind, code = "invalid_request_error", "model_not_found"
        return 404, CHAT_API.encode_error(message, kind=kind, code=code, request_id=request_id)

    async def list_models(self, client: Headers) -> dict[str, dict[str, Any]]:
        """Return the entries of all models, keyed by the names that clients request; empty if no provider responded.

        If a model's own name is a key in `[proxy.models]`, or requests for that name go to another provider, the model
        is listed as `PROVIDER/MODEL` instead. A model that several providers have is listed both under its own name
        and as `PROVIDER/MODEL` for each of them.
        """
        models_by_provider = await self._ask_for_models(
            self._table.providers.values(), client, LIST_TIMEOUT, logging.WARNING
        )
        owners = Counter(name for models in models_by_provider.values() for name in models)
        entries: dict[str, dict[str, Any]] = {}
        for provider, models in models_by_provider.items():
            for name, model in models.items():
                leads_here = name not in self._table.models and self._table.find(name)[0].provider.name == provider
                if leads_here:
                    entries[name] = _entry(name, provider, model)
                if owners[name] > 1 or not leads_here:
                    entries[f"{provider}/{name}"] = _entry(f"{provider}/{name}", provider, model)
        self._add_configured(entries, models_by_provider)
        return entries

    def find_model(self, name: str, entries: Mapping[str, dict[str, Any]]) -> dict[str, Any] | None:
        """Return the entry of the model that serves requests for `name`; None if no server has listed the model."""
        if name in entries:
            return entries[name]
        destination = self._table.find(name)[0]
        provider = destination.provider.name
        for listed in (destination.model or "", f"{provider}/{destination.model}"):
            entry = entries.get(listed)
            if entry is not None and entry["owned_by"] == provider:
                return {**entry, "id": name}
        return None

    def _is_due(self) -> bool:
        return self._asked_at is None or (self._due and time.monotonic() - self._asked_at >= REFRESH_SECONDS)

    def _add_configured(
        self, entries: dict[str, dict[str, Any]], models_by_provider: Mapping[str, Mapping[str, dict[str, Any]]]
    ) -> None:
        """Add to `entries` the names that the config lists, except those whose providers did not respond."""
        names = [name for routed in self._table.providers.values() for name in routed.names()]
        for name in (*self._table.models, *names):
            destination = next((to for to in self._table.find(name) if to.provider.name in models_by_provider), None)
            if destination is not None:
                provider = destination.provider.name
                model = models_by_provider[provider].get(destination.model or "", {})
                entries.setdefault(name, _entry(name, provider, model))

    async def _ask_for_models(
        self, providers: Iterable[RoutedProvider], client: Headers, timeout: float, level: int
    ) -> dict[str, dict[str, dict[str, Any]]]:
        """Ask providers concurrently for their models, and remember the models for routing.

        Returns a dictionary that maps the name of each provider to its models, which are keyed by name. Providers that
        did not respond with a list of models are left out.
        """
        providers = list(providers)
        self._due = False
        if self._asked_at is not None:
            self._asked_at = time.monotonic()
        answers = await self._ask_replicas(providers, client, timeout)
        models_by_provider: dict[str, dict[str, dict[str, Any]]] = {}
        for routed in providers:
            answer = answers[routed.name]
            models = None if answer is None or answer.status != 200 else _read_models(answer.body)
            if models is None:
                why = "no answer" if answer is None else f"HTTP {answer.status}"
                log.log(level, "provider %r is left out of the list of models: %s", routed.name, why)
            else:
                models_by_provider[routed.name] = models
        self._due |= len(models_by_provider) < len(providers)
        self._asked_at = time.monotonic()
        self._table.learn(models_by_provider)
        return models_by_provider

    async def _ask_replicas(
        self, providers: Iterable[RoutedProvider], client: Headers, timeout: float
    ) -> dict[str, ProbeResponse | None]:
        """Ask one server (replica) of each provider; if it fails, ask all other servers of the provider.

        Returns the answers, keyed by provider name. A response with a 5xx counts as a failure. A replica that did not
        respond is marked unreachable only if another replica of the same provider responded. If a silent replica
        were always marked, a busy server would lose its requests to another provider.
        """
        answers: dict[str, ProbeResponse | None] = {routed.name: None for routed in providers}
        silent: list[tuple[RoutedProvider, Replica]] = []
        by_preference = {routed: _by_preference(routed) for routed in providers}
        for some in (slice(1), slice(1, None)):
            failed = [routed for routed in by_preference if _has_failed(answers[routed.name])]
            asked = [(routed, replica) for routed in failed for replica in by_preference[routed][some]]
            responses: list[ProbeResponse | None] = []
            if asked:
                await self._run(_probe([_models_request(*pair, client) for pair in asked], timeout, responses))
            for (routed, replica), response in zip(asked, responses, strict=True):
                if response is None:
                    silent.append((routed, replica))
                    continue
                replica.mark_reachable()
                if _has_failed(answers[routed.name]):
                    answers[routed.name] = response
        for routed, replica in silent:
            if answers[routed.name] is not None:
                replica.mark_unreachable(time.monotonic())
        return answers


def is_model_list(method: str, path: str) -> bool:
    """Return whether a request asks for all models (OpenAI's or Ollama's API), or for one model (OpenAI's API)."""
    return method == "GET" and (path in {_LIST_PATH, *_OLLAMA_LISTS} or path.startswith(f"{_LIST_PATH}/"))


def _by_preference(routed: RoutedProvider) -> list[Replica]:
    """Return a provider's replicas: healthy ones first, and among equally healthy ones, those with less load first."""
    now = time.monotonic()
    return sorted(routed.replicas, key=lambda replica: (not replica.is_healthy(now), replica.outstanding))


def _has_failed(response: ProbeResponse | None) -> bool:
    """Return whether a replica did not respond, or responded with a 5xx; other replicas are then asked."""
    return response is None or response.status >= 500


def _models_request(routed: RoutedProvider, replica: Replica, client: Headers) -> Request:
    replaced = dict(routed.credentials(replica, client))
    kept = (pair for pair in client if pair[0].lower() in CREDENTIAL_FIELDS - replaced.keys())
    fields = (*kept, *_PROBE_FIELDS, *(pair for pair in replaced.items() if pair[1]))
    return Request("GET", replica.address.base_url + _MODELS_PATH, fields, b"")


def _probe(requests: list[Request], timeout: float, answers: list[ProbeResponse | None]) -> Exchange:
    """Send requests concurrently, and append their responses to `answers`."""
    probed = yield Probe(tuple(requests), timeout)
    assert isinstance(probed, Probed), probed
    answers.extend(probed.answers)
    return None


def _read_models(body: bytes) -> dict[str, dict[str, Any]] | None:
    """Return the models that a server lists, keyed by name; None if the response is not a list of models."""
    data = try_json(body)
    if not isinstance(as_object(data).get("data"), list):
        return None
    models = [as_object(model) for model in as_list(data["data"])]
    return {as_text(model.get("id")): model for model in models if as_text(model.get("id"))}


def _entry(name: str, provider: str, model: Mapping[str, Any]) -> dict[str, Any]:
    """Return the entry for a model in the list, with the id `name` and all fields that the server sent."""
    return {"object": "model", "created": 0, **model, "id": name, "owned_by": provider}
