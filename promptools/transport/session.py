"""The session of a client or proxy: its state between requests (settings, config, breaker). It starts the exchanges."""

from __future__ import annotations

import inspect
import os
import string
import time
from dataclasses import fields, replace
from datetime import datetime
from functools import cache, partial
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from promptools import dialects
from promptools.dialects.own_dialects import OwnDialects, read_own, together
from promptools.errors import UsageError, clip, suggest
from promptools.exchange import (
    Caller,
    ClientRequest,
    Context,
    DetectionCache,
    Exchange,
    Request,
    Route,
)
from promptools.exchange.detection import probe_server
from promptools.exchange.learning import LearnedDialects, learn_at_server, probe_format
from promptools.exchange.response_store import ResponseStore
from promptools.exchange.state import api_base, knowing
from promptools.exchange.upstream import MAX_REPLY
from promptools.fallback import Breaker, ContextSizes, Refusals
from promptools.harmony import bpe_vocabulary
from promptools.log import log
from promptools.masking import KEY_FIELDS
from promptools.modes.options import OPTIONS, Options
from promptools.parsing.reply_record import ID_LENGTH
from promptools.profiles import Config, Target, api_key, load_config, resolve
from promptools.profiles.facts import kind_of
from promptools.transport.endpoints import CHAT_ENDPOINT, Endpoint
from promptools.transport.found_config import find_here, read_found
from promptools.transport.http_library import split_credentials
from promptools.transport.learned_tables import LearnedTables, learned_folder
from promptools.transport.settings import SETTING_NAMES

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from promptools.exchange import ExchangeEnd, Headers, ObservedExchange, Observer, SentRequest
    from promptools.exchange.context import Router
    from promptools.exchange.observer import Received
    from promptools.exchange.state import Steps
    from promptools.harmony.bpe_vocabulary import TokenCodec
    from promptools.learning import Learned
    from promptools.types import Reply, ServerInfo


# The observers in the settings: checked once, and guarded, so that an error in an observer changes no response.


class GuardedObservers:
    """An observer that calls several observers in order, and logs their exceptions."""

    def __init__(self, observers: Sequence[Observer]) -> None:
        self._observers = observers

    def began(self, exchange: ObservedExchange) -> None:
        """Tell all observers that an exchange began."""
        self._call("began", exchange)

    def sent(self, exchange: ObservedExchange, sent: SentRequest) -> None:
        """Tell all observers that a request was sent to the server."""
        self._call("sent", exchange, sent)

    def received(self, exchange: ObservedExchange, received: Received) -> None:
        """Tell all observers what was received from the server."""
        self._call("received", exchange, received)

    def ended(self, exchange: ObservedExchange, end: ExchangeEnd) -> None:
        """Tell all observers that an exchange ended."""
        self._call("ended", exchange, end)

    def _call(self, method: str, *values: Any) -> None:
        for observer in self._observers:
            try:
                getattr(observer, method)(*values)
            except Exception:
                log.exception("the observer's %s raised; the answer continues without it", method)


def guard_observers(observers: Sequence[Observer]) -> Observer | None:
    """Return one observer that calls all `observers`; None if there are none. Raises UsageError for an invalid one."""
    for observer in observers:
        for name in ("began", "sent", "received", "ended"):
            method = getattr(observer, name, None)
            if not callable(method) or inspect.iscoroutinefunction(method):
                raise UsageError(
                    f"observer.{name} must be a plain function; an observer has began, sent, received and ended"
                )
    return GuardedObservers(observers) if observers else None


def as_observers(observer: Observer | Sequence[Observer] | None) -> Sequence[Observer]:
    """Return the value of the setting `observer` (one observer, several, or None) as a sequence."""
    if observer is None:
        return ()
    return (
        cast("Sequence[Observer]", observer) if isinstance(observer, (list, tuple)) else (cast("Observer", observer),)
    )


ID_ALPHABET = string.ascii_letters + string.digits
CREDENTIAL_FIELDS = KEY_FIELDS | {"cookie", "openai-organization", "openai-project"}
"""Header fields that must be sent only to the server for which they were meant."""
PLACEHOLDER_KEY = "none"
"""The API key that is sent to a server that needs none, because the SDK always requires a key."""
MAX_CACHED_ROUTES = 512
"""Maximum number of targets that a session caches before it clears the cache; resolving one takes about 1 ms."""
OPTION_NAMES = frozenset(OPTIONS) - {"provider"}
"""Settings that a request's `promptools` key may override."""


def new_call_id() -> str:
    """Return a new call id that every server accepts: nine letters and digits, because of Mistral's templates."""
    # from one read of the system's randomness: ids of stored responses must not be guessable
    number, letters = int.from_bytes(os.urandom(16)), ""
    for _ in range(ID_LENGTH):
        number, letter = divmod(number, len(ID_ALPHABET))
        letters += ID_ALPHABET[letter]
    return letters


class Session:
    """Starts exchanges: calling a session with a client's request returns the exchange.

    Copies of a client share the breaker and all that the client remembers: detected servers, their refusals, context
    sizes, learned dialects, and stored responses.
    """

    def __init__(
        self,
        settings: Mapping[str, Any],
        detections: DetectionCache | None = None,
        context_sizes: ContextSizes | None = None,
        response_store: ResponseStore | None = None,
        refusals: Refusals | None = None,
        learned: LearnedDialects | None = None,
    ) -> None:
        """Check the settings, and find and read the config; raise `UsageError` if anything is invalid."""
        _check_names(settings)
        self.config = resolve_config(settings.get("config"))
        given = read_own(settings.get("dialects") or ())
        self.own_dialects = read_own((*given.given, *self.config.dialects))
        """The dialects that only this session's exchanges know."""
        self.provider: str | None = settings.get("provider")
        self.overrides: Mapping[str, Any] | None = settings.get("overrides")
        self.detect = settings.get("detect", True) is not False
        self.allow_provider = settings.get("allow_provider", True) is not False
        observers = as_observers(settings.get("observer"))
        self.context = Context(
            route=_no_route,
            new_id=new_call_id,
            breaker=settings.get("breaker") or Breaker(),
            detection_cache=detections or DetectionCache(),
            context_sizes=context_sizes or ContextSizes(),
            refusals=refusals or Refusals(),
            learned=(learned or LearnedDialects(LearnedTables(learned_folder()))) if self.detect else None,
            response_store=ResponseStore() if response_store is None else response_store,
            options=_default_options(settings, self.own_dialects),
            stop=settings.get("stop"),
            wait=settings.get("wait"),
            deadline=settings.get("deadline"),
            attempt_timeout=settings.get("attempt_timeout"),
            max_tools=settings.get("max_tools") or None,
            max_reply=_check_max_reply(settings.get("max_reply", MAX_REPLY)),
            on_reply=_logging_errors(settings.get("on_reply")),
            observer=guard_observers(observers),
            response_bytes=max((getattr(observer, "response_bytes", 0) for observer in observers), default=0),
            wall_clock=_local_time,
            vocabulary=local_vocabulary,
            log=log.info,
            warn=log.warning,
        )
        # contexts are made from this list for each request: `dataclasses.replace` takes several times as long
        self._shared: list[Any] = [getattr(self.context, entry.name) for entry in fields(Context)[1:]]
        own = {"dialects": given.given} if given.given else {}
        self.settings = {**settings, **own, "config": self.config, "breaker": self.context.breaker}
        self._targets: dict[tuple[str | None, str | None, str | None, ServerInfo | None], Target] = {}

    def with_settings(self, settings: Mapping[str, Any]) -> Session:
        """Return a copy with some settings replaced; it shares the breaker unless another breaker is passed.

        With another breaker, the copy does not share the servers' refusals either.
        """
        shared = self.context
        return Session(
            {**self.settings, **settings},
            shared.detection_cache,
            shared.context_sizes,
            shared.response_store,
            None if "breaker" in settings else shared.refusals,
            shared.learned,
        )

    def __call__(
        self,
        request: Request,
        endpoint: Endpoint = CHAT_ENDPOINT,
        router: Router | None = None,
        at: float | None = None,
        caller: Caller | None = None,
    ) -> Exchange:
        """Start the exchange for a client's request to `endpoint`; `at` is the time of arrival, by default now.

        `router` decides where the request goes. Without a router, the request goes to its own URL, unless the request
        names another provider of the config. If it names a kind of server instead (`vllm`), the server at the URL is
        assumed to be of this kind. `caller` identifies the sender if the header fields no longer do.
        """
        router = router or self._own_router(request, endpoint)
        began_at = time.monotonic() if at is None else at
        client_request = ClientRequest(request, began_at, endpoint.api, caller or Caller())
        exchange = endpoint.begin(client_request, Context(router, *self._shared))
        return knowing(self.own_dialects, exchange) if self.own_dialects.given else exchange

    def _own_router(self, request: Request, endpoint: Endpoint) -> Router:
        """Return a function that routes to the request's own URL, or to the provider that the request names."""
        chat = endpoint.api.wire == "chat"
        base_url = api_base(request.url) if chat else self.base_url(request.url)

        def route(model: str | None, provider: str | None) -> Route:
            self.check_provider(provider)
            if provider is None or provider == self.provider or provider not in self.config.providers:
                result = self.route(model, base_url, provider or self.provider)
                return result if chat else replace(result, url=base_url + CHAT_ENDPOINT.path)
            return self.route_to_provider(self.route(model, None, provider), request.headers)

        return route

    def check_provider(self, name: str | None) -> None:
        """Raise `UsageError` if a request names a provider other than the session's, unless that is allowed.

        A name of a kind of server is always allowed, since it only selects facts about the server.
        """
        known = name in {None, self.provider} or (name not in self.config.providers and kind_of(name or ""))
        if self.allow_provider or known:
            return
        raise UsageError(
            f"promptools.provider {clip(name or '')!r}: requests may not choose their provider here, since that spends"
            " another key; the operator allows it with --allow-provider, or Proxy(allow_provider=True)"
        )

    def base_url(self, url: str) -> str:
        """Return the server's base URL, given the URL of a request in an API other than Chat Completions.

        If the provider's configured base URL differs only by lacking the `/v1` at the end, the configured URL is
        returned.
        """
        base_url, provider = api_base(url), self.config.providers.get(self.provider or "")
        configured = provider and provider.base_url and provider.base_url.rstrip("/")
        return configured if configured and f"{configured}/v1" == base_url else base_url

    def detect_server(
        self, base_url: str, model: str, headers: Headers, *, learn: bool = False
    ) -> Steps[tuple[Route, ServerInfo]]:
        """Detect which server is at a base URL, and return the route and what was detected.

        With `learn`, also learn the dialect of the model's chat template, if the model's family is unknown.
        """
        return (probe_format if learn else probe_server)(*self._own_request(base_url, headers), model)

    def learn_dialect(self, base_url: str, model: str, headers: Headers, name: str) -> Steps[Learned]:
        """Learn the dialect of a model's chat template, from the server that renders the template."""
        return learn_at_server(*self._own_request(base_url, headers), model, name)

    def _own_request(self, base_url: str, headers: Headers) -> tuple[ClientRequest, Context]:
        """Return a request that promptools itself makes to the server at a base URL, and the request's context."""

        def route(model: str | None, provider: str | None) -> Route:
            return self.route(model, base_url, provider)

        request = Request("POST", base_url.rstrip("/") + CHAT_ENDPOINT.path, headers, b"")
        return ClientRequest(request, time.monotonic()), replace(self.context, route=route)

    def known_dialects(self) -> OwnDialects:
        """Return the dialects known to this session's exchanges, including learned ones."""
        learned = self.context.learned
        return self.own_dialects if learned is None else together(learned.dialects(), self.own_dialects)

    def route(self, model: str | None, base_url: str | None, provider: str | None) -> Route:
        """Return the route to a model at a base URL; its `resolve` returns the target once the server is detected."""
        find = partial(self.resolve_target, model, base_url=base_url, provider=provider)
        target = find()
        return Route(target, resolve=(lambda seen: find(detection=seen)) if self.detect and target.probe else None)

    def resolve_target(
        self,
        model: str | None,
        *,
        base_url: str | None = None,
        provider: str | None = None,
        detection: ServerInfo | None = None,
    ) -> Target:
        """Return the target for a model at a base URL: its provider, address and profile. Targets are cached."""
        key = (model, base_url, provider, detection)
        target = self._targets.get(key)
        if target is None:
            if len(self._targets) >= MAX_CACHED_ROUTES:
                self._targets.clear()
            with dialects.using_own(self.own_dialects):
                target = resolve(
                    model,
                    base_url=base_url,
                    provider=provider,
                    config=self.config,
                    overrides=self.overrides,
                    seen=detection and replace(detection, asked=(), seconds=0.0),
                )
            self._targets[key] = target
        return target

    def route_to_provider(self, route: Route, headers: Headers) -> Route:
        """Return the route to the provider's server, with the provider's key and without the client's credentials.

        Raises `UsageError` if the provider has no base URL, or its key is not set.
        """
        target = route.target
        if target.base_url is None:
            raise UsageError(f"provider {target.provider!r} has no base_url; set it in {self.config.file}")
        blank = {name.lower(): "" for name, _ in headers if name.lower() in CREDENTIAL_FIELDS}
        base_url, basic = split_credentials(target.base_url)
        blank["authorization"] = basic or f"Bearer {self.find_key(target) or PLACEHOLDER_KEY}"
        return replace(route, url=base_url.rstrip("/") + CHAT_ENDPOINT.path, headers=tuple(blank.items()))

    def environment_address(self) -> str | None:
        """Return the base URL in OPENAI_BASE_URL; None if unset, or if something else decides where requests go."""
        return environment_address(self.config, self.provider)

    def find_key(self, target: Target) -> str | None:
        """Return the API key of a target, or None; raise `UsageError` if the target needs a key that is not set."""
        return api_key(target, os.environ)


def _local_time() -> datetime:
    return datetime.now().astimezone()


@cache
def local_vocabulary() -> TokenCodec | None:
    """Load the vocabulary of gpt-oss if its file is on this machine and openai-harmony is installed.

    Takes about a second the first time. A file with wrong content is reported in the log, and not used.
    """
    file = (
        bpe_vocabulary.configure_library(os.environ, Path.home()) if find_spec("openai_harmony") is not None else None
    )
    try:
        return None if file is None else bpe_vocabulary.load_codec(file)
    except UsageError as error:
        log.warning("token ids are not used: %s", error)
        return None


def environment_address(config: Config, provider: str | None) -> str | None:
    """Return the base URL in OPENAI_BASE_URL; None if that is unset, or if something else decides the address.

    An argument and a config that was passed take precedence over OPENAI_BASE_URL, which takes precedence over a config
    that was only found.
    """
    if provider is not None or (config.standing == "given" and config.providers):
        return None
    return os.environ.get("OPENAI_BASE_URL") or None


def resolve_config(config: Config | str | os.PathLike[str] | None) -> Config:
    """Return the given config, or the config at the given path; for None, return the first config that is found.

    If none is found, return an empty config. The warnings of a config that is read are logged. A config that was found
    but is not trusted is returned too; `resolve` ignores it.
    """
    if isinstance(config, Config):
        return config
    if config is not None:
        loaded = load_config(Path(config))
    else:
        found = find_here()
        if found is None:
            return Config()
        loaded = read_found(found)
    if loaded.standing == "untrusted":
        log.info("%s is not trusted, and is not used", loaded.file)
    for warning in loaded.warnings:
        log.warning("%s", warning)
    return loaded


def _logging_errors(on_reply: Callable[[Reply], None] | None) -> Callable[[Reply], None] | None:
    """Wrap `on_reply` so that its exceptions are logged and do not break the response."""
    if on_reply is None:
        return None
    if inspect.iscoroutinefunction(on_reply):
        raise UsageError("on_reply is async; give a plain function, which may start a task")

    def tell(reply: Reply) -> None:
        try:
            on_reply(reply)
        except Exception:
            log.exception("on_reply raised; the answer continues without it")

    return tell


def _default_options(settings: Mapping[str, Any], own: OwnDialects) -> Options:
    """Return the default options for all requests; raise `UsageError` for an invalid option or an unknown dialect."""
    options = {key: value for key, value in settings.items() if key in OPTION_NAMES}
    with dialects.using_own(own):
        if options.get("dialect") is not None:
            dialects.get(options["dialect"])
        return Options().override(options, "promptools")


def _check_names(settings: Mapping[str, Any]) -> None:
    unknown = settings.keys() - SETTING_NAMES
    if unknown:
        first = min(unknown)
        raise UsageError(f"unknown setting {first!r}; {suggest(first, SETTING_NAMES)}")


def _check_max_reply(value: object) -> int:
    if isinstance(value, int) and not isinstance(value, bool) and value > 0:
        return value
    raise UsageError(f"max_reply is {value!r}; give a number of bytes, 1 or more")


def _no_route(model: str | None, provider: str | None) -> Route:
    raise UsageError(f"no route for model {model!r} of provider {provider!r}")
