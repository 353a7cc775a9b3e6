"""From text or token ids to the items of the machine: scanner, words without tokens, machine, in a row."""

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
    """Turns token ids into pieces, however they are cut."""

    def __init__(self, decode: Decode) -> None:
        self._decode = decode
        self._bytes = codecs.getincrementaldecoder("utf-8")("replace")

    def feed(self, ids: Iterable[int]) -> Iterator[Piece]:
        """Give the pieces of what has come: bytes wait for the rest of their character."""
        for each in ids:
            token = _TOKENS.get(each)
            if token is not None:
                yield from self.close()
                yield token
            elif text := self._bytes.decode(_bytes(each, self._decode)):
                yield text

    def close(self) -> Iterator[Piece]:
        """Give what is left of a character whose bytes did not all come."""
        left = self._bytes.decode(b"", final=True)
        if left:
            yield left


class ItemParser:
    """Gives what became certain, piece by piece; `promptools.harmony.StreamParser` says what the options mean."""

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
        """Take a piece of text."""
        if self._scanner.passes(text) and (self._bare is None or self._bare.done) and self._machine.says(text):
            return self._told([Words(text)])
        return self._take(self._scanner.feed(text))

    def feed_ids(self, ids: Iterable[int]) -> list[Item]:
        """Take tokens by their ids; text that only looks like a control token is text."""
        assert self._tokens is not None, "a parser that is fed ids needs decode="
        return self._take(self._tokens.feed(ids))

    def feed_pieces(self, pieces: Iterable[Piece]) -> list[Item]:
        """Take text of which it is known what in it is a control token: nothing else is."""
        return self._take(pieces)

    def close(self) -> list[Item]:
        """Say that the text is over; give the rest."""
        left = self._tokens.close() if self._tokens is not None else ()
        items = self._take([*left, *self._scanner.close()])
        if self._bare is not None:
            items += self._told(self._machine.take(self._bare.close()))
        items += self._told(self._machine.close())
        return [*items, *self._callers.close()] if self._callers is not None else items

    def _take(self, pieces: Iterable[Piece]) -> list[Item]:
        bare = self._bare
        if bare is not None:
            pieces = (each for piece in pieces for each in bare.feed(piece))
        return self._told(self._machine.take(pieces))

    def _told(self, items: Iterable[Item]) -> list[Item]:
        """Return the items that are certain."""
        return list(self._callers.feed(items) if self._callers is not None else items)


def _bytes(token: int, decode: Decode) -> bytes:
    """Give the bytes of a token that is none of the machine's: of another control token, its name."""
    try:
        return decode(token)
    except KeyError:
        return _OTHERS.get(token, f"<|reserved_{token}|>").encode()
