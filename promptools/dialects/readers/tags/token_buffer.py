"""The text of a candidate as tokens: each is a tag, or text between two tags.

The text arrives in pieces, and a token is read as soon as it is complete. All tokens are kept, and a position is an
index into them: what turns out not to be a call can be returned as text unchanged. Tokens after the current one are
read when a state looks ahead (`after`), each once, so that all of it is O(n).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from promptools.dialects.readers.tags.tag_names import Tag, is_blank
from promptools.parsing.parts import NEED_MORE, Candidate, NeedMore


class Tokenizer(Protocol):
    """Splits text into tokens."""

    def next(self, text: str, at: int, *, final: bool) -> Tag | str | None:
        """Return the token at `at`; None if more text is needed. `final`: the text is complete."""
        ...


def raw_text(token: Tag | str) -> str:
    """Return the text of a token."""
    return token if isinstance(token, str) else token.raw


class TokenBuffer:
    """The tokens of a text, the index of the current one, and the text that is not tokenized yet."""

    def __init__(self, tokenizer: Tokenizer, text: str = "", blank: Callable[[str], bool] = is_blank) -> None:
        self.tokens: list[Tag | str] = []
        self.index = 0
        self._tokenizer = tokenizer
        self._is_blank = blank
        self._text = text
        self._at = 0
        """The offset in `_text` up to which it has been tokenized."""
        self.final = False
        """The text is complete."""
        self._blank_to: dict[int, int] = {}
        """Up to which index the tokens after an index are known to be white space."""

    # --- text in and out -----------------------------------------------------------------------------------------

    def add(self, piece: str, start: int) -> None:
        """Add `piece[start:]` to the text."""
        if self._at == len(self._text):
            self._text, self._at = piece, start
        else:
            self._text, self._at = self.rest + piece[start:], 0

    @property
    def rest(self) -> str:
        """The text that is not tokenized."""
        return self._text[self._at :]

    @property
    def rest_size(self) -> int:
        """The length of the text that is not tokenized."""
        return len(self._text) - self._at

    def text(self, start: int, end: int | None = None) -> str:
        """Return the text of the tokens in `[start, end)`."""
        return "".join(map(raw_text, self.tokens[start:end]))

    def put_back(self, count: int) -> None:
        """Have the last `count` characters of the current token, and all after it, read again."""
        raw = raw_text(self.tokens[self.index])
        again = raw[len(raw) - count :] + self.text(self.index + 1)
        self.tokens[self.index :] = [raw[: len(raw) - count]]
        self._blank_to.clear()
        if len(again) <= self._at:
            self._at -= len(again)
        else:
            self.restore(again)

    def restore(self, text: str) -> None:
        """Put text before what is not tokenized."""
        self._text, self._at = text + self.rest, 0

    def feed_to(self, reader: Candidate) -> bool:
        """Leave what is not tokenized to another reader; return whether that has decided."""
        if not self.rest_size:
            return False
        end = reader.feed(self._text, self._at)
        self._at = len(self._text) if end is None else end
        if end is None:
            return False
        if len(reader.unread) <= end:
            self._at -= len(reader.unread)
        else:
            self.restore(reader.unread)
        return True

    # --- tokens ------------------------------------------------------------------------------------------------------

    def read(self) -> bool:
        """Read one more token; return whether there was one."""
        if self._at >= len(self._text):
            return False
        token = self._tokenizer.next(self._text, self._at, final=self.final)
        if token is None:
            return False
        self._at += len(token if isinstance(token, str) else token.raw)
        self.tokens.append(token)
        return True

    def advance(self) -> None:
        """Go on to the next token."""
        self.index += 1

    def after(self, index: int) -> int | NeedMore | None:
        """Return the index of the first token after `index` that is not white space; None at the end of the text."""
        at = self._blank_to.get(index, index + 1)
        while at < len(self.tokens) or self.read():
            token = self.tokens[at]
            if not (isinstance(token, str) and self._is_blank(token)):
                return at
            at += 1
            self._blank_to[index] = at
        return None if self.final else NEED_MORE
