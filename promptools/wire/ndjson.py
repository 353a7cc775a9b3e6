"""Newline-delimited JSON: one document a line, as Ollama streams it."""

from __future__ import annotations


class LineDecoder:
    """Turn bytes, cut anywhere, into lines. O(n) in bytes: no byte is looked at twice.

    Blank lines are left out, a carriage return before the line feed and a byte order mark are dropped, broken UTF-8
    becomes U+FFFD.
    """

    def __init__(self) -> None:
        self._open: list[bytes] = []
        self.held = 0
        """Bytes of the line that has not ended."""

    def feed(self, data: bytes) -> list[str]:
        """Give the lines that `data` completes."""
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
        """Give the last line, if it has no line feed."""
        left, self._open = b"".join(self._open), []
        return _texts([left])


def _texts(lines: list[bytes]) -> list[str]:
    # a line feed is a byte of its own in UTF-8, so a whole line holds whole characters
    texts = (line.decode("utf-8", "replace").strip(" \t\r\ufeff") for line in lines)
    return [text for text in texts if text]
