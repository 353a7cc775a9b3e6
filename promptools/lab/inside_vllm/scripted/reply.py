"""How far one reply has got, and what comes next where a grammar has a say in it."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

_NEAR = 16
"""Tokens that are looked over for one that a grammar lets through, before it is asked whether it wants its own."""

_FEW = 16
"""Where a grammar leaves the model no more tokens than these, it is the grammar that speaks."""


@dataclass(slots=True)
class Reply:
    """What one request is answered with: token ids, and the list that the engine keeps of those that came out."""

    tokens: list[int]
    out: list[int]
    at: int = 0
    """The place of the next token; the last one ends the reply and stays the next for ever."""
    said: int = 0
    pushed: bool = False
    splits: Callable[[int], Iterable[list[int]]] = lambda _: ()
    """Gives the ways to say a token as several, the longest beginning first."""

    def next(self, scores: Any) -> int | None:
        """Give the token to say now, by the scores of all; asked twice before one came out, it gives the same.

        A grammar that forbids it may want its beginning (JSON ends inside it), something between (a header that the
        reply has not: the choice is small, and None leaves it to the model), or not want it (a fence around JSON: the
        next that it does want is said).
        """
        if len(self.out) > self.said:
            self.said = len(self.out)
            self.at = min(self.at + self.pushed, len(self.tokens) - 1)
        wanted = self._wanted(scores, self.at, self.at + 1)
        if wanted is None and self._split(scores):
            wanted = self.at
        if wanted is None:
            wanted = self._wanted(scores, self.at + 1, self.at + _NEAR)
        if wanted is None and int((scores > -math.inf).sum()) > _FEW:
            wanted = self._wanted(scores, self.at + _NEAR, len(self.tokens))
        self.pushed = wanted is not None
        if wanted is None:
            return None
        self.at = wanted
        return self.tokens[wanted]

    def _wanted(self, scores: Any, start: int, stop: int) -> int | None:
        """Give the place of the first token from `start` on, before `stop`, that is not forbidden."""
        places = range(start, min(stop, len(self.tokens)))
        return next((place for place in places if scores[self.tokens[place]] != -math.inf), None)

    def _split(self, scores: Any) -> bool:
        """Put several tokens in place of the next one, so that the first of them is not forbidden."""
        found = next((each for each in self.splits(self.tokens[self.at]) if scores[each[0]] != -math.inf), None)
        if found is not None:
            self.tokens[self.at : self.at + 1] = found
        return found is not None
