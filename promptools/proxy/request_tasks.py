"""Tasks that run alongside a request: one waits for the client to disconnect, one ticks the clock of an exchange.

For a fast request, a task group of anyio costs as much as all of its I/O. On asyncio, where nearly all ASGI servers
run, plain asyncio tasks are used, and the clock's task is only started for requests that take long enough.
"""

from __future__ import annotations

import asyncio
from functools import cache
from typing import TYPE_CHECKING, Any, Protocol

import anyio

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable


class RequestTasks(Protocol):
    """The tasks that run alongside one request. At the end of the `async with` block, running tasks are cancelled."""

    def start(self, work: Callable[[], Awaitable[None]], after: float = 0.0) -> None:
        """Run `work` in a task once `after` seconds have passed."""
        ...

    def cancel(self) -> None:
        """Cancel the request itself."""
        ...

    async def __aenter__(self) -> RequestTasks: ...

    async def __aexit__(self, *error: object) -> bool | None: ...


class AsyncioTasks:
    """The tasks of one request, as plain asyncio tasks.

    The request itself runs in an anyio cancel scope, so that its clean-up can be shielded from cancellation.
    """

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._scope = _scope_class()()
        self._tasks: list[asyncio.Task[None]] = []
        self._timers: list[asyncio.TimerHandle] = []

    def start(self, work: Callable[[], Awaitable[None]], after: float = 0.0) -> None:
        """Run `work` in a task once `after` seconds have passed."""
        if after:
            self._timers.append(self._loop.call_later(after, self.start, work))
        else:
            self._tasks.append(self._loop.create_task(_as_coroutine(work)))

    def cancel(self) -> None:
        """Cancel the request itself."""
        self._scope.cancel()

    async def __aenter__(self) -> AsyncioTasks:
        self._scope.__enter__()
        return self

    async def __aexit__(self, *error: Any) -> bool | None:
        for timer in self._timers:
            timer.cancel()
        for task in self._tasks:
            task.cancel()
        self._timers.clear()
        self._tasks.clear()
        return self._scope.__exit__(*error)


class GroupTasks:
    """The tasks of one request, in an anyio task group; for event loops other than asyncio's."""

    def __init__(self) -> None:
        self._group = anyio.create_task_group()

    def start(self, work: Callable[[], Awaitable[None]], after: float = 0.0) -> None:
        """Run `work` in a task once `after` seconds have passed."""

        async def run() -> None:
            await anyio.sleep(after)
            await work()

        self._group.start_soon(run)

    def cancel(self) -> None:
        """Cancel the request itself."""
        self._group.cancel_scope.cancel()

    async def __aenter__(self) -> GroupTasks:
        await self._group.__aenter__()
        return self

    async def __aexit__(self, *error: Any) -> bool | None:
        self._group.cancel_scope.cancel()
        return await self._group.__aexit__(*error)


def request_tasks() -> RequestTasks:
    """Return the object that runs the tasks of a request on the current event loop."""
    return AsyncioTasks() if is_asyncio() else GroupTasks()


@cache
def _scope_class() -> type[anyio.CancelScope]:
    """Return anyio's cancel scope class for asyncio, since the public class looks up the event loop on every use."""
    return type(anyio.CancelScope())


def is_asyncio() -> bool:
    """Return whether the running event loop is asyncio's."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


async def _as_coroutine(work: Callable[[], Awaitable[None]]) -> None:
    await work()
