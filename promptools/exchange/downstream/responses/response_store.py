"""The responses that clients may continue or get again, bounded by number and size; the least recently used go first.

A response is found only by requests with the credentials of the one that created it.
"""

from __future__ import annotations

import hashlib
import json
from collections import OrderedDict
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from promptools.wire.json_types import as_text

if TYPE_CHECKING:
    from collections.abc import Callable

    from promptools.exchange.effects import Headers

MAX_RESPONSES = 512
MAX_BYTES = 64 * 2**20
_CREDENTIALS = frozenset({"authorization", "api-key", "x-api-key"})

Items = tuple[dict[str, Any], ...]


@dataclass(frozen=True, slots=True)
class StoredResponse:
    """One response and what it answers."""

    body: dict[str, Any]
    input: Items
    """The conversation up to this response: the input of all requests, and the output of the earlier responses."""
    size: int
    """The JSON of all of it in characters; shared with earlier responses, but counted for each."""
    discarded: tuple[str, ...] = ()
    """The ids of reasoning of attempts that failed: it was streamed, but is no part of the response."""

    @property
    def item_ids(self) -> tuple[str, ...]:
        """The ids that a client may know items of this response by."""
        return (*(as_text(item.get("id")) for item in self.body["output"]), *self.discarded)

    @property
    def conversation(self) -> Items:
        """The conversation that a next request continues."""
        return (*self.input, *self.body["output"])


class ResponseStore:
    """The stored responses of all clients."""

    def __init__(self, max_responses: int = MAX_RESPONSES, max_bytes: int = MAX_BYTES) -> None:
        self._max_responses = max_responses
        self._max_bytes = max_bytes
        self._responses: OrderedDict[tuple[str, str], StoredResponse] = OrderedDict()
        self._items: dict[tuple[str, str], tuple[str, dict[str, Any]]] = {}
        """The items of the responses' outputs with the ids of their responses, by owner and item."""
        self._size = 0
        self.on_change: Callable[[str, str], None] | None = None
        """Called with owner and id of a response that was stored or deleted."""

    def __len__(self) -> int:
        return len(self._responses)

    def get(self, owner: str, response_id: str) -> StoredResponse | None:
        """Return a response of this owner."""
        stored = self._responses.get((owner, response_id))
        if stored is not None:
            with suppress(KeyError):  # another thread has just deleted it
                self._responses.move_to_end((owner, response_id))
        return stored

    def find_item(self, owner: str, item_id: str) -> dict[str, Any] | None:
        """Return an item of the output of one of this owner's responses; discarded reasoning is empty."""
        entry = self._items.get((owner, item_id))
        return None if entry is None else entry[1]

    def put(
        self,
        owner: str,
        body: dict[str, Any],
        input_items: Items,
        previous: StoredResponse | None,
        discarded: tuple[str, ...] = (),
    ) -> None:
        """Store a response to the input of its own request, which continues `previous`.

        `discarded` is the ids of streamed reasoning that is no part of the response; a client may still refer to them.
        """
        size = len(json.dumps(body)) + len(json.dumps(input_items)) + (previous.size if previous else 0)
        if size > self._max_bytes:
            return
        earlier = previous.conversation if previous else ()
        self._responses[owner, body["id"]] = StoredResponse(body, (*earlier, *input_items), size, discarded)
        emptied: Items = tuple({"id": item_id, "type": "reasoning", "summary": []} for item_id in discarded)
        for item in (*body["output"], *emptied):
            self._items[owner, item["id"]] = (body["id"], item)
        self._size += size
        while len(self._responses) > self._max_responses or self._size > self._max_bytes:
            (evicted, _), stored = self._responses.popitem(last=False)  # one step, since threads share the store
            self._forget(evicted, stored)
        self._report_change(owner, body["id"])

    def delete(self, owner: str, response_id: str) -> bool:
        """Delete a response of this owner; return whether there was one."""
        stored = self._responses.pop((owner, response_id), None)
        if stored is None:
            return False
        self._forget(owner, stored)
        self._report_change(owner, response_id)
        return True

    def _report_change(self, owner: str, response_id: str) -> None:
        if self.on_change is not None:
            self.on_change(owner, response_id)

    def _forget(self, owner: str, stored: StoredResponse) -> None:
        self._size -= stored.size
        for item_id in stored.item_ids:
            self._items.pop((owner, item_id), None)


def owner_of(headers: Headers) -> str:
    """Return what identifies the owner of a request: a digest of its credentials."""
    credentials = sorted((name.lower(), value) for name, value in headers if name.lower() in _CREDENTIALS)
    return hashlib.blake2b(repr(credentials).encode(), digest_size=16).hexdigest()
