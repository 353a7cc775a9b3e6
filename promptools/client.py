"""The SDK's clients with our transport inside. Importing this module imports openai."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self

import openai

from promptools.transport import Session, intercept
from promptools.transport.session import PLACEHOLDER_KEY, SETTING_NAMES

if TYPE_CHECKING:
    import os
    from collections.abc import Mapping

    from promptools.profiles import Config
    from promptools.types import ModeName


class OpenAI(openai.OpenAI):
    """`openai.OpenAI` whose chat completions return working tool calls.

    Takes everything that the SDK's class takes, and `Settings`: `provider=`, `mode=`, `config=`, `on_reply=` and so on.
    The address is that of `base_url=` or `provider=`, else of the default provider of a config that is given, else of
    OPENAI_BASE_URL, else of the default provider of a config that is found, else the SDK's own.
    A provider that is not a string is the SDK's (openai 3) and is passed to it.
    """

    def __init__(
        self,
        *,
        provider: Any = None,
        mode: ModeName | None = None,
        config: Config | str | os.PathLike[str] | None = None,
        **options: Any,
    ) -> None:
        session, theirs = _split_options({"provider": provider, "mode": mode, "config": config, **options})
        super().__init__(**theirs)
        self.promptools = session
        self._client = intercept(self._client, session)

    def copy(self, **changes: Any) -> Self:
        """Return a copy with some options replaced, ours or the SDK's; the circuit breaker stays shared."""
        return super().copy(**_copy_options(self.promptools, changes))

    with_options = copy


class AsyncOpenAI(openai.AsyncOpenAI):
    """`openai.AsyncOpenAI` whose chat completions return working tool calls; see `OpenAI`."""

    def __init__(
        self,
        *,
        provider: Any = None,
        mode: ModeName | None = None,
        config: Config | str | os.PathLike[str] | None = None,
        **options: Any,
    ) -> None:
        session, theirs = _split_options({"provider": provider, "mode": mode, "config": config, **options})
        super().__init__(**theirs)
        self.promptools = session
        self._client = intercept(self._client, session)

    def copy(self, **changes: Any) -> Self:
        """Return a copy with some options replaced, ours or the SDK's; the circuit breaker stays shared."""
        return super().copy(**_copy_options(self.promptools, changes))

    with_options = copy


def _pop_settings(options: dict[str, Any]) -> dict[str, Any]:
    """Remove our settings from the options and return them; a provider object is the SDK's."""
    names = [
        name
        for name in options
        if name in SETTING_NAMES and not (name == "provider" and not _is_provider_name(options[name]))
    ]
    return {name: options.pop(name) for name in names}


def _is_provider_name(provider: object) -> bool:
    return provider is None or isinstance(provider, str)


def _split_options(options: dict[str, Any]) -> tuple[Session, dict[str, Any]]:
    """Split a constructor's options into our session and the SDK's own, filled in from the provider."""
    theirs = dict(options)
    session: Session | None = theirs.pop("promptools", None)
    ours = _pop_settings(theirs)
    if session is not None:  # a copy brings its session along
        return session, theirs
    return _settle_address(Session(ours), theirs)


def _settle_address(session: Session, theirs: dict[str, Any]) -> tuple[Session, dict[str, Any]]:
    """Settle the client's address: by an argument, a named config, OPENAI_BASE_URL, or a config that was found.

    Without any of them it is the SDK's own.
    """
    base_url = theirs.get("base_url")
    if not isinstance(base_url, str):  # a URL of either family, or the SDK's own "not given"
        base_url = str(base_url) if hasattr(base_url, "host") else None
    if session.provider is None:
        if "provider" in theirs or theirs.get("data_residency"):
            return session, theirs
        base_url = base_url or session.environment_address()
        if base_url is None and not session.config.providers and session.config.standing != "untrusted":
            return session, theirs
    target = session.resolve_target(None, base_url=base_url, provider=session.provider)
    if target.provider is None:
        return session, theirs
    theirs["base_url"] = target.base_url
    if theirs.get("api_key") is None:
        theirs["api_key"] = session.find_key(target) or PLACEHOLDER_KEY
    return session if session.provider else session.with_settings({"provider": target.provider}), theirs


def _copy_options(session: Session, changes: Mapping[str, Any]) -> dict[str, Any]:
    """Return the SDK's options for a copy, with the session of the copy among them."""
    theirs = dict(changes)
    ours = _pop_settings(theirs)
    if ours:
        session = session.with_settings(ours)
    if ours.get("provider"):
        session, theirs = _settle_address(session, theirs)
    return {**theirs, "_extra_kwargs": {**theirs.get("_extra_kwargs", {}), "promptools": session}}
