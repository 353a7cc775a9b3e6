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
    so on. Without `host=`, the address is that of the `provider=` of the config, else OLLAMA_HOST, else that of the
    config's default provider, else Ollama's default.
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
        parent: Any = super()  # the package leaves its options untyped
        parent.__init__(_host(session, host, explicit=config is not None), **theirs)
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
        parent: Any = super()  # the package leaves its options untyped
        parent.__init__(_host(session, host, explicit=config is not None), **theirs)
        self.promptools = settled(session, self._client, theirs.get("headers"))
        self._client = carry(self._client, self.promptools, OLLAMA_DOORS)


def _divided(options: dict[str, Any]) -> tuple[Session, dict[str, Any]]:
    """Split a constructor's options into our session and the package's own."""
    ours = {name: value for name, value in options.items() if name in NAMES}
    return Session(ours), {name: value for name, value in options.items() if name not in NAMES}


def _host(session: Session, host: str | None, *, explicit: bool) -> str | None:
    """Return the server's address as the package takes it, without /v1; None leaves it to the package."""
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
    """Settle the provider at the client's address, and send its key where `headers` holds none."""
    base_url = str(http.base_url).rstrip("/") + V1
    target = session.target(None, base_url=base_url, provider=session.provider)
    if target.provider is None:
        # neither configured nor to be detected: assume Ollama, since the app uses its client
        return session if session.detect else session.changed({"provider": "ollama"})
    given = any(name.lower() == "authorization" and value for name, value in (headers or {}).items())
    key = None if given else session.key(target)
    if key:
        http.headers["authorization"] = f"Bearer {key}"
    return session if session.provider else session.changed({"provider": target.provider})
