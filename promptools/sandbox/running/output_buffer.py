"""The output of a command within a budget: its beginning and its end are kept, and what was between them is counted."""

from __future__ import annotations

from collections import deque

_CONTINUATION = range(0x80, 0xC0)
"""Bytes that continue a character of UTF-8."""
_LONGEST_CHARACTER = 4


class OutputBuffer:
    """Takes output without end and never holds much more than `budget` bytes of it."""

    def __init__(self, budget: int) -> None:
        self._for_tail = budget // 2
        self._for_head = budget - self._for_tail
        self._head = bytearray()
        self._tail: deque[bytes] = deque()
        self._in_tail = 0
        self._dropped_bytes = 0
        self._dropped_lines = 0

    @property
    def truncated(self) -> bool:
        """Whether something was left out."""
        return self._dropped_bytes > 0

    def feed(self, data: bytes) -> None:
        """Add output."""
        room = self._for_head - len(self._head)
        if room:
            self._head += data[:room]
            data = data[room:]
        if data:
            self._tail.append(data)
            self._in_tail += len(data)
        while self._in_tail > self._for_tail:
            oldest = self._tail.popleft()
            excess = min(self._in_tail - self._for_tail, len(oldest))
            self._drop(oldest[:excess])
            if excess < len(oldest):
                self._tail.appendleft(oldest[excess:])

    def _drop(self, data: bytes) -> None:
        self._in_tail -= len(data)
        self._dropped_bytes += len(data)
        self._dropped_lines += data.count(b"\n")

    def text(self) -> str:
        """Return the output as text; bytes that are no UTF-8 are replaced, and a notice marks what is missing."""
        tail = b"".join(self._tail)
        if not self.truncated:
            return (bytes(self._head) + tail).decode("utf-8", "replace")
        notice = f"[... {self._dropped_bytes} bytes of output, {self._dropped_lines} lines, were left out here ...]"
        return f"{_whole_head(bytes(self._head))}\n{notice}\n{_whole_tail(tail)}"


def shorten(text: str, budget: int) -> str:
    """Return `text` within a budget of bytes: its beginning and its end, with a notice between them."""
    buffer = OutputBuffer(budget)
    buffer.feed(text.encode("utf-8", "replace"))
    return buffer.text()


def _whole_head(data: bytes) -> str:
    """Decode the beginning of a text without the part of a character that its end may hold."""
    for length in range(1, min(_LONGEST_CHARACTER, len(data) + 1)):
        byte = data[-length]
        if byte not in _CONTINUATION:
            width = 1 if byte < 0x80 else 2 if byte < 0xE0 else 3 if byte < 0xF0 else 4
            data = data[:-length] if width > length else data
            break
    return data.decode("utf-8", "replace")


def _whole_tail(data: bytes) -> str:
    """Decode the end of a text without the part of a character that its beginning may hold."""
    start = 0
    while start < min(_LONGEST_CHARACTER - 1, len(data)) and data[start] in _CONTINUATION:
        start += 1
    return data[start:].decode("utf-8", "replace")
