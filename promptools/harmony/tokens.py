"""The tokens of Harmony: their names, ids and escaping, and a tokenizer for text in chunks of any size."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby
from types import MappingProxyType
from typing import Literal, NamedTuple, TypeAlias

from promptools.parsing.escape import markup_escaper
from promptools.patterns import lazy_pattern

# The vocabulary: control tokens, their ids and their escaping; roles; channels.


Role: TypeAlias = Literal["system", "developer", "user", "assistant", "tool"]
CHANNELS = ("analysis", "commentary", "final")

TOKEN_IDS = MappingProxyType({
    "startoftext": 199998,
    "endoftext": 199999,
    "return": 200002,
    "constrain": 200003,
    "channel": 200005,
    "start": 200006,
    "end": 200007,
    "message": 200008,
    "call": 200012,
    "endofprompt": 200018,
})  # fmt: skip
"""Ids of control tokens in the vocabulary `o200k_harmony`; the other ids up to 201087 are named `reserved_N`.

openai-harmony 0.0.8 calls 200018 reserved as well. The name used here is in gpt-oss's own tokenizer.json.
"""

CONTROL_MARKUP = markup_escaper(frozenset((*(f"<|{name}|>" for name in TOKEN_IDS), "<|reserved_{n}|>")))
r"""Escapes the control tokens in a text, so that no tokenizer recognizes them: `<|end|>` becomes `<\|end|>`."""


# The tokenizer: control tokens and the text between them.


TOKEN_NAMES = ("start", "channel", "constrain", "message", "end", "return", "call", "endoftext")
"""The control tokens that structure or end a reply."""
MESSAGE_ENDS = frozenset(("end", "return", "call", "endoftext"))
"""The control tokens that end a message."""


class HarmonyToken(NamedTuple):
    """A control token: its name and its raw text. The raw text is empty if a server stripped the token."""

    name: str
    raw: str


Piece: TypeAlias = "str | HarmonyToken"


def raw_text(piece: Piece) -> str:
    """Return the raw text of a piece, which is a text or a control token."""
    return piece.raw if isinstance(piece, HarmonyToken) else piece


def _is_text(piece: Piece) -> bool:
    return isinstance(piece, str)


class HeldPieces:
    """Holds text and control tokens back until it is clear what they are. Adjacent texts are joined into one piece."""

    def __init__(self) -> None:
        self._pieces: list[Piece] = []
        self._merged = True
        """Whether adjacent texts have been merged."""
        self.size = 0
        """Number of characters of all pieces."""
        self.start = 0
        """The offset of the first piece in the text."""

    def add(self, piece: Piece, offset: int) -> None:
        """Add the piece that begins at `offset`. O(1), since the text may arrive in single characters."""
        if not self._pieces:
            self.start = offset
        self._merged = self._merged and not (self._pieces and _is_text(piece) and _is_text(self._pieces[-1]))
        self._pieces.append(piece)
        self.size += len(raw_text(piece))

    @property
    def pieces(self) -> list[Piece]:
        """The pieces that are held."""
        if not self._merged:
            groups = groupby(self._pieces, _is_text)
            self._pieces = [
                piece for is_text, run in groups for piece in (["".join(map(raw_text, run))] if is_text else run)
            ]
            self._merged = True
        return self._pieces

    @property
    def raw(self) -> str:
        """The text of all pieces."""
        return "".join(map(raw_text, self._pieces))

    def cut(self, size: int) -> None:
        """Keep only the first `size` characters of all pieces. A control token that is cut in two becomes text."""
        kept: list[Piece] = []
        left = size
        for piece in self.pieces:
            if not left:
                break
            text = raw_text(piece)
            kept.append(piece if len(text) <= left else text[:left])
            left -= min(left, len(text))
        self._pieces, self.size = kept, size - left

    def clear(self) -> None:
        """Drop all pieces."""
        self._pieces, self._merged, self.size = [], True, 0


_TOKEN = lazy_pattern(rf"<\|({'|'.join(TOKEN_NAMES)})\|>")
_LINES = lazy_pattern(r"[\r\n]")
_BREAK = r"[\r\n]*"
_BROKEN = lazy_pattern(_BREAK.join(("<", r"\|", f"({'|'.join(map(_BREAK.join, TOKEN_NAMES))})", r"\|", ">")))
"""Matches a control token, which may have line ends inside."""
_PREFIXES = frozenset(f"<|{name}|>"[:size] for name in TOKEN_NAMES for size in range(1, len(name) + 4))
_LONGEST = max(map(len, _PREFIXES))


class HarmonyTokenizer:
    """Splits text into control tokens and the text between them. The text may arrive in chunks of any size.

    The end of the text is held back if it may become a control token: at most 12 characters, unless `broken` is set.
    `broken` says that line ends inside a token are ignored, for transcripts with each chunk on a separate line.
    """

    def __init__(self, *, broken: bool = False) -> None:
        self._broken = broken
        self._held = ""

    def is_plain(self, text: str) -> bool:
        """Return whether `feed` would return the text as a single piece."""
        return not self._held and "<" not in text

    def feed(self, text: str) -> Iterator[Piece]:
        """Split more text; yield its control tokens and the text between them. O(n) in characters."""
        text = self._held + text
        at = 0
        for token in (_BROKEN if self._broken else _TOKEN).finditer(text):
            if token.start() > at:
                yield text[at : token.start()]
            yield HarmonyToken(_LINES.sub("", token[1]), token[0])
            at = token.end()
        stop = self._held_from(text, at)
        self._held = text[stop:]
        if stop > at:
            yield text[at:stop]

    def close(self) -> Iterator[Piece]:
        """Yield the suffix that was held back, if there is one."""
        held, self._held = self._held, ""
        if held:
            yield held

    def _held_from(self, text: str, at: int) -> int:
        """Return the offset of a suffix that may become a token; `len(text)` if no suffix may."""
        start = text.rfind("<", at if self._broken else max(at, len(text) - _LONGEST))
        if start < 0:
            return len(text)
        tail = text[start:]
        return start if (_LINES.sub("", tail) if self._broken else tail) in _PREFIXES else len(text)
