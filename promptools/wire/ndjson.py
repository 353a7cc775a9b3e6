"""Newline-delimited JSON: one document per line, as Ollama streams it."""

from __future__ import annotations


class LineDecoder:
    """Decode chunks of bytes, split anywhere, into lines. O(n): no byte is read twice.

    Blank lines, a carriage return before the line feed and a byte order mark are dropped; invalid UTF-8 becomes U+FFFD.
    """

    def __init__(self) -> None:
        self._partial: list[bytes] = []
        self.buffered = 0
        """Bytes buffered of the unfinished line."""

    def feed(self, data: bytes) -> list[str]:
        """Return the lines that `data` completes."""
        first, *rest = data.split(b"\n")
        self._partial.append(first)
        self.buffered += len(first)
        if not rest:
            return []
        whole = [b"".join(self._partial), *rest[:-1]]
        self._partial = [rest[-1]]
        self.buffered = len(rest[-1])
        return _decode_lines(whole)

    def close(self) -> list[str]:
        """Return the last line, if it has no line feed."""
        last, self._partial = b"".join(self._partial), []
        return _decode_lines([last])


def _decode_lines(lines: list[bytes]) -> list[str]:
    # a line feed is a byte of its own in UTF-8, so a whole line holds whole characters
    texts = (line.decode("utf-8", "replace").strip(" \t\r\ufeff") for line in lines)
    return [text for text in texts if text]
