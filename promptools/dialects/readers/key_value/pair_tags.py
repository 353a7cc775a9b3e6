"""The tags around keys and values of one format, and the patterns that find them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Final, NamedTuple

from promptools.dialects.readers.tags.pattern_tokenizer import PatternTokenizer
from promptools.dialects.readers.tags.tag_names import Tag, TagKind
from promptools.parsing.parts import NEED_MORE, NeedMore

STOP_TOKENS: Final = (
    "<tool_response>",
    "<tool_responses>",
    "<|observation|>",
    "<|user|>",
    "<|im_end|>",
    "<|endoftext|>",
)
"""What follows a call without its closing tag, and is not part of it."""

FOREIGN_TAGS: Final[dict[str, TagKind]] = {"</tool_calls>": "wrap", "<tool_sep>": "separator", "</think>": "reasoning"}
"""Tags of other formats, which models write in this one too."""

_GAP = r"\s{0,64}+"

KEY_LENGTH: Final = 128
"""Longest key in characters that is recognized before its closing tag."""


class TagPair(NamedTuple):
    """An opening tag and its closing tag; both empty where the format has none."""

    opener: str
    closer: str


_NONE = TagPair("", "")


@dataclass(frozen=True)
class PairTags:
    """The tags of one format, or of one spelling of it.

    `separator`: the tag between a name and the arguments. A key may have no closing tag: then the next opening tag ends
    it.
    """

    call: TagPair
    key: TagPair
    value: TagPair
    type: TagPair = _NONE
    wrapper: TagPair = _NONE
    separator: str = ""
    suffixed: bool = False
    """A checkpoint's own suffix is in each tag."""

    @cached_property
    def _own_tags(self) -> dict[str, Tag]:
        kinds: dict[TagKind, TagPair] = {
            "call": self.call, "key": self.key, "type": self.type, "value": self.value,
        }  # fmt: skip
        tags = [Tag(pair.opener, kind) for kind, pair in kinds.items()]
        tags += [Tag(pair.closer, kind, close=True) for kind, pair in kinds.items()]
        tags += [Tag(self.wrapper.closer, "wrap", close=True), Tag(self.separator, "separator")]
        return {tag.raw: tag for tag in tags if tag.raw}

    @cached_property
    def tags(self) -> dict[str, Tag]:
        """All tags that count, by their text."""
        foreign = [Tag(raw, kind, close=raw.startswith("</")) for raw, kind in FOREIGN_TAGS.items()]
        return {tag.raw: tag for tag in (*foreign, *(Tag(raw, "end") for raw in STOP_TOKENS))} | self._own_tags

    @cached_property
    def pattern(self) -> re.Pattern[str]:
        """Matches any tag."""
        return re.compile("|".join(map(re.escape, sorted(self.tags, key=len, reverse=True))))

    @cached_property
    def tokenizer(self) -> PatternTokenizer:
        """Splits text at these tags."""
        unfinished = re.compile(rf"{_prefixes_pattern(self.tags)}|\\\Z")  # a backslash may begin `\n`, a blank
        return PatternTokenizer(self.pattern, unfinished, max(map(len, self.tags)), lambda match: self.tags[match[0]])

    @cached_property
    def key_pattern(self) -> re.Pattern[str]:
        """Matches a key."""
        return re.compile(rf"[^{_set_of_firsts(self._own_tags)}]{{1,{KEY_LENGTH}}}")

    def only_beginning(self, text: str) -> str:
        """Return the only tag of the format that a text begins; empty if several do, or none."""
        begun = [tag for tag in self._own_tags if tag.startswith(text)]
        return begun[0] if len(begun) == 1 else ""

    @property
    def key_end(self) -> str:
        """The tag that ends a key."""
        return self.key.closer or self.type.opener or self.value.opener

    @cached_property
    def own_tags(self) -> tuple[str, ...]:
        """The tags that may follow a name, the key's also without its bracket, and the call's closer cut short."""
        pairs = (self.key, self.type, self.value, self.call)
        cut = self.call.closer[:-4] if len(self.call.closer) > 7 else ""
        tags = (*(tag for pair in pairs for tag in pair), self.key.opener[:-1], cut, self.separator, *FOREIGN_TAGS)
        return tuple(filter(None, tags))

    @cached_property
    def name_pattern(self) -> re.Pattern[str]:
        """Matches a name and the tag after it, or what there is of them at the end of the text."""
        return re.compile(self.opening_pattern(""))

    def begins_call(self, text: str) -> bool | NeedMore:
        """Return whether a text begins with a name and a tag, as after a call's opening tag.

        Text before the closing tag of a value is the end of that value, and not a name.
        """
        match = self.name_pattern.match(text)
        if match is None:
            return False
        return NEED_MORE if match.end() == len(text) else not text.startswith(self.value.closer, match.end())

    def opening_pattern(self, opener: str, after: Sequence[str] = ()) -> str:
        """Return the pattern of a call's opening tag (itself a pattern) and its name, up to the tag after that.

        `after`: the tags that may come there; any of the format's if empty.
        """
        firsts = _set_of_firsts(self.own_tags)
        name = rf"""\w[^{firsts}<>{{}}\n"'`]{{0,159}}+"""
        following = after or self.own_tags
        begins = rf"(?={'|'.join(map(re.escape, following))})"
        ends = rf"\Z|{begins}|{_prefixes_pattern(following)}"
        if not after and self.key.closer:  # a first key without its opening tag, after the name
            unfinished = _prefixes_pattern([self.key.closer])
            ends += rf"|\w[\w.-]{{0,63}}+(?:\Z|(?={re.escape(self.key.closer)})|{unfinished})"
        return rf"{opener}{_GAP}(?:\Z|{name}{_GAP}(?:{ends}))"


def is_blank(text: str) -> bool:
    r"""Return whether a text is white space; the characters `\n` too, for servers that escape the reply."""
    return not text.replace("\\n", "").strip()


@lru_cache(maxsize=64)
def with_suffix(tags: PairTags, suffix: str) -> PairTags:
    """Return the tags with a suffix before the last character of each, cached."""
    pairs = (tags.call, tags.key, tags.value, tags.type, tags.wrapper)
    call, key, value, kind, wrapper = (TagPair(*(_suffixed(tag, suffix) for tag in pair)) for pair in pairs)
    return PairTags(call, key, value, kind, wrapper, _suffixed(tags.separator, suffix), suffixed=True)


def json_opening_pattern(opener: str) -> str:
    """Return the pattern of a call's opening tag (itself a pattern) before JSON."""
    return rf"{opener}{_GAP}"


def _prefixes_pattern(literals: Iterable[str]) -> str:
    """Return the pattern of the proper prefixes of literals, at the end of the text."""
    cut = {tag[:size] for tag in literals for size in range(1, len(tag))}
    return rf"(?:{'|'.join(map(re.escape, sorted(cut, key=len, reverse=True)))})\Z"


def _set_of_firsts(tags: Iterable[str]) -> str:
    """Return the first characters of tags, as part of a set in a pattern."""
    return "".join(map(re.escape, sorted({tag[0] for tag in tags if tag})))


def _suffixed(tag: str, suffix: str) -> str:
    return f"{tag[:-1]}{suffix}{tag[-1]}" if tag else ""
