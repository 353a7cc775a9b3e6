"""The tags around keys and values of one format, and the patterns that find them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Final, NamedTuple

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

FOREIGN_TAGS: Final = {"</tool_calls>": "outer/", "<tool_sep>": "sep", "</think>": "think/"}
"""Tags of other formats, which models write in this one too."""

SPACE_PATTERN: Final = r"(?:\s|\\n){0,256}+"
r"""White space between tags; the two characters `\n` count as a line break, for servers that escape the reply."""

_SPACES = re.compile(SPACE_PATTERN)
_GAP = r"\s{0,64}+"


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
    def _own_kinds(self) -> dict[str, str]:
        pairs = {"call": self.call, "key": self.key, "type": self.type, "value": self.value}
        kinds = {
            **{pair.opener: kind for kind, pair in pairs.items()},
            **{pair.closer: f"{kind}/" for kind, pair in pairs.items()},
            self.wrapper.closer: "outer/",
            self.separator: "sep",
        }
        kinds.pop("", None)
        return kinds

    @cached_property
    def kinds(self) -> dict[str, str]:
        """`call`, `key`, `type`, `value`, and with a slash their closing tags; `outer/`, `sep`, `think/`, `stop`."""
        return {**FOREIGN_TAGS, **dict.fromkeys(STOP_TOKENS, "stop"), **self._own_kinds}

    @cached_property
    def longest(self) -> int:
        """The length of the longest tag."""
        return max(map(len, self.kinds))

    @property
    def pattern(self) -> re.Pattern[str]:
        """Matches any tag."""
        return self._pattern

    @cached_property
    def _pattern(self) -> re.Pattern[str]:
        return re.compile("|".join(map(re.escape, sorted(self.kinds, key=len, reverse=True))))

    @cached_property
    def key_pattern(self) -> re.Pattern[str]:
        """Matches a key, its only group, and what ends it; or what there is of them at the end of the text."""
        return re.compile(rf"([^{_set_of_firsts(self._own_kinds)}]{{1,128}}+)(?:\Z|{literal_text(self.key_end)})")

    @property
    def key_end(self) -> str:
        """The tag that ends a key."""
        return self.key.closer or self.type.opener or self.value.opener

    @cached_property
    def own_tags(self) -> tuple[str, ...]:
        """The tags that may follow a name, and the call's closing tag as it may be cut short."""
        pairs = (self.key, self.type, self.value, self.call)
        cut = self.call.closer[:-4] if len(self.call.closer) > 7 else ""
        return tuple(filter(None, (*(tag for pair in pairs for tag in pair), cut, self.separator, *FOREIGN_TAGS)))

    @cached_property
    def name_pattern(self) -> re.Pattern[str]:
        """Matches a name and the tag after it, or what there is of them at the end of the text."""
        return re.compile(self.opening_pattern(""))

    @cached_property
    def _partial_tags(self) -> frozenset[str]:
        """The proper prefixes of all tags, as a text may end in one."""
        return frozenset(tag[:size] for tag in self.kinds for size in range(1, len(tag)))

    @cached_property
    def _partial_end(self) -> re.Pattern[str]:
        return re.compile(_prefixes_pattern(self.kinds))

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
        return rest in self._partial_tags or rest == "\\"

    def hold_from(self, text: str) -> int:
        """Return the index from which `text` may be the beginning of a tag; `len(text)` if it cannot."""
        cut = self._partial_end.search(text, max(0, len(text) - self.longest))
        return cut.start() if cut is not None else len(text)

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
