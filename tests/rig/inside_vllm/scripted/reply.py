"""The progress of one reply, and its next token when a grammar restricts the choice."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

_NEARBY = 16
"""Number of tokens that are searched for one that the grammar allows, before checking if it forces its own."""

_FORCED_CHOICES = 16
"""If a grammar allows at most this many tokens, it forces text of its own."""


@dataclass(slots=True)
class ReplyProgress:
    """The reply to one request: its token ids, and the engine's list of the tokens generated so far."""

    tokens: list[int]
    generated: list[int]
    next_index: int = 0
    """Index of the next token; the last token ends the reply and is repeated forever."""
    generated_count: int = 0
    pushed: bool = False
    splits: Callable[[int], Iterable[list[int]]] = lambda _: ()
    """Returns the ways to split a token into several, the longest first part first."""

    def next(self, scores: Any) -> int | None:
        """Return the next token, given the logits of all; the same one until the engine has generated it.

        If a grammar forbids the token, there are three cases: it allows its beginning (JSON ends inside the token); it
        forces something before it (a header that the reply lacks: the choice is small, and None leaves it to the
        model); or it does not want the token (a fence around JSON), and the next one that it allows is returned.
        """
        if len(self.generated) > self.generated_count:
            self.generated_count = len(self.generated)
            self.next_index = min(self.next_index + self.pushed, len(self.tokens) - 1)
        index = self._first_allowed(scores, self.next_index, self.next_index + 1)
        if index is None and self._split(scores):
            index = self.next_index
        if index is None:
            index = self._first_allowed(scores, self.next_index + 1, self.next_index + _NEARBY)
        if index is None and int((scores > -math.inf).sum()) > _FORCED_CHOICES:
            index = self._first_allowed(scores, self.next_index + _NEARBY, len(self.tokens))
        self.pushed = index is not None
        if index is None:
            return None
        self.next_index = index
        return self.tokens[index]

    def _first_allowed(self, scores: Any, start: int, stop: int) -> int | None:
        """Return the index of the first allowed token in `start:stop`."""
        indices = range(start, min(stop, len(self.tokens)))
        return next((index for index in indices if scores[self.tokens[index]] != -math.inf), None)

    def _split(self, scores: Any) -> bool:
        """Replace the next token by several, the first of which is allowed; return whether there is a way."""
        tokens = next(
            (candidate for candidate in self.splits(self.tokens[self.next_index]) if scores[candidate[0]] != -math.inf),
            None,
        )
        if tokens is not None:
            self.tokens[self.next_index : self.next_index + 1] = tokens
        return tokens is not None
