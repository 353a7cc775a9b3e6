"""Where one client request goes, while the proxy serves several providers, or several servers of one."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from promptools.errors import UsageError
from promptools.exchange import Route
from promptools.exchange.response_writer import encode_json
from promptools.exchange.state import api_base
from promptools.proxy.asgi import RefusedError
from promptools.proxy.routing.failover import Failover
from promptools.proxy.routing.route_table import Destination, RouteTable
from promptools.transport import CHAT_ENDPOINT
from promptools.wire.json_body import as_object, as_text, parse_json

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from promptools.exchange import Headers, Request
    from promptools.proxy.asgi import Send
    from promptools.proxy.routing.model_directory import ModelDirectory
    from promptools.transport import Endpoint, Session


class RequestRouter:
    """Routes one request, and routes it again after a failure."""

    def __init__(
        self, table: RouteTable, session: Session, directory: ModelDirectory | None, path: str, query: str
    ) -> None:
        self._table = table
        self._session = session
        self._directory = directory
        self._path = path
        self._query = query
        self.failover = Failover(deadline=session.context.deadline)

    async def run(self, attempt: Callable[[], Awaitable[bool]], library: Any) -> None:
        """Call `attempt` for one server after another, until it returns True: the client got a response.

        `library` is the HTTP library's module; its error on the last server is raised.
        """
        try:
            while not await self._succeeds(attempt, library):
                pass
        finally:
            self.failover.release()

    async def _succeeds(self, attempt: Callable[[], Awaitable[bool]], library: Any) -> bool:
        try:
            return await attempt()
        except library.RequestError as error:
            unreachable = isinstance(error, (library.ConnectError, library.ConnectTimeout))
            if not self.failover.recovers(error, unreachable=unreachable):
                raise
            return False

    # -- exchanges

    def exchange_route(self, request: Request, endpoint: Endpoint, model: str | None, provider: str | None) -> Route:
        """Return the route of an exchange, as its context's router does."""
        session, config = self._session, self._session.config
        session.check_provider(provider)
        if provider is not None and provider in config.providers and provider != session.provider:
            return session.route_to_provider(session.route(model, None, provider), request.headers)
        pinned = provider is not None and provider == session.provider
        destination, base_url = self._choose(model, pinned=pinned)
        assert self.failover.current is not None, "it was chosen"
        _, replica = self.failover.current
        url = base_url + CHAT_ENDPOINT.path
        if endpoint.api.wire == "chat":
            url = replica.address.url(self._path, self._query)
            base_url = api_base(url)
        kind = provider if provider is not None and provider not in config.providers else None
        route = session.route(destination.model, base_url, kind or destination.provider.name)
        headers = destination.provider.credentials(replica, request.headers)
        return replace(route, url=url, headers=headers, notes=tuple(self.failover.notes))

    # -- requests that pass through

    async def pass_through(
        self, method: str, content: Any, forward: Callable[[str, Any, Send], Awaitable[bool]], library: Any, send: Send
    ) -> None:
        """Forward a request to one server after another; a body that is not in bytes can be sent only once."""
        try:
            self._choose_for_body(method, content)
            await self.run(lambda: forward(self._url(), self._body_for_destination(content), send), library)
        except UsageError as error:
            raise RefusedError(400, str(error), code="usage") from error

    def _choose_for_body(self, method: str, content: Any) -> None:
        """Choose the server of a request that passes through; `content` is its body, in bytes if it can be resent.

        A request without a model goes to the default provider, and may be about what only that has. Only what cannot
        have changed anything is sent to another replica.
        """
        model = as_text(_parse(content).get("model")) or None if isinstance(content, bytes) else None
        if model is not None:
            self._choose(model)
            return
        self.failover.choose((Destination(self._table.default, None),))
        self.failover.only_unreachable = method not in {"GET", "HEAD"}
        self.failover.committed = content is not None and not isinstance(content, bytes)

    def _body_for_destination(self, body: Any) -> Any:
        """Return the body with the model's name at the current destination; unchanged if it is the same."""
        assert self.failover.current is not None, "it was chosen"
        destination, replica = self.failover.current
        if destination.model is None:
            return body
        target = self._session.resolve_target(
            destination.model, base_url=replica.address.base_url, provider=destination.provider.name
        )
        data = _parse(body)
        return body if data.get("model") == target.model else encode_json({**data, "model": target.model})

    def credentials(self, client: Headers) -> Headers:
        """Return the fields that replace the client's at the current replica."""
        assert self.failover.current is not None, "it was chosen"
        destination, replica = self.failover.current
        return destination.provider.credentials(replica, client)

    def keys(self) -> Headers:
        """Return the fields with the key of the server that was chosen last; none before one was."""
        return self.credentials(()) if self.failover.current is not None else ()

    def _url(self) -> str:
        """Return the request's URL at the current replica."""
        assert self.failover.current is not None, "it was chosen"
        return self.failover.current[1].address.url(self._path, self._query)

    def _choose(self, model: str | None, *, pinned: bool = False) -> tuple[Destination, str]:
        """Choose a destination, unless that was done before; return the current one, with the replica's base URL."""
        if self.failover.current is None:
            if self._directory is not None and not self._table.knows(model):
                self._directory.report_unknown()
            self.failover.choose((Destination(self._table.default, model),) if pinned else self._table.find(model))
        assert self.failover.current is not None, "a provider has a replica"
        destination, replica = self.failover.current
        return destination, replica.address.base_url


async def open_router(
    table: RouteTable | None, session: Session, directory: ModelDirectory | None, path: str, query: str
) -> RequestRouter | None:
    """Return the router of a request; None if there is only one server."""
    if table is None:
        return None
    if directory is not None:
        await directory.prepare()
    return RequestRouter(table, session, directory, path, query)


def _parse(body: bytes) -> dict[str, Any]:
    try:
        return as_object(parse_json(body))
    except (ValueError, RecursionError):
        return {}
