"""Cross-origin requests: which web pages may read the proxy's responses. Without origins no page may.

Starlette's middleware answers preflights, which browsers send without a key, and marks the responses. What the server
says about origins is dropped: it speaks of itself, not of the proxy.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from promptools.errors import UsageError, clip

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from promptools.proxy.asgi import Message, Receive, Scope, Send

ANY_ORIGIN = "*"
EXPOSED_FIELDS = (
    *("retry-after", "x-request-id"),
    *("x-promptools-mode", "x-promptools-attempts", "x-promptools-notes", "x-promptools-unfit"),
)
"""Fields of a response that pages may read."""
_ORIGIN = re.compile(r"[a-z][a-z0-9+.-]*://[^/?#@\s]+", re.IGNORECASE)
_CORS_PREFIX = b"access-control-"


def check_origins(origins: Iterable[str] | str, *, requires_key: bool) -> list[str]:
    """Return the origins; raise `UsageError` for one that is none, and for "*" without API keys."""
    checked = [origins] if isinstance(origins, str) else list(origins)
    for origin in checked:
        if origin != ANY_ORIGIN and not _ORIGIN.fullmatch(origin):
            raise UsageError(f"{clip(origin)!r} is not a valid origin; write https://HOST, without a path")
    if ANY_ORIGIN in checked and not requires_key:
        raise UsageError("the origin '*' needs an API key: any web page that a user opens could use the proxy")
    return checked


def with_cors(app: Callable[[Scope, Receive, Send], Awaitable[None]], origins: list[str]) -> Any:
    """Return an ASGI application that lets the pages of these origins use `app`."""
    try:
        from starlette.middleware.cors import CORSMiddleware
    except ImportError as error:
        raise UsageError("CORS needs Starlette: pip install 'promptools-compat[server]'") from error

    async def without_servers_fields(scope: Scope, receive: Receive, send: Send) -> None:
        async def filtered(message: Message) -> None:
            if message["type"] == "http.response.start":
                kept = [pair for pair in message["headers"] if not pair[0].lower().startswith(_CORS_PREFIX)]
                message = {**message, "headers": kept}
            await send(message)

        await app(scope, receive, filtered)

    return CORSMiddleware(
        without_servers_fields,
        allow_origins=origins,
        allow_methods=["*"],
        allow_headers=["*"],
        expose_headers=EXPOSED_FIELDS,
    )
