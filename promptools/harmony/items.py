"""The pipeline from text or token ids to items: scanner, stripped headers, state machine, misplaced tools."""

from __future__ import annotations

import codecs
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from promptools.harmony.bare import BareWords
from promptools.harmony.callers import Callers
from promptools.harmony.header import Known
from promptools.harmony.machine import Item, Machine, Words
from promptools.harmony.scan import NAMES, Piece, Scanner, Token
from promptools.harmony.tokens import IDS, Role

if TYPE_CHECKING:
    from promptools.harmony.vocabulary import Decode

_OTHERS = {IDS[name]: f"<|{name}|>" for name in IDS if name not in NAMES}
_TOKENS = {IDS[name]: Token(name, f"<|{name}|>") for name in NAMES}


class Detokenizer:
    """Decodes token ids to pieces, in chunks of any size."""

    def __init__(self, decode: Decode) -> None:
        self._decode = decode
        self._bytes = codecs.getincrementaldecoder("utf-8")("replace")

    def feed(self, ids: Iterable[int]) -> Iterator[Piece]:
        """Yield the pieces of more ids; the bytes of an incomplete character are held back."""
        for token_id in ids:
            token = _TOKENS.get(token_id)
            if token is not None:
                yield from self.close()
                yield token
            elif text := self._bytes.decode(_bytes(token_id, self._decode)):
                yield text

    def close(self) -> Iterator[Piece]:
        """Yield what is held back of an incomplete character, as U+FFFD."""
        left = self._bytes.decode(b"", final=True)
        if left:
            yield left


class ItemParser:
    """Returns items as they become certain; `promptools.harmony.StreamParser` explains the options."""

    def __init__(
        self,
        role: Role | None = None,
        *,
        strict: bool = False,
        known: Known | None = None,
        broken: bool = False,
        decode: Decode | None = None,
    ) -> None:
        self._scanner = Scanner(broken=broken)
        self._bare = None if strict else BareWords(known)
        self._machine = Machine(role, strict=strict, known=known)
        self._callers = None if strict else Callers(known)
        self._tokens = Detokenizer(decode) if decode is not None else None

    def feed(self, text: str) -> list[Item]:
        """Feed a chunk of text."""
        if self._scanner.passes(text) and (self._bare is None or self._bare.done) and self._machine.says(text):
            return self._told([Words(text)])
        return self._take(self._scanner.feed(text))

    def feed_ids(self, ids: Iterable[int]) -> list[Item]:
        """Feed token ids; text that only looks like a control token is text."""
        assert self._tokens is not None, "a parser that is fed ids needs decode="
        return self._take(self._tokens.feed(ids))

    def feed_pieces(self, pieces: Iterable[Piece]) -> list[Item]:
        """Feed pieces whose control tokens are known: text that only looks like one is text."""
        return self._take(pieces)

    def close(self) -> list[Item]:
        """End the text, and return the remaining items."""
        left = self._tokens.close() if self._tokens is not None else ()
        items = self._take([*left, *self._scanner.close()])
        if self._bare is not None:
            items += self._told(self._machine.take(self._bare.close()))
        items += self._told(self._machine.close())
        return [*items, *self._callers.close()] if self._callers is not None else items

    def _take(self, pieces: Iterable[Piece]) -> list[Item]:
        bare = self._bare
        if bare is not None:
            pieces = (replaced for piece in pieces for replaced in bare.feed(piece))
        return self._told(self._machine.take(pieces))

    def _told(self, items: Iterable[Item]) -> list[Item]:
        """Return the items that are certain."""
        return list(self._callers.feed(items) if self._callers is not None else items)


def _bytes(token: int, decode: Decode) -> bytes:
    """Return the bytes of a token that does not structure messages; for another control token, its name."""
    try:
        return decode(token)
    except KeyError:
        return _OTHERS.get(token, f"<|reserved_{token}|>").encode()
