"""A client's request, and what decides where it goes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from promptools.proxy.requests.request_body import has_json_body

if TYPE_CHECKING:
    from promptools.proxy.asgi import Scope
    from promptools.proxy.requests.request_body import RequestBody
    from promptools.proxy.routing.request_router import RequestRouter
    from promptools.proxy.served_config import ServedConfig


@dataclass(frozen=True, slots=True, eq=False)
class IncomingRequest:
    """A client's request, and what decides where it goes."""

    served: ServedConfig
    scope: Scope
    path: str
    query: str
    body: RequestBody
    router: RequestRouter | None
    """None: it goes to the only server."""

    @property
    def method(self) -> str:
        """Its HTTP method."""
        method: str = self.scope["method"]
        return method

    @property
    def url(self) -> str:
        """Its URL at the only server, or at the default provider's first one."""
        return self.served.upstream.url(self.path, self.query)

    @property
    def base_url(self) -> str:
        """The base URL of the server that it was sent to last, or is to be sent to."""
        return (self.router and self.router.candidates.base_url) or self.served.upstream.base_url

    async def peek(self) -> bytes | None:
        """Read the body ahead; None if it is no JSON, or too long."""
        return await self.body.peek(self.served.max_body) if has_json_body(self.scope) else None
