"""The tokens of a scripted model: bytes, end tokens, markers, cues, settings and the pieces of its replies."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from promptools.errors import UsageError
from promptools.lab.script import BLANK, ENDS, MARKERS, SpecialTokens, TokenizedReply, cues, settings

TokenKind = Literal["normal", "control", "marker"]

_NO_SPECIAL_TOKENS = SpecialTokens()
_CONTROL = (*ENDS, "<|im_start|>", "<|startoftext|>")
_HARMONY_TURN_ENDS = ("<|return|>", "<|call|>")
_HARMONY_END = "<|end|>"
"""Where a grammar forces the end, llama.cpp allows this token, but beside `<|call|>` it does not stop at it: the model
would talk on. So only models that speak Harmony have it, as gpt-oss does."""


@dataclass(frozen=True, slots=True)
class ModelVocabulary:
    """Token texts in GGUF's form, the kind of each, and the ids of the cues, settings, pieces, ends and the blank."""

    texts: tuple[str, ...]
    kinds: tuple[TokenKind, ...]
    cues: dict[str, int]
    settings: dict[str, int]
    pieces: dict[bytes, int]
    ends: dict[str, int]
    blank: int


def make_vocabulary(script: Sequence[TokenizedReply], special: SpecialTokens = _NO_SPECIAL_TOKENS) -> ModelVocabulary:
    """Collect the tokens that `script` needs.

    Cues, settings, markers and words are user-defined tokens: the server's tokenizer finds them anywhere in a prompt,
    longest first. Everything else in a prompt is single bytes; pieces are only generated, never read.
    """
    texts: list[str] = []
    kinds: list[TokenKind] = []

    def add(text: str, kind: TokenKind) -> int:
        texts.append(text)
        kinds.append(kind)
        return len(texts) - 1

    for byte in range(256):
        add(_BYTE_LETTERS[byte], "normal")
    add(_to_letters(b"  "), "normal")  # the result of the one merge rule: a tokenizer of this type needs at least one
    controls = {text: add(text, "control") for text in dict.fromkeys((*_CONTROL, *special.all))}
    is_harmony = any(spoken.end in _HARMONY_TURN_ENDS for spoken in script)
    for text in (*MARKERS, *special.words):
        if text not in controls and (is_harmony or text != _HARMONY_END):
            add(text, "marker")
    cue_ids = {text: add(text, "marker") for text in cues(script)}
    setting_ids = {text: add(text, "marker") for text in settings(script)}
    whole = {text.encode(): controls[text] for text in special.all}
    pieces: dict[bytes, int] = {}
    for piece in (piece for spoken in script for piece in spoken.pieces):
        if piece not in pieces:
            pieces[piece] = whole[piece] if piece in whole else add(_to_letters(piece), "normal")
    blank = add(_to_letters(BLANK), "normal")
    _check_distinct(texts)
    ends = {end: controls[end] for end in dict.fromkeys((special.eos, *ENDS))}
    return ModelVocabulary(tuple(texts), tuple(kinds), cue_ids, setting_ids, pieces, ends, blank)


def _check_distinct(texts: Sequence[str]) -> None:
    seen: set[str] = set()
    for text in texts:
        if text in seen:
            raise UsageError(f"{text!r} would be two tokens: a cue, setting and reply piece must not be the same text")
        seen.add(text)


def _byte_letters() -> list[str]:
    """Return the letter of each byte in GPT-2's byte-level vocabulary (openai/gpt-2, encoder.py)."""
    printable = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    others = iter(range(0x100, 0x200))
    return [chr(byte) if byte in printable else chr(next(others)) for byte in range(256)]


_BYTE_LETTERS = _byte_letters()


def _to_letters(data: bytes) -> str:
    return "".join(_BYTE_LETTERS[byte] for byte in data)


MERGE = f"{_BYTE_LETTERS[0x20]} {_BYTE_LETTERS[0x20]}"
"""The one merge rule: two spaces."""
