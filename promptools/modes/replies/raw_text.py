"""The raw text of one choice, and which spans of it are content and calls rather than reasoning."""

from __future__ import annotations

from promptools.parsing.events import CallEnd, Event, Reasoning, Text, WasReasoning
from promptools.types import Discarded, Malformed, Span


class RawText:
    """Store the text, and the spans of everything except reasoning and its tags. O(n) in characters and events.

    Without `markup` only the spans of text and calls are kept.
    """

    def __init__(self, *, markup: bool = True) -> None:
        self._with_markup = markup
        self.size = 0
        """Characters added so far."""
        self._pieces: list[str] = []
        self._spans: list[Span] = []
        self.in_reasoning = False
        """Whether the text ends inside reasoning, or between it and its closing tag."""
        self._last_is_markup = False
        """Whether the last kept span is of something discarded."""
        self._reasoning_end = -1
        """Where the last reasoning ended in the text."""
        self._spans_before_tag = 0
        """The number of spans kept before the last tag and the white space after it."""

    def add(self, text: str) -> None:
        """Add text."""
        self._pieces.append(text)
        self.size += len(text)

    def record(self, event: Event) -> None:
        """Record an event of the parser that reads the text."""
        match event:
            case WasReasoning():
                self._spans, self.in_reasoning = [], True
            case Reasoning():
                if self._last_is_markup and not self.in_reasoning:
                    del self._spans[self._spans_before_tag :]  # the tag that opened it
                self.in_reasoning, self._last_is_markup, self._reasoning_end = True, False, event.span.end
            case Malformed(raw=raw) if not self._with_markup and raw.startswith("<|"):
                self.in_reasoning = False  # a call that was cut in its header or after it: none of it is content
            case Text() | CallEnd() | Malformed():
                self.in_reasoning = False
                self._add_span(event.span, markup=False)
            case Discarded() if event.span.start == self._reasoning_end:
                self.in_reasoning = self.in_reasoning and event.why != "markup"  # the tag that closed it
            case Discarded() if not self.in_reasoning:
                if self._with_markup:
                    if event.why != "space" or not self._last_is_markup:
                        self._spans_before_tag = len(self._spans)
                    self._add_span(event.span, markup=True)
            case Discarded(why="markup"):
                self.in_reasoning = False  # the tag that closed it
            case _:
                pass

    def _add_span(self, span: Span, *, markup: bool) -> None:
        last = self._spans[-1] if self._spans else None
        if last is not None and last.end == span.start and not (markup or self._last_is_markup):
            self._spans[-1] = Span(last.start, span.end)
        else:
            self._spans.append(span)
        self._last_is_markup = markup

    def slice(self, span: Span) -> str:
        """Return the text of `span`."""
        return self.full_text()[span.start : span.end]

    def without_reasoning(self) -> str:
        """Return everything except reasoning, byte for byte."""
        text = self.full_text()
        return "".join(text[span.start : span.end] for span in sorted(self._spans))

    def full_text(self) -> str:
        """Return all the text."""
        if len(self._pieces) > 1:
            self._pieces = ["".join(self._pieces)]
        return self._pieces[0] if self._pieces else ""
