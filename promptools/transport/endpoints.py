"""List the requests that are intercepted, by method and path; all other requests are forwarded."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from promptools.exchange import ClientRequest, Context, Exchange, run
from promptools.exchange.client_api import CHAT_API, ClientApi
from promptools.exchange.messages_api import MESSAGES_API, count_message_tokens, serve_message
from promptools.exchange.ollama_api import OLLAMA_API, serve_ollama_chat, serve_ollama_route, serve_root
from promptools.exchange.responses_api import (
    RESPONSES_API,
    STORED_ROUTE,
    count_input_tokens,
    serve_compaction,
    serve_response,
    serve_stored_response,
)
from promptools.profiles.profile import is_openai_host

BeginExchange: TypeAlias = Callable[[ClientRequest, Context], Exchange]
"""A function that begins the exchange of a client's request."""
ROOT_PATH = "/"


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A method and path whose requests are intercepted."""

    method: str
    path: str
    """What the path of a matching request ends with, apart from a final slash.

    A value that ends with `/` or `_` may be anywhere in the request's path. The value `/` matches only the root.
    """
    api: ClientApi = CHAT_API
    """The client API that the requests use."""
    begin: BeginExchange = run

    @property
    def may_decline(self) -> bool:
        """Whether the exchange may end without a response; the request is then forwarded to the server.

        An exchange that may do so starts without the request's body, and reads the body only if it is going to respond.
        """
        return self.begin is serve_ollama_route

    def matches(self, method: str, path: str) -> bool:
        """Return whether a request matches this endpoint."""
        if method != self.method:
            return False
        if self.path == ROOT_PATH:
            return path == ROOT_PATH
        return self.path in path if self.path.endswith(("/", "_")) else path.rstrip("/").endswith(self.path)


CHAT_ENDPOINT = Endpoint("POST", "/chat/completions")
OLLAMA_CHAT_ENDPOINT = Endpoint("POST", "/api/chat", OLLAMA_API, serve_ollama_chat)

RESPONSES_ENDPOINTS = (
    Endpoint("POST", "/responses", RESPONSES_API, serve_response),
    Endpoint("GET", STORED_ROUTE, RESPONSES_API, serve_stored_response),
    Endpoint("DELETE", STORED_ROUTE, RESPONSES_API, serve_stored_response),
    Endpoint("POST", STORED_ROUTE, RESPONSES_API, serve_stored_response),
    Endpoint("POST", "/responses/input_tokens", RESPONSES_API, count_input_tokens),
    Endpoint("POST", "/responses/compact", RESPONSES_API, serve_compaction),
)
MESSAGES_ENDPOINTS = (
    Endpoint("POST", "/v1/messages", MESSAGES_API, serve_message),
    Endpoint("POST", "/v1/messages/count_tokens", MESSAGES_API, count_message_tokens),
)

OPENAI_ENDPOINTS = (CHAT_ENDPOINT, *RESPONSES_ENDPOINTS)
OLLAMA_ENDPOINTS = (
    OLLAMA_CHAT_ENDPOINT,
    *(Endpoint("GET", f"/api/{name}", OLLAMA_API, serve_ollama_route) for name in ("tags", "ps", "version")),
    Endpoint("DELETE", "/api/delete", OLLAMA_API, serve_ollama_route),
    Endpoint("POST", "/api/blobs/", OLLAMA_API, serve_ollama_route),
    *(
        Endpoint("POST", f"/api/{name}", OLLAMA_API, serve_ollama_route)
        for name in ("generate", "embed", "embeddings", "pull", "push", "create", "copy", "show")
    ),
)
"""Routes that the ollama package requests: chat is always intercepted, the others only if the server is not Ollama."""

ROOT_ENDPOINTS = tuple(Endpoint(method, ROOT_PATH, OLLAMA_API, serve_root) for method in ("GET", "HEAD"))
PROXY_ENDPOINTS = (*OPENAI_ENDPOINTS, *MESSAGES_ENDPOINTS, *OLLAMA_ENDPOINTS, *ROOT_ENDPOINTS)


def find_endpoint(endpoints: tuple[Endpoint, ...], method: str, path: str, host: str) -> Endpoint | None:
    """Return the endpoint that a request matches; None if the request is not intercepted."""
    endpoint = next((endpoint for endpoint in endpoints if endpoint.matches(method, path)), None)
    return None if is_openai_host(host) and endpoint in RESPONSES_ENDPOINTS else endpoint
