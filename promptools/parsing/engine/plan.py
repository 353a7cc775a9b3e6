"""What is looked for in a reply: the dialects that are on, compiled once for each set of them."""

from __future__ import annotations

import re
from functools import lru_cache

from promptools import dialects as registry
from promptools.dialects.base import Dialect, Head
from promptools.dialects.settle import Rules
from promptools.parsing.scanner import Marker, RareMarker, Scanner, by_group
from promptools.parsing.zones import CLOSER_OF, CLOSERS, DEBRIS


class Plan:
    """The heads of a set of dialects, and the scanners that find them."""

    def __init__(self, names: tuple[str, ...]) -> None:
        chosen = [registry.get(name) for name in names]
        self.names = names
        self.heads: dict[str, tuple[Dialect, Head]] = {
            f"{dialect.name}_{number}": (dialect, head)
            for dialect in chosen
            for number, head in enumerate(dialect.heads)
        }
        self.opens = "".join({literal[0] for _, head in self.heads.values() for literal in head.literals})
        self._certain = tuple(dialect.name for dialect in chosen if dialect.tier in "SA")
        literals = _literals(names)
        ticks = Marker("ticks", ("`", "~~~"), "``*|~~~~*")
        heads = _heads(names)
        self.headers: dict[str, Dialect] = {}
        """Groups of what may begin a message with a header, and whose it is."""
        markers: list[Marker] = []
        bare: list[RareMarker] = []
        for dialect in chosen:
            if dialect.channels is not None:
                markers.append(Marker(f"{dialect.name}_header", dialect.channels.markers))
                bare.append(dialect.channels.bare)
                self.headers |= {f"{dialect.name}_header": dialect, dialect.channels.bare.group: dialect}
        self.scanner = Scanner([*heads, *markers, *literals, ticks], bare)
        later = [each for each in heads if not self.heads[each.group][1].first]
        self.later = Scanner([*later, *markers, *literals, ticks], bare)
        """What is looked for once words were said."""
        self.rare = tuple(word for each in bare for word in each.words)
        self.firsts = frozenset(first for each in bare for first in each.firsts)
        self.scanner_here, self.later_here = self.scanner.without_rare(), self.later.without_rare()
        """The same for text that has none of the `rare` words."""
        self.literals = Scanner(literals)

    def zone_scanner(self, closer: str) -> Scanner:
        """Give the scanner for inside a reasoning zone: its closer, and heads that may end it instead."""
        return _zone_scanner(self._certain, closer)


@lru_cache(maxsize=64)
def _plan(names: tuple[str, ...]) -> Plan:
    return Plan(names)


def plan_of(rules: Rules, pinned: str | None) -> Plan:
    """Choose the dialects by the rules. Raises UsageError for a pinned one that does not exist."""
    names = (registry.get(pinned).name,) if pinned is not None else registry.names()
    offered = rules.tools is None or bool(rules.tools.names)
    return _chosen(names, rules.expect, offered, bare=rules.strictness != "strict" and not rules.json_answer)


def prose_plan(plan: Plan) -> Plan:
    """Give the plan for the words of one message: there are no headers inside."""
    return _plan(tuple(name for name in plan.names if registry.get(name).channels is None))


@lru_cache(maxsize=64)
def _chosen(names: tuple[str, ...], expect: str | None, offered: bool, *, bare: bool) -> Plan:
    """Plan for those that are on: without offered tools only sentinels, and bare calls only where they are allowed."""
    dialects = [registry.get(name) for name in names]
    tiers = ("SABC" if bare else "SA") if offered else "S"
    return _plan(tuple(each.name for each in dialects if each.tier in tiers or (offered and each.name == expect)))


def _heads(names: tuple[str, ...]) -> list[Marker]:
    return [
        Marker(f"{name}_{number}", head.literals, head.pattern, head.gate)
        for name in names
        for number, head in enumerate(registry.get(name).heads)
    ]


def _literals(names: tuple[str, ...]) -> list[Marker]:
    """Give the tags, the debris, and the markers that may stand alone: of a run of openers all but the last at once."""
    lone = dict.fromkeys(closer for name in names for closer in registry.get(name).closers)
    openers = "|".join(re.escape(each) for each in lone if not each.startswith("</"))
    runs = f"(?:{openers})+(?=(?:{openers}))|" if openers else ""
    literal = "|".join(re.escape(each) for each in lone)
    markers = by_group({"opener": CLOSER_OF, "closer": CLOSERS, "debris": DEBRIS})
    return [*markers, Marker("lone", tuple(lone), runs + literal)] if lone else markers


@lru_cache(maxsize=64)
def _zone_scanner(names: tuple[str, ...], closer: str) -> Scanner:
    return Scanner([Marker("closer", (closer,)), *_heads(names)])
