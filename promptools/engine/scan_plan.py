"""What the engine searches for in a reply: the active dialects, compiled once for each set of them into scanners.

A `ScanPlan` belongs to a set of dialects. Its scanners find the heads of calls, tags of reasoning and of answers,
end-of-turn tokens, closers that may stand alone, and backticks. Which of them count depends on what came before, so
there are three scanners (`Scanners`): a head marked `at_start`, say, begins a call only if no text precedes it.

Heads marked `at_line_start` (a tool's name that begins a line) depend on the offered tools. For those,
`ScanPlan.scanners_for` derives scanners whose gate is built of the first letters of the tools' names.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import NamedTuple

from promptools.dialects import edition
from promptools.dialects import get as get_dialect
from promptools.dialects import names as dialect_names
from promptools.dialects.calls.resolve import ParseOptions
from promptools.dialects.contract import NAME_GATE, TAG_GATE, Dialect, Head
from promptools.dialects.prefix_patterns import any_literal_text, any_of
from promptools.dialects.reply_markers import TAG_SUFFIX, ReplyMarkers, reply_markers
from promptools.parsing.scanner import (
    LetterMarkers,
    LineStartMarkers,
    LiteralSet,
    Marker,
    MarkerScanner,
    RareLiteralMarker,
    markers_by_group,
)
from promptools.parsing.special_tokens import RESERVED_TOKEN, RESERVED_TOKEN_PREFIXES, is_only_tokens

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
    first_word: re.Pattern[str]
    """Matches the first word of a line if that may begin a call."""


class ScanPlan:
    """The heads of a set of dialects, and the scanners that find them."""

    def __init__(self, names: tuple[str, ...], tiers: str, expected: str | None, *, channels: bool) -> None:
        self.key = (names, tiers, expected)
        self.markers = reply_markers()
        # of heads at one offset, that of the expected dialect is tried first
        chosen = sorted((get_dialect(name) for name in names), key=lambda each: each.name != expected)
        alone = len(names) == 1
        self.heads: dict[str, tuple[Dialect, Head]] = {
            f"{dialect.name}_{number}": (dialect, head)
            for dialect in chosen
            for number, head in enumerate(dialect.heads)
            if dialect.name == expected or ((head.tier or dialect.tier) in tiers and (alone or not head.on_request))
        }
        anywhere_heads = (head for _, head in self.heads.values() if not head.at_line_start)
        self.head_characters = "".join({literal[0] for head in anywhere_heads for literal in head.literals})
        on = [each for each in chosen if each.tier in tiers or each.name == expected]
        self.closers = tuple(dict.fromkeys(closer for dialect in on for closer in dialect.closers))
        """Markers that may stand alone beside a call."""
        sentinels = tuple(dict.fromkeys(each for dialect in on for each in _sentinels(dialect)))
        self.header_dialects: dict[str, Dialect] = {}
        """Scanner groups of markers that may begin a message with a header, and their dialects."""
        markers: list[Marker] = []
        bare: list[RareLiteralMarker] = []
        for dialect in on:
            if dialect.channels is not None and channels:
                markers.append(Marker(f"{dialect.name}_header", dialect.channels.markers))
                bare.append(dialect.channels.stripped_header)
                self.header_dialects |= {
                    f"{dialect.name}_header": dialect,
                    dialect.channels.stripped_header.group: dialect,
                }
        lines = {group: head.pattern for group, (_, head) in self.heads.items() if head.at_line_start}
        prose = {group: pattern for group, pattern in lines.items() if _occurs_in_prose(self.heads[group][1])}
        branches = "|".join(f"(?P<{group}>{pattern})" for group, pattern in lines.items())
        self._line_pattern = re.compile(branches) if lines else None
        self._line_patterns = {group: re.compile(pattern) for group, pattern in lines.items()}
        heads = [
            each
            for group, (_, head) in self.heads.items()
            if not head.at_line_start
            for each in _head_markers(group, head)
        ]
        signs, words = _split_word_markers(heads)
        rare: list[RareLiteralMarker | LineStartMarkers | LetterMarkers] = [*words, *bare]
        if prose:
            rare.insert(0, LineStartMarkers(_line_gate(self.heads.values(), None), prose))
        anywhere = [each for each in signs if not self.heads[each.group][1].at_start]
        openers = tuple(each for each in self.closers if not each.startswith("</"))
        ticks = Marker("ticks", ("`", "~~~"), "``*|~~~~*")
        self._scanners = Scanners(
            *(
                MarkerScanner([*begins, *markers, *_literal_markers(self.markers, lone, sentinels), ticks], rare)
                for begins, lone in ((signs, self.closers), (anywhere, self.closers), (anywhere, openers))
            )
        )
        self._tool_scanners: dict[tuple[str, ...] | None, ToolScanners] = {}
        self.rare_words = LiteralSet(word for each in bare for word in each.search_literals)
        self.header_characters = frozenset(first for each in bare for first in each.first_characters)
        self.literal_scanner = MarkerScanner(_literal_markers(self.markers, self.closers, sentinels))
        self._reasoning_scanners: dict[str, MarkerScanner] = {}

    def scanners_for(self, names: tuple[str, ...] | None) -> ToolScanners:
        """Return the scanners for a reply that may call tools of these names (None: of any)."""
        sought = self._tool_scanners.get(names)
        if sought is None:
            if len(self._tool_scanners) >= CACHED_TOOL_LISTS:
                self._tool_scanners.clear()
            gate = _line_gate(self.heads.values(), names)
            labels = {label for _, head in self.heads.values() if head.at_line_start for label in head.literals}
            unfinished = _unfinished_word(names, {*LINE_LABELS, *labels}) if names is not None else ""
            every = Scanners(*(each.with_line_gate(gate, unfinished) for each in self._scanners))
            here = Scanners(*(each.without_literals(self.rare_words.literals) for each in every))
            first = re.compile(f"{gate}|{unfinished}" if unfinished else gate)
            sought = self._tool_scanners[names] = ToolScanners(every, here, first)
        return sought

    def line_heads(self, text: str, at: int) -> Iterator[tuple[str, int]]:
        """Yield the group and the end of each head that may begin at `text[at]`, the first word of a line."""
        match = self._line_pattern.match(text, at) if self._line_pattern is not None else None
        if match is None:
            return
        later = False
        for group, pattern in self._line_patterns.items():
            if group == match.lastgroup:
                later = True
                yield group, match.end()
            elif later:
                later_match = pattern.match(text, at)
                if later_match is not None:
                    yield group, later_match.end()

    def reasoning_scanner(self, closer: str) -> MarkerScanner:
        """Return the scanner for inside a reasoning zone: its closer, and heads that may end it."""
        closer = self.markers.suffixed_closer_start(closer) or closer  # one scanner finds any number of suffixes
        scanner = self._reasoning_scanners.get(closer)
        if scanner is None:
            scanner = self._reasoning_scanners[closer] = self._new_reasoning_scanner(closer)
        return scanner

    def _new_reasoning_scanner(self, closer: str) -> MarkerScanner:
        heads = [
            each
            for group, (dialect, head) in self.heads.items()
            if (head.tier or dialect.tier) in "SA" and not head.at_line_start
            for each in _head_markers(group, head)
        ]
        signs, words = _split_word_markers(heads)
        pattern = _suffixed_pattern(self.markers) if self.markers.suffixed_closer_start(closer) else ""
        return MarkerScanner([Marker("closer", (closer,), pattern), *signs], words)


def _split_word_markers(markers: list[Marker]) -> tuple[list[Marker], list[LetterMarkers]]:
    """Split off the markers that begin with a letter: they are searched for together."""
    letters = [each for each in markers if each.literals[0][0].isalpha()]
    return [each for each in markers if each not in letters], [LetterMarkers(letters)] if letters else []


def _cached_plan(names: tuple[str, ...], tiers: str, expected: str | None, *, channels: bool = True) -> ScanPlan:
    return _new_plan(names, tiers, expected, channels, edition())


@lru_cache(maxsize=64)
def _new_plan(names: tuple[str, ...], tiers: str, expected: str | None, channels: bool, edition: int) -> ScanPlan:
    del edition  # a registered dialect may have the name of one that was removed
    return ScanPlan(names, tiers, expected, channels=channels)


def plan_for(rules: ParseOptions, pinned: str | None) -> ScanPlan:
    """Return the plan for the dialects that the rules allow. Raises UsageError for an unknown pinned one.

    If no tools are offered, only tier S is searched for. Bare calls (tiers B and C) are searched for only where
    they are allowed: neither in strict mode nor where the answer is JSON.
    """
    names = (get_dialect(pinned).name,) if pinned is not None else _accepted_dialects(rules)
    if rules.tools is not None and not rules.tools.names:
        return _cached_plan(names, "S", None)
    bare = rules.strictness != "strict" and not rules.json_answer
    return _cached_plan(names, "SABC" if bare else "SA", rules.expect)


def _accepted_dialects(rules: ParseOptions) -> tuple[str, ...]:
    """Return the dialects that are read if none is pinned."""
    if rules.accept is None:
        return dialect_names()
    return tuple(each for each in dialect_names() if each in rules.accept or each == rules.expect)


def default_plan(expect: str | None) -> ScanPlan:
    """Return the plan of `plan_for` for offered tools and otherwise default rules."""
    return _cached_plan(dialect_names(), "SABC", expect)


def content_plan(plan: ScanPlan) -> ScanPlan:
    """Return the plan for the content of one message, in which there are no headers."""
    names, tiers, asked = plan.key
    return _cached_plan(names, tiers, asked, channels=False)


def _head_markers(group: str, head: Head) -> Iterator[Marker]:
    """Yield a head's markers: literals that begin with a letter are a marker of their own."""
    for letters in (False, True):
        literals = tuple(each for each in head.literals if each[0].isalpha() == letters)
        if literals:
            yield Marker(group, literals, head.pattern, head.gate)


NAMESPACES = {
    "function": r"s?[.:\w]",
    "tool": r"s?[.:]",
    "default_api": "",
    "multi_tool_use": "",
    "call:": "",
    "declaration:": "",
}
"""Prefixes of a tool's name: a word in any case, and the pattern of what follows it."""
LINE_LABELS = (
    "functions.",
    "tools.",
    "default_api:",
    "declaration:",
    "call:",
    "tool_name:",
    "tool call",
)
"""Labels that may begin such a line, besides the literals of the heads."""
MCP_TAG = "use_mcp_tool"
"""Cline's tag around a call of an MCP server's tool."""


MAX_SPELLED_NAMES = 16
"""Tools whose names go into the pattern in full; of more only the beginnings do, which keeps the pattern small."""
MAX_NAME_PREFIXES = 256
"""Beginnings of three letters that one pattern may hold."""
MAX_HELD_NAME = 128
"""Characters of an unfinished name that are held back."""
_ONE_WORD = re.compile(r"[\w.-]+\Z").match


def _occurs_in_prose(head: Head) -> bool:
    """Whether a head may occur outside of a fence."""
    return not head.fence_labels or None in head.fence_labels


def _line_gate(heads: Iterable[tuple[Dialect, Head]], names: tuple[str, ...] | None) -> str:
    """Return the pattern of the beginning of such a line: of an offered tool's name, three letters in any case."""
    gates = dict.fromkeys(head.gate for _, head in heads if head.at_line_start and _occurs_in_prose(head))
    if names is not None:
        firsts = sorted({each.casefold() for each in _name_prefixes(names)})
        prefixes = [_in_any_case(each) for each in firsts]
        namespaces = [_in_any_case(word) + rest for word, rest in NAMESPACES.items()]
        begins = "".join(f"{each[0]}{each[0].lower()}{each[0].upper()}" for each in (*firsts, *NAMESPACES))
        names_gate = f"{_lookahead(begins)}(?:{'|'.join([*prefixes, *namespaces])})"
        tag_gate = f"{_lookahead('<')}</?(?:{'|'.join([*prefixes, _in_any_case(MCP_TAG)])})"
        whole = {NAME_GATE: names_gate, TAG_GATE: tag_gate}
        gates = dict.fromkeys(whole.get(gate, gate) for gate in gates)
    looks = [_first_characters(gate) for gate in gates]
    every = "|".join(gates)
    return every if None in looks or not looks else f"(?=[{''.join(filter(None, looks))}])(?:{every})"


_LOOKAHEAD = re.compile(r"\(\?=\[((?:[^]\\^]|\\.)++)\]\)")


def _lookahead(characters: str) -> str:
    return f"(?=[{''.join(map(re.escape, dict.fromkeys(characters)))}])"


def _first_characters(gate: str) -> str | None:
    """Return the first characters that a gate admits, for a character class; None: the gate does not show them.

    It does if it begins with a lookahead, or is an alternation of plain words.
    """
    lookahead = _LOOKAHEAD.match(gate)
    if lookahead is not None:
        return lookahead[1]
    words = gate.split("|")
    return "".join(each[0] for each in words) if all(re.escape(each) == each for each in words) else None


def _in_any_case(word: str) -> str:
    """Return the pattern of a word in any case; faster than a flag, since `re` sees its first characters."""
    cases = ({letter, letter.lower(), letter.upper()} for letter in word)
    return "".join(
        f"(?:{'|'.join(map(re.escape, sorted(each)))})" if len(each) > 1 else re.escape(*each) for each in cases
    )


def _unfinished_word(names: tuple[str, ...], line_labels: Iterable[str]) -> str:
    """Return the pattern of a suffix of the text that may become the first word of such a line."""
    spaces = r"(?:(?:functions?|tools?|default_api|call|declaration)[.:])*"
    many = len(names) > MAX_SPELLED_NAMES
    spelled = _name_prefixes(names) if many else names
    beginnings = {name[:size] for name in (*spelled, MCP_TAG) for size in range(min(len(name), MAX_HELD_NAME) + 1)}
    labels = {label[:size] for label in line_labels for size in range(1, len(label) + 1)}
    pattern = "|".join(re.sub(r"(?:\\[-.]|_)", r"[-_.]?", re.escape(each)) for each in sorted(beginnings | labels))
    if many:
        rest = r"[\w.-]*" if all(map(_ONE_WORD, names)) else r"[\w.:/ -]*"
        pattern += "".join(f"|{re.escape(each)}{rest}" for each in sorted(spelled))
    return rf"(?=\S)(?=[</]{{0,2}}[\w.:/ -]{{0,{MAX_HELD_NAME}}}\Z)[</]{{0,2}}(?i:{spaces}(?:{pattern}))\Z"


def _name_prefixes(names: tuple[str, ...]) -> set[str]:
    """Return the first three letters of each name, or one letter if there are very many names.

    Models may change the separators in a name, so a beginning never goes past the first one.
    """
    for size in (3, 1):
        firsts = {re.split(r"[\W_]", name[:size])[0] or name[:1] for name in names}
        if len(firsts) <= MAX_NAME_PREFIXES:
            break
    return firsts


_PLAIN_TAG = re.compile(r"</?[a-z]+>\Z")


def _sentinels(dialect: Dialect) -> Iterator[str]:
    """Yield the special tokens of a dialect that may stand alone; tags that are plain words are none."""
    openers = [each for head in dialect.heads if (head.tier or dialect.tier) == "S" for each in head.literals]
    closers = [each for each in dialect.closers if dialect.tier == "S" or (openers and each.startswith("<|"))]
    yield from (each for each in (*filter(is_only_tokens, openers), *closers) if not _PLAIN_TAG.match(each))


def _suffixed_pattern(known: ReplyMarkers) -> str:
    """Return the pattern of tags with a suffix."""
    starts = "|".join(map(re.escape, (*known.suffixed_tags, *known.suffixed_tags.values())))
    return rf"(?:{starts})(?:\Z|{TAG_SUFFIX}(?:>|\Z))"


def _unlabelled_pattern(known: ReplyMarkers) -> str:
    """Return the pattern of an opener that begins others, and of as much as there is of the rest of one."""
    return any_of(
        *(
            rf"{re.escape(opener)}(?:{any_literal_text(_rests(opener, known.reasoning_tags))})?"
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
        {"opener": known.reasoning_tags, "closer": known.lone_closers, "end": known.end_tokens, "frame": frames}
    )
    taken = {literal for each in markers for literal in each.literals}
    suffixed = (*known.suffixed_tags, *known.suffixed_tags.values())
    if suffixed:
        markers.append(Marker("suffixed", suffixed, _suffixed_pattern(known)))
    if known.unlabelled_openers:
        markers.append(Marker("unlabelled", tuple(known.unlabelled_openers), _unlabelled_pattern(known)))
    markers.append(Marker("numbered", RESERVED_TOKEN_PREFIXES, RESERVED_TOKEN))
    for group, texts in (("sentinel", sentinels), ("lone", tuple(each for each in lone if each not in sentinels))):
        unknown = tuple(each for each in texts if each not in taken)
        if unknown:
            markers.append(Marker(group, unknown, joins_runs=True))
    return markers
