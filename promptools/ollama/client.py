"""The ollama package's clients with our transport inside."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import ollama

from promptools.profiles.detect import root_of
from promptools.transport import OLLAMA_DOORS, Session, carry
from promptools.transport.session import NAMES

if TYPE_CHECKING:
    from collections.abc import Mapping

    from promptools.profiles import Config
    from promptools.types import ModeName

V1 = "/v1"


class Client(ollama.Client):
    """`ollama.Client` whose chats come back with working tool calls, from Ollama or any other server of open models.

    Takes everything that the package's class takes, and `Settings`: `provider=`, `mode=`, `config=`, `on_reply=` and
    so on. Without `host=`, a provider of the config says where the server is; else OLLAMA_HOST, else the config's
    default provider, else the address where such a server listens by default.
    """

    def __init__(
        self,
        host: str | None = None,
        *,
        provider: str | None = None,
        mode: ModeName | None = None,
        config: Config | str | os.PathLike[str] | None = None,
        **options: Any,
    ) -> None:
        session, theirs = _divided({"provider": provider, "mode": mode, "config": config, **options})
        inside: Any = super()  # the package leaves its options untyped
        inside.__init__(_host(session, host, explicit=config is not None), **theirs)
        self.promptools = settled(session, self._client, theirs.get("headers"))
        self._client = carry(self._client, self.promptools, OLLAMA_DOORS)


class AsyncClient(ollama.AsyncClient):
    """`ollama.AsyncClient` whose chats come back with working tool calls; see `Client`."""

    def __init__(
        self,
        host: str | None = None,
        *,
        provider: str | None = None,
        mode: ModeName | None = None,
        config: Config | str | os.PathLike[str] | None = None,
        **options: Any,
    ) -> None:
        session, theirs = _divided({"provider": provider, "mode": mode, "config": config, **options})
        inside: Any = super()  # the package leaves its options untyped
        inside.__init__(_host(session, host, explicit=config is not None), **theirs)
        self.promptools = settled(session, self._client, theirs.get("headers"))
        self._client = carry(self._client, self.promptools, OLLAMA_DOORS)


def _divided(options: dict[str, Any]) -> tuple[Session, dict[str, Any]]:
    """Split a constructor's options into our session and the package's own."""
    ours = {name: value for name, value in options.items() if name in NAMES}
    return Session(ours), {name: value for name, value in options.items() if name not in NAMES}


def _host(session: Session, host: str | None, *, explicit: bool) -> str | None:
    """Say where the server is, as the package wants it: its root, without /v1; None leaves it to the package."""
    known = session.config.providers
    if host:
        return root_of(host)
    if session.provider not in known and (os.environ.get("OLLAMA_HOST") and not (explicit and known)):
        return None
    if session.provider is None and not known:
        return None
    target = session.target(None, provider=session.provider)
    return target.base_url and root_of(target.base_url)


def settled(session: Session, http: Any, headers: Mapping[str, str | None] | None) -> Session:
    """Find the provider that is at the client's address, and send its key where `headers` hold none."""
    base_url = str(http.base_url).rstrip("/") + V1
    target = session.target(None, base_url=base_url, provider=session.provider)
    if target.provider is None:
        # nobody says what server it is and nobody shall find out: then it is what the app takes it for
        return session if session.detect else session.changed({"provider": "ollama"})
    given = any(name.lower() == "authorization" and value for name, value in (headers or {}).items())
    key = None if given else session.key(target)
    if key:
        http.headers["authorization"] = f"Bearer {key}"
    return session if session.provider else session.changed({"provider": target.provider})
