"""Relay what an exchange emits to an ASGI client, and tick its clock: it may send a heartbeat during a long silence."""

from __future__ import annotations

from typing import TYPE_CHECKING

import anyio

from promptools.exchange import Head
from promptools.proxy.asgi import end_to_end_fields, send_head
from promptools.transport.http_library import encode_headers

if TYPE_CHECKING:
    from promptools.proxy.asgi import Send
    from promptools.proxy.routing.failover import Failover
    from promptools.transport import AsyncDriver

TICK_SECONDS = 1.0
"""Seconds between two ticks."""


class ExchangeRelay:
    """Writes the response of one exchange to an ASGI client, from the exchange's task and from the clock's task.

    Only one of the two writes at a time: a tick does something only while the exchange waits, and what the exchange
    emits after that is written once the tick's bytes are out.
    """

    def __init__(self, driver: AsyncDriver, send: Send, failover: Failover | None = None) -> None:
        self._driver = driver
        self._send = send
        self._failover = failover
        self._writing: anyio.Event | None = None
        self.has_ended = False
        """Whether the last message of the response has been sent."""
        self.has_begun = False
        """Whether anything was written."""

    async def run(self) -> bool:
        """Run the exchange, and write what it emits; False if its head is rejected, and nothing was written.

        The head of a response that is complete gets its length: clients of HTTP/1.0 know no chunks.
        """
        held: Head | None = None
        async for item in self._driver.output:
            while self._writing is not None:
                await self._writing.wait()
            if self._is_rejected(item):
                return False
            self.has_ended = not isinstance(item, Head) and self._driver.finished  # bytes come last
            if isinstance(item, Head) and self._driver.finished:
                held = item
                continue
            if held is not None and isinstance(item, bytes):
                await self._write(_with_length(held, len(item)))
                held = None
            await self._write(item)
        if held is not None:
            await self._write(held)
        return True

    async def tick(self) -> None:
        """Tick until the task is cancelled, or writing to the client fails."""
        while True:
            ready = self._driver.tick()
            if not ready:
                await anyio.sleep(TICK_SECONDS)
                continue
            self._writing = anyio.Event()
            try:
                for item in ready:
                    if isinstance(item, Head) and self._failover is not None:
                        self._failover.committed = True
                    await self._write(item)
            except Exception:  # noqa: BLE001 - what is wrong with the client is seen by the other task too
                return
            finally:
                self._writing.set()
                self._writing = None

    def _is_rejected(self, item: Head | bytes) -> bool:
        """Whether the response of another server is sent in place of this one."""
        if self._failover is None or not isinstance(item, Head):
            return False
        return self._failover.rejects(item.status, item.headers)

    async def _write(self, item: Head | bytes) -> None:
        self.has_begun = True
        if isinstance(item, Head):
            await send_head(self._send, item.status, end_to_end_fields(encode_headers(item.headers)))
        else:
            await self._send({"type": "http.response.body", "body": item, "more_body": not self.has_ended})


def _with_length(head: Head, length: int) -> Head:
    """Return a head that states the length of the body."""
    if any(name.lower() == "content-length" for name, _ in head.headers):
        return head
    return Head(head.status, (*head.headers, ("content-length", str(length))))
