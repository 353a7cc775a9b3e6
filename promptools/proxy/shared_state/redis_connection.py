"""The connection to Redis, which may go and come back; while it is away, the proxy works alone.

A request waits for Redis for `CALL_SECONDS` at most. After the first call that fails none is made any more, until a
background task has reached the server again. One line is logged when it goes, and one when it is back.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import urlsplit

import anyio

from promptools.errors import UsageError, without_credentials
from promptools.log import log

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

T = TypeVar("T")

PASSWORD_VARIABLE = "PROMPTOOLS_REDIS_PASSWORD"
CALL_SECONDS = 0.5
CONNECT_SECONDS = 1.0
MAX_BACKOFF = 5.0
_FIRST_BACKOFF = 0.1


class RedisConnection:
    """Calls Redis where it is there."""

    def __init__(self, url: str) -> None:
        try:
            from redis import asyncio as redis_module
            from redis.asyncio.retry import Retry
            from redis.backoff import NoBackoff
            from redis.exceptions import RedisError
        except ImportError as error:
            raise UsageError("redis_url needs Redis' client: pip install 'promptools-compat[redis]'") from error
        self._shown = without_credentials(url)
        self._errors = (RedisError, OSError, TimeoutError)
        options: dict[str, Any] = {"decode_responses": True, "retry": Retry(NoBackoff(), 0)}
        password = os.environ.get(PASSWORD_VARIABLE)
        if password and urlsplit(url).password is None:
            options["password"] = password
        redis: Any = redis_module
        try:
            self._client: Any = redis.Redis.from_url(url, **options)
        except ValueError as error:
            raise UsageError(f"redis_url {self._shown!r} is not a valid Redis URL: {error}") from None
        self.is_up = False
        self._was_lost = False

    async def call(self, work: Callable[[Any], Awaitable[T]]) -> T | None:
        """Return the result of `work`, which is called with the client; None while Redis is away."""
        if not self.is_up:
            return None
        try:
            with anyio.fail_after(CALL_SECONDS):
                return await work(self._client)
        except self._errors as error:
            self._lose(error)
            return None

    async def connect(self) -> bool:
        """Try to reach Redis; return whether it is there."""
        try:
            with anyio.fail_after(CONNECT_SECONDS):
                await self._client.ping()
        except self._errors as error:
            self._lose(error)
            return False
        if self._was_lost:
            log.info("Redis at %s is back: state is shared again", self._shown)
        self.is_up, self._was_lost = True, False
        return True

    async def wait_until_up(self) -> None:
        """Return when Redis is there."""
        pause = _FIRST_BACKOFF
        while not self.is_up and not await self.connect():
            await anyio.sleep(pause)
            pause = min(MAX_BACKOFF, 2 * pause)

    async def close(self) -> None:
        """Close the connection."""
        self.is_up = False
        await self._client.aclose()

    def script(self, text: str) -> Any:
        """Return a Lua script as a function of `keys` and `args`; it is sent once, then called by its digest."""
        return self._client.register_script(text)

    def _lose(self, error: BaseException) -> None:
        self.is_up = False
        if not self._was_lost:
            why = str(error) or type(error).__name__
            log.warning("Redis at %s is away (%s): this proxy works alone", self._shown, why)
        self._was_lost = True
