"""Probes over HTTP: a few small concurrent requests, bounded in time and size. A failed one yields None."""

from __future__ import annotations

import threading
from contextlib import aclosing, closing
from typing import TYPE_CHECKING, Any

import anyio

from promptools.exchange import Looked
from promptools.profiles.detect import Answer
from promptools.transport.content import pieces, pieces_async

if TYPE_CHECKING:
    from promptools.exchange import Look, Request
    from promptools.transport.pump import AsyncPump, SyncPump

LIMIT = 1_000_000
"""Maximum number of bytes that are read of a response; the rest is ignored."""


def look(pump: SyncPump, effect: Look) -> Looked:
    """Probe in threads; those still running at the deadline are abandoned, and their responses ignored."""
    until = pump.clock() + effect.timeout
    answers: list[Answer | None] = [None] * len(effect.requests)

    def ask(place: int, request: Request) -> None:
        answers[place] = _answer(pump, request, until)

    asking = [
        threading.Thread(target=ask, args=args, name="promptools-look", daemon=True)
        for args in enumerate(effect.requests)
    ]
    for thread in asking:
        thread.start()
    for thread in asking:
        thread.join(max(0.0, until - pump.clock()))
    return Looked(tuple(answers), pump.clock())


def _answer(pump: SyncPump, request: Request, until: float) -> Answer | None:
    try:
        built = pump.request(request, max(0.0, until - pump.clock()))
        with closing(pump.send(built)) as response:
            response.request = built
            body = bytearray()
            for piece in pieces(response, pump.family):
                body += piece
                if len(body) >= LIMIT:
                    break
                if pump.clock() > until:
                    return None
            return Answer(response.status_code, bytes(body[:LIMIT]))
    except Exception:  # noqa: BLE001 - a look never stands in the way of the request; there is simply no answer
        return None


async def look_async(pump: AsyncPump, effect: Look) -> Looked:
    """Probe in tasks, which are cancelled at the deadline."""
    answers: list[Answer | None] = [None] * len(effect.requests)

    async def ask(place: int, request: Request) -> None:
        answers[place] = await _answer_async(pump, request, effect.timeout)

    with anyio.move_on_after(effect.timeout):
        async with anyio.create_task_group() as tasks:
            for place, request in enumerate(effect.requests):
                tasks.start_soon(ask, place, request)
    return Looked(tuple(answers), pump.clock())


async def _answer_async(pump: AsyncPump, request: Request, seconds: float) -> Answer | None:
    try:
        built = pump.request(request, seconds)
        response: Any = await pump.send(built)
        try:
            response.request = built
            body = bytearray()
            async with aclosing(pieces_async(response, pump.family)) as read:
                async for piece in read:
                    body += piece
                    if len(body) >= LIMIT:
                        break
            return Answer(response.status_code, bytes(body[:LIMIT]))
        finally:
            with anyio.CancelScope(shield=True):
                await response.aclose()
    except Exception:  # noqa: BLE001 - a look never stands in the way of the request; there is simply no answer
        return None
