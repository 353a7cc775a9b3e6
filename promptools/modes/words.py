"""The text of one choice as the server gave it, and which parts of it were said rather than thought."""

from __future__ import annotations

from promptools.parsing.events import CallEnd, Event, Reasoning, Text, WasReasoning
from promptools.types import Discarded, Malformed, Span


class Words:
    """Keeps the text, and the spans of all but thoughts and their tags. O(n) in characters and events.

    Without `markup` the spans are those of words and calls alone.
    """

    def __init__(self, *, markup: bool = True) -> None:
        self._with_markup = markup
        self.size = 0
        """Characters that were taken."""
        self._pieces: list[str] = []
        self._kept: list[Span] = []
        self._thinking = False
        self._markup = False
        """The last kept span is of something discarded."""
        self._thought = -1
        """Where the last thought ended in the text."""
        self._tag = 0
        """How many spans were kept before the tag that came last, and the white space behind it."""

    def add(self, text: str) -> None:
        """Take more text."""
        self._pieces.append(text)
        self.size += len(text)

    def see(self, event: Event) -> None:
        """Take an event of the parser that reads the text."""
        match event:
            case WasReasoning():
                self._kept, self._thinking = [], True
            case Reasoning():
                if self._markup and not self._thinking:
                    del self._kept[self._tag :]  # the tag that opened it
                self._thinking, self._markup, self._thought = True, False, event.span.end
            case Malformed(raw=raw) if not self._with_markup and raw.startswith("<|"):
                self._thinking = False  # a call that was cut in its header, or behind it: nothing of it was said
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
        """Give the text of `span`."""
        return self.whole()[span.start : span.end]

    def kept(self) -> str:
        """Give everything that was not thought, byte for byte."""
        text = self.whole()
        return "".join(text[span.start : span.end] for span in sorted(self._kept))

    def whole(self) -> str:
        """Return all the text."""
        if len(self._pieces) > 1:
            self._pieces = ["".join(self._pieces)]
        return self._pieces[0] if self._pieces else ""
