"""Decode and encode server-sent events (WHATWG HTML, section 9.2), including other lines that servers mix in.

An event is a block of `field: value` lines that ends with a blank line. Servers also send keep-alive comments (`:
...`), omit the last blank line, and write lines that are not fields at all, such as a JSON error inside a stream.
"""

from __future__ import annotations

import codecs
from dataclasses import dataclass

DONE = "[DONE]"
"""The data of the last event of an OpenAI stream."""
_FIELDS = frozenset({"data", "event", "id", "retry"})


@dataclass(frozen=True, slots=True)
class ServerSentEvent:
    """Holds an event, a comment line or, if `event` is "raw", lines that are not in the event-stream format.

    `event` is empty if the server did not name the event. A comment (keep-alive) is a separate event with empty `data`.
    """

    event: str = ""
    data: str = ""
    comment: str = ""


class SseDecoder:
    """Decodes chunks of bytes, split anywhere, into events. O(n): no byte is read twice.

    CR, LF and CRLF end a line; a byte order mark is dropped; invalid UTF-8 becomes U+FFFD. A line that does not begin
    with one of the format's field names, such as a bare JSON error inside the stream (mistralai/mistral-vibe#1104), is
    returned as a `raw` event. Several such lines in a row are joined into one event. But if the first of them looks
    like a complete JSON object, this line is returned immediately.
    """

    def __init__(self) -> None:
        self._utf8 = codecs.getincrementaldecoder("utf-8")("replace")
        self._started = False
        self._after_cr = False
        self._line: list[str] = []
        self._data: list[str] = []
        self._raw: list[str] = []
        self._event = ""
        self.buffered = 0
        """Number of characters of the unfinished event that are buffered."""

    def feed(self, data: bytes) -> list[ServerSentEvent]:
        """Return the events that `data` completes."""
        return self._split_lines(self._utf8.decode(data))

    def close(self) -> list[ServerSentEvent]:
        """Return what is still buffered, because servers that drop the connection often omit the last blank line."""
        events = self._split_lines(self._utf8.decode(b"", final=True))
        if self._line:
            self._process_line("".join(self._line), events)
            self._line = []
        self._dispatch(events)
        return events

    def _split_lines(self, text: str) -> list[ServerSentEvent]:
        events: list[ServerSentEvent] = []
        if not text:
            return events
        if not self._started:
            self._started = True
            text = text.removeprefix("\ufeff")
        if self._after_cr:
            text = text.removeprefix("\n")
        self._after_cr = text.endswith("\r")
        if "\r" in text:
            text = text.replace("\r\n", "\n").replace("\r", "\n")
        first, *rest = text.split("\n")
        self._line.append(first)
        self.buffered += len(first)
        if rest:
            self._process_line("".join(self._line), events)
            for line in rest[:-1]:
                self.buffered += len(line)
                self._process_line(line, events)
            self._line = [rest[-1]]
            self.buffered += len(rest[-1])
        return events

    def _process_line(self, line: str, events: list[ServerSentEvent]) -> None:
        if not line:
            self._dispatch(events)
            return
        field, colon, value = line.partition(":")
        if colon and not field:
            self.buffered -= len(line)
            events.append(ServerSentEvent(comment=value.removeprefix(" ")))
        elif field not in _FIELDS:
            self._add_raw(line, events)
        else:
            self._flush_raw(events)
            if field == "data":
                self._add_data(value.removeprefix(" "), events)
            elif field == "event":
                self._event = value.removeprefix(" ")

    def _add_data(self, data: str, events: list[ServerSentEvent]) -> None:
        """Add a line of data; `[DONE]` is a separate event, even without a blank line before or after it."""
        if data.strip() != DONE:
            self._data.append(data)
            return
        if self._data:
            self._dispatch(events)
        self._data.append(data)
        self._dispatch(events)

    def _add_raw(self, line: str, events: list[ServerSentEvent]) -> None:
        """Buffer a line that is not a field; if it comes first and looks like a complete JSON object, emit it now."""
        self._raw.append(line)
        if len(self._raw) == 1 and line.startswith("{") and line.rstrip().endswith("}"):
            self._flush_raw(events)

    def _flush_raw(self, events: list[ServerSentEvent]) -> None:
        if self._raw:
            events.append(ServerSentEvent(event="raw", data="\n".join(self._raw)))
            self.buffered -= sum(map(len, self._raw))
            self._raw = []

    def _dispatch(self, events: list[ServerSentEvent]) -> None:
        """End a block. If the block has data, emit its event."""
        self._flush_raw(events)
        if self._data:
            events.append(ServerSentEvent(event=self._event, data="\n".join(self._data)))
        self._data = []
        self._event = ""
        self.buffered = 0


def encode_event(data: str, event: str | None = None) -> bytes:
    """Encode one event; as the format requires, each line of `data` becomes a separate `data:` line."""
    head = f"event: {event}\n" if event else ""
    lines = data.replace("\r\n", "\n").replace("\r", "\n").split("\n")
    body = "".join(f"data: {line}\n" for line in lines)
    return f"{head}{body}\n".encode("utf-8", "replace")


def encode_comment(text: str) -> bytes:
    """Encode a comment, which clients skip; line ends in `text` become spaces."""
    return f": {' '.join(text.splitlines())}\n\n".encode("utf-8", "replace")


KEEP_ALIVE = encode_comment("keep-alive")
"""The comment that is sent in a stream while there is nothing else to send."""


# Newline-delimited JSON, with one document per line, as in Ollama's streams.


class LineDecoder:
    """Decodes chunks of bytes, split anywhere, into lines. O(n): no byte is read twice.

    Blank lines, a carriage return before the line feed and a byte order mark are dropped; invalid UTF-8 becomes U+FFFD.
    """

    def __init__(self) -> None:
        self._partial: list[bytes] = []
        self.buffered = 0
        """Number of bytes of the unfinished line that are buffered."""

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
    # in UTF-8 a line feed byte is never a part of another character, so a whole line contains whole characters
    texts = (line.decode("utf-8", "replace").strip(" \t\r\ufeff") for line in lines)
    return [text for text in texts if text]
