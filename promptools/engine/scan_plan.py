"""What the engine searches for in a reply: each set of active dialects is compiled into scanners once.

A `ScanPlan` belongs to a set of dialects. Its scanners find the heads of calls (the texts that begin them), tags of
reasoning and of answers, end-of-turn tokens, closers that may occur alone, and backticks. Which of these markers count
depends on what came before, so there are three scanners (`Scanners`): for example, a head marked `at_start` begins a
call only if no text precedes it.

Heads marked `at_line_start` (a tool's name that begins a line) depend on the offered tools. For those,
`ScanPlan.scanners_for` derives scanners that look for other first words of lines, without compiling a pattern.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from functools import lru_cache
from typing import Final, NamedTuple

from promptools.dialects import Edition, edition
from promptools.dialects import get as get_dialect
from promptools.dialects import names as dialect_names
from promptools.dialects.calls.parse_options import ParseOptions
from promptools.dialects.contract import NAME_GATE, TAG_GATE, Dialect, Head
from promptools.dialects.prefix_patterns import any_literal_text, any_of
from promptools.dialects.reply_markers import TAG_SUFFIX, ReplyMarkers, reply_markers
from promptools.parsing.scanner import (
    FirstMarker,
    LetterMarkers,
    LineStartMarkers,
    LiteralSet,
    Marker,
    MarkerScanner,
    RareLiteralMarker,
    first_marker,
    markers_by_group,
)
from promptools.parsing.special_tokens import CONTROL_TOKEN, RESERVED_TOKEN, RESERVED_TOKEN_PREFIXES, is_only_tokens
from promptools.patterns import lazy_pattern
from promptools.schema.spelling import NAMESPACES

# The first words of lines that may begin a call: the names of the offered tools, and words that are the same for all.
#
# Lists of tools come and go, and compiling a pattern takes longer than reading a few hundred replies. So the patterns
# are made once for a set of dialects: they find the first letters of any word, and whether a tool's name begins with
# these letters is looked up. Only after very many lookups for the same tools is a pattern of their names compiled. It
# finds the same lines faster.


MOST_LETTERS: Final = 3
"""Maximum number of letters of a line's first word that are looked up, ignoring case.

They are looked up among the beginnings of the tools' names.
"""
MAX_HELD_NAME: Final = 128
"""Maximum length of an incomplete tool name that is held back at the end of the text."""
WORTH_A_PATTERN: Final = 4096
"""Number of lines whose first letters are looked up without success before a pattern of tools' names is compiled.

By then the lookups have cost as much as compiling the pattern.
"""
_INDENT = r"\n[ \t]{0,8}+"
_FRAGMENT = rf"(?=\S)[</]{{0,2}}+([\w.:/ -]{{0,{MAX_HELD_NAME}}}+)\Z"
_UNFINISHED_WORD = lazy_pattern(_FRAGMENT)
_UNFINISHED_LINE = lazy_pattern(_INDENT + _FRAGMENT)
_MAX_UNFINISHED: Final = MAX_HELD_NAME + 11
"""The maximum length of an unfinished line: the line break, the indent, the `<` or `</` of a tag, and the name."""
_SEPARATORS = str.maketrans("", "", "-_.")
"""The characters that models change in a name, or leave out."""
_OTHER_CASES: Final = {"k": "\u212a", "s": "\u017f"}
"""Maps a letter to another character that is equal to it when case is ignored."""


class FirstWordPatterns(NamedTuple):
    """Holds patterns for the first word of a line that may begin a call. They are the same for all tools."""

    fixed: str
    """The pattern of first words that are not names; empty if there are none."""
    fixed_characters: str | None
    """The first characters of the `fixed` words, for use in a character class; None if they are not known."""
    names: bool
    """Whether a tool's name may be a first word."""
    tags: bool
    """Whether a tag with a tool's name, such as `<get_weather>`, may be a first word."""
    before_names: re.Pattern[str]
    """Matches a word that may precede a name, such as a namespace."""
    labels: tuple[str, ...]
    """First words of heads, and namespaces: folded (see `fold`) and sorted.

    At the end of the text, the beginning of such a word is held back.
    """


class FirstWords:
    """Finds lines whose first word may begin a call to a tool with one of the `names` (None: to any tool)."""

    def __init__(self, patterns: FirstWordPatterns, names: Iterable[str] | None) -> None:
        self._patterns = patterns
        self._any = names is None
        names = tuple(names or ())
        beginnings = {_beginning(name) for name in names}
        size = min(map(len, beginnings), default=1)  # if any tool counts, one letter is enough
        self._beginnings = frozenset(text[:size].casefold() for text in beginnings)
        self._letters = frozenset(
            ("", *self._beginnings, *(sign + text for sign in ("<", "</") for text in self._beginnings))
        )
        self._line, self._word = _first_letters(patterns, size)
        self._own_line: re.Pattern[str] | None = self._line if self._any else None
        """A pattern that finds only lines that may begin a call; None while each line's first letters are looked up."""
        self._lookups = 0
        """Number of lines whose first letters were looked up without success."""
        self._names = sorted({fold(name[:MAX_HELD_NAME]) for name in names})
        held = (*names, *self._names, *patterns.labels, *[""] * bool(names))
        self._held_letters = frozenset(word[:1].casefold() for word in held)

    def begins(self, text: str, at: int) -> bool:
        """Return whether the word at `text[at]` may begin a call, as it is or once more of it has arrived."""
        word = self._word.match(text, at)
        if word is not None and self._may_begin(word[1]):
            return True
        return len(text) - at <= _MAX_UNFINISHED and self._is_unfinished(_UNFINISHED_WORD, text, at)

    def search(self, text: str, at: int, stop: int) -> int:
        """Return the offset of the first line break in `text[at:stop]` after which a call may begin; else -1. O(n)."""
        if self._own_line is not None:
            line = self._own_line.search(text, at, stop)
            return -1 if line is None else line.start()
        looked_up = 0
        for line in self._line.finditer(text, at, stop):
            if line[1].casefold() in self._letters:
                return line.start()
            looked_up += 1
        self._lookups += looked_up
        if self._lookups > WORTH_A_PATTERN and all(map(str.isascii, self._beginnings)):
            self._own_line = _line_pattern(self._patterns, self._beginnings)
        return -1

    def ends_unfinished(self, text: str, line: int) -> bool:
        """Return whether the last line, after the line break at `text[line]`, may become a line that begins a call."""
        return len(text) - line <= _MAX_UNFINISHED and self._is_unfinished(_UNFINISHED_LINE, text, line)

    def _may_begin(self, letters: str) -> bool:
        return self._any or letters.casefold() in self._letters

    def _is_unfinished(self, pattern: re.Pattern[str], text: str, at: int) -> bool:
        match = None if self._any else pattern.match(text, at)
        if match is None:
            return False
        word = match[1]
        while word[:1].casefold() in self._held_letters:
            folded = fold(word)
            if _begins_any(folded, self._names) or _begins_any(folded, self._patterns.labels):
                return True
            before = self._patterns.before_names.match(word)
            if before is None:
                return False
            word = word[before.end() :]
        return False


def fold(name: str) -> str:
    """Return a name in lower case and without separators."""
    return name.casefold().translate(_SEPARATORS)


def in_any_case(words: Set[str]) -> str:
    """Return a pattern that matches any of the `words`, ignoring case; the pattern examines each character once."""
    if "" in words:
        return ""
    rests: dict[str, set[str]] = {}
    for word in words:
        rests.setdefault(word[0], set()).add(word[1:])
    branches = (f"[{first_characters((first,))}]{in_any_case(rests[first])}" for first in sorted(rests))
    return f"(?:{'|'.join(branches)})"


def first_characters(words: Iterable[str]) -> str:
    """Return the first characters of words, in lower and upper case, for use in a character class."""
    cases = (f"{word[0]}{word[0].upper()}{_OTHER_CASES.get(word[0], '')}" for word in words)
    return "".join(map(re.escape, dict.fromkeys("".join(cases))))


def _beginning(name: str) -> str:
    """Return the beginning of a name: its letters before the first separator, since models replace separators."""
    return re.split(r"[\W_]", name[:MOST_LETTERS], maxsplit=1)[0] or name[:1]


def _begins_any(text: str, words: Sequence[str]) -> bool:
    """Return whether any of the `words`, which must be sorted, begins with the text."""
    at = bisect_left(words, text)
    return at < len(words) and words[at].startswith(text)


@lru_cache(maxsize=256)
def _first_letters(patterns: FirstWordPatterns, size: int) -> tuple[re.Pattern[str], re.Pattern[str]]:
    """Return two patterns: one for a line that may begin a call, and one for the first word of such a line.

    Each pattern has one group: the first `size` letters of the word, with `<` or `</` before a tag's name. For a fixed
    word, the group is empty.
    """
    letters = rf"[^\W\d][^\n]{{{size - 1}}}"
    branches = [
        *([rf"(?={patterns.fixed})"] if patterns.fixed else []),
        *([letters] if patterns.names else []),
        *([rf"</?+(?:{letters}|\Z)"] if patterns.tags else []),
    ]
    word = f"({'|'.join(branches) or '(?!)'})"
    return lazy_pattern(_INDENT + word), lazy_pattern(word)


def _line_pattern(patterns: FirstWordPatterns, beginnings: Set[str]) -> re.Pattern[str]:
    """Return the pattern of a line whose first word is fixed or begins with one of `beginnings`."""
    branches = [patterns.fixed] if patterns.fixed else []
    if beginnings:
        names = in_any_case(beginnings)
        branches += [*([names] if patterns.names else []), *([f"</?{names}"] if patterns.tags else [])]
    ahead = ""
    if patterns.fixed_characters is not None:
        ahead = f"(?=[<{patterns.fixed_characters}{first_characters(sorted(beginnings))}])"
    return lazy_pattern(f"{_INDENT}{ahead}(?:{'|'.join(branches) or '(?!)'})")


# Heads that begin only at the beginning of a line: the name of an offered tool, perhaps in a namespace or a tag.
#
# Which lines may begin such a head depends on the tools: there is a `FirstWords` for each list of tools.


class LineHeads:
    """Holds the heads (beginnings of calls) that count only at the beginning of a line, each with its regex group."""

    def __init__(self, heads: Mapping[str, tuple[Dialect, Head]]) -> None:
        self._heads = {group: head for group, (_, head) in heads.items() if head.at_line_start}
        labels = (label for head in self._heads.values() for label in (*head.literals, *head.first_words))
        self._labels = {*NAMESPACES, *labels}
        self._first = _first_of(self._heads)
        self._first_in_code = _first_of(
            {group: head for group, head in self._heads.items() if head.fence_labels != (None,)}
        )
        self._patterns = [(group, lazy_pattern(head.pattern)) for group, head in self._heads.items()]
        self._places = {group: place for place, group in enumerate(self._heads)}

    def match(self, text: str, at: int, *, in_code: bool = False) -> Iterator[tuple[str, int]]:
        """Yield the scanner's regex group and the end of each head that matches at `text[at]`.

        The first word of a line begins there.
        """
        match = (self._first_in_code if in_code else self._first).match(text, at)
        if match is None:
            return
        first = match.lastgroup or ""
        yield first, match.end()
        for group, pattern in self._patterns[self._places[first] + 1 :]:
            later_match = pattern.match(text, at)
            if later_match is not None:
                yield group, later_match.end()

    def markers(self, first_words: FirstWords) -> LineStartMarkers | None:
        """Return the markers to search for outside of fences; None if there are none.

        `first_words` finds the lines that may begin with one of the markers.
        """
        prose = {group: head.pattern for group, head in self._heads.items() if _occurs_in_prose(head)}
        return LineStartMarkers(first_words, prose) if prose else None

    def first_word_patterns(self) -> FirstWordPatterns:
        """Return patterns for the first word of a head (the beginning of a call). They are the same for all tools."""
        gates = dict.fromkeys(head.gate for head in self._heads.values() if _occurs_in_prose(head))
        names, tags = ({*self._first_words(gate)} if gate in gates else None for gate in (NAME_GATE, TAG_GATE))
        before = {*NAMESPACES, *(names or ())}
        fixed = [gate for gate in gates if gate not in (NAME_GATE, TAG_GATE)]
        if names is not None:
            fixed.append(f"(?=[{first_characters(sorted(before))}]){in_any_case(before)}")
        if tags:
            fixed.append(f"(?=[<])</?{in_any_case(tags)}")
        looks = [_first_characters(gate) for gate in fixed]
        characters = None if None in looks else "".join(filter(None, looks))
        every = "|".join(fixed)
        return FirstWordPatterns(
            fixed=f"(?=[{characters}])(?:{every})" if characters else every,
            fixed_characters=characters,
            names=names is not None,
            tags=tags is not None,
            before_names=lazy_pattern("|".join(map(re.escape, sorted(before))), re.IGNORECASE),
            labels=tuple(sorted({fold(label) for label in self._labels if label[0] != "<"})),
        )

    def _first_words(self, gate: str) -> set[str]:
        """Return the `first_words` of all heads that have this `gate`; see `Head`."""
        return {word for head in self._heads.values() if head.gate == gate for word in head.first_words}


def _first_of(heads: Mapping[str, Head]) -> FirstMarker:
    """Return a `FirstMarker` that finds the first of the heads that matches at an offset."""
    return first_marker(tuple(Marker(group, (), head.pattern) for group, head in heads.items()))


def _occurs_in_prose(head: Head) -> bool:
    """Return whether a head may occur outside of a fence."""
    return not head.fence_labels or None in head.fence_labels


_LOOKAHEAD = lazy_pattern(r"\(\?=\[((?:[^]\\^]|\\.)++)\]\)")


def _first_characters(gate: str) -> str | None:
    """Return the characters that may begin a match of `gate`, for use in a character class; None if unknown.

    They are known if the pattern `gate` begins with a lookahead, or is an alternation of plain words.
    """
    lookahead = _LOOKAHEAD.match(gate)
    if lookahead is not None:
        return lookahead[1]
    words = gate.split("|")
    return "".join(word[0] for word in words) if all(re.escape(word) == word for word in words) else None


# The plan: the scanners of a set of dialects, and the markers that they search for.


CACHED_TOOL_LISTS = 64
"""The number of lists of tools for which a plan caches scanners."""


class Scanners(NamedTuple):
    """Holds a scanner for each of three situations: before any text, directly after a call, and after other text."""

    before_text: MarkerScanner
    """The scanner to use before any text or call.

    It is also used while a tentative call is held, that is, a call that becomes text if text follows.
    """
    beside_call: MarkerScanner
    """The scanner to use directly after a call.

    While a tentative call is held, that is, a call that becomes text if text follows, `before_text` is used instead.
    """
    after_text: MarkerScanner
    """The scanner to use after text.

    There, an opener that occurs alone may begin a call, but a closing tag that occurs alone has no meaning.
    """


class ToolScanners(NamedTuple):
    """Holds the scanners for a reply to a request that offers a given set of tools."""

    full: Scanners
    common: Scanners
    """Scanners like those of `full`, but only for text that contains none of the plan's `rare_words`."""
    first_words: FirstWords
    """Finds lines whose first word may begin a call."""


class ScanPlan:
    """Holds what is searched for in a reply: the beginnings of calls (heads), other markers, and their scanners.

    `names`: the dialects that are read; None for all. `tiers`: the tiers of heads that are searched for, such as "SA"
    (special tokens, and readable tags such as `<tool_call>`). `expected`: the dialect that the request asked for; all
    its heads are searched for, whatever their tier. `channels`: whether to search for headers of messages too.
    """

    def __init__(self, names: tuple[str, ...] | None, tiers: str, expected: str | None, *, channels: bool) -> None:
        self.key = (names, tiers, expected)
        self.markers = reply_markers()
        every = map(get_dialect, dialect_names() if names is None else names)
        # of several heads at one offset, the head of the expected dialect is tried first
        chosen = sorted(every, key=lambda dialect: dialect.name != expected)
        self.heads = _active_heads(chosen, tiers, expected)
        anywhere_heads = (head for _, head in self.heads.values() if not head.at_line_start)
        self.head_characters = "".join({literal[0] for head in anywhere_heads for literal in head.literals})
        self.line_heads = LineHeads(self.heads)
        active = [dialect for dialect in chosen if dialect.tier in tiers or dialect.name == expected]
        self.closers = tuple(dict.fromkeys(closer for dialect in active for closer in dialect.closers))
        """Closing markers that may occur next to a call without their openers."""
        sentinels = tuple(dict.fromkeys(token for dialect in active for token in _sentinels(dialect)))
        self._lone_closers = (*self.closers, *self.markers.result_closers)
        self.literal_scanner = MarkerScanner([*_literal_markers(self.markers, self._lone_closers, sentinels), _CONTROL])
        formats = [(dialect, dialect.channels) for dialect in active if dialect.channels is not None and channels]
        self.header_dialects = {
            group: dialect
            for dialect, messages in formats
            for group in (_header_group(dialect), messages.stripped_header.group)
        }
        """Maps a group of the scanner's regex to a dialect.

        Where the group matches, a message's header in this dialect may begin.
        """
        headers = [Marker(_header_group(dialect), messages.markers) for dialect, messages in formats]
        stripped = [messages.stripped_header for _, messages in formats]
        self.rare_words = LiteralSet(word for marker in stripped for word in marker.search_literals)
        self.header_characters = frozenset(first for marker in stripped for first in marker.first_characters)
        self._first_word_patterns = self.line_heads.first_word_patterns()
        self._lines = self.line_heads.markers(FirstWords(self._first_word_patterns, None))
        self._scanners = self._new_scanners(sentinels, headers, stripped)
        self._common_scanners = Scanners(
            *(scanner.without_literals(self.rare_words.literals) for scanner in self._scanners)
        )
        self._tool_scanners: dict[tuple[str, ...] | None, ToolScanners] = {}
        self._reasoning_scanners: dict[str, MarkerScanner] = {}

    def _new_scanners(
        self, sentinels: tuple[str, ...], headers: list[Marker], stripped: list[RareLiteralMarker]
    ) -> Scanners:
        every = [_head_marker(group, head) for group, (_, head) in self.heads.items() if not head.at_line_start]
        anywhere = [marker for marker in every if not self.heads[marker.group][1].at_start]
        openers = tuple(closer for closer in self.closers if not closer.startswith("</"))
        ticks = Marker("ticks", ("`", "~~~"), "``*|~~~~*")
        lines = [self._lines] if self._lines is not None else []

        def scanner(heads: list[Marker], lone: tuple[str, ...]) -> MarkerScanner:
            literals = _literal_markers(self.markers, lone, sentinels)
            signs, words = _split_word_markers([*heads, *headers, *literals, _CONTROL, ticks])
            return MarkerScanner(signs, [*lines, *words, *stripped])

        return Scanners(
            scanner(every, self._lone_closers), scanner(anywhere, self._lone_closers), scanner(anywhere, openers)
        )

    def scanners_for(self, names: tuple[str, ...] | None) -> ToolScanners:
        """Return the scanners for a reply that may call the tools named in `names` (None: any tools)."""
        sought = self._tool_scanners.get(names)
        if sought is None:
            if len(self._tool_scanners) >= CACHED_TOOL_LISTS:
                self._tool_scanners.clear()
            words = FirstWords(self._first_word_patterns, names)
            full, common = self._scanners, self._common_scanners
            if self._lines is not None:
                lines = self._lines.with_gate(words)
                full, common = (
                    Scanners(*(scanner.with_lines(lines) for scanner in scanners)) for scanners in (full, common)
                )
            sought = self._tool_scanners[names] = ToolScanners(full, common, words)
        return sought

    def reasoning_scanner(self, closer: str) -> MarkerScanner:
        """Return the scanner for reasoning. It finds the closing tag, and calls that may end the reasoning instead.

        If `closer` is empty, the chat template opened the reasoning, and any closing tag may end it.
        """
        closer = self.markers.suffixed_closer_start(closer) or closer  # one scanner finds any number of suffixes
        scanner = self._reasoning_scanners.get(closer)
        if scanner is None:
            scanner = self._reasoning_scanners[closer] = self._new_reasoning_scanner(closer)
        return scanner

    def _new_reasoning_scanner(self, closer: str) -> MarkerScanner:
        signs, words = _split_word_markers(
            _head_marker(group, head)
            for group, (dialect, head) in self.heads.items()
            if (head.tier or dialect.tier) in "SA" and not head.at_line_start
        )
        known = self.markers
        pattern = _suffixed_pattern(known) if not closer or known.suffixed_closer_start(closer) else ""
        literals = (closer,) if closer else (*known.template_closers, *known.suffixed_tags.values())
        if not closer:
            pattern = "|".join((*map(re.escape, sorted(known.template_closers, key=len, reverse=True)), pattern))
        ends = Marker("end", tuple(token for token in known.end_tokens if token not in literals))
        return MarkerScanner([Marker("closer", literals, pattern), *signs, ends], words)


_CONTROL = Marker("control", ("<|", "<｜"), CONTROL_TOKEN)
"""Finds special tokens that no dialect declares. Next to a call, or after the end of a turn, they are not text."""


def _active_heads(dialects: list[Dialect], tiers: str, expected: str | None) -> dict[str, tuple[Dialect, Head]]:
    """Return the heads to search for, as a dict.

    The key is the head's regex group in the scanners; the value is the dialect and the head.
    """
    alone = len(dialects) == 1
    return {
        f"{dialect.name}_{number}": (dialect, head)
        for dialect in dialects
        for number, head in enumerate(dialect.heads)
        if dialect.name == expected or ((head.tier or dialect.tier) in tiers and (alone or not head.on_request))
    }


def _head_marker(group: str, head: Head) -> Marker:
    return Marker(group, head.literals, head.pattern, head.gate)


def _header_group(dialect: Dialect) -> str:
    return f"{dialect.name}_header"


def _split_word_markers(markers: Iterable[Marker]) -> tuple[list[Marker], list[LetterMarkers]]:
    """Separate the markers that begin with a letter from the others.

    The first, fast pattern of a scanner (its gate) would match too often if it contained letters.
    """
    signs: list[Marker] = []
    words: list[Marker] = []
    for marker in markers:
        for found, is_word in ((signs, False), (words, True)):
            literals = tuple(text for text in marker.literals if text[0].isalpha() == is_word)
            if literals:
                found.append(marker._replace(literals=literals))
    return signs, [LetterMarkers(words)] if words else []


def _cached_plan(names: tuple[str, ...] | None, tiers: str, expected: str | None, *, channels: bool = True) -> ScanPlan:
    return _new_plan(names, tiers, expected, channels, edition())


@lru_cache(maxsize=64)
def _new_plan(
    names: tuple[str, ...] | None, tiers: str, expected: str | None, channels: bool, edition: Edition
) -> ScanPlan:
    del edition  # only part of the key: a registered dialect may have the name of a removed one
    return ScanPlan(names, tiers, expected, channels=channels)


def plan_for(options: ParseOptions, pinned: str | None) -> ScanPlan:
    """Return the plan for the dialects that the options allow. Raises UsageError if `pinned` is unknown.

    If no tools are offered, only calls that begin with special tokens (tier S) are searched for; with `undeclared`,
    also calls in readable tags such as `<tool_call>`, which prose may contain (tier A). In strict mode, or if the
    request asked for JSON, bare calls (tiers B and C) are searched for only in the expected dialect.
    """
    names = (get_dialect(pinned).name,) if pinned is not None else _accepted_dialects(options)
    if options.tools is not None and not options.tools.names:
        return _cached_plan(names, "SA", options.expect) if options.undeclared else _cached_plan(names, "S", None)
    bare = options.strictness != "strict" and not options.json_answer
    return _cached_plan(names, "SABC" if bare else "SA", options.expect)


def _accepted_dialects(options: ParseOptions) -> tuple[str, ...] | None:
    """Return the dialects that are read if none is pinned; None means all."""
    if options.accept is None:
        return None
    return tuple(name for name in dialect_names() if name in options.accept or name == options.expect)


def default_plan(expect: str | None) -> ScanPlan:
    """Return the plan that `plan_for` returns if tools are offered and all other options have their defaults."""
    return _cached_plan(None, "SABC", expect)


def content_plan(plan: ScanPlan) -> ScanPlan:
    """Return the plan for the content of a message: the same plan, but without a search for headers of messages."""
    names, tiers, asked = plan.key
    return _cached_plan(names, tiers, asked, channels=False)


_PLAIN_TAG = lazy_pattern(r"</?[a-z]+>\Z")


def _sentinels(dialect: Dialect) -> Iterator[str]:
    """Yield a dialect's special tokens that may occur alone, except those of the form `<word>` or `</word>`."""
    yield from dialect.control_tokens
    openers = [literal for head in dialect.heads if (head.tier or dialect.tier) == "S" for literal in head.literals]
    closers = [closer for closer in dialect.closers if dialect.tier == "S" or (openers and closer.startswith("<|"))]
    yield from (token for token in (*filter(is_only_tokens, openers), *closers) if not _PLAIN_TAG.match(token))


def _suffixed_pattern(known: ReplyMarkers) -> str:
    """Return the pattern of reasoning tags with a suffix, such as `<think:abc>`."""
    starts = "|".join(map(re.escape, (*known.suffixed_tags, *known.suffixed_tags.values())))
    return rf"(?:{starts})(?:\Z|{TAG_SUFFIX}(?:>|\Z))"


def _unlabelled_pattern(known: ReplyMarkers) -> str:
    """Return a pattern for opening tags that are also the beginning of a longer tag, such as `<|channel>`.

    If a longer tag begins at the offset, the pattern matches as much of that tag as the text contains.
    """
    return any_of(
        *(
            rf"{re.escape(opener)}(?:{any_literal_text(_rests(opener, (*known.reasoning_tags, *known.answer_tags)))})?"
            for opener in known.unlabelled_openers
        )
    )


def _rests(beginning: str, texts: Iterable[str]) -> Iterator[str]:
    return (text[len(beginning) :] for text in texts if text.startswith(beginning))


def _literal_markers(known: ReplyMarkers, lone: tuple[str, ...], sentinels: tuple[str, ...]) -> list[Marker]:
    """Return markers for tags, tokens, and openers and closers that may occur alone.

    If the same opener is repeated in a run, all of the run but the last opener is one match. A run of different openers
    is never one match, because each opener may begin a call, and because chunks might cut the run at different places.
    """
    frames = tuple(filter(None, (*known.answer_tags, *known.answer_tags.values())))
    markers = markers_by_group(
        {
            "opener": known.reasoning_tags,
            "closer": known.lone_closers,
            "end": known.end_tokens,
            "frame": frames,
            "turn": known.turn_tokens,
        }
    )
    taken = {literal for marker in markers for literal in marker.literals}
    suffixed = (*known.suffixed_tags, *known.suffixed_tags.values())
    if suffixed:
        markers.append(Marker("suffixed", suffixed, _suffixed_pattern(known)))
    if known.unlabelled_openers:
        markers.append(Marker("unlabelled", tuple(known.unlabelled_openers), _unlabelled_pattern(known)))
    markers.append(Marker("numbered", RESERVED_TOKEN_PREFIXES, RESERVED_TOKEN))
    for group, texts in (("sentinel", sentinels), ("lone", tuple(text for text in lone if text not in sentinels))):
        unknown = tuple(text for text in texts if text not in taken)
        if unknown:
            markers.append(Marker(group, unknown, joins_runs=True))
    return markers
