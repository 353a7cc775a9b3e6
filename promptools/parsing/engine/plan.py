"""What the engine searches for in a reply: the active dialects, compiled once for each set of them into scanners.

A `Plan` belongs to a set of dialects. Its scanners find the heads of calls, tags of reasoning and of answers,
end-of-turn tokens, closers that may stand alone, and backticks. Which of them count depends on what came before, so
there are three scanners (`Scanners`): a head marked `first`, for instance, begins a call only if no text precedes it.

Heads of the kind `line` (a tool's name that begins a line) depend on the offered tools. For those, `Plan.sought`
derives scanners whose gate is built of the first letters of the tools' names.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import NamedTuple

from promptools import dialects as registry
from promptools.dialects.base import A_NAME, A_TAG, Dialect, Head
from promptools.dialects.openings import token
from promptools.dialects.settle import Rules
from promptools.parsing.scanner import AnyOf, LineMarker, Marker, RareMarker, Scanner, WordMarker, by_group
from promptools.parsing.tokens import END_TOKENS, NUMBERED, NUMBERED_FIRST, are_tokens
from promptools.parsing.zones import CHANNEL, CHANNEL_LABEL, CLOSER_OF, CLOSERS, FRAMES, SUFFIXED

REMEMBERED = 64
"""Lists of tools for which one plan caches its scanners."""


class Scanners(NamedTuple):
    """The scanner for each of three situations."""

    now: Scanner
    """No text so far, or none since a call that is held."""
    beside: Scanner
    """After text and then a call."""
    later: Scanner
    """After other text: a lone opener may still begin a call, a lone closer means nothing."""


class Sought(NamedTuple):
    """The scanners for a reply that may call certain tools."""

    every: Scanners
    here: Scanners
    """The same, for text that holds none of the plan's `rare` words."""
    first: re.Pattern[str]
    """Matches the first word of a line if that may begin a call."""


class Plan:
    """The heads of a set of dialects, and the scanners that find them."""

    def __init__(self, names: tuple[str, ...], tiers: str, asked: str | None, *, channels: bool) -> None:
        self.key = (names, tiers, asked)
        # of heads at one offset, that of the expected dialect is tried first
        chosen = sorted((registry.get(name) for name in names), key=lambda each: each.name != asked)
        alone = len(names) == 1
        self.heads: dict[str, tuple[Dialect, Head]] = {
            f"{dialect.name}_{number}": (dialect, head)
            for dialect in chosen
            for number, head in enumerate(dialect.heads)
            if dialect.name == asked or ((head.tier or dialect.tier) in tiers and (alone or not head.asked))
        }
        self.opens = "".join({literal[0] for _, head in self.heads.values() for literal in head.literals})
        on = [each for each in chosen if each.tier in tiers or each.name == asked]
        self.closers = tuple(dict.fromkeys(closer for dialect in on for closer in dialect.closers))
        """Markers that may stand alone beside a call."""
        sentinels = tuple(dict.fromkeys(each for dialect in on for each in _sentinels(dialect)))
        self.headers: dict[str, Dialect] = {}
        """Scanner groups of markers that may begin a message with a header, and their dialects."""
        markers: list[Marker] = []
        bare: list[RareMarker] = []
        for dialect in on:
            if dialect.channels is not None and channels:
                markers.append(Marker(f"{dialect.name}_header", dialect.channels.markers))
                bare.append(dialect.channels.bare)
                self.headers |= {f"{dialect.name}_header": dialect, dialect.channels.bare.group: dialect}
        lines = {group: head.pattern for group, (_, head) in self.heads.items() if head.line}
        prose = {group: pattern for group, pattern in lines.items() if _in_prose(self.heads[group][1])}
        branches = "|".join(f"(?P<{group}>{pattern})" for group, pattern in lines.items())
        self._line = re.compile(branches) if lines else None
        self._lines = {group: re.compile(pattern) for group, pattern in lines.items()}
        heads = [each for group, (_, head) in self.heads.items() if not head.line for each in _markers(group, head)]
        signs, words = _apart(heads)
        rare: list[RareMarker | LineMarker | WordMarker] = [*words, *bare]
        if prose:
            rare.insert(0, LineMarker(_line_gate(self.heads.values(), None), prose))
        anywhere = [each for each in signs if not self.heads[each.group][1].first]
        openers = tuple(each for each in self.closers if not each.startswith("</"))
        ticks = Marker("ticks", ("`", "~~~"), "``*|~~~~*")
        self._scanners = Scanners(
            *(
                Scanner([*begins, *markers, *_literals(lone, sentinels), ticks], rare)
                for begins, lone in ((signs, self.closers), (anywhere, self.closers), (anywhere, openers))
            )
        )
        self._sought: dict[tuple[str, ...] | None, Sought] = {}
        self.rare = AnyOf(word for each in bare for word in each.words)
        self.firsts = frozenset(first for each in bare for first in each.firsts)
        self.literals = Scanner(_literals(self.closers, sentinels))
        self._zones: dict[str, Scanner] = {}

    def sought(self, names: tuple[str, ...] | None) -> Sought:
        """Return the scanners for a reply that may call tools of these names (None: of any)."""
        sought = self._sought.get(names)
        if sought is None:
            if len(self._sought) >= REMEMBERED:
                self._sought.clear()
            gate = _line_gate(self.heads.values(), names)
            unfinished = _unfinished(names) if names is not None else ""
            every = Scanners(*(each.with_line_gate(gate, unfinished) for each in self._scanners))
            here = Scanners(*(each.without(self.rare.words) for each in every))
            first = re.compile(f"{gate}|{unfinished}" if unfinished else gate)
            sought = self._sought[names] = Sought(every, here, first)
        return sought

    def line_heads(self, text: str, at: int) -> Iterator[tuple[str, int]]:
        """Yield the group and the end of each head that may begin at `text[at]`, the first word of a line."""
        match = self._line.match(text, at) if self._line is not None else None
        if match is None:
            return
        later = False
        for group, pattern in self._lines.items():
            if group == match.lastgroup:
                later = True
                yield group, match.end()
            elif later:
                later_match = pattern.match(text, at)
                if later_match is not None:
                    yield group, later_match.end()

    def zone_scanner(self, closer: str) -> Scanner:
        """Return the scanner for inside a reasoning zone: its closer, and heads that may end it."""
        if closer.startswith("</think:"):  # any number of suffixes: one scanner finds them all
            closer = "</think:"
        scanner = self._zones.get(closer)
        if scanner is None:
            scanner = self._zones[closer] = self._zone(closer)
        return scanner

    def _zone(self, closer: str) -> Scanner:
        heads = [
            each
            for group, (dialect, head) in self.heads.items()
            if (head.tier or dialect.tier) in "SA" and not head.line
            for each in _markers(group, head)
        ]
        signs, words = _apart(heads)
        pattern = SUFFIXED if closer == "</think:" else ""
        return Scanner([Marker("closer", (closer,), pattern), *signs], words)


def _apart(markers: list[Marker]) -> tuple[list[Marker], list[WordMarker]]:
    """Split off the markers that begin with a letter: they are searched for together."""
    letters = [each for each in markers if each.literals[0][0].isalpha()]
    return [each for each in markers if each not in letters], [WordMarker(letters)] if letters else []


def _plan(names: tuple[str, ...], tiers: str, asked: str | None, *, channels: bool = True) -> Plan:
    return _made(names, tiers, asked, channels, registry.edition())


@lru_cache(maxsize=64)
def _made(names: tuple[str, ...], tiers: str, asked: str | None, channels: bool, edition: int) -> Plan:
    del edition  # a registered dialect may have the name of one that was removed
    return Plan(names, tiers, asked, channels=channels)


def plan_of(rules: Rules, pinned: str | None) -> Plan:
    """Return the plan for the dialects that the rules allow. Raises UsageError for an unknown pinned one.

    If no tools are offered, only tier S is searched for. Bare calls (tiers B and C) are searched for only where
    they are allowed: neither in strict mode nor where the answer is JSON.
    """
    names = (registry.get(pinned).name,) if pinned is not None else _accepted(rules)
    if rules.tools is not None and not rules.tools.names:
        return _plan(names, "S", None)
    bare = rules.strictness != "strict" and not rules.json_answer
    return _plan(names, "SABC" if bare else "SA", rules.expect)


def _accepted(rules: Rules) -> tuple[str, ...]:
    """Return the dialects that are read if none is pinned."""
    if rules.accept is None:
        return registry.names()
    return tuple(each for each in registry.names() if each in rules.accept or each == rules.expect)


def usual_plan(expect: str | None) -> Plan:
    """Return the plan of `plan_of` for offered tools and otherwise default rules."""
    return _plan(registry.names(), "SABC", expect)


def prose_plan(plan: Plan) -> Plan:
    """Return the plan for the content of one message, in which there are no headers."""
    names, tiers, asked = plan.key
    return _plan(names, tiers, asked, channels=False)


def _markers(group: str, head: Head) -> Iterator[Marker]:
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
LABELS = ("function call", "functions.", "tools.", "default_api:", "declaration:", "call:", "tool_name:", "tool call")
"""Labels that may begin such a line."""
MCP = "use_mcp_tool"
"""Cline's tag around a call of an MCP server's tool."""


FEW = 16
"""Tools whose names go into the pattern in full; of more only the beginnings do, which keeps the pattern small."""
MOST_FIRSTS = 256
"""Beginnings of three letters that one pattern may hold."""
LONGEST = 128
"""Characters of an unfinished name that are held back."""
_ONE_WORD = re.compile(r"[\w.-]+\Z").match


def _in_prose(head: Head) -> bool:
    """Whether a head may occur outside of a fence."""
    return not head.labels or None in head.labels


def _line_gate(heads: Iterable[tuple[Dialect, Head]], names: tuple[str, ...] | None) -> str:
    """Return the pattern of the beginning of such a line: of an offered tool's name, three letters in any case."""
    gates = dict.fromkeys(head.gate for _, head in heads if head.line and _in_prose(head))
    if names is not None:
        firsts = sorted({each.casefold() for each in _firsts(names)})
        prefixes = [_in_any_case(each) for each in firsts]
        namespaces = [_in_any_case(word) + rest for word, rest in NAMESPACES.items()]
        begins = "".join(f"{each[0]}{each[0].lower()}{each[0].upper()}" for each in (*firsts, *NAMESPACES))
        names_gate = f"{_look(begins)}(?:{'|'.join([*prefixes, *namespaces])})"
        tag_gate = f"{_look('<')}</?(?:{'|'.join([*prefixes, _in_any_case(MCP)])})"
        whole = {A_NAME: names_gate, A_TAG: tag_gate}
        gates = dict.fromkeys(whole.get(gate, gate) for gate in gates)
    looks = [_first(gate) for gate in gates]
    every = "|".join(gates)
    return every if None in looks or not looks else f"(?=[{''.join(filter(None, looks))}])(?:{every})"


_LOOK = re.compile(r"\(\?=\[((?:[^]\\^]|\\.)++)\]\)")


def _look(characters: str) -> str:
    return f"(?=[{''.join(map(re.escape, dict.fromkeys(characters)))}])"


def _first(gate: str) -> str | None:
    """Return the first characters that a gate admits, for a character class; None: the gate does not show them.

    It does if it begins with a lookahead, or is an alternation of plain words.
    """
    lookahead = _LOOK.match(gate)
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


def _unfinished(names: tuple[str, ...]) -> str:
    """Return the pattern of a suffix of the text that may become the first word of such a line."""
    spaces = r"(?:(?:functions?|tools?|default_api|call|declaration)[.:])*"
    many = len(names) > FEW
    spelled = _firsts(names) if many else names
    beginnings = {name[:size] for name in (*spelled, MCP) for size in range(min(len(name), LONGEST) + 1)}
    labels = {label[:size] for label in LABELS for size in range(1, len(label) + 1)}
    pattern = "|".join(re.sub(r"(?:\\[-.]|_)", r"[-_.]?", re.escape(each)) for each in sorted(beginnings | labels))
    if many:
        rest = r"[\w.-]*" if all(map(_ONE_WORD, names)) else r"[\w.:/ -]*"
        pattern += "".join(f"|{re.escape(each)}{rest}" for each in sorted(spelled))
    return rf"(?=\S)(?=[</]{{0,2}}[\w.:/ -]{{0,{LONGEST}}}\Z)[</]{{0,2}}(?i:{spaces}(?:{pattern}))\Z"


def _firsts(names: tuple[str, ...]) -> set[str]:
    """Return the first three letters of each name, or one letter if there are very many names.

    Models may change the separators in a name, so a beginning never goes past the first one.
    """
    for size in (3, 1):
        firsts = {re.split(r"[\W_]", name[:size])[0] or name[:1] for name in names}
        if len(firsts) <= MOST_FIRSTS:
            break
    return firsts


_PLAIN_TAG = re.compile(r"</?[a-z]+>\Z")


def _sentinels(dialect: Dialect) -> Iterator[str]:
    """Yield the special tokens of a dialect that may stand alone; tags that are plain words are none."""
    openers = [each for head in dialect.heads if (head.tier or dialect.tier) == "S" for each in head.literals]
    closers = [each for each in dialect.closers if dialect.tier == "S" or (openers and each.startswith("<|"))]
    yield from (each for each in (*filter(are_tokens, openers), *closers) if not _PLAIN_TAG.match(each))


def _literals(lone: tuple[str, ...], sentinels: tuple[str, ...]) -> list[Marker]:
    """Return markers for tags, tokens, and what may stand alone: of a run of one opener, all but the last at once.

    A run of different openers is never matched whole: each may begin a call, and chunks would cut the run elsewhere.
    """
    frames = tuple(filter(None, (*FRAMES, *FRAMES.values())))
    markers = by_group({"opener": CLOSER_OF, "closer": CLOSERS, "end": END_TOKENS, "frame": frames})
    known = {literal for each in markers for literal in each.literals}
    markers.append(Marker("suffixed", ("<think:", "</think:"), SUFFIXED))
    markers.append(Marker("channel", (CHANNEL,), rf"{re.escape(CHANNEL)}(?:{token(CHANNEL_LABEL)})?"))
    markers.append(Marker("numbered", NUMBERED_FIRST, NUMBERED))
    for group, texts in (("sentinel", sentinels), ("lone", tuple(each for each in lone if each not in sentinels))):
        unknown = tuple(each for each in texts if each not in known)
        if unknown:
            markers.append(Marker(group, unknown, runs=True))
    return markers
