"""A client's request, and what decides where it goes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from promptools.masking import keys_in, secrets_in
from promptools.proxy.requests.request_body import has_json_body

if TYPE_CHECKING:
    from promptools.proxy.asgi import Scope
    from promptools.proxy.requests.in_flight import RequestInFlight
    from promptools.proxy.requests.request_body import RequestBody
    from promptools.proxy.routing.request_router import RequestRouter
    from promptools.proxy.served_config import ServedConfig
    from promptools.transport.endpoints import Endpoint

MIN_CHECKED_LENGTH = 4
"""Length from which a key that opens the proxy is masked in what is recorded and shown; a shorter one is any text."""


@dataclass(frozen=True, slots=True, eq=False)
class IncomingRequest:
    """A client's request, and what decides where it goes."""

    served: ServedConfig
    in_flight: RequestInFlight
    path: str
    query: str
    body: RequestBody
    router: RequestRouter | None
    """None: it goes to the only server."""

    @property
    def scope(self) -> Scope:
        """Its ASGI scope."""
        return self.in_flight.scope

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
        return (self.router and self.router.failover.base_url) or self.served.upstream.base_url

    def secrets(self) -> frozenset[str]:
        """Return the client's credentials, if observers may have to mask them: keys do not all go on to the server."""
        if self.served.session.context.observer is None:
            return frozenset()
        headers = [(name.decode("latin-1"), value.decode("latin-1")) for name, value in self.scope["headers"]]
        checked = keys_in(headers) if self.served.access.requires_key else ()
        keys = {key for key in checked if len(key) >= MIN_CHECKED_LENGTH}
        return frozenset(secrets_in(headers, f"?{self.query}") | keys)

    async def read_ahead(self, endpoint: Endpoint | None) -> None:
        """Read the body, and keep it, if it is needed before the request can be sent on."""
        if endpoint is not None and not endpoint.may_decline:
            await self.body.read(self.served.max_body)
        else:
            await self.peek()

    async def peek(self) -> bytes | None:
        """Return a body in which the model's name decides where the request goes; None for others, or too long ones."""
        routed = self.router is not None and has_json_body(self.scope)
        return await self.body.peek(self.served.max_body) if routed else None
