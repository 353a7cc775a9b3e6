"""One call whose arguments are fields between tags: the base of the readers of such calls.

Text goes to `_add_text`; each tag goes to `_tag_state`, the method of the current state.

A value holds any tag, so its closing tag ends it only where structure follows. Where something else follows the closing
tag of the call itself, both may have ended there, which is kept as `_possible_end` and applied if nothing better comes:
a file in a value may end like a call, and a call under load may lack its last closing tags.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from typing import NamedTuple, TypeAlias

from promptools.dialects.calls.envelope import NotACall
from promptools.dialects.calls.parse_options import Evidence, ParseOptions
from promptools.dialects.readers.tags.field_call import FieldCall
from promptools.dialects.readers.tags.tag_names import Tag
from promptools.dialects.readers.tags.tag_reader import TagReader
from promptools.dialects.readers.tags.token_buffer import TokenBuffer
from promptools.parsing.parts import NEED_MORE, NeedMore, Part
from promptools.types import Fix, Malformed

TagState: TypeAlias = "Callable[[Tag], NeedMore | None]"
"""What a tag means in a state."""


class ValueEnd(NamedTuple):
    """Where a value may have ended, if nothing better comes: its size, and the index after the call's tokens.

    `sure`: the call ended there in any case; else only if the server reports that the model was done.
    """

    size: int
    at: int
    sure: bool


class SingleCallReader(TagReader):
    """Reads one call of keys and values between tags; the states are in its subclasses. O(n)."""

    _tag_state: TagState

    def __init__(self, head: str, buffer: TokenBuffer, rules: ParseOptions, place: Evidence, *, definite: bool) -> None:
        super().__init__(buffer, place, definite=definite, head=head)
        self._state = self._read_token
        self._call = FieldCall(rules, place, definite=definite)
        self._text_pieces: list[str] = []
        """The text since the last tag that counted; inside a value, the value."""
        self._text_size = 0
        self._key = ""
        self._open_calls = self._open_values = 0
        """Calls, and values, that are open inside the value."""
        self._possible_end: ValueEnd | None = None

    @abstractmethod
    def _between(self, tag: Tag) -> NeedMore | None: ...
    @abstractmethod
    def _add_argument(self, key: str, text: str) -> None: ...

    def feed(self, piece: str, start: int) -> int | None:
        """Read more text; see `Candidate`."""
        end = super().feed(piece, start)
        self.early += self._call.take_early()
        return end

    def close(self, finish_reason: str | None) -> None:
        """Decide at the end of the text."""
        super().close(finish_reason)
        self.early += self._call.take_early()

    def _read_token(self, token: Tag | str) -> NeedMore | None:
        if isinstance(token, str):
            self._add_text(token)
            return None
        if token.kind != "cut":
            return self._tag_state(token)
        self._on_cut(token)
        return None

    def _on_cut(self, tag: Tag) -> None:
        """Read what may have become a tag, at the end of the text."""
        self._add_text(tag.raw)

    def _token_after(self, index: int) -> Tag | str | NeedMore | None:
        """Return the first token after `index` that is not white space; None at the end, or if only a cut tag comes."""
        at = self._buffer.after(index)
        if at is NEED_MORE or at is None:
            return at
        token = self._tokens[at]
        return None if isinstance(token, Tag) and token.kind == "cut" else token

    def _add_text(self, text: str) -> None:
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
        self._tag_state = self._between

    # --- the outcome ---------------------------------------------------------------------------------------------

    def _finish(self, size: int, end: int, fix: Fix | None) -> None:
        """Decide the call, which has `size` tokens, and whose closing tag ends before index `end`."""
        if fix is not None:
            self._call.fixes.append(fix)
        self._check_call()
        try:
            outcome = self._call.resolve()
        except NotACall as no:
            self._finish_as_text(end, str(no))
            return
        if isinstance(outcome, Malformed) and not self._call.meant and self._is_too_little():
            self._finish_as_text(end, "it holds nothing of a call")
            return
        raw, closer = self._buffer.text(0, size), self._buffer.text(size, end)
        if isinstance(outcome, Malformed):
            parts = [self._malformed_part(outcome, raw)]
        else:
            parts = [Part("call", raw, call=outcome)]
        self._finish_parts([*parts, *([Part("markup", closer)] if closer else [])], end)

    def _check_call(self) -> None:
        """Check the call as a whole; a hook for subclasses."""

    def _is_too_little(self) -> bool:
        """Return whether it has too little of a call to be reported where it does not fit its tool."""
        return False

    def _malformed_part(self, outcome: Malformed, raw: str) -> Part:
        if not raw:
            raw, self.head = self.head, ""
        return Part("malformed", raw, malformed=outcome)

    def _truncate(self) -> None:
        """Report that the text ended inside the call."""
        end = len(self._tokens)
        self._finish_parts([self._malformed_part(self._call.as_truncated(), self._buffer.text(0, end))], end)
