"""Stored responses, which a client may continue on another proxy than the one that made them.

The exchange knows only its own store. Before an exchange that names a response, the proxy fetches it into that store;
what an exchange stores or deletes is written to Redis before the client gets the end of the response, so that its next
request finds it. A response in Redis has the same owner as in the store, and lives for `LIFE_SECONDS`.
"""

from __future__ import annotations

import json
from collections import deque
from functools import partial
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from promptools.exchange.response_store import MAX_BYTES
from promptools.exchange.responses_api import STORED_ROUTE
from promptools.wire.json_body import as_object, as_text

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from promptools.exchange.response_store import ResponseStore
    from promptools.proxy.asgi import Message, Send
    from promptools.proxy.shared_state.redis_connection import RedisConnection

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
"""Take a deleted response out of its owner's count."""
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
"""Count a response among its owner's, and delete the owner's oldest beyond the bound."""


class SharedResponses:
    """Copies responses between the store and Redis."""

    def __init__(self, connection: RedisConnection, store: ResponseStore, *, max_bytes: int = MAX_BYTES) -> None:
        self._connection = connection
        self._store = store
        self.max_bytes = max_bytes
        """The most bytes of one owner's responses in Redis."""
        self._keep = connection.script(_KEEP)
        self._forget = connection.script(_FORGET)
        self._changes: deque[tuple[str, str]] = deque()
        self._is_fetching = False
        store.on_change = self._note

    async def fetch(self, owner: str, path: str, body: bytes) -> None:
        """Fetch the responses that a request names."""
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
        """Return `send`, which first writes what the exchange has stored."""

        async def after_write(message: Message) -> None:
            if self._changes:
                await self.write()
            await send(message)

        return after_write

    async def write(self) -> None:
        """Write to Redis what has changed in the store."""
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
        """Make the store hold what Redis has of a response."""
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
        """Change the store without writing the change to Redis, where it comes from."""
        self._is_fetching = True
        try:
            change()
        finally:
            self._is_fetching = False

    def _note(self, owner: str, response_id: str) -> None:
        if not self._is_fetching and self._connection.is_up:
            self._changes.append((owner, response_id))


def _named_responses(path: str, body: bytes) -> Iterator[str]:
    """Yield the ids of the responses that a request names."""
    _, mark, rest = path.rpartition(STORED_ROUTE)
    if mark:
        yield unquote(mark.rpartition("/")[2] + rest).partition("/")[0]
    elif b"previous_response_id" in body and (named := as_text(_parse(body).get("previous_response_id"))):
        yield named


def _named_items(body: bytes) -> list[str]:
    """Return the ids of the items of earlier responses that a request refers to."""
    items = _parse(body).get("input") if _REFERENCE.encode() in body else None
    entries = [as_object(item) for item in items] if isinstance(items, list) else []  # pyright: ignore[reportUnknownVariableType] - JSON values
    return [as_text(entry.get("id")) for entry in entries if entry.get("type") == _REFERENCE and entry.get("id")]


def _parse(body: bytes) -> dict[str, Any]:
    try:
        return as_object(json.loads(body))
    except (ValueError, RecursionError):
        return {}
