"""What a candidate leaves behind: the text that it took, cut into parts that tile it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple, Protocol, TypeAlias

from promptools.types import Call, DiscardWhy, Fix, Malformed

PartKind = Literal["text", "call", "malformed"] | DiscardWhy


@dataclass(slots=True)
class Part:
    """A stretch of the model's text and what it is; ids, indexes and spans are given when it goes out."""

    kind: PartKind
    raw: str
    call: Call | None = None
    malformed: Malformed | None = None


def size_of(parts: Sequence[Part]) -> int:
    """Count the characters that parts take."""
    size = 0
    for part in parts:
        size += len(part.raw)
    return size


def note(parts: Iterable[Part], fix: Fix) -> None:
    """Note one more fix on the first call of `parts`."""
    for part in parts:
        if part.call is not None:
            part.call = replace(part.call, fixes=(*part.call.fixes, fix))
            return


class Started(NamedTuple):
    """A call whose name is certain while its arguments still come."""

    name: str


class Fragment(NamedTuple):
    """A piece of such a call's arguments that no later fix can change."""

    text: str


class Tried(NamedTuple):
    """One strategy on a candidate's text, from its beginning: the engine knows where that stands."""

    strategy: str
    outcome: Literal["call", "malformed", "text"]
    why: str
    cost: int
    """Characters looked at."""


Early: TypeAlias = "Part | Started | Fragment"
"""What a candidate lets go before its end: parts that nothing takes back, and the call that comes after them."""


class Undecided:
    """What every candidate holds from its beginning, for `Candidate`."""

    def __init__(self, *, firm: bool, head: str = "") -> None:
        self.firm = firm
        self.head = head
        self.parts: list[Part] = []
        self.rest = ""
        self.live: list[Early] = []
        self.tries: list[Tried] = []
        self._gone: list[Part] = []

    def _let_go(self, parts: Sequence[Part]) -> None:
        """Let parts go before the end: nothing takes them back."""
        self.live += parts
        self._gone += parts


class Candidate(Protocol):
    """A place in the text that may be a call, fed until it is decided.

    `feed` takes `piece[start:]` and returns the index just past what it took once it is decided, else None.
    Then `parts` tile what it took, but for the last `len(rest)` characters, which it only looked at.
    `firm`: the parts stand whatever follows. `live`: what may go out before the end, drained by the engine, which
    then lets `head`, the markup before the calls, out first: `head` is emptied, and `parts` no longer have it. Parts in
    it are settled: `parts` have only what comes after them, and no text.
    """

    parts: list[Part]
    rest: str
    firm: bool
    live: list[Early]
    head: str
    tries: list[Tried]

    def feed(self, piece: str, start: int) -> int | None:
        """Take more text."""
        ...

    def close(self, finish_reason: str | None) -> None:
        """Decide: the text is over."""
        ...
