"""What the engine searches for in a reply: the active dialects, compiled once for each set of them into scanners.

A `ScanPlan` belongs to a set of dialects. Its scanners find the heads of calls, tags of reasoning and of answers,
end-of-turn tokens, closers that may stand alone, and backticks. Which of them count depends on what came before, so
there are three scanners (`Scanners`): a head marked `at_start`, say, begins a call only if no text precedes it.

Heads marked `at_line_start` (a tool's name that begins a line) depend on the offered tools. For those,
`ScanPlan.scanners_for` derives scanners with another gate for lines, without compiling a pattern.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import NamedTuple

from promptools.dialects import Edition, edition
from promptools.dialects import get as get_dialect
from promptools.dialects import names as dialect_names
from promptools.dialects.calls.parse_options import ParseOptions
from promptools.dialects.contract import Dialect, Head
from promptools.dialects.prefix_patterns import any_literal_text, any_of
from promptools.dialects.reply_markers import TAG_SUFFIX, ReplyMarkers, reply_markers
from promptools.engine.first_words import FirstWords
from promptools.engine.line_heads import LineHeads
from promptools.parsing.scanner import (
    LetterMarkers,
    LiteralSet,
    Marker,
    MarkerScanner,
    RareLiteralMarker,
    RareMarkers,
    markers_by_group,
)
from promptools.parsing.special_tokens import CONTROL_TOKEN, RESERVED_TOKEN, RESERVED_TOKEN_PREFIXES, is_only_tokens
from promptools.patterns import lazy_pattern

CACHED_TOOL_LISTS = 64
"""Lists of tools for which one plan caches its scanners."""


class Scanners(NamedTuple):
    """The scanner for each of three situations."""

    before_text: MarkerScanner
    """No text so far, or none since a call that is held."""
    beside_call: MarkerScanner
    """After text and then a call."""
    after_text: MarkerScanner
    """After other text: a lone opener may still begin a call, a lone closer means nothing."""


class ToolScanners(NamedTuple):
    """The scanners for a reply that may call certain tools."""

    full: Scanners
    common: Scanners
    """The same, for text that holds none of the plan's `rare_words`."""
    first_words: FirstWords
    """The first words of lines that may begin a call."""


class ScanPlan:
    """The heads of the dialects of these names (None: of all), and the scanners that find them."""

    def __init__(self, names: tuple[str, ...] | None, tiers: str, expected: str | None, *, channels: bool) -> None:
        self.key = (names, tiers, expected)
        self.markers = reply_markers()
        every = map(get_dialect, dialect_names() if names is None else names)
        # of heads at one offset, that of the expected dialect is tried first
        chosen = sorted(every, key=lambda dialect: dialect.name != expected)
        self.heads = _active_heads(chosen, tiers, expected)
        anywhere_heads = (head for _, head in self.heads.values() if not head.at_line_start)
        self.head_characters = "".join({literal[0] for head in anywhere_heads for literal in head.literals})
        self.line_heads = LineHeads(self.heads)
        active = [dialect for dialect in chosen if dialect.tier in tiers or dialect.name == expected]
        self.closers = tuple(dict.fromkeys(closer for dialect in active for closer in dialect.closers))
        """Markers that may stand alone beside a call."""
        sentinels = tuple(dict.fromkeys(token for dialect in active for token in _sentinels(dialect)))
        self._lone_closers = (*self.closers, *self.markers.result_closers)
        self.literal_scanner = MarkerScanner([*_literal_markers(self.markers, self._lone_closers, sentinels), _CONTROL])
        formats = [(dialect, dialect.channels) for dialect in active if dialect.channels is not None and channels]
        self.header_dialects = {
            group: dialect
            for dialect, messages in formats
            for group in (_header_group(dialect), messages.stripped_header.group)
        }
        """Scanner groups of markers that may begin a message with a header, and their dialects."""
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
        signs, words = _split_word_markers(
            [
                marker
                for group, (_, head) in self.heads.items()
                if not head.at_line_start
                for marker in _head_markers(group, head)
            ]
        )
        rare: list[RareMarkers] = [*words, *stripped]
        if self._lines is not None:
            rare.insert(0, self._lines)
        anywhere = [marker for marker in signs if not self.heads[marker.group][1].at_start]
        openers = tuple(closer for closer in self.closers if not closer.startswith("</"))
        ticks = Marker("ticks", ("`", "~~~"), "``*|~~~~*")
        return Scanners(
            *(
                MarkerScanner(
                    [*heads, *headers, *_literal_markers(self.markers, lone, sentinels), _CONTROL, ticks], rare
                )
                for heads, lone in ((signs, self._lone_closers), (anywhere, self._lone_closers), (anywhere, openers))
            )
        )

    def scanners_for(self, names: tuple[str, ...] | None) -> ToolScanners:
        """Return the scanners for a reply that may call tools of these names (None: of any)."""
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
        """Return the scanner for inside a reasoning zone: its closer, and heads that may end it.

        Without a closer: a template has opened the zone, and it may have any.
        """
        closer = self.markers.suffixed_closer_start(closer) or closer  # one scanner finds any number of suffixes
        scanner = self._reasoning_scanners.get(closer)
        if scanner is None:
            scanner = self._reasoning_scanners[closer] = self._new_reasoning_scanner(closer)
        return scanner

    def _new_reasoning_scanner(self, closer: str) -> MarkerScanner:
        heads = [
            marker
            for group, (dialect, head) in self.heads.items()
            if (head.tier or dialect.tier) in "SA" and not head.at_line_start
            for marker in _head_markers(group, head)
        ]
        signs, words = _split_word_markers(heads)
        known = self.markers
        pattern = _suffixed_pattern(known) if not closer or known.suffixed_closer_start(closer) else ""
        literals = (closer,) if closer else (*known.template_closers, *known.suffixed_tags.values())
        if not closer:
            pattern = "|".join((*map(re.escape, sorted(known.template_closers, key=len, reverse=True)), pattern))
        ends = Marker("end", tuple(token for token in known.end_tokens if token not in literals))
        return MarkerScanner([Marker("closer", literals, pattern), *signs, ends], words)


_CONTROL = Marker("control", ("<|", "<｜"), CONTROL_TOKEN)
"""Special tokens that nobody declares: beside a call, and after the end of a turn, they are no text."""


def _active_heads(dialects: list[Dialect], tiers: str, expected: str | None) -> dict[str, tuple[Dialect, Head]]:
    """Return the heads that are searched for, by the scanner group of each."""
    alone = len(dialects) == 1
    return {
        f"{dialect.name}_{number}": (dialect, head)
        for dialect in dialects
        for number, head in enumerate(dialect.heads)
        if dialect.name == expected or ((head.tier or dialect.tier) in tiers and (alone or not head.on_request))
    }


def _header_group(dialect: Dialect) -> str:
    return f"{dialect.name}_header"


def _split_word_markers(markers: list[Marker]) -> tuple[list[Marker], list[LetterMarkers]]:
    """Split off the markers that begin with a letter: they are searched for together."""
    letters = [marker for marker in markers if marker.literals[0][0].isalpha()]
    return [marker for marker in markers if marker not in letters], [LetterMarkers(letters)] if letters else []


def _cached_plan(names: tuple[str, ...] | None, tiers: str, expected: str | None, *, channels: bool = True) -> ScanPlan:
    return _new_plan(names, tiers, expected, channels, edition())


@lru_cache(maxsize=64)
def _new_plan(
    names: tuple[str, ...] | None, tiers: str, expected: str | None, channels: bool, edition: Edition
) -> ScanPlan:
    del edition  # a registered dialect may have the name of one that was removed
    return ScanPlan(names, tiers, expected, channels=channels)


def plan_for(rules: ParseOptions, pinned: str | None) -> ScanPlan:
    """Return the plan for the dialects that the rules allow. Raises UsageError for an unknown pinned one.

    If no tools are offered, only tier S is searched for, and with `undeclared` tier A. Bare calls (tiers B and C) are
    searched for only where they are allowed: neither in strict mode nor where the answer is JSON.
    """
    names = (get_dialect(pinned).name,) if pinned is not None else _accepted_dialects(rules)
    if rules.tools is not None and not rules.tools.names:
        return _cached_plan(names, "SA", rules.expect) if rules.undeclared else _cached_plan(names, "S", None)
    bare = rules.strictness != "strict" and not rules.json_answer
    return _cached_plan(names, "SABC" if bare else "SA", rules.expect)


def _accepted_dialects(rules: ParseOptions) -> tuple[str, ...] | None:
    """Return the dialects that are read if none is pinned; None: all."""
    if rules.accept is None:
        return None
    return tuple(name for name in dialect_names() if name in rules.accept or name == rules.expect)


def default_plan(expect: str | None) -> ScanPlan:
    """Return the plan of `plan_for` for offered tools and otherwise default rules."""
    return _cached_plan(None, "SABC", expect)


def content_plan(plan: ScanPlan) -> ScanPlan:
    """Return the plan for the content of one message, in which there are no headers."""
    names, tiers, asked = plan.key
    return _cached_plan(names, tiers, asked, channels=False)


def _head_markers(group: str, head: Head) -> Iterator[Marker]:
    """Yield a head's markers: literals that begin with a letter are a marker of their own."""
    for letters in (False, True):
        literals = tuple(literal for literal in head.literals if literal[0].isalpha() == letters)
        if literals:
            yield Marker(group, literals, head.pattern, head.gate)


_PLAIN_TAG = lazy_pattern(r"</?[a-z]+>\Z")


def _sentinels(dialect: Dialect) -> Iterator[str]:
    """Yield the special tokens of a dialect that may stand alone; tags that are plain words are none."""
    yield from dialect.control_tokens
    openers = [literal for head in dialect.heads if (head.tier or dialect.tier) == "S" for literal in head.literals]
    closers = [closer for closer in dialect.closers if dialect.tier == "S" or (openers and closer.startswith("<|"))]
    yield from (token for token in (*filter(is_only_tokens, openers), *closers) if not _PLAIN_TAG.match(token))


def _suffixed_pattern(known: ReplyMarkers) -> str:
    """Return the pattern of tags with a suffix."""
    starts = "|".join(map(re.escape, (*known.suffixed_tags, *known.suffixed_tags.values())))
    return rf"(?:{starts})(?:\Z|{TAG_SUFFIX}(?:>|\Z))"


def _unlabelled_pattern(known: ReplyMarkers) -> str:
    """Return the pattern of an opener that begins others, and of as much as there is of the rest of one."""
    return any_of(
        *(
            rf"{re.escape(opener)}(?:{any_literal_text(_rests(opener, (*known.reasoning_tags, *known.answer_tags)))})?"
            for opener in known.unlabelled_openers
        )
    )


def _rests(beginning: str, texts: Iterable[str]) -> Iterator[str]:
    return (text[len(beginning) :] for text in texts if text.startswith(beginning))


def _literal_markers(known: ReplyMarkers, lone: tuple[str, ...], sentinels: tuple[str, ...]) -> list[Marker]:
    """Return markers for tags, tokens, and what may stand alone: of a run of one opener, all but the last at once.

    A run of different openers is never matched whole: each may begin a call, and chunks would cut the run elsewhere.
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
