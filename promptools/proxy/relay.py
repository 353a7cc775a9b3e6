"""Relay what an exchange emits to an ASGI client, and tick its clock: it may send a heartbeat during a long silence."""

from __future__ import annotations

from typing import TYPE_CHECKING

import anyio

from promptools.exchange import Head
from promptools.proxy.asgi import start
from promptools.transport.family import encoded

if TYPE_CHECKING:
    from promptools.proxy.asgi import Send
    from promptools.transport import AsyncPump

TICK = 1.0
"""Seconds between two ticks."""


class Relay:
    """Writes the response of one exchange to an ASGI client, from the exchange's task and from the clock's task.

    Only one of the two writes at a time: a tick does something only while the exchange waits, and what the exchange
    emits after that is written once the tick's bytes are out.
    """

    def __init__(self, pump: AsyncPump, send: Send) -> None:
        self._pump = pump
        self._send = send
        self._writing: anyio.Event | None = None

    async def run(self) -> None:
        """Run the exchange, and write what it emits."""
        async for item in self._pump.emitted:
            while self._writing is not None:
                await self._writing.wait()
            await self._hand_on(item)

    async def tick(self) -> None:
        """Tick until the task is cancelled, or writing to the client fails."""
        while True:
            await anyio.sleep(TICK)
            ready = self._pump.tick()
            if not ready:
                continue
            self._writing = anyio.Event()
            try:
                for item in ready:
                    await self._hand_on(item)
            except Exception:  # noqa: BLE001 - what is wrong with the client is seen by the other task too
                return
            finally:
                self._writing.set()
                self._writing = None

    async def _hand_on(self, what: Head | bytes) -> None:
        if isinstance(what, Head):
            await start(self._send, what.status, encoded(what.headers))
        else:
            await self._send({"type": "http.response.body", "body": what, "more_body": True})
