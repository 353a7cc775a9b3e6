"""Detect the end-of-stream marker in the raw bytes of a stream that is forwarded unparsed.

A stream of chat completions may end without its marker; then a finish reason, or an error, says that it is complete.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from promptools.patterns import lazy_pattern
from promptools.wire.json_types import as_object

if TYPE_CHECKING:
    from promptools.profiles.profile import Wire

_DONE_EVENT = lazy_pattern(rb"[\r\n]data: ?\[DONE\][ \t]*(?:\r\n\r\n|\n\n|\r\r)")
"""The last event of an OpenAI stream, with its blank line. JSON has no raw line breaks, so no content can match."""
_FINISH_REASON = lazy_pattern(rb'"finish_reason"\s*:\s*"')
"""A finish reason that is not null. Inside a JSON string its quotes would be escaped."""
_ERROR = b'{"error"'
_MAX_EVENT = 64
"""Bytes that are kept in case a chunk boundary splits the event, which is shorter."""
_DONE_FIELD = lazy_pattern(rb'"done"\s*:\s*true')
"""Contained in the last line of an Ollama stream, and perhaps in the content of others."""
_MAX_LINE = 1 << 16
"""The most bytes of a line that are kept to be parsed; the last line has a few hundred."""


class StreamEndDetector:
    """Detects the end of a stream from its bytes, split anywhere. O(n); buffers at most `_MAX_LINE` bytes."""

    def __init__(self, wire: Wire) -> None:
        self.seen = False
        """Whether the server has signalled the end."""
        self._finished = False
        """Whether it has sent a finish reason or an error."""
        self._wire: Wire = wire
        self._tail = bytearray(b"\n")

    def feed(self, data: bytes) -> None:
        """Scan the next bytes."""
        if self.seen:
            return
        if self._wire == "chat":
            self._scan_events(data)
        else:
            self._scan_lines(data)

    def is_complete(self) -> bool:
        """Whether a stream that ended here is complete; its last line may lack its line break."""
        if self._wire == "chat":
            return self.seen or self._finished or b"[DONE]" in self._tail
        return self.seen or self._finished or self._tail.startswith(_ERROR) or _is_last(bytes(self._tail))

    def _scan_events(self, data: bytes) -> None:
        text = bytes(self._tail) + data
        self.seen = b"[DONE]" in text and _DONE_EVENT.search(text) is not None
        self._finished = self._finished or _FINISH_REASON.search(text) is not None or _ERROR in text
        self._tail = bytearray(text[-_MAX_EVENT:])

    def _scan_lines(self, data: bytes) -> None:
        first, *rest = data.split(b"\n")
        self._keep(first)
        for line in rest:
            self.seen = self.seen or _is_last(bytes(self._tail))
            self._finished = self._finished or self._tail.startswith(_ERROR)
            self._tail.clear()
            self._keep(line)

    def _keep(self, line: bytes) -> None:
        self._tail += line[: max(0, _MAX_LINE - len(self._tail))]


def _is_last(line: bytes) -> bool:
    """Whether a line is the last: `done` is true in its top-level object, not only in something nested."""
    if not _DONE_FIELD.search(line):
        return False
    try:
        return as_object(json.loads(line)).get("done") is True
    except (ValueError, RecursionError):
        return False
