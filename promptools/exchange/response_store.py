"""Store responses that clients may continue or fetch later; each owner can store a limited number of them.

If there are too many, the least recently used are dropped. A response is found only by requests from its owner. In a
proxy that checks keys, the owner is the checked key. In all other cases, requests that contain the same keys, in any
header fields, have the same owner.
"""

from __future__ import annotations

import hashlib
import json
from collections import OrderedDict
from contextlib import suppress
from dataclasses import dataclass, field
from heapq import heapify, heappop, heapreplace
from typing import TYPE_CHECKING, Any

from promptools.masking import keys_in
from promptools.wire.json_body import as_text

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from promptools.exchange.effects import Headers


MAX_RESPONSES = 512
"""Maximum number of responses of one owner."""
MAX_BYTES = 64 * 2**20
"""Maximum total size of the responses of one owner, in bytes (approximate)."""
MAX_TOTAL_BYTES = 512 * 2**20
"""Maximum total size of the responses of all owners together, in bytes (approximate)."""
_OVERHEAD = 256
"""Number of bytes that a response is assumed to take besides its JSON."""

Items = tuple[dict[str, Any], ...]


@dataclass(frozen=True, slots=True)
class StoredResponse:
    """A stored response, and the input to which it responds."""

    body: dict[str, Any]
    input: Items
    """The conversation up to this response: the input of all requests, and the output of the earlier responses."""
    size: int
    """The length of the response and its conversation as JSON, including the parts shared with earlier responses."""
    discarded: tuple[str, ...] = ()
    """The ids of reasoning items that were streamed in failed attempts and so do not belong to the response."""

    @property
    def item_ids(self) -> tuple[str, ...]:
        """The ids of this response's output items, and of streamed reasoning that was discarded."""
        return (*(as_text(item.get("id")) for item in self.body["output"]), *self.discarded)

    @property
    def conversation(self) -> Items:
        """The conversation for a request that continues this response."""
        return (*self.input, *self.body["output"])


@dataclass(slots=True)
class _Shelf:
    """Holds the responses of one owner, the least recently used first."""

    responses: OrderedDict[str, StoredResponse] = field(default_factory=OrderedDict[str, StoredResponse])
    items: dict[str, tuple[str, dict[str, Any]]] = field(default_factory=dict[str, "tuple[str, dict[str, Any]]"])
    """Maps the id of each output item to a pair: the id of the response that contains the item, and the item."""
    size: int = 0

    def add(self, response_id: str, stored: StoredResponse) -> None:
        self.responses[response_id] = stored
        emptied: Items = tuple({"id": item_id, "type": "reasoning", "summary": []} for item_id in stored.discarded)
        for item in (*stored.body["output"], *emptied):
            self.items[item["id"]] = (response_id, item)
        self.size += stored.size

    def remove(self, response_id: str) -> int:
        """Remove a response; return its size, or 0 if it did not exist."""
        stored = self.responses.pop(response_id, None)
        return 0 if stored is None else self._forget(stored)

    def remove_oldest(self) -> int:
        try:
            _, stored = self.responses.popitem(last=False)  # one step, since threads share the store
        except KeyError:
            return 0
        return self._forget(stored)

    def _forget(self, stored: StoredResponse) -> int:
        self.size -= stored.size
        for item_id in stored.item_ids:
            self.items.pop(item_id, None)
        return stored.size


class ResponseStore:
    """Stores the responses of all owners.

    Each owner may store up to `max_responses` responses, with up to `max_bytes` bytes in total. The responses of all
    owners together take at most `max_total` bytes. If they take more, the owner with the most bytes loses responses
    first. So an owner with less than an equal share loses no responses because of other owners.
    """

    def __init__(
        self, max_responses: int = MAX_RESPONSES, max_bytes: int = MAX_BYTES, max_total: int = MAX_TOTAL_BYTES
    ) -> None:
        self._max_responses = max_responses
        self._max_bytes = min(max_bytes, max_total)
        self._max_total = max_total
        self._shelves: dict[str, _Shelf] = {}
        self._size = 0
        self.on_change: Callable[[str, str], None] | None = None
        """Called with the owner and the id of a response that was stored or deleted."""

    def __len__(self) -> int:
        return sum(len(shelf.responses) for shelf in self._shelves.values())

    def get(self, owner: str, response_id: str) -> StoredResponse | None:
        """Return a response of this owner, and mark it as the most recently used; None if it is not stored."""
        shelf = self._shelves.get(owner)
        stored = None if shelf is None else shelf.responses.get(response_id)
        if shelf is not None and stored is not None:
            with suppress(KeyError):  # another thread has just deleted it
                shelf.responses.move_to_end(response_id)
        return stored

    def find_item(self, owner: str, item_id: str) -> dict[str, Any] | None:
        """Return an output item of one of this owner's responses; None if the id is unknown.

        If the id belongs to reasoning of a failed attempt, which was streamed but not stored, the item is empty.
        """
        shelf = self._shelves.get(owner)
        entry = None if shelf is None else shelf.items.get(item_id)
        return None if entry is None else entry[1]

    def put(
        self,
        owner: str,
        body: dict[str, Any],
        input_items: Items,
        previous: StoredResponse | None,
        discarded: tuple[str, ...] = (),
    ) -> None:
        """Store a response with the input of its request, unless it is too large.

        `previous` is the response that the request continues, if any. `discarded` holds the ids of streamed reasoning
        that is not in the response, but to which a client may still refer.
        """
        size = _OVERHEAD + len(json.dumps(body)) + len(json.dumps(input_items)) + (previous.size if previous else 0)
        if size > self._max_bytes:
            return
        earlier = previous.conversation if previous else ()
        stored = StoredResponse(body, (*earlier, *input_items), size, discarded)
        shelf = self._shelves.setdefault(owner, _Shelf())
        self._size -= shelf.remove(body["id"])
        shelf.add(body["id"], stored)
        self._size += size
        while len(shelf.responses) > self._max_responses or shelf.size > self._max_bytes:
            self._size -= shelf.remove_oldest()
        if self._size > self._max_total:
            self._make_room()
        self._report_change(owner, body["id"])

    def delete(self, owner: str, response_id: str) -> bool:
        """Delete a response of this owner; return whether there was one."""
        shelf = self._shelves.get(owner)
        removed = 0 if shelf is None else shelf.remove(response_id)
        if shelf is None or not removed:
            return False
        self._size -= removed
        self._drop_if_empty(owner, shelf)
        self._report_change(owner, response_id)
        return True

    def _make_room(self) -> None:
        """Drop the least recently used responses of some owners until a sixteenth of `max_total` is free.

        Each time, the owner with the most bytes loses a response. More is freed than is needed now, so that this method
        runs rarely: it visits all owners, and there may be many.
        """
        wanted = self._max_total - self._max_total // 16
        largest = [(-shelf.size, owner) for owner, shelf in self._shelves.items()]
        heapify(largest)
        while self._size > wanted and largest:
            _, owner = largest[0]
            shelf = self._shelves[owner]
            self._size -= shelf.remove_oldest()
            self._drop_if_empty(owner, shelf)
            if shelf.responses:
                heapreplace(largest, (-shelf.size, owner))
            else:
                heappop(largest)

    def _drop_if_empty(self, owner: str, shelf: _Shelf) -> None:
        if not shelf.responses:
            self._shelves.pop(owner, None)

    def _report_change(self, owner: str, response_id: str) -> None:
        if self.on_change is not None:
            self.on_change(owner, response_id)


def owner_of(headers: Headers) -> str:
    """Return the owner of a request: a digest of the API keys in any of its header fields."""
    return owner_of_keys(keys_in(headers))


def owner_of_keys(keys: Iterable[str]) -> str:
    """Return the owner to whom these API keys belong: a digest of the keys."""
    return hashlib.blake2b(repr(sorted(set(keys))).encode(), digest_size=16).hexdigest()
