"""The clients of the `ollama` package, adapted to send their requests through promptools."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, Unpack, cast

import ollama

from promptools.profiles.server_detection import server_root
from promptools.transport import OLLAMA_ENDPOINTS, Session, intercept
from promptools.transport.settings import SETTING_NAMES, Settings, SettingsHelp

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

V1 = "/v1"


class ClientOptions(Settings, total=False):
    """Options of `Client` and `AsyncClient`: promptools' settings, and those that ollama passes to its HTTP client."""

    headers: Mapping[str, str | None] | None
    timeout: Any
    follow_redirects: bool
    max_redirects: int
    auth: Any
    params: Any
    cookies: Any
    verify: Any
    cert: Any
    trust_env: bool
    http1: bool
    http2: bool
    proxy: Any
    mounts: Mapping[str, Any] | None
    transport: Any
    limits: Any
    default_encoding: str | Callable[[bytes], str]
    event_hooks: Mapping[str, list[Callable[..., Any]]] | None


class Client(ollama.Client):
    """`ollama.Client` whose chats return working tool calls, from Ollama or any other open-model server.

    The constructor takes all arguments of the package's class, and the settings below. Without `host=`, the address
    comes from the first of these: `provider=`, the default provider of a config that was given (`config=`,
    PROMPTOOLS_CONFIG), the variable OLLAMA_HOST, the default provider of a config that was found, Ollama's own default.
    """

    __doc__ = cast("str", SettingsHelp(__doc__))

    def __init__(self, host: str | None = None, **options: Unpack[ClientOptions]) -> None:
        session, theirs = _split_options(options)
        parent: Any = super()  # the package leaves its options untyped
        parent.__init__(_host(session, host), **theirs)
        self.promptools = settle_provider(session, self._client, theirs.get("headers"))
        self._client = intercept(self._client, self.promptools, OLLAMA_ENDPOINTS)


class AsyncClient(ollama.AsyncClient):
    """`ollama.AsyncClient` whose chats return working tool calls; see `Client`."""

    __doc__ = cast("str", SettingsHelp(__doc__))

    def __init__(self, host: str | None = None, **options: Unpack[ClientOptions]) -> None:
        session, theirs = _split_options(options)
        parent: Any = super()  # the package leaves its options untyped
        parent.__init__(_host(session, host), **theirs)
        self.promptools = settle_provider(session, self._client, theirs.get("headers"))
        self._client = intercept(self._client, self.promptools, OLLAMA_ENDPOINTS)


def _split_options(options: Mapping[str, Any]) -> tuple[Session, dict[str, Any]]:
    """Split a constructor's options into promptools' session and the package's own options."""
    ours = {name: value for name, value in options.items() if name in SETTING_NAMES}
    return Session(ours), {name: value for name, value in options.items() if name not in SETTING_NAMES}


def _host(session: Session, host: str | None) -> str | None:
    """Return the server's address in the form that the package expects, without /v1; None lets the package decide."""
    known, is_given = session.config.providers, session.config.standing == "given"
    if host:
        return server_root(host)
    if session.provider not in known and (os.environ.get("OLLAMA_HOST") and not (is_given and known)):
        return None
    if session.provider is None and not known:
        return None
    target = session.resolve_target(None, provider=session.provider)
    return target.base_url and server_root(target.base_url)


def settle_provider(session: Session, http: Any, headers: Mapping[str, str | None] | None) -> Session:
    """Return the session with the provider whose server is at the client's address.

    If no provider is known for that address and detection is off, the provider is Ollama. Also make the HTTP client
    send the provider's key, unless `headers` has a key.
    """
    base_url = str(http.base_url).rstrip("/") + V1
    target = session.resolve_target(None, base_url=base_url, provider=session.provider)
    if target.provider is None:
        # the provider is neither configured nor detected: assume Ollama, since the app uses its client
        return session if session.detect else session.with_settings({"provider": "ollama"})
    given = any(name.lower() == "authorization" and value for name, value in (headers or {}).items())
    key = None if given else session.find_key(target)
    if key:
        http.headers["authorization"] = f"Bearer {key}"
    return session if session.provider else session.with_settings({"provider": target.provider})
