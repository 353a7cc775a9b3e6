"""Counts of requests per minute and in progress, together with other proxies, by scripts that Redis runs as one step.

Redis' own clock is used, so those of the proxies need not agree. A slot in progress is a lease that is renewed while
the request lasts: the slots of a proxy that died become free after `LEASE_SECONDS`. A proxy that waits for a slot asks
again every `POLL_SECONDS`.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING
from uuid import uuid4

import anyio

if TYPE_CHECKING:
    from collections.abc import Mapping

    from promptools.proxy.shared_state.redis_connection import RedisConnection

LEASE_SECONDS = 15
POLL_SECONDS = 0.05
_RATE = "promptools:{limits}:rate:"
_SLOTS = "promptools:{limits}:slots:"
_NOW = "local time = redis.call('TIME')\nlocal now = time[1] + time[2] / 1000000\n"
_TAKE = f"""{_NOW}
local waits, tokens, late = {{}}, {{}}, false
for i, key in ipairs(KEYS) do
  local rate = tonumber(ARGV[i])
  local state = redis.call('HMGET', key, 'tokens', 'at')
  tokens[i] = rate
  if state[1] then
    tokens[i] = math.min(rate, tonumber(state[1]) + math.max(0, now - tonumber(state[2])) * rate / 60)
  end
  waits[i] = tostring(tokens[i] >= 1 and 0 or (1 - tokens[i]) * 60 / rate)
  late = late or tokens[i] < 1
end
if not late then
  for i, key in ipairs(KEYS) do
    redis.call('HSET', key, 'tokens', string.format('%.6f', tokens[i] - 1), 'at', string.format('%.6f', now))
    redis.call('EXPIRE', key, 120)
  end
end
return waits
"""
_ACQUIRE = f"""{_NOW}
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', now)
if redis.call('ZCARD', KEYS[1]) >= tonumber(ARGV[1]) then return 0 end
redis.call('ZADD', KEYS[1], now + {LEASE_SECONDS}, ARGV[2])
redis.call('EXPIRE', KEYS[1], {2 * LEASE_SECONDS})
return 1
"""
_RENEW = f"""{_NOW}
for i, key in ipairs(KEYS) do
  redis.call('ZADD', key, now + {LEASE_SECONDS}, ARGV[i])
  redis.call('EXPIRE', key, {2 * LEASE_SECONDS})
end
"""


class SharedLimits:
    """Counts requests together with other proxies."""

    def __init__(self, connection: RedisConnection) -> None:
        self._connection = connection
        self._take = connection.script(_TAKE)
        self._acquire = connection.script(_ACQUIRE)
        self._renew = connection.script(_RENEW)
        self._leases: set[tuple[str, str]] = set()
        self._releases: set[asyncio.Task[None]] = set()

    async def take(self, rates: Mapping[str, int]) -> list[float] | None:
        """Take a token for each name, or for none; return the seconds to wait for each, None if not possible."""
        keys = [_RATE + name for name in rates]
        waits = await self._connection.call(lambda client: self._take(keys, [*rates.values()], client=client))
        return None if waits is None else [float(wait) for wait in waits]

    async def acquire(self, name: str, concurrency: int) -> str | None:
        """Wait for a slot, and return its lease; None if not possible."""
        lease = uuid4().hex
        try:
            while True:
                taken = await self._connection.call(
                    lambda client: self._acquire([_SLOTS + name], [concurrency, lease], client=client)
                )
                if taken is None:
                    return None
                if taken:
                    self._leases.add((name, lease))
                    return lease
                await anyio.sleep(POLL_SECONDS)
        except BaseException:
            self.release(name, lease)  # Redis may have taken it before the wait was cancelled
            raise

    def release(self, name: str, lease: str) -> None:
        """Release a slot, in the background."""
        self._leases.discard((name, lease))
        task = asyncio.ensure_future(self._release(name, lease))
        self._releases.add(task)
        task.add_done_callback(self._releases.discard)

    async def renew(self) -> None:
        """Renew the leases of all slots."""
        leases = [*self._leases]
        if leases:
            keys, ids = [_SLOTS + name for name, _ in leases], [lease for _, lease in leases]
            await self._connection.call(lambda client: self._renew(keys, ids, client=client))

    async def close(self) -> None:
        """Wait for the releases."""
        await asyncio.gather(*self._releases)

    async def _release(self, name: str, lease: str) -> None:
        await self._connection.call(lambda client: client.zrem(_SLOTS + name, lease))
