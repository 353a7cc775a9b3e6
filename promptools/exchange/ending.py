"""Notice in the bytes of a stream that passes by that the server says it is over."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

from promptools.wire.shapes import as_object

if TYPE_CHECKING:
    from promptools.profiles.profile import Wire

_DONE = re.compile(rb"[\r\n]data: ?\[DONE\][ \t]*(?:\r\n\r\n|\n\n|\r\r)")
"""The last event of an OpenAI stream, blank line included. Inside JSON no line ends, so no text looks like it."""
_TAIL = 64
"""Bytes that are kept in case the event is cut; it has less."""
_LAST = re.compile(rb'"done"\s*:\s*true')
"""What the last line of Ollama's holds, and perhaps another."""
_LINE = 1 << 16
"""Bytes of a line that are kept to be read; the last line has a few hundred."""


class Ending:
    """Looks for the end of a stream in its bytes, cut anywhere. O(n) in bytes; keeps `_LINE` of them at most."""

    def __init__(self, wire: Wire) -> None:
        self.seen = False
        """Has the server said that there is no more?"""
        self._feed = self._events if wire == "chat" else self._lines
        self._tail = bytearray(b"\n")

    def feed(self, data: bytes) -> None:
        """Look at the bytes that come next."""
        if not self.seen:
            self._feed(data)

    def _events(self, data: bytes) -> None:
        text = bytes(self._tail) + data
        self.seen = b"[DONE]" in text and _DONE.search(text) is not None
        self._tail = bytearray(text[-_TAIL:])

    def _lines(self, data: bytes) -> None:
        first, *rest = data.split(b"\n")
        self._keep(first)
        for line in rest:
            self.seen = self.seen or _is_last(bytes(self._tail))
            self._tail.clear()
            self._keep(line)

    def _keep(self, line: bytes) -> None:
        self._tail += line[: max(0, _LINE - len(self._tail))]


def _is_last(line: bytes) -> bool:
    """Whether a line says itself, and not only something inside it, that it is the last."""
    if not _LAST.search(line):
        return False
    try:
        return as_object(json.loads(line)).get("done") is True
    except (ValueError, RecursionError):
        return False
