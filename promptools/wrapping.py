"""Put promptools' transport into an existing client from the package openai, ollama, anthropic, httpx or httpx2."""

from __future__ import annotations

from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, Unpack

import openai

from promptools.errors import UsageError
from promptools.transport import OLLAMA_ENDPOINTS, Session, Settings, intercept, is_http_client
from promptools.transport.endpoints import MESSAGES_ENDPOINTS, OPENAI_ENDPOINTS

if TYPE_CHECKING:
    import ollama


# How to use promptools in each framework: the same lines as in docs/tasks/frameworks.md.


FRAMEWORKS_PAGE = "docs/tasks/frameworks.md"

_LANGCHAIN = "ChatOpenAI(..., http_client=promptools.http_client(), http_async_client=promptools.async_http_client())"
_PYDANTIC_AI = "OpenAIProvider(base_url=..., http_client=promptools.async_http_client())"
_AGENTS = 'set_default_openai_client(promptools.AsyncOpenAI(...)) and set_default_openai_api("chat_completions")'
_AUTOGEN = "OpenAIChatCompletionClient(..., http_client=promptools.async_http_client())"
_LLAMA_INDEX = "OpenAILike(..., http_client=promptools.http_client(), async_http_client=promptools.async_http_client())"
_LITELLM = (
    "litellm.client_session = promptools.http_client() and litellm.aclient_session = promptools.async_http_client()"
)

USAGE_LINES = {
    "agents": _AGENTS,
    "autogen_agentchat": _AUTOGEN,
    "autogen_core": _AUTOGEN,
    "autogen_ext": _AUTOGEN,
    "instructor": "instructor.from_openai(promptools.OpenAI(...))",
    "langchain": _LANGCHAIN,
    "langchain_core": _LANGCHAIN,
    "langchain_openai": _LANGCHAIN,
    "langgraph": _LANGCHAIN,
    "litellm": _LITELLM,
    "llama_index": _LLAMA_INDEX,
    "pydantic_ai": _PYDANTIC_AI,
    "smolagents": 'OpenAIModel(..., client_kwargs={"http_client": promptools.http_client()})',
}
"""Maps a framework's top-level package to the code with which an app uses promptools in that framework."""


def usage_line(thing: object) -> str | None:
    """Return the example code for the framework to which an object, class or module belongs; None if it is unknown."""
    if isinstance(thing, ModuleType):
        names = [thing.__name__]
    else:
        kind = thing if isinstance(thing, type) else type(thing)
        names = [base.__module__ for base in kind.__mro__]
    roots = (name.partition(".")[0] for name in names)
    return next((USAGE_LINES[root] for root in roots if root in USAGE_LINES), None)


class HTTPClient(Protocol):
    """A client from the package httpx or httpx2, sync or async."""

    @property
    def is_closed(self) -> bool:
        """Whether the client is closed."""
        ...

    @property
    def follow_redirects(self) -> bool:
        """Whether the client follows redirects."""
        ...


class MessagesClient(Protocol):
    """A client from the anthropic package, sync or async. It is a protocol, so that the package is not needed."""

    @property
    def messages(self) -> Any:
        """The Messages API."""
        ...


ClientT = TypeVar(
    "ClientT",
    bound="openai.OpenAI | openai.AsyncOpenAI | ollama.Client | ollama.AsyncClient | MessagesClient | HTTPClient",
)


def wrap(client: ClientT, **settings: Unpack[Settings]) -> ClientT:
    """Put promptools' transport into an existing client: the client's chat completions then return working tool calls.

    If the client comes from the package openai, ollama or anthropic, it is changed in place and returned. Clients for
    Azure (`AzureOpenAI`) and instances of subclasses may be passed too. The client keeps its address, key and HTTP
    client. Copies made by `with_options` are wrapped too, unless they get another `http_client`. Requests to
    Anthropic's Messages API are sent as chat completions.

    If the client comes from httpx or httpx2, a copy is returned, to be used as a framework's `http_client=`. Other
    users of the original are not affected, but closing the copy closes the original.

    `provider=` names the provider in the config, or the kind of server, to which the client sends requests. Wrapping a
    client again changes only the settings that are passed. Raises `UsageError` for any other object, and for settings
    that cannot be used.
    """
    is_anthropic = _is_of("anthropic", client, ("Anthropic", "AsyncAnthropic"))
    if is_anthropic or isinstance(client, (openai.OpenAI, openai.AsyncOpenAI)):
        inside: Any = client
        session = _session(inside._client, settings)  # noqa: SLF001 - no public name for it
        session.resolve_target(
            None, base_url=str(inside.base_url), provider=session.provider
        )  # raises now for bad settings
        endpoints = MESSAGES_ENDPOINTS if is_anthropic else OPENAI_ENDPOINTS
        _install(inside, session, intercept(inside._client, session, endpoints))  # noqa: SLF001
        return client
    if is_http_client(client):
        session = _session(client, settings)
        if session.provider is not None or session.config.standing != "untrusted":
            # without a provider, an untrusted config is judged once the URL of a request is known
            session.resolve_target(None, provider=session.provider)
        carried: ClientT = intercept(client, session)
        return carried
    if _is_of("ollama", client, ("Client", "AsyncClient")):
        from promptools.ollama.ollama_clients import settle_provider

        inside = client
        http = inside._client  # noqa: SLF001
        session = settle_provider(_session(http, settings), http, http.headers)
        _install(inside, session, intercept(http, session, OLLAMA_ENDPOINTS))
        return client
    raise UsageError(_unsupported_message(client))


def http_client(**settings: Unpack[Settings]) -> openai.DefaultHttpxClient:
    """Return an HTTP client, for a framework's `http_client=`, with which chat completions return working tool calls.

    The client is openai's `DefaultHttpxClient` (of httpx, or of httpx2 with openai 3) with promptools' transport
    inside. The settings are those of `wrap`. For your own proxy, certificates or timeouts, use
    `wrap(httpx.Client(...))`.
    """
    return wrap(openai.DefaultHttpxClient(), **settings)


def async_http_client(**settings: Unpack[Settings]) -> openai.DefaultAsyncHttpxClient:
    """Return an async HTTP client for a framework's `http_client=`; see `http_client`."""
    return wrap(openai.DefaultAsyncHttpxClient(), **settings)


def _session(http: Any, settings: Settings) -> Session:
    """Return the session for an HTTP client: its current session with the new settings, or a new session."""
    already = getattr(http.__dict__["_transport"], "start", None)
    if isinstance(already, Session):
        return already.with_settings(settings) if settings else already
    return Session(settings)


def _install(client: Any, session: Session, http: Any) -> None:
    """Replace the HTTP client inside an SDK client with the wrapped copy `http`, and attach the session."""
    client.__dict__["_client"] = http
    client.__dict__["promptools"] = session


def _is_of(package: str, client: object, names: tuple[str, ...]) -> bool:
    """Return whether an object is an instance of one of a package's classes, given their names.

    The package is imported only if the object's class, or one of its base classes, is from that package.
    """
    if not any(base.__module__.partition(".")[0] == package for base in type(client).__mro__):
        return False
    module = import_module(package)
    return isinstance(client, tuple(getattr(module, name) for name in names))


def _unsupported_message(client: object) -> str:
    """Return the error message for an object that cannot be wrapped; it says what to use instead."""
    if isinstance(client, ModuleType):
        what = f"the module {client.__name__!r}"
    else:
        what = f"the class {client.__name__!r}" if isinstance(client, type) else f"a {type(client).__name__!r}"
    problem = f"wrap() takes a client of openai, ollama, anthropic or httpx, not {what}"
    line = usage_line(client)
    if line is None:
        return problem
    return f"{problem}: there promptools goes in by {line} (see {FRAMEWORKS_PAGE})"
