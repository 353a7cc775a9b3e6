"""The base of all readers of tags: tokens in, and in the end the parts that tile the text.

Each token of the text goes to `_state`, a method of the reader. Where only what follows decides what a token means, the
state looks ahead in the buffer and returns `NEED_MORE` as long as that is missing: it gets the same token again with
the next piece. The tokens after the end become `unread`, and are read again by whoever comes next.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import TypeAlias

from promptools.dialects.calls.parse_options import Evidence
from promptools.dialects.contract import trace_entry
from promptools.dialects.readers.tags.tag_names import Tag
from promptools.dialects.readers.tags.token_buffer import TokenBuffer
from promptools.parsing.parts import NEED_MORE, CandidateBase, NeedMore, Part, TriedStrategy, total_length

TokenState: TypeAlias = "Callable[[Tag | str], NeedMore | None]"
"""What a token means in a state."""


class TagReader(CandidateBase, ABC):
    """Reads the tokens of a candidate, one state at a time. O(n)."""

    _state: TokenState

    def __init__(self, buffer: TokenBuffer, place: Evidence, *, definite: bool, head: str = "") -> None:
        super().__init__(definite=definite, head=head)
        self._buffer = buffer
        self._tokens = buffer.tokens
        self._place = place
        self._finish_reason: str | None = None
        self._decided = False

    @property
    def _index(self) -> int:
        """The index of the current token."""
        return self._buffer.index

    @abstractmethod
    def _on_end_of_text(self, finish_reason: str | None) -> None: ...

    def feed(self, piece: str, start: int) -> int | None:
        """Read more text; see `Candidate`."""
        self._buffer.add(piece, start)
        self._run()
        if not self._decided:
            return None
        left = len(self.unread) + self._buffer.rest_size - (len(piece) - start)
        if left <= 0:
            self.unread = ""
            return start - left
        self.unread = (self.unread + self._buffer.rest)[:left]
        return start

    def close(self, finish_reason: str | None) -> None:
        """Decide at the end of the text."""
        self._finish_reason = finish_reason
        self._buffer.final = True
        self._run()
        if not self._decided:
            self._on_end_of_text(finish_reason)
        self.unread += self._buffer.rest

    def _run(self) -> None:
        while not self._decided and self._step():
            pass

    def _step(self) -> bool:
        """Read the current token; return whether it was there, and complete."""
        buffer = self._buffer
        if buffer.index == len(buffer.tokens) and not buffer.read():
            return False
        if self._state(buffer.tokens[buffer.index]) is NEED_MORE:
            return False
        buffer.advance()
        return True

    # --- the outcome ---------------------------------------------------------------------------------------------

    def _finish_parts(self, parts: Sequence[Part], end: int) -> None:
        """Decide: `parts` tile the tokens before index `end` that were not emitted."""
        self.parts = [*([Part("markup", self.head)] if self.head else []), *parts]
        self.unread = self._buffer.text(end)
        all_parts = [*self._emitted, *self.parts]
        self.tries.append(trace_entry(self._place.dialect, total_length(all_parts), all_parts))
        self._decided = True

    def _finish_as_text(self, end: int, why: str) -> None:
        """Return the head and the tokens before index `end` as text."""
        end = end if self.head else max(end, 1)
        raw = self.head + self._buffer.text(0, end)
        self.parts = [Part("text", raw)]
        self.unread = self._buffer.text(end)
        self.tries.append(TriedStrategy(self._place.dialect, "text", why, len(raw) + len(self.unread)))
        self._decided = True
