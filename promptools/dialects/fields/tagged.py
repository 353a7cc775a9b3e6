"""Text with tags in it, taken piece by piece: the base of the readers of calls whose arguments are tagged fields.

`_run` splits the text at the tags of a `TagSet`. Text goes to `_say`; each tag goes to `_step`, the method of the
current state, which returns False if more text is needed to decide what the tag means. The undecided rest is `_held`,
and read again with the next piece. `_base` is the offset of the text at hand in all text so far (`_pieces`), so that
the parts made in the end (`_finish`, `_tell`, `_give_up`) tile it exactly.
"""

from __future__ import annotations

import re
from abc import abstractmethod
from collections.abc import Callable, Sequence
from typing import Protocol, TypeAlias

from promptools.dialects.base import tried
from promptools.dialects.envelope import NoCall
from promptools.dialects.fields.gathered import Gathered
from promptools.dialects.settle import Place, Rules
from promptools.parsing.parts import Part, Tried, Undecided
from promptools.types import Fix, Malformed

Step: TypeAlias = Callable[[str, str, re.Match[str], bool], bool]
"""Takes `(kind, text, match, final)` of a tag; returns False if more text is needed to decide what it is."""


FIRST_LOOK = 512
"""Characters that are looked at first; twice as many each time."""


class TagSet(Protocol):
    """The tags of one spelling."""

    @property
    def pattern(self) -> re.Pattern[str]:
        """Matches any tag, whole."""
        ...

    def kind_of(self, found: re.Match[str]) -> str:
        """Return the kind of a match."""
        ...

    def hold(self, text: str) -> int:
        """Return the index from which `text` may be the beginning of a tag; `len(text)` if it cannot."""
        ...


class TaggedText(Undecided):
    """Reads one call of keys and values between tags; the states are in its subclasses. O(n)."""

    _step: Step

    def __init__(self, head: str, name: str, tags: TagSet, rules: Rules, place: Place, *, firm: bool) -> None:
        super().__init__(firm=firm, head=head)
        self._call = Gathered(rules, place, firm=firm)
        self._text_tags = tags
        self._dialect = place.dialect
        self._held = name
        self._pieces = [name]
        self._base = 0
        """Offset of the held text in all the text of this candidate."""
        self._over = False
        self._words: list[str] = []
        """The text since the last tag that counted; inside a value, the value."""
        self._size = 0

    @abstractmethod
    def _last(self, rest: str) -> None: ...

    def feed(self, piece: str, start: int) -> int | None:
        """Read more text; see `Candidate`. What follows a short call in a long piece is never copied."""
        at, size = start, FIRST_LOOK
        while at < len(piece):
            part = piece[at : at + size]
            at, size = at + len(part), 2 * size
            self._pieces.append(part)
            self._run(self._held + part if self._held else part, final=False)
            if self._over:
                return self._taken(at, len(part))
        return None

    def _taken(self, at: int, size: int) -> int:
        """Return where the taken text ends; of the last `size` characters, those left over are removed from `rest`."""
        left = min(len(self.rest), size)
        self.rest = self.rest[: len(self.rest) - left]
        return at - left

    def _run(self, text: str, *, final: bool) -> None:
        at = 0
        base = self._base
        while not self._over:
            match = self._text_tags.pattern.search(text, at)
            end = match.start() if match is not None else max(at, self._text_tags.hold(text))
            self._say(text[at:end])
            at = end
            self._base = base + at
            if match is None:
                if final:
                    self._last(text[at:])
                    self._base = base + len(text)
                    at = len(text)
                break
            if not self._step(self._text_tags.kind_of(match), text, match, final):
                break
            at = match.end()
            self._base = base + at
        self._held = text[at:]

    def _say(self, words: str) -> None:
        if words:
            self._words.append(words)
            self._size += len(words)

    def _spoken(self) -> str:
        """Return the text since the last tag, and clear it."""
        text, self._words, self._size = "".join(self._words), [], 0
        return text

    def _fix(self, detail: str) -> None:
        self._call.fixes.append(Fix("marker", detail))

    # --- the outcome ---------------------------------------------------------------------------------------------

    def _finish(self, size: int, end: int, fix: Fix | None) -> None:
        """Decide the call, whose text is `size` characters long, and whose closing tag ends at `end`."""
        raw = "".join(self._pieces)
        if fix is not None:
            self._call.fixes.append(fix)
        self._check()
        try:
            outcome = self._call.outcome()
        except NoCall as no:
            self._give_up(str(no), end)
            return
        if isinstance(outcome, Malformed) and not self._call.meant and self._refuses():
            self._give_up("nothing of a call stands in it", end)
            return
        if isinstance(outcome, Malformed):
            parts = [self._malformed(outcome, raw[:size])]
        else:
            parts = [Part("call", raw[:size], call=outcome)]
        if end > size:
            parts.append(Part("markup", raw[size:end]))
        self._tell(parts, end)

    def _check(self) -> None:
        """Check the call as a whole; a hook for subclasses."""

    def _refuses(self) -> bool:
        """Return whether it has too little of a call to be reported where it does not fit its tool."""
        return False

    def _malformed(self, outcome: Malformed, raw: str) -> Part:
        if not raw:
            raw, self.head = self.head, ""
        return Part("malformed", raw, malformed=outcome)

    def _tell(self, parts: Sequence[Part], end: int) -> None:
        raw = "".join(self._pieces)
        self.parts = [*([Part("markup", self.head)] if self.head else []), *parts]
        self.rest = raw[end:]
        self.tries.append(tried(self._dialect, len(raw), self.parts))
        self._over = True

    def _give_up(self, why: str, end: int) -> None:
        """Return it as text, up to `end`."""
        raw = "".join(self._pieces)
        self.parts = [Part("text", self.head + raw[:end])]
        self.rest = raw[end:]
        self.tries.append(Tried(self._dialect, "text", why, len(raw)))
        self._over = True
