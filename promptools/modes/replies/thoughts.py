"""The reasoning of a reply: passed on as it comes, but for calls that may end it.

Servers put a call there that the model made without closing its thought (vllm#39056, ai-dynamo/dynamo#10366). It counts
if nothing else comes: no content, no other call. Until that is known the calls that the reasoning ends with, so far,
are held, so that no markup of a call that is read from it is shown. Any text after them shows that they were drafts.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from promptools.parsing.events import CallEnd, Event, Reasoning, Text
from promptools.parsing.parts import SPACE
from promptools.types import Discarded, Malformed

if TYPE_CHECKING:
    from collections.abc import Iterable

    from promptools.engine import StreamParser


class LastCalls(NamedTuple):
    """The calls that a text ends with, and where the text before them ends."""

    calls: tuple[CallEnd, ...] = ()
    text_end: int = 0

    def after(self, events: Iterable[Event]) -> LastCalls:
        """Return what they are after more events."""
        calls, text_end = self
        for event in events:
            if isinstance(event, CallEnd):
                calls = (*calls, event)
            elif isinstance(event, Malformed) or (isinstance(event, (Text, Reasoning)) and event.text.strip(SPACE)):
                calls, text_end = (), max(text_end, event.span.end)
            elif isinstance(event, Discarded) and not calls and event.raw.startswith("</"):
                text_end = event.span.end  # it closes what could not be read
        return LastCalls(calls, text_end)


class Thoughts:
    """The reasoning of one choice. `parser` finds what may be a call in it; None where no call may be made.

    O(n) in characters: what is held is put together only when a part of it is passed on.
    """

    def __init__(self, parser: StreamParser | None) -> None:
        self._parser = parser
        self._last = LastCalls()
        self._pieces: list[str] = []
        self._held: list[str] = []
        self._shown = 0
        """Characters that were passed on."""

    @property
    def text(self) -> str:
        """All of the reasoning."""
        return "".join(self._pieces)

    def feed(self, text: str) -> str:
        """Add text; return what is no call."""
        if not text:
            return ""
        self._pieces.append(text)
        self._held.append(text)
        if self._parser is None:
            return self.release()
        self._last = self._last.after(self._parser.feed(text))
        return self.release(self._last.text_end)

    def add_shown(self, text: str) -> None:
        """Add text that is out already: it turned out to be reasoning."""
        self.feed(text)
        self.release()

    def stop(self) -> str:
        """Return what is held: something else came, so that no call is looked for."""
        self._parser = None
        return self.release()

    def release(self, end: int | None = None) -> str:
        """Return what is held of the reasoning, up to an offset and the white space after it."""
        if end is not None and end <= self._shown and self._held and self._held[0][0] not in SPACE:
            return ""
        held, self._held = "".join(self._held), []
        if end is not None:
            rest = held[max(0, end - self._shown) :].lstrip(SPACE)
            held = held[: len(held) - len(rest)]
            self._held = [rest] if rest else []
        self._shown += len(held)
        return held
