"""Newline-delimited JSON: one document per line, as Ollama streams it."""

from __future__ import annotations


class LineDecoder:
    """Decode chunks of bytes, split anywhere, into lines. O(n): no byte is read twice.

    Blank lines, a carriage return before the line feed and a byte order mark are dropped; invalid UTF-8 becomes U+FFFD.
    """

    def __init__(self) -> None:
        self._open: list[bytes] = []
        self.held = 0
        """Bytes buffered of the unfinished line."""

    def feed(self, data: bytes) -> list[str]:
        """Return the lines that `data` completes."""
        first, *rest = data.split(b"\n")
        self._open.append(first)
        self.held += len(first)
        if not rest:
            return []
        whole = [b"".join(self._open), *rest[:-1]]
        self._open = [rest[-1]]
        self.held = len(rest[-1])
        return _texts(whole)

    def close(self) -> list[str]:
        """Return the last line, if it has no line feed."""
        last, self._open = b"".join(self._open), []
        return _texts([last])


def _texts(lines: list[bytes]) -> list[str]:
    # a line feed is a byte of its own in UTF-8, so a whole line holds whole characters
    texts = (line.decode("utf-8", "replace").strip(" \t\r\ufeff") for line in lines)
    return [text for text in texts if text]
