"""Open circuits of the breaker, which proxies learn from each other once a second.

The exchange knows only its own breaker. Each second the circuits that have opened or closed here are written to Redis,
and those that have done so elsewhere are opened or closed here. Redis' clock says how long a circuit is still open.
"""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Any

from promptools.fallback.breaker import BreakerKey

if TYPE_CHECKING:
    from promptools.fallback import Breaker
    from promptools.proxy.shared_state.redis_connection import RedisConnection

_CIRCUITS = "promptools:circuits"
_MARGIN = 2.0
"""Seconds before its end in which a circuit that Redis no longer has counts as expired, not as closed elsewhere."""
_SYNC = """
local time = redis.call('TIME')
local now = time[1] + time[2] / 1000000
local changes = cjson.decode(ARGV[1])
for _, name in ipairs(changes.closed) do redis.call('HDEL', KEYS[1], name) end
for _, circuit in ipairs(changes.opened) do
  redis.call('HSET', KEYS[1], circuit[1], string.format('%.3f', now + circuit[2]) .. ' ' .. circuit[3])
end
local open, all = {}, redis.call('HGETALL', KEYS[1])
for i = 1, #all, 2 do
  local at, why = string.match(all[i + 1], '^(%S+) (.*)$')
  if tonumber(at) <= now then
    redis.call('HDEL', KEYS[1], all[i])
  else
    table.insert(open, {all[i], string.format('%.3f', tonumber(at) - now), why})
  end
end
return open
"""


class SharedBreaker:
    """Keeps a breaker's circuits the same as those of other proxies."""

    def __init__(self, connection: RedisConnection, breaker: Breaker) -> None:
        self._connection = connection
        self._breaker = breaker
        self._sync = connection.script(_SYNC)
        self._shared: set[BreakerKey] = set()
        """The circuits that Redis had open the last time."""

    def forget(self) -> None:
        """Forget what Redis had: it may have lost it."""
        self._shared.clear()

    async def sync(self) -> None:
        """Exchange what has changed."""
        now = time.monotonic()
        own = self._breaker.open_circuits(now)
        opened = [(_name(key), left, why) for key, (left, why) in own.items() if key not in self._shared]
        closed = [key for key in self._shared if key not in own and self._breaker.state(key, now) == "closed"]
        changes = json.dumps({"opened": opened, "closed": [_name(key) for key in closed]})
        answer: Any = await self._connection.call(lambda client: self._sync([_CIRCUITS], [changes], client=client))
        if answer is None:
            return
        common = {BreakerKey(*json.loads(name)): (float(left), str(why)) for name, left, why in answer}
        for key, (left, why) in common.items():
            if key not in own:
                self._breaker.open(key, now, left, why)
        for key in self._shared & own.keys() - common.keys():
            if own[key][0] > _MARGIN:
                self._breaker.record_success(key)
        self._shared = set(common)


def _name(key: BreakerKey) -> str:
    return json.dumps([*key])
