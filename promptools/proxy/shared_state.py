"""What proxies share through Redis: stored responses, modes that failed (open circuits), and counts of requests.

`SharedState` is the extension, which starts and stops with the proxy. The connection may be lost and restored;
meanwhile, the proxy works alone. `SharedBreaker`, `SharedLimits` and `SharedResponses` share one kind of state each.
"""

from __future__ import annotations

import asyncio
import json
import os
import time
from collections import deque
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import unquote, urlsplit
from uuid import uuid4

import anyio

from promptools.errors import UsageError, install_command, without_credentials
from promptools.exchange.response_store import MAX_BYTES
from promptools.exchange.responses_api import STORED_ROUTE
from promptools.fallback.breaker import BreakerKey
from promptools.json_values import try_json
from promptools.log import log
from promptools.proxy.extension import Extension
from promptools.wire.json_body import as_object, as_text

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator, Mapping

    from promptools.exchange.response_store import ResponseStore
    from promptools.fallback import Breaker
    from promptools.proxy.app import Proxy
    from promptools.proxy.asgi import Message, Send
    from promptools.transport import Session


# The connection to Redis, which may be lost and restored; without it, the proxy works alone.
#
# A request waits for Redis at most `CALL_SECONDS`. After a call has failed, no other call is made until a background
# task has reached Redis again. One line is logged when the connection is lost, and one when it is back.


T = TypeVar("T")

PASSWORD_VARIABLE = "PROMPTOOLS_REDIS_PASSWORD"
CALL_SECONDS = 0.5
CONNECT_SECONDS = 1.0
MAX_BACKOFF = 5.0
_FIRST_BACKOFF = 0.1


class RedisConnection:
    """A connection to Redis. While Redis is unreachable, `call` returns None."""

    def __init__(self, url: str) -> None:
        try:
            from redis import asyncio as redis_module
            from redis.asyncio.retry import Retry
            from redis.backoff import NoBackoff
            from redis.exceptions import RedisError
        except ImportError as error:
            raise UsageError(f"redis_url needs Redis' client: {install_command('redis')}") from error
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
        """Return the result of `work`, which is called with the Redis client; None while Redis is unreachable."""
        if not self.is_up:
            return None
        try:
            with anyio.fail_after(CALL_SECONDS):
                return await work(self._client)
        except self._errors as error:
            self._lose(error)
            return None

    async def connect(self) -> bool:
        """Try to reach Redis; return whether that succeeded."""
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
        """Try to reach Redis until that succeeds."""
        pause = _FIRST_BACKOFF
        while not self.is_up and not await self.connect():
            await anyio.sleep(pause)
            pause = min(MAX_BACKOFF, 2 * pause)

    async def close(self) -> None:
        """Close the connection."""
        self.is_up = False
        await self._client.aclose()

    def script(self, text: str) -> Any:
        """Return a Lua script as a function of `keys` and `args`.

        The script itself is sent only once; later calls send its digest.
        """
        return self._client.register_script(text)

    def _lose(self, error: BaseException) -> None:
        self.is_up = False
        if not self._was_lost:
            why = str(error) or type(error).__name__
            log.warning("Redis at %s is away (%s): this proxy works alone", self._shown, why)
        self._was_lost = True


# Open circuits of the breaker, which proxies learn from each other once a second.
#
# The exchange knows only its own breaker. Each second, the circuits that have opened or closed here are written to
# Redis, and the circuits that have opened or closed elsewhere are opened or closed here. How long a circuit is still
# open depends on Redis' clock.


_CIRCUITS = "promptools:circuits"
_MARGIN = 2.0
"""Tolerance in seconds when `sync` decides why an open circuit is no longer in Redis.

If the circuit had at most this much time left, it has expired. If it had more, another proxy has closed it.
"""
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
    """Keeps a circuit breaker in sync with those of other proxies, through Redis.

    An open circuit means that a mode has failed for a model on a server, and is skipped for a while.
    """

    def __init__(self, connection: RedisConnection, breaker: Breaker) -> None:
        self._connection = connection
        self._breaker = breaker
        self._sync = connection.script(_SYNC)
        self._shared: set[BreakerKey] = set()
        """The circuits that were open in Redis at the last synchronization."""

    def forget(self) -> None:
        """Forget which circuits are in Redis, in case Redis lost them; `sync` then writes all open circuits again."""
        self._shared.clear()

    async def sync(self) -> None:
        """Write circuits that changed in this process to Redis, and apply those that other processes changed."""
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


# Counts of requests per minute and in progress, shared with other proxies, by scripts that Redis runs atomically.
#
# Redis' own clock is used, so the clocks of the proxies need not agree. The slot of a request in progress is a lease,
# which is renewed while the request lasts: the slots of a proxy that died become free after `LEASE_SECONDS`. A proxy
# that waits for a slot asks again every `POLL_SECONDS`.


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
  redis.call('ZADD', key, 'XX', now + {LEASE_SECONDS}, ARGV[i])
  redis.call('EXPIRE', key, {2 * LEASE_SECONDS})
end
"""
"""Lua script that renews leases. `XX` renews only leases that exist, so a lease that was released is not recreated."""


class SharedLimits:
    """Counts requests jointly with other proxies, in Redis."""

    def __init__(self, connection: RedisConnection) -> None:
        self._connection = connection
        self._take = connection.script(_TAKE)
        self._acquire = connection.script(_ACQUIRE)
        self._renew = connection.script(_RENEW)
        self._leases: set[tuple[str, str]] = set()
        self._releases: set[asyncio.Task[None]] = set()

    async def take(self, rates: Mapping[str, int]) -> list[float] | None:
        """Count a request under every name in `rates`, which maps names to requests per minute.

        Returns the seconds to wait for each name. If any of these waits is not 0, the request is not counted at all.
        Returns None if Redis cannot be used now.
        """
        keys = [_RATE + name for name in rates]
        waits = await self._connection.call(lambda client: self._take(keys, [*rates.values()], client=client))
        return None if waits is None else [float(wait) for wait in waits]

    async def acquire(self, name: str, concurrency: int) -> str | None:
        """Wait until one of the `concurrency` slots of `name` is free, and take it.

        Returns the id (lease) with which to release the slot; None if Redis cannot be used now.
        """
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
            self.release(name, lease)  # Redis may have taken the slot before the wait was cancelled
            raise

    def release(self, name: str, lease: str) -> None:
        """Release the slot for which `acquire` returned `lease`, in the background."""
        self._leases.discard((name, lease))
        task = asyncio.ensure_future(self._release(name, lease))
        self._releases.add(task)
        task.add_done_callback(self._releases.discard)

    async def renew(self) -> None:
        """Renew the leases of all slots in use; each then lasts for another `LEASE_SECONDS`."""
        leases = [*self._leases]
        if leases:
            keys, ids = [_SLOTS + name for name, _ in leases], [lease for _, lease in leases]
            await self._connection.call(lambda client: self._renew(keys, ids, client=client))

    async def close(self) -> None:
        """Wait until all releases are done."""
        await asyncio.gather(*self._releases)

    async def _release(self, name: str, lease: str) -> None:
        await self._connection.call(lambda client: client.zrem(_SLOTS + name, lease))


# Stored responses, each of which a client may continue on a proxy that did not make it.
#
# The exchange knows only its own store. Before an exchange that names a stored response, the proxy fetches the response
# from Redis into that store. What an exchange stores or deletes is written to Redis before the client gets the end of
# its answer, so that the client's next request finds it. A response in Redis has the same owner as in the store, and is
# kept for `LIFE_SECONDS`.


LIFE_SECONDS = 24 * 3600
_RESPONSE = "promptools:response:"
_DELETED = "promptools:deleted:"
_ITEM = "promptools:item:"
_REFERENCE = "item_reference"
_TIMES = "promptools:owned:times:"
_SIZES = "promptools:owned:sizes:"
_TOTAL = "total"
_OWNED = f"""
local time = redis.call('TIME')
local now = time[1] + time[2] / 1000000
local function forget(id)
  redis.call('ZREM', KEYS[1], id)
  local size = tonumber(redis.call('HGET', KEYS[2], id) or 0)
  redis.call('HDEL', KEYS[2], id)
  return redis.call('HINCRBY', KEYS[2], '{_TOTAL}', string.format('%d', -size))
end
"""
_FORGET = f"{_OWNED}forget(ARGV[1])"
"""Lua script that subtracts a deleted response from the total size of its owner's responses."""
_KEEP = f"""{_OWNED}
for _, id in ipairs(redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', now - {LIFE_SECONDS})) do forget(id) end
forget(ARGV[1])
redis.call('ZADD', KEYS[1], now, ARGV[1])
redis.call('HSET', KEYS[2], ARGV[1], ARGV[2])
local size = redis.call('HINCRBY', KEYS[2], '{_TOTAL}', ARGV[2])
while size > tonumber(ARGV[4]) do
  local oldest = redis.call('ZRANGE', KEYS[1], 0, 0)[1]
  if not oldest or oldest == ARGV[1] then break end
  redis.call('DEL', ARGV[3] .. oldest)
  size = forget(oldest)
end
redis.call('EXPIRE', KEYS[1], {LIFE_SECONDS})
redis.call('EXPIRE', KEYS[2], {LIFE_SECONDS})
"""
"""Lua script that adds a response to the total size of its owner's responses, and deletes the oldest beyond a limit."""


class SharedResponses:
    """Copies stored responses between the proxy's memory (`store`) and Redis.

    Requests to any of the proxies can then refer to these responses.
    """

    def __init__(self, connection: RedisConnection, store: ResponseStore, *, max_bytes: int = MAX_BYTES) -> None:
        self._connection = connection
        self._store = store
        self.max_bytes = max_bytes
        """Maximum size in Redis, in bytes, of all responses of one owner."""
        self._keep = connection.script(_KEEP)
        self._forget = connection.script(_FORGET)
        self._changes: deque[tuple[str, str]] = deque()
        self._is_fetching = False
        store.on_change = self._note

    async def fetch(self, owner: str, path: str, body: bytes) -> None:
        """Copy from Redis into the store the responses that a request refers to."""
        if not self._connection.is_up:
            return
        for response_id in _named_responses(path, body):
            await self._fetch_response(owner, response_id)
        for item_id in _named_items(body):
            if self._store.find_item(owner, item_id) is None:
                response = await self._get(f"{_ITEM}{owner}:{item_id}")
                if response:
                    await self._fetch_response(owner, response)

    def writing(self, send: Send) -> Send:
        """Return a function like `send` that first writes the changes in the store to Redis."""

        async def after_write(message: Message) -> None:
            if self._changes:
                await self.write()
            await send(message)

        return after_write

    async def write(self) -> None:
        """Write the changes in the store to Redis."""
        while self._changes:
            owner, response_id = self._changes.popleft()
            await self._connection.call(partial(self._write, owner, response_id))

    async def _write(self, owner: str, response_id: str, client: Any) -> None:
        stored = self._store.get(owner, response_id)
        name, text = f"{owner}:{response_id}", ""
        async with client.pipeline(transaction=False) as commands:
            if stored is None:
                commands.delete(_RESPONSE + name)
                commands.set(_DELETED + name, "1", ex=LIFE_SECONDS)
            else:
                text = json.dumps({"body": stored.body, "input": stored.input, "discarded": stored.discarded})
                commands.set(_RESPONSE + name, text, ex=LIFE_SECONDS)
                for item_id in stored.item_ids:
                    commands.set(f"{_ITEM}{owner}:{item_id}", response_id, ex=LIFE_SECONDS)
            await commands.execute()
        owned = [_TIMES + owner, _SIZES + owner]
        if stored is None:
            await self._forget(keys=owned, args=[response_id])
        else:
            await self._keep(keys=owned, args=[response_id, len(text), f"{_RESPONSE}{owner}:", self.max_bytes])

    async def _fetch_response(self, owner: str, response_id: str) -> None:
        """Copy a response from Redis into the store; delete it from the store if another proxy has deleted it."""
        name = f"{owner}:{response_id}"
        if self._store.get(owner, response_id) is not None:
            if await self._get(_DELETED + name):
                self._change_store(lambda: self._store.delete(owner, response_id))
            return
        text = await self._get(_RESPONSE + name)
        if text:
            stored = json.loads(text)
            body, items, discarded = stored["body"], (*stored["input"],), (*stored.get("discarded", ()),)
            self._change_store(lambda: self._store.put(owner, body, items, None, discarded))

    async def _get(self, key: str) -> str | None:
        value: str | None = await self._connection.call(lambda client: client.get(key))
        return value

    def _change_store(self, change: Callable[[], object]) -> None:
        """Change the store without writing the change back to Redis."""
        self._is_fetching = True
        try:
            change()
        finally:
            self._is_fetching = False

    def _note(self, owner: str, response_id: str) -> None:
        if not self._is_fetching and self._connection.is_up:
            self._changes.append((owner, response_id))


def _named_responses(path: str, body: bytes) -> Iterator[str]:
    """Yield the ids of the responses that a request refers to."""
    _, mark, rest = path.rpartition(STORED_ROUTE)
    if mark:
        yield unquote(mark.rpartition("/")[2] + rest).partition("/")[0]
    elif b"previous_response_id" in body and (named := as_text(as_object(try_json(body)).get("previous_response_id"))):
        yield named


def _named_items(body: bytes) -> list[str]:
    """Return the ids of those items in earlier responses that a request refers to."""
    items = as_object(try_json(body)).get("input") if _REFERENCE.encode() in body else None
    entries = [as_object(item) for item in items] if isinstance(items, list) else []  # pyright: ignore[reportUnknownVariableType] - JSON values
    return [as_text(entry.get("id")) for entry in entries if entry.get("type") == _REFERENCE and entry.get("id")]


# The extension.


SYNC_SECONDS = 1.0


class SharedState(Extension):
    """Extension that shares a proxy's state with other proxies through Redis.

    While Redis is unreachable, the proxy works alone.
    """

    def __init__(self, url: str, session: Session) -> None:
        store, breaker = session.context.response_store, session.context.breaker
        self.connection = RedisConnection(url)
        self.limits = SharedLimits(self.connection)
        self.responses = SharedResponses(self.connection, store)
        self._breaker = SharedBreaker(self.connection, breaker)
        self._task: asyncio.Task[None] | None = None

    async def start(self, proxy: Proxy) -> None:  # noqa: ARG002 an extension's signature
        """Connect if Redis is reachable, and start syncing the state with the other proxies."""
        await self.connection.connect()
        self._task = asyncio.ensure_future(self._run())

    async def stop(self) -> None:
        """Write the remaining changes, and close the connection."""
        while self._task is not None and not self._task.done():
            # a call that reaches its time limit at the same moment swallows the cancellation, so this is repeated
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
