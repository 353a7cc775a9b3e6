"""What a scripted model answers: replies chosen by a phrase in the prompt, cut into the pieces it will speak."""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from promptools.errors import UsageError

ENDS = ("<|im_end|>", "<|return|>", "<|call|>", "<|endoftext|>")
"""End-of-turn tokens; a reply that ends in one is closed by it, any other by the first."""

MARKERS = (
    *("<|start|>", "<|end|>", "<|message|>", "<|channel|>", "<|constrain|>"),
    *("<tool_call>", "</tool_call>", "<think>", "</think>"),
)
"""What templates write and tokenizers know as one token; in a reply they are spoken in pieces."""

BLANK = b"\n\n\n\n"
"""What a model with `Line.blanks` writes when its reply is over and the server forbids an end, as real ones do."""

_LONGEST_PIECE = 6
_MOST_PIECES = 128
"""Roughly: a long reply is cut into longer pieces, so that neither the model nor the wait for it grows with it."""


@dataclass(frozen=True, slots=True)
class Line:
    """One reply: `says` is spoken when `cue` is the latest cue in the prompt.

    With `setting`, only where that phrase is the latest setting in the prompt; such a line goes before one without.
    Without `cue`, the line answers prompts that hold no cue at all.
    """

    cue: str | None
    says: str
    setting: str | None = None
    blanks: bool = False
    """Does the model write blank lines for ever where a server forbids an end? Of all lines, if of one."""


@dataclass(frozen=True, slots=True)
class Spoken:
    """A line ready to be written as weights: its pieces, all different, and the token that ends it."""

    line: Line
    pieces: tuple[bytes, ...]
    end: str


def read_script(lines: Iterable[Line]) -> tuple[Spoken, ...]:
    """Check `lines` and cut each reply; the same lines always give the same pieces."""
    seen: set[tuple[str | None, str | None]] = set()
    spoken: list[Spoken] = []
    for line in lines:
        key = (line.cue, line.setting)
        if key in seen:
            raise UsageError(f"two lines answer cue {line.cue!r} with setting {line.setting!r}: keep one")
        if line.cue == "" or line.setting == "":
            raise UsageError("a cue or setting is empty: use None, or a phrase that the prompt will hold")
        if line.cue is None and line.setting is not None:
            raise UsageError(f"the line for setting {line.setting!r} has no cue: give it one")
        seen.add(key)
        end = next((each for each in ENDS if line.says.endswith(each)), ENDS[0])
        text = line.says.removesuffix(end)
        spoken.append(Spoken(line, cut(text.encode()), end))
    if not spoken:
        raise UsageError("the script has no lines: give at least one")
    return tuple(spoken)


def cut(text: bytes) -> tuple[bytes, ...]:
    """Cut `text` into pieces of two bytes or more, no two alike, in the middle of characters too.

    The model finds its place by the piece it has just spoken, so a piece must not come twice in one reply.
    """
    longest = max(_LONGEST_PIECE, 2 * len(text) // _MOST_PIECES)
    sizes = random.Random(len(text))  # noqa: S311 - sizes of pieces, no secret; seeded so that a file is reproducible
    pieces: list[bytes] = []
    used = {BLANK, *(marker.encode() for marker in MARKERS)}
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


def cues(script: Sequence[Spoken]) -> tuple[str, ...]:
    """Give every cue of the script once, in order."""
    return tuple(dict.fromkeys(each.line.cue for each in script if each.line.cue is not None))


def settings(script: Sequence[Spoken]) -> tuple[str, ...]:
    """Give every setting of the script once, in order."""
    return tuple(dict.fromkeys(each.line.setting for each in script if each.line.setting is not None))
