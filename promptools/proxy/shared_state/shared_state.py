"""What a proxy shares with other workers and replicas through Redis; an extension, which starts and stops with it."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from promptools.proxy.extension import Extension
from promptools.proxy.shared_state.redis_connection import RedisConnection
from promptools.proxy.shared_state.shared_breaker import SharedBreaker
from promptools.proxy.shared_state.shared_limits import SharedLimits
from promptools.proxy.shared_state.shared_responses import SharedResponses

if TYPE_CHECKING:
    from promptools.proxy.proxy_app import Proxy
    from promptools.transport import Session

SYNC_SECONDS = 1.0


class SharedState(Extension):
    """Shares the state of a proxy while Redis is there; otherwise the proxy works alone."""

    def __init__(self, url: str, session: Session) -> None:
        store, breaker = session.context.response_store, session.context.breaker
        self.connection = RedisConnection(url)
        self.limits = SharedLimits(self.connection)
        self.responses = SharedResponses(self.connection, store)
        self._breaker = SharedBreaker(self.connection, breaker)
        self._task: asyncio.Task[None] | None = None

    async def start(self, proxy: Proxy) -> None:  # noqa: ARG002 an extension's signature
        """Connect, if Redis is there, and keep up with the other proxies from now on."""
        await self.connection.connect()
        self._task = asyncio.ensure_future(self._run())

    async def stop(self) -> None:
        """Write what is left, and close the connection."""
        while self._task is not None and not self._task.done():
            # a call that reaches its time limit at the same moment takes the cancellation for its own
            self._task.cancel()
            await asyncio.wait({self._task}, timeout=SYNC_SECONDS)
        await self.responses.write()
        await self.limits.close()
        await self.connection.close()

    async def _run(self) -> None:
        while True:
            if not self.connection.is_up:
                await self.connection.wait_until_up()
                self._breaker.forget()
            await self._breaker.sync()
            await self.limits.renew()
            await asyncio.sleep(SYNC_SECONDS)
