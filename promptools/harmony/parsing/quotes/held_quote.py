"""What is held from a token in quotes on, until it is clear whether the token is content."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Protocol

from promptools.harmony.parsing.items import Item
from promptools.harmony.parsing.quotes.open_quotes import QuoteDoubt, Settled
from promptools.harmony.parsing.quotes.open_value import is_rest_of_reply
from promptools.harmony.parsing.tokenizer import HarmonyToken, HeldPieces, Piece

MAX_ENDS = 8
"""Tokens among broken arguments that are tried as their end, the last ones: each costs a pass over what follows it."""


class Doubt(Protocol):
    """Follows the text after a token in quotes until it is clear whether the token is content."""

    def feed(self, piece: Piece) -> Settled | None:
        """Read a piece; return None while it is not clear."""
        ...

    @property
    def may_go_on(self) -> bool:
        """Whether the token is content if the server has cut the text off, since the quotes might have been closed."""
        ...

    def close(self) -> bool:
        """Whether the quotes were closed at the end of the text."""
        ...


class HeldQuote:
    """A token in quotes with the beginning of a word before it, if there is one, and all that follows."""

    def __init__(self, doubt: Doubt, before: str, token: HarmonyToken, offset: int) -> None:
        """Begin at a token that is at `offset` of the text."""
        self._doubt = doubt
        self.held = HeldPieces()
        if before:
            self.held.add(before, offset - len(before))
        self.held.add(token, offset)
        self.first_token = len(self.held.pieces) - 1
        """The index of the token among the pieces."""

    def feed(self, piece: Piece, offset: int) -> Settled | None:
        """Hold a piece, or as much of it as shows what the token is; return that."""
        settled = self._doubt.feed(piece)
        if settled is None:
            self.held.add(piece, offset)
        elif isinstance(piece, str) and settled.taken:
            self.held.add(piece[: settled.taken], offset)
        return settled

    def close(self, read_rest: Callable[[Sequence[Piece]], Iterable[Item]], *, cut: bool) -> int | None:
        """Return the index of the token that counts at the end of the text, None: all that is held is content.

        `cut`: the server cut the text off. `read_rest` reads pieces from a token
        on that ends the content.
        """
        if self._doubt.close() or (cut and self._doubt.may_go_on):
            return None
        if isinstance(self._doubt, QuoteDoubt):
            return self.first_token
        pieces = self.held.pieces
        tokens = [at for at, piece in enumerate(pieces) if isinstance(piece, HarmonyToken) and may_end_content(piece)]
        return next((at for at in tokens[-MAX_ENDS:] if is_rest_of_reply(read_rest(pieces[at:]))), None)


def may_end_content(token: HarmonyToken) -> bool:
    """Whether a token in the content of a message may end it."""
    return token.name not in {"message", "constrain"}
