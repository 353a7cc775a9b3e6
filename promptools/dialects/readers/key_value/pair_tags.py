"""The tags around keys and values, in the spellings of the families that write arguments this way."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Final

from promptools.dialects.prefix_patterns import literal_text

STOP_TOKENS: Final = (
    "<tool_response>",
    "<tool_responses>",
    "<|observation|>",
    "<|user|>",
    "<|im_end|>",
    "<|endoftext|>",
)
"""What follows a call without its closing tag, and is not part of it."""

SPACE_PATTERN: Final = r"(?:\s|\\n){0,256}+"
r"""White space between tags; the two characters `\n` count as a line break, for servers that escape the reply."""

KEY_PATTERN: Final = r"[^<]{1,128}"
_NAME = r"""\w[^<>{}\n"'`]{0,159}+"""
_GAP = r"\s{0,64}+"


@dataclass(frozen=True, slots=True)
class PairTags:
    """The tags of one spelling: the kind of each literal, and patterns that find them.

    `call`: the tag of one call; `prefix` and `suffix`: what every tag has at its ends.
    """

    call: str = "tool_call"
    prefix: str = ""
    suffix: str = ""
    kinds: dict[str, str] = field(init=False)
    """`call`, `key`, `type`, `value`, and with a slash their closing tags; `outer/`, `sep`, `think/`, `stop`."""
    pattern: re.Pattern[str] = field(init=False)
    partial_tags: frozenset[str] = field(init=False)
    """The proper prefixes of all tags, as a text may end in one."""
    longest: int = field(init=False)
    name_pattern: re.Pattern[str] = field(init=False)
    """Matches a name and the tag after it, or what there is of them at the end of the text."""
    key_pattern: re.Pattern[str] = field(init=False)
    """Matches a key and its closing tag, or what there is of them at the end of the text; the key is the only group."""

    def __post_init__(self) -> None:
        kinds = {
            self.opener(self.call): "call",
            self.closer(self.call): "call/",
            self.closer("tool_calls"): "outer/",
            self.opener("tool_sep"): "sep",
            **{self.opener(f"arg_{word}"): word for word in ("key", "type", "value")},
            **{self.closer(f"arg_{word}"): f"{word}/" for word in ("key", "type", "value")},
            "</think>": "think/",
            **dict.fromkeys(STOP_TOKENS, "stop"),
        }
        object.__setattr__(self, "kinds", kinds)
        object.__setattr__(self, "pattern", re.compile("|".join(map(re.escape, kinds))))
        object.__setattr__(self, "partial_tags", frozenset(tag[:size] for tag in kinds for size in range(1, len(tag))))
        object.__setattr__(self, "longest", max(map(len, kinds)))
        object.__setattr__(self, "name_pattern", re.compile(opening_pattern("", self.call, self.prefix)))
        object.__setattr__(
            self, "key_pattern", re.compile(rf"({KEY_PATTERN}+)(?:\Z|{literal_text(self.closer('arg_key'))})")
        )

    def opener(self, word: str) -> str:
        """Return the opening tag of `word`."""
        return f"<{self.prefix}{word}{self.suffix}>"

    def closer(self, word: str) -> str:
        """Return the closing tag of `word`."""
        return f"</{self.prefix}{word}{self.suffix}>"

    def kind_of(self, match: re.Match[str]) -> str:
        """Return the kind of a match."""
        return self.kinds[match[0]]

    def kind_at(self, text: str, at: int) -> str | None:
        """Return the kind of the tag at `text[at]` after white space; "" if there is none, None if text is missing."""
        gap = _SPACES.match(text, at)
        assert gap is not None
        start = gap.end()
        if start + self.longest > len(text) and (start == len(text) or self._is_cut(text[start:])):
            return None
        match = self.pattern.match(text, start)
        return self.kinds[match[0]] if match is not None else ""

    def begins_call(self, text: str, at: int) -> bool | None:
        """Return whether a name and a tag are at `text[at]`, as after a call's opening tag; None if text is missing.

        Text before the closing tag of a value is the end of that value, and not a name.
        """
        match = self.name_pattern.match(text, at)
        if match is None or match.end() == len(text):
            return None if match is not None else False
        kind = self.kind_at(text, match.end())
        return None if kind is None else kind != "value/"

    def _is_cut(self, rest: str) -> bool:
        return rest in self.partial_tags or rest == "\\"

    def hold_from(self, text: str) -> int:
        """Return the index from which `text` may be the beginning of a tag; `len(text)` if it cannot."""
        last = text.rfind("<", max(0, len(text) - self.longest))
        return last if last >= 0 and text[last:] in self.partial_tags else len(text)


_SPACES = re.compile(SPACE_PATTERN)


@lru_cache(maxsize=64)
def pair_tags(call: str = "tool_call", prefix: str = "", suffix: str = "") -> PairTags:
    """Return the tags of a spelling, cached."""
    return PairTags(call, prefix, suffix)


def opening_pattern(opener: str, call: str = "tool_call", prefix: str = "", after: Sequence[str] = ()) -> str:
    """Return the pattern of a call's opening tag (itself a pattern) and its name, up to the tag after that.

    `after`: the tags that may come there; any of the family's if empty.
    """
    names = [f"{prefix}{name}" for name in ("arg_", call[:-3], "tool_sep")]  # the last tag may be cut short
    begins = rf"(?=</?(?:{'|'.join(map(re.escape, names))}))"
    if after:
        following = f"(?={'|'.join(map(re.escape, after))})"
        return rf"{opener}{_GAP}(?:\Z|{_NAME}{_GAP}(?:\Z|{following}|{_prefixes_pattern(after)}))"
    unfinished = _prefixes_pattern([f"{start}{name}" for start in ("<", "</") for name in names])
    glued = rf"\w[\w.-]{{0,63}}+(?:\Z|(?=</{re.escape(prefix)}arg_)|{unfinished})"  # a first key without its opener
    return rf"{opener}{_GAP}(?:\Z|{_NAME}{_GAP}(?:\Z|{begins}|{unfinished}|{glued}))"


def _prefixes_pattern(literals: Sequence[str]) -> str:
    """Return the pattern of the proper prefixes of literals, at the end of the text."""
    cut = {tag[:size] for tag in literals for size in range(1, len(tag))}
    return rf"(?:{'|'.join(map(re.escape, sorted(cut, key=len, reverse=True)))})\Z"


def json_opening_pattern(opener: str) -> str:
    """Return the pattern of a call's opening tag (itself a pattern) before JSON."""
    return rf"{opener}{_GAP}"
