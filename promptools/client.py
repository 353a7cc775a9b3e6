"""`OpenAI` and `AsyncOpenAI`: the openai SDK's clients, adapted to send their requests through promptools.

Importing this module imports openai.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self, Unpack, cast

import openai

from promptools.transport import Session, intercept
from promptools.transport.session import PLACEHOLDER_KEY
from promptools.transport.settings import SETTING_NAMES, ClientSettings, SettingsHelp

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    import httpx2
    from openai._provider import _Provider as SdkProvider  # pyright: ignore[reportPrivateUsage] - it has no other name
    from openai.auth import WorkloadIdentity, X509WorkloadIdentity


class CommonOptions(ClientSettings, total=False):
    """The arguments that `OpenAI` and `AsyncOpenAI` share: promptools' settings, and the SDK's own options.

    The SDK's options are those of openai 3; older SDKs lack some of them.
    """

    provider: str | SdkProvider | None
    """The name of a provider in the config, a kind of server such as `vllm`, or (openai 3) an SDK provider object."""
    admin_api_key: str | None
    workload_identity: WorkloadIdentity | X509WorkloadIdentity | None
    organization: str | None
    project: str | None
    webhook_secret: str | None
    base_url: str | httpx2.URL | openai.NotGiven | None
    data_residency: openai.DataResidency | None
    websocket_base_url: str | httpx2.URL | None
    timeout: float | openai.Timeout | openai.NotGiven | None
    default_headers: Mapping[str, str] | None
    default_query: Mapping[str, object] | None
    max_retries: int


class ClientOptions(CommonOptions, total=False):
    """The arguments of `OpenAI`."""

    api_key: str | Callable[[], str] | None
    http_client: httpx2.Client | None


class AsyncClientOptions(CommonOptions, total=False):
    """The arguments of `AsyncOpenAI`."""

    api_key: str | Callable[[], Awaitable[str]] | None
    http_client: httpx2.AsyncClient | None


class CopyOptions(ClientOptions, total=False):
    """The arguments of `OpenAI.copy`."""

    set_default_headers: Mapping[str, str] | None
    set_default_query: Mapping[str, object] | None


class AsyncCopyOptions(AsyncClientOptions, total=False):
    """The arguments of `AsyncOpenAI.copy`."""

    set_default_headers: Mapping[str, str] | None
    set_default_query: Mapping[str, object] | None


class OpenAI(openai.OpenAI):
    """`openai.OpenAI` whose chat completions return working tool calls.

    Takes every argument of the SDK's class, and the settings below. The server's address comes from the first of these
    that is set:

    1. `base_url=` or `provider=`
    2. the default provider of a config that was given (`config=`, PROMPTOOLS_CONFIG)
    3. OPENAI_BASE_URL
    4. the default provider of a config file that was found
    5. the SDK's own default

    `provider` may also be one of the SDK's own provider objects (openai 3); it is then passed on to the SDK.
    """

    __doc__ = cast("str", SettingsHelp(__doc__))

    def __init__(self, **options: Unpack[ClientOptions]) -> None:
        session, theirs = _split_options(options)
        super().__init__(**theirs)
        self.promptools = session
        self._client = intercept(self._client, session)

    def copy(  # type: ignore[override]  # pyright: ignore[reportIncompatibleMethodOverride] - not its private ones
        self, **changes: Unpack[CopyOptions]
    ) -> Self:
        """Return a copy of the client with some options replaced, whether promptools' settings or the SDK's own.

        The copy shares this client's circuit breaker, unless `breaker=` is given.
        """
        return super().copy(**_copy_options(self.promptools, changes))

    with_options = copy  # type: ignore[assignment]  # pyright: ignore[reportAssignmentType] - as `copy`


class AsyncOpenAI(openai.AsyncOpenAI):
    """`openai.AsyncOpenAI` whose chat completions return working tool calls; see `OpenAI`."""

    __doc__ = cast("str", SettingsHelp(__doc__))

    def __init__(self, **options: Unpack[AsyncClientOptions]) -> None:
        session, theirs = _split_options(options)
        super().__init__(**theirs)
        self.promptools = session
        self._client = intercept(self._client, session)

    def copy(  # type: ignore[override]  # pyright: ignore[reportIncompatibleMethodOverride] - not its private ones
        self, **changes: Unpack[AsyncCopyOptions]
    ) -> Self:
        """Return a copy of the client with some options replaced, whether promptools' settings or the SDK's own.

        The copy shares this client's circuit breaker, unless `breaker=` is given.
        """
        return super().copy(**_copy_options(self.promptools, changes))

    with_options = copy  # type: ignore[assignment]  # pyright: ignore[reportAssignmentType] - as `copy`


def _pop_settings(options: dict[str, Any]) -> dict[str, Any]:
    """Remove promptools' settings from `options` and return them. Leave a provider object in `options` for the SDK."""
    names = [
        name
        for name in options
        if name in SETTING_NAMES and not (name == "provider" and not _is_provider_name(options[name]))
    ]
    return {name: options.pop(name) for name in names}


def _is_provider_name(provider: object) -> bool:
    return provider is None or isinstance(provider, str)


def _split_options(options: Mapping[str, Any]) -> tuple[Session, dict[str, Any]]:
    """Split a constructor's options: return a session with promptools' settings, and the options for the SDK.

    If the server's address comes from a provider in the config, that provider's address and key are added to the SDK's
    options.
    """
    theirs = dict(options)
    session: Session | None = theirs.pop("promptools", None)
    ours = _pop_settings(theirs)
    if session is not None:  # a copy brings its session along
        return session, theirs
    return _settle_address(Session(ours), theirs)


def _settle_address(session: Session, theirs: dict[str, Any]) -> tuple[Session, dict[str, Any]]:
    """Fill in the server's address and key; return the session and the SDK's options.

    The address comes from the first of these that is set: an argument, a config that was passed, OPENAI_BASE_URL, a
    config that was found. If none is set, the SDK's default applies.
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
    """Return the constructor's options for a copy of a client, including the session of the copy."""
    theirs = dict(changes)
    ours = _pop_settings(theirs)
    if ours:
        session = session.with_settings(ours)
    if ours.get("provider"):
        session, theirs = _settle_address(session, theirs)
    return {**theirs, "_extra_kwargs": {**theirs.get("_extra_kwargs", {}), "promptools": session}}
