"""The raw text of one choice, and which spans of it are content and calls rather than reasoning."""

from __future__ import annotations

from promptools.parsing.events import CallEnd, Event, Reasoning, Text, WasReasoning
from promptools.types import Discarded, Malformed, Span


class Words:
    """Store the text, and the spans of everything except reasoning and its tags. O(n) in characters and events.

    Without `markup` only the spans of text and calls are kept.
    """

    def __init__(self, *, markup: bool = True) -> None:
        self._with_markup = markup
        self.size = 0
        """Characters added so far."""
        self._pieces: list[str] = []
        self._kept: list[Span] = []
        self._thinking = False
        self._markup = False
        """Whether the last kept span is of something discarded."""
        self._thought = -1
        """Where the last reasoning ended in the text."""
        self._tag = 0
        """The number of spans kept before the last tag and the white space after it."""

    def add(self, text: str) -> None:
        """Add text."""
        self._pieces.append(text)
        self.size += len(text)

    def see(self, event: Event) -> None:
        """Record an event of the parser that reads the text."""
        match event:
            case WasReasoning():
                self._kept, self._thinking = [], True
            case Reasoning():
                if self._markup and not self._thinking:
                    del self._kept[self._tag :]  # the tag that opened it
                self._thinking, self._markup, self._thought = True, False, event.span.end
            case Malformed(raw=raw) if not self._with_markup and raw.startswith("<|"):
                self._thinking = False  # a call that was cut in its header or after it: none of it is content
            case Text() | CallEnd() | Malformed():
                self._thinking = False
                self._keep(event.span, markup=False)
            case Discarded() if event.span.start == self._thought:
                self._thinking = self._thinking and event.why != "markup"  # the tag that closed it
            case Discarded() if not self._thinking:
                if self._with_markup:
                    if event.why != "space" or not self._markup:
                        self._tag = len(self._kept)
                    self._keep(event.span, markup=True)
            case Discarded(why="markup"):
                self._thinking = False  # the tag that closed it
            case _:
                pass

    def _keep(self, span: Span, *, markup: bool) -> None:
        last = self._kept[-1] if self._kept else None
        if last is not None and last.end == span.start and not (markup or self._markup):
            self._kept[-1] = Span(last.start, span.end)
        else:
            self._kept.append(span)
        self._markup = markup

    def cut(self, span: Span) -> str:
        """Return the text of `span`."""
        return self.whole()[span.start : span.end]

    def kept(self) -> str:
        """Return everything except reasoning, byte for byte."""
        text = self.whole()
        return "".join(text[span.start : span.end] for span in sorted(self._kept))

    def whole(self) -> str:
        """Return all the text."""
        if len(self._pieces) > 1:
            self._pieces = ["".join(self._pieces)]
        return self._pieces[0] if self._pieces else ""
