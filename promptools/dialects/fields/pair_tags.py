"""The tags around keys and values, in the spellings of the families that write arguments so."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Final

from promptools.dialects.openings import token

STOPS: Final = ("<tool_response>", "<tool_responses>", "<|observation|>", "<|user|>", "<|im_end|>", "<|endoftext|>")
"""What stands behind a call whose closer is missing, and belongs to it no more."""

SPACE: Final = r"(?:\s|\\n){0,256}+"
"""White space between tags; two characters `\\n` stand for a newline where a server escaped the reply."""

KEY: Final = r"[^<]{1,128}"
_NAME = r"""\w[^<>{}\n"'`]{0,159}+"""
_GAP = r"\s{0,64}+"


@dataclass(frozen=True, slots=True)
class Tags:
    """The tags of one spelling: what each literal is, and patterns that find them.

    `call`: the tag of one call; `prefix` and `suffix`: what every tag has at its ends.
    """

    call: str = "tool_call"
    prefix: str = ""
    suffix: str = ""
    kinds: dict[str, str] = field(init=False)
    """`call`, `key`, `type`, `value`, and with a slash their closers; `outer/`, `sep`, `think/`, `stop`."""
    pattern: re.Pattern[str] = field(init=False)
    beginnings: frozenset[str] = field(init=False)
    """What the end of a text may hold of a tag."""
    longest: int = field(init=False)
    named: re.Pattern[str] = field(init=False)
    """A name and the tag behind it, or what there is of them."""
    ahead: re.Pattern[str] = field(init=False)
    """A key and its closer, or what there is of them at the end of the text; the key is the only group."""

    def __post_init__(self) -> None:
        kinds = {
            self.opener(self.call): "call",
            self.closer(self.call): "call/",
            self.closer("tool_calls"): "outer/",
            self.opener("tool_sep"): "sep",
            **{self.opener(f"arg_{each}"): each for each in ("key", "type", "value")},
            **{self.closer(f"arg_{each}"): f"{each}/" for each in ("key", "type", "value")},
            "</think>": "think/",
            **dict.fromkeys(STOPS, "stop"),
        }
        object.__setattr__(self, "kinds", kinds)
        object.__setattr__(self, "pattern", re.compile("|".join(map(re.escape, kinds))))
        object.__setattr__(self, "beginnings", frozenset(tag[:size] for tag in kinds for size in range(1, len(tag))))
        object.__setattr__(self, "longest", max(map(len, kinds)))
        object.__setattr__(self, "named", re.compile(opening("", self.call, self.prefix)))
        object.__setattr__(self, "ahead", re.compile(rf"({KEY}+)(?:\Z|{token(self.closer('arg_key'))})"))

    def opener(self, word: str) -> str:
        """Write the opening tag of a word."""
        return f"<{self.prefix}{word}{self.suffix}>"

    def closer(self, word: str) -> str:
        """Write the closing tag of a word."""
        return f"</{self.prefix}{word}{self.suffix}>"

    def kind_of(self, found: re.Match[str]) -> str:
        """Tell which tag was found."""
        return self.kinds[found[0]]

    def kind_at(self, text: str, at: int) -> str | None:
        """Tell which tag stands at `text[at]`, behind white space; "" if there is none, None if more must tell."""
        gap = _SPACES.match(text, at)
        assert gap is not None
        place = gap.end()
        if place + self.longest > len(text) and (place == len(text) or self._is_cut(text[place:])):
            return None
        found = self.pattern.match(text, place)
        return self.kinds[found[0]] if found is not None else ""

    def begins(self, text: str, at: int) -> bool | None:
        """Tell whether a name and a tag stand at `text[at]`, as behind a call's opener; None if more must tell.

        Words before the closer of a value are the end of that value.
        """
        found = self.named.match(text, at)
        if found is None or found.end() == len(text):
            return None if found is not None else False
        kind = self.kind_at(text, found.end())
        return None if kind is None else kind != "value/"

    def _is_cut(self, rest: str) -> bool:
        return rest in self.beginnings or rest == "\\"

    def hold(self, text: str) -> int:
        """Give the index from which `text` may be the beginning of a tag."""
        last = text.rfind("<", max(0, len(text) - self.longest))
        return last if last >= 0 and text[last:] in self.beginnings else len(text)


_SPACES = re.compile(SPACE)


@lru_cache(maxsize=64)
def tags(call: str = "tool_call", prefix: str = "", suffix: str = "") -> Tags:
    """Give the tags of a spelling, made once."""
    return Tags(call, prefix, suffix)


def opening(opener: str, call: str = "tool_call", prefix: str = "", after: Sequence[str] = ()) -> str:
    """Write the pattern of a call's opener (itself a pattern) and of its name, up to the tag behind that.

    `after`: the tags that may stand there, if not any.
    """
    words = [f"{prefix}{each}" for each in ("arg_", call[:-3], "tool_sep")]  # the last tag may be cut short
    begins = rf"(?=</?(?:{'|'.join(map(re.escape, words))}))"
    if after:
        return rf"{opener}{_GAP}(?:\Z|{_NAME}{_GAP}(?:\Z|(?={'|'.join(map(re.escape, after))})|{_cut_short(after)}))"
    unfinished = _cut_short([f"{start}{word}" for start in ("<", "</") for word in words])
    glued = rf"\w[\w.-]{{0,63}}+(?:\Z|(?=</{re.escape(prefix)}arg_)|{unfinished})"  # a first key without its opener
    return rf"{opener}{_GAP}(?:\Z|{_NAME}{_GAP}(?:\Z|{begins}|{unfinished}|{glued}))"


def _cut_short(literals: Sequence[str]) -> str:
    """Write the pattern of the beginnings of literals, at the end of the text."""
    cut = {each[:size] for each in literals for size in range(1, len(each))}
    return rf"(?:{'|'.join(map(re.escape, sorted(cut, key=len, reverse=True)))})\Z"


def envelope(opener: str) -> str:
    """Write the pattern of a call's opener (itself a pattern) before JSON."""
    return rf"{opener}{_GAP}"
