"""How Python calls after a marker begin, and which body follows the marker: calls or JSON."""

from __future__ import annotations

import re
from collections.abc import Callable

from promptools.dialects.base import Head, Tier
from promptools.dialects.pycalls.names import name_of, plain
from promptools.dialects.settle import Rules
from promptools.parsing.parts import Candidate, Undecided

CALLEE = name_of(r"\w", r"[\w.:/-]", 80)
SPACED = name_of(r"\w", r"[\w.:/ -]", 80)
_CALLEE = re.compile(rf"(?:\[\s{{0,16}}+)?({CALLEE})[ \t]{{0,8}}+\(")
_BODY = re.compile(r"\s*+(?:\[\s*+)?+(\S)")


def behind(text: str, start: int, end: int, *, fresh: bool, rules: Rules) -> bool | None:
    """Return True once something follows a marker that alone begins calls."""
    del start, fresh, rules
    return True if end < len(text) else None


def offered(text: str, start: int, end: int, *, fresh: bool, rules: Rules) -> bool | None:
    """Return whether the first call after a marker that JSON may also follow is of an offered tool."""
    del start, fresh
    match = _CALLEE.match(text, end)
    if match is None:
        return None if end == len(text) else False
    return rules.tools is not None and rules.tools.find(plain(match[1])) is not None


def marked(*openers: str, json: bool = False, spaced: bool = False, tier: Tier | None = None) -> Head:
    """Return the head of calls after one of these markers; `json`: objects may follow them too.

    After a sentinel a bracket is enough, so that a reply that breaks off there is not text.
    """
    name = SPACED if spaced else CALLEE
    bracket = r"(?:\[\s{0,16}+)?"
    first = [rf"{bracket}{name}[ \t]{{0,8}}+\(", *([r"\{"] if json else []), *([r"\["] if tier == "S" else [])]
    unfinished = rf"{bracket}(?:\Z|{name}[ \t]{{0,8}}+\Z)"
    finished = rf"(?={'|'.join(first)})"
    marker = "|".join(map(re.escape, openers))
    return Head(openers, rf"(?:{marker})\s{{0,64}}+(?:{finished}|{unfinished})", opens="[", begins=behind, tier=tier)


class Either(Undecided):
    """A body that may be calls or JSON: its first characters decide which reader takes it."""

    def __init__(self, head: str, calls: Callable[[], Candidate], json: Callable[[], Candidate], *, firm: bool) -> None:
        super().__init__(firm=firm, head=head)
        self._calls = calls
        self._json = json
        self._held = ""
        self._inner: Candidate | None = None

    def feed(self, piece: str, start: int) -> int | None:
        """Read more text; see `Candidate`."""
        if self._inner is not None:
            self._inner.head = self.head
            end = self._inner.feed(piece, start)
            self._adopt(self._inner)
            return end
        held, self._held = self._held, self._held + piece[start:]
        match = _BODY.match(self._held)
        if match is None:
            return None
        self._inner = inner = self._choose(match)
        end = inner.feed(self._held, 0)
        self._adopt(inner)
        if end is None:
            return None
        assert end >= len(held)  # a bracket and white space do not decide it
        return start + end - len(held)

    def close(self, finish_reason: str | None) -> None:
        """Decide at the end of the text."""
        if self._inner is None:
            self._inner = self._calls()
            self._inner.feed(self._held, 0)
        self._inner.head = self.head
        self._inner.close(finish_reason)
        self._adopt(self._inner)

    def _choose(self, found: re.Match[str]) -> Candidate:
        return self._json() if found[1] == "{" else self._calls()

    def _adopt(self, inner: Candidate) -> None:
        """Copy the state of the inner candidate."""
        self.parts, self.rest, self.head, self.firm = inner.parts, inner.rest, inner.head, inner.firm
        self.live += inner.live
        inner.live = []
        self.tries = inner.tries
