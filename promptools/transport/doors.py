"""Which requests are intercepted, by method and path; all others are forwarded unchanged, byte for byte."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from promptools.exchange import ClientRequest, Context, Exchange, run
from promptools.exchange.front import CHAT, OLLAMA, Front
from promptools.exchange.routes import LIST, other

Begin: TypeAlias = Callable[[ClientRequest, Context], Exchange]
"""Begins the exchange of a client's request."""


@dataclass(frozen=True, slots=True)
class Door:
    """A method and path whose requests are intercepted."""

    method: str
    path: str
    """The end of the request's path; if it ends with `/`, one more segment of any name follows."""
    front: Front = CHAT
    """The client API that the requests use."""
    begin: Begin = run

    @property
    def quiet(self) -> bool:
        """Whether the exchange may end without a response, which leaves the request, body unread, to the server."""
        return self.begin is other

    def takes(self, method: str, path: str) -> bool:
        """Whether a request matches this endpoint."""
        if method != self.method:
            return False
        return self.path in path if self.path.endswith("/") else path.rstrip("/").endswith(self.path)


CHAT_DOOR = Door("POST", "/chat/completions")
OLLAMA_DOOR = Door("POST", "/api/chat", OLLAMA)

OPENAI_DOORS = (CHAT_DOOR,)
OLLAMA_DOORS = (
    OLLAMA_DOOR,
    Door("GET", f"/api/{LIST}", OLLAMA, other),
    Door("GET", "/api/ps", OLLAMA, other),
    Door("DELETE", "/api/delete", OLLAMA, other),
    Door("POST", "/api/blobs/", OLLAMA, other),
    *(
        Door("POST", f"/api/{name}", OLLAMA, other)
        for name in ("generate", "embed", "embeddings", "pull", "push", "create", "copy", "show")
    ),
)
"""What the ollama package requests: chat is always intercepted, the rest only if the server is no Ollama."""

_UNREAD = {
    "/responses": (
        "a request to the Responses API (/v1/responses) passes as it came, and so do its tool calls: promptools reads"
        " Chat Completions only, so have the client use those (in the OpenAI Agents SDK:"
        ' set_default_openai_api("chat_completions"))'
    ),
    OLLAMA_DOOR.path: (
        "a request to Ollama's own API (/api/chat) passes as it came, and so do its tool calls: promptools reads it in"
        " Python apps, by promptools.ollama; here, have the client use Chat Completions (/v1/chat/completions)"
    ),
}
"""Warnings for APIs with tool calls that promptools does not read, by the end of their path."""


def unread_api(method: str, path: str) -> str | None:
    """Return the warning for a request to an API whose tool calls are not read; None for any other."""
    return next((text for end, text in _UNREAD.items() if method == "POST" and path.rstrip("/").endswith(end)), None)


def door_for(doors: tuple[Door, ...], method: str, path: str) -> Door | None:
    """Return the endpoint that a request matches; None if it is not intercepted."""
    return next((door for door in doors if door.takes(method, path)), None)
