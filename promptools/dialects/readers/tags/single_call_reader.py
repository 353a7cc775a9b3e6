"""Text with tags in it, taken piece by piece: the base of the readers of calls whose arguments are tagged fields.

`_run` splits the text at the tags of a `TagSet`. Text goes to `_add_text`; each tag goes to `_state`, the method of the
current state, which raises `NeedMore` if only more text decides what the tag means. The undecided rest is `_held_text`,
and read again with the next piece. `_base_offset` is the offset of the text at hand in all text so far
(`_pieces`), so that the parts made in the end (`_finish`, `_finish_parts`, `_give_up`) tile it exactly.

A value holds any tag, so its closing tag ends it only where structure follows. Where something else follows the closing
tag of the call itself, both may have ended there, which is kept as `_possible_end` and applied if nothing better comes:
a file in a value may end like a call, and a call under load may lack its last closing tags.
"""

from __future__ import annotations

import re
from abc import abstractmethod
from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol, TypeAlias, TypeVar

from promptools.dialects.calls.envelope import NotACall
from promptools.dialects.calls.parse_options import Evidence, ParseOptions
from promptools.dialects.contract import trace_entry
from promptools.dialects.readers.tags.field_call import FieldCall
from promptools.parsing.parts import CandidateBase, Part, TriedStrategy
from promptools.types import Fix, Malformed

TagHandler: TypeAlias = Callable[[str, str, re.Match[str], bool], None]
"""Takes `(kind, text, match, final)` of a tag. Raises `NeedMore` where it must be read again."""


FIRST_CHUNK = 512
"""Characters that are looked at first; twice as many each time."""


class ValueEnd(NamedTuple):
    """Where a value may have ended, if nothing better comes: its size, and the index just past the call's text.

    `sure`: the call ended there in any case; else only if the server reports that the model was done.
    """

    size: int
    at: int
    sure: bool


class NeedMore(Exception):
    """Raised where only more text decides what a tag is: it is read again with the next piece."""


Value = TypeVar("Value")


def settled(value: Value | None, *, final: bool) -> Value | None:
    """Return what was found ahead; None at the end of the text. Raises `NeedMore` if more text may change it."""
    if value is None and not final:
        raise NeedMore
    return value


class TagSet(Protocol):
    """The tags of one spelling."""

    @property
    def pattern(self) -> re.Pattern[str]:
        """Matches any tag, whole."""
        ...

    def kind_of(self, match: re.Match[str]) -> str:
        """Return the kind of a match."""
        ...

    def hold_from(self, text: str) -> int:
        """Return the index from which `text` may be the beginning of a tag; `len(text)` if it cannot."""
        ...


class TaggedTextReader(CandidateBase):
    """Reads one call of keys and values between tags; the states are in its subclasses. O(n)."""

    _state: TagHandler

    def __init__(
        self, head: str, name: str, tags: TagSet, rules: ParseOptions, place: Evidence, *, definite: bool
    ) -> None:
        super().__init__(definite=definite, head=head)
        self._call = FieldCall(rules, place, definite=definite)
        self._tag_set = tags
        self._dialect = place.dialect
        self._held_text = name
        self._pieces = [name]
        self._base_offset = 0
        """Offset of the held text in all the text of this candidate."""
        self._decided = False
        self._text_pieces: list[str] = []
        """The text since the last tag that counted; inside a value, the value."""
        self._text_size = 0
        self._key = ""
        self._open_calls = self._open_values = 0
        """Calls, and values, that are open inside the value."""
        self._possible_end: ValueEnd | None = None

    @abstractmethod
    def _between(self, kind: str, text: str, match: re.Match[str], final: bool) -> None: ...
    @abstractmethod
    def _add_argument(self, key: str, text: str) -> None: ...
    @abstractmethod
    def _on_last_text(self, rest: str) -> None: ...

    def feed(self, piece: str, start: int) -> int | None:
        """Read more text; see `Candidate`. What follows a short call in a long piece is never copied."""
        at, size = start, FIRST_CHUNK
        while at < len(piece):
            part = piece[at : at + size]
            at, size = at + len(part), 2 * size
            self._pieces.append(part)
            self._run(self._held_text + part if self._held_text else part, final=False)
            if self._decided:
                return self._consumed_end(at, len(part))
        return None

    def _consumed_end(self, at: int, size: int) -> int:
        """Return where the taken text ends; of the last `size` characters, those left over are removed from `rest`."""
        left = min(len(self.unread), size)
        self.unread = self.unread[: len(self.unread) - left]
        return at - left

    def _run(self, text: str, *, final: bool) -> None:
        at = 0
        base = self._base_offset
        while not self._decided:
            match = self._tag_set.pattern.search(text, at)
            end = match.start() if match is not None else max(at, self._tag_set.hold_from(text))
            self._add_text(text[at:end])
            at = end
            self._base_offset = base + at
            if match is None:
                if final:
                    self._on_last_text(text[at:])
                    self._base_offset = base + len(text)
                    at = len(text)
                break
            try:
                self._state(self._tag_set.kind_of(match), text, match, final)
            except NeedMore:
                break
            at = match.end()
            self._base_offset = base + at
        self._held_text = text[at:]

    def _add_text(self, text: str) -> None:
        if text:
            self._text_pieces.append(text)
            self._text_size += len(text)

    def _take_text(self) -> str:
        """Return the text since the last tag, and clear it."""
        text, self._text_pieces, self._text_size = "".join(self._text_pieces), [], 0
        return text

    def _record_fix(self, detail: str) -> None:
        self._call.fixes.append(Fix("marker", detail))

    def _end_value(self, size: int | None = None) -> None:
        """End the value, after `size` characters of its text."""
        text = self._take_text()
        self._add_argument(self._key, text if size is None else text[:size])
        self._open_values = self._open_calls = 0
        self._possible_end = None
        self._state = self._between

    # --- the outcome ---------------------------------------------------------------------------------------------

    def _finish(self, size: int, end: int, fix: Fix | None) -> None:
        """Decide the call, whose text is `size` characters long, and whose closing tag ends at `end`."""
        raw = "".join(self._pieces)
        if fix is not None:
            self._call.fixes.append(fix)
        self._check_call()
        try:
            outcome = self._call.resolve()
        except NotACall as no:
            self._give_up(str(no), end)
            return
        if isinstance(outcome, Malformed) and not self._call.meant and self._is_too_little():
            self._give_up("it holds nothing of a call", end)
            return
        if isinstance(outcome, Malformed):
            parts = [self._malformed_part(outcome, raw[:size])]
        else:
            parts = [Part("call", raw[:size], call=outcome)]
        if end > size:
            parts.append(Part("markup", raw[size:end]))
        self._finish_parts(parts, end)

    def _check_call(self) -> None:
        """Check the call as a whole; a hook for subclasses."""

    def _is_too_little(self) -> bool:
        """Return whether it has too little of a call to be reported where it does not fit its tool."""
        return False

    def _malformed_part(self, outcome: Malformed, raw: str) -> Part:
        if not raw:
            raw, self.head = self.head, ""
        return Part("malformed", raw, malformed=outcome)

    def _finish_parts(self, parts: Sequence[Part], end: int) -> None:
        raw = "".join(self._pieces)
        self.parts = [*([Part("markup", self.head)] if self.head else []), *parts]
        self.unread = raw[end:]
        self.tries.append(trace_entry(self._dialect, len(raw), self.parts))
        self._decided = True

    def _give_up(self, why: str, end: int) -> None:
        """Return it as text, up to `end`."""
        raw = "".join(self._pieces)
        self.parts = [Part("text", self.head + raw[:end])]
        self.unread = raw[end:]
        self.tries.append(TriedStrategy(self._dialect, "text", why, len(raw)))
        self._decided = True
