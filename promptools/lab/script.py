"""The script of a model: its replies, the phrase in the prompt that selects each reply, and the reply's tokens."""

from __future__ import annotations

import random
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from promptools.errors import UsageError

ENDS = ("<|im_end|>", "<|return|>", "<|call|>", "<|endoftext|>")
"""End-of-turn tokens. If the text of a scripted reply does not end with one of them, the model ends the reply with
`SpecialTokens.eos`."""

MARKERS = (
    *("<|start|>", "<|end|>", "<|message|>", "<|channel|>", "<|constrain|>"),
    *("<tool_call>", "</tool_call>", "<think>", "</think>"),
)
"""Markers of templates. In a prompt, a marker is one token. In a reply, it is generated as several tokens (pieces)."""

BLANK = b"\n\n\n\n"
"""The text that a model with `ScriptedReply.endless_blanks` generates after its reply, again and again, if the server
forbids the end token. Real models do the same."""

_LONGEST_PIECE = 6
_MOST_PIECES = 128
"""Approximate maximum number of pieces in a reply. A long reply is cut into longer pieces, to limit the size of the
model and the time to generate the reply."""


@dataclass(frozen=True, slots=True)
class SpecialTokens:
    """The special tokens of a model's family, in addition to those that all scripted models have."""

    control: tuple[str, ...] = ()
    """Texts that are one token each, both in a prompt and in a reply."""
    bos: str | None = None
    """The token that the server adds before every prompt; None if it adds none."""
    eos: str = ENDS[0]
    """The token that ends a turn."""
    words: tuple[str, ...] = ()
    """Texts without a meaning that are one token each in a prompt, which makes long prompts shorter.

    In a reply they are generated in pieces."""

    @property
    def all(self) -> tuple[str, ...]:
        """All special tokens of the family except those in `ENDS`, because every scripted model has the latter."""
        named = (*self.control, *(() if self.bos is None else (self.bos,)), self.eos)
        return tuple(dict.fromkeys(token for token in named if token not in ENDS))


_NO_SPECIAL_TOKENS = SpecialTokens()


@dataclass(frozen=True, slots=True)
class ScriptedReply:
    """A line of a script: the model generates `says` if `cue` is the last cue in the prompt.

    A cue is a phrase that the prompt may contain, such as a question. A `setting` is another such phrase. If the line
    has a setting, it must also be the last setting in the prompt. A line with a setting takes precedence over a line
    without one. A line whose `cue` is None is for prompts that contain no cue.
    """

    cue: str | None
    says: str
    setting: str | None = None
    endless_blanks: bool = False
    """Whether the model generates blank lines forever if the server forbids the end token.

    If this is set in one line, it applies to all lines of the script."""


@dataclass(frozen=True, slots=True)
class TokenizedReply:
    """A line of a script, with its reply cut into distinct pieces, each of which becomes a token of the model.

    `end` is the token that ends the reply.
    """

    line: ScriptedReply
    pieces: tuple[bytes, ...]
    end: str


def read_script(
    lines: Iterable[ScriptedReply], special: SpecialTokens = _NO_SPECIAL_TOKENS
) -> tuple[TokenizedReply, ...]:
    """Check the lines of a script, and cut their replies into pieces; equal scripts give equal pieces.

    Raises `UsageError` for invalid lines.
    """
    seen: set[tuple[str | None, str | None]] = set()
    spoken: list[TokenizedReply] = []
    for line in lines:
        key = (line.cue, line.setting)
        if key in seen:
            raise UsageError(f"two lines answer cue {line.cue!r} with setting {line.setting!r}: keep one")
        if line.cue == "" or line.setting == "":
            raise UsageError("a cue or setting is empty: use None, or a phrase that the prompt will contain")
        if line.cue is None and line.setting is not None:
            raise UsageError(f"the line for setting {line.setting!r} has no cue: give it one")
        seen.add(key)
        end = next((token for token in ENDS if line.says.endswith(token)), special.eos)
        text = line.says.removesuffix(end)
        spoken.append(TokenizedReply(line, _cut_reply(text, special), end))
    if not spoken:
        raise UsageError("the script has no lines: give at least one")
    return tuple(spoken)


def _cut_reply(text: str, special: SpecialTokens) -> tuple[bytes, ...]:
    """Cut a reply into distinct pieces. A special token is always a separate piece."""
    tokens = special.all
    words = [word.encode() for word in special.words]
    if not tokens:
        return cut_pieces(text.encode(), used=words)
    pieces: list[bytes] = []
    for part in re.split(f"({'|'.join(map(re.escape, tokens))})", text):
        pieces += [part.encode()] if part in tokens else cut_pieces(part.encode(), used=[*words, *pieces])
    if len(set(pieces)) != len(pieces):
        raise UsageError(f"a special token occurs twice in the reply {text!r}, whose place is known by its last token")
    return tuple(pieces)


def cut_pieces(text: bytes, used: Iterable[bytes] = ()) -> tuple[bytes, ...]:
    """Cut `text` into distinct pieces of two bytes or more. A cut may be inside a character.

    The model knows its position in the reply only by the last piece that it generated. So no piece may occur twice in a
    reply, and no piece may occur in `used`.
    """
    longest = max(_LONGEST_PIECE, 2 * len(text) // _MOST_PIECES)
    sizes = random.Random(len(text))  # noqa: S311 - sizes of pieces, no secret; seeded so that a file is reproducible
    pieces: list[bytes] = []
    used = {BLANK, *(marker.encode() for marker in MARKERS), *used}
    at = 0
    while at < len(text):
        end = at + sizes.randint(2, longest)
        while end < len(text) and text[at:end] in used:
            end += 1
        if len(text) - end < 2:
            end = len(text)
        piece = text[at:end]
        while pieces and (len(piece) < 2 or piece in used):
            last = pieces.pop()
            used.discard(last)
            piece = last + piece
        pieces.append(piece)
        used.add(piece)
        at = end
    if pieces and len(pieces[0]) < 2:
        raise UsageError(f"the reply {text.decode()!r} is one byte long: say two or more, or nothing")
    return tuple(pieces)


def cues(script: Sequence[TokenizedReply]) -> tuple[str, ...]:
    """Return the distinct cues (phrases that select a reply) of the script, in the order of the lines."""
    return tuple(dict.fromkeys(spoken.line.cue for spoken in script if spoken.line.cue is not None))


def settings(script: Sequence[TokenizedReply]) -> tuple[str, ...]:
    """Return the distinct settings (see `ScriptedReply`) of the script, in the order of the lines."""
    return tuple(dict.fromkeys(spoken.line.setting for spoken in script if spoken.line.setting is not None))
