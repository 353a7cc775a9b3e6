"""Probes over HTTP: a few small concurrent requests, bounded in time and size. A failed one yields None."""

from __future__ import annotations

import threading
from contextlib import aclosing, closing
from typing import TYPE_CHECKING, Any

import anyio

from promptools.exchange import Probed
from promptools.profiles.server_detection import ProbeResponse
from promptools.transport.driver.response_content import aiter_content, iter_content

if TYPE_CHECKING:
    from promptools.exchange import Probe, Request
    from promptools.transport.driver.async_driver import AsyncDriver
    from promptools.transport.driver.sync_driver import SyncDriver

MAX_RESPONSE = 1_000_000
"""Maximum number of bytes that are read of a response; the rest is ignored."""


def probe(driver: SyncDriver, effect: Probe) -> Probed:
    """Probe in threads; those still running at the deadline are abandoned, and their responses ignored."""
    until = driver.clock() + effect.timeout
    answers: list[ProbeResponse | None] = [None] * len(effect.requests)

    def ask(number: int, request: Request) -> None:
        answers[number] = _send_probe(driver, request, until)

    asking = [
        threading.Thread(target=ask, args=args, name="promptools-probe", daemon=True)
        for args in enumerate(effect.requests)
    ]
    for thread in asking:
        thread.start()
    for thread in asking:
        thread.join(max(0.0, until - driver.clock()))
    return Probed(tuple(answers), driver.clock())


def _send_probe(driver: SyncDriver, request: Request, deadline: float) -> ProbeResponse | None:
    try:
        built = driver.build_request(request, max(0.0, deadline - driver.clock()))
        with closing(driver.send(built)) as response:
            response.request = built
            body = bytearray()
            for piece in iter_content(response, driver.library):
                body += piece
                if len(body) >= MAX_RESPONSE:
                    break
                if driver.clock() > deadline:
                    return None
            return ProbeResponse(response.status_code, bytes(body[:MAX_RESPONSE]))
    except Exception:  # noqa: BLE001 - a probe never fails the request; it has no response
        return None


async def probe_async(driver: AsyncDriver, effect: Probe) -> Probed:
    """Probe in tasks, which are cancelled at the deadline."""
    answers: list[ProbeResponse | None] = [None] * len(effect.requests)

    async def ask(number: int, request: Request) -> None:
        answers[number] = await _send_probe_async(driver, request, effect.timeout)

    with anyio.move_on_after(effect.timeout):
        async with anyio.create_task_group() as tasks:
            for number, request in enumerate(effect.requests):
                tasks.start_soon(ask, number, request)
    return Probed(tuple(answers), driver.clock())


async def _send_probe_async(driver: AsyncDriver, request: Request, timeout: float) -> ProbeResponse | None:
    try:
        built = driver.build_request(request, timeout)
        response: Any = await driver.send(built)
        try:
            response.request = built
            body = bytearray()
            async with aclosing(aiter_content(response, driver.library)) as read:
                async for piece in read:
                    body += piece
                    if len(body) >= MAX_RESPONSE:
                        break
            return ProbeResponse(response.status_code, bytes(body[:MAX_RESPONSE]))
        finally:
            with anyio.CancelScope(shield=True):
                await response.aclose()
    except Exception:  # noqa: BLE001 - a probe never fails the request; it has no response
        return None
