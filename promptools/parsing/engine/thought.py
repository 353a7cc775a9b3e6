"""Reasoning: what stands between its tags is thought, calls and all."""

from __future__ import annotations

import re
from abc import abstractmethod

from promptools.parsing.engine.machine import Machine
from promptools.parsing.output import SPACE
from promptools.parsing.scanner import Scanner
from promptools.parsing.zones import CLOSER_OF
from promptools.types import Fix, Reply

RESCUED = frozenset(("kimi_k2",))
"""Dialects of models that, at third parties, end their reasoning with the call itself (Kimi K2 Thinking, qwen-code)."""


class Thought(Machine):
    """The states inside a reasoning zone."""

    _zone_closer = ""
    _zone_closed = False
    _zone_scanner: Scanner
    _seam = ""
    _suspect: list[str]
    """A call inside an open zone, and all that followed it."""
    _drafts: list[str]
    """Calls that ended a zone, its closer, and the white space after it: a rescue, if nothing else is said."""

    @abstractmethod
    def _end_candidate(self, finish_reason: str | None) -> None: ...
    @abstractmethod
    def _read_alone(self, text: str, finish_reason: str | None) -> Reply: ...

    def _enter_zone(self, closer: str) -> None:
        self._out.zone("reasoning")
        self._zone_closer = closer
        self._zone_scanner = self._plan.zone_scanner(closer, self._tired)
        self._state = self._reasoning

    def _zone_begins(self, text: str, at: int, final: bool) -> int:
        """Take an opener that a server put back before a reply that starts inside the zone."""
        bare = len(text) - len(text[at:].lstrip(SPACE))
        opener = next((each for each in CLOSER_OF if text.startswith(each, bare)), None)
        if opener is None and not final and any(each.startswith(text[bare:]) for each in CLOSER_OF):
            return ~at
        self._state = self._reasoning
        if opener is None:
            return at
        self._out.words(text[at:bare])
        self._out.junction(opener, "reasoning")
        self._enter_zone(CLOSER_OF[opener])
        return bare + len(opener)

    def _leave_zone(self) -> None:
        self._out.junction(self._zone_closer, "text")
        self._zone_closed = self._line = True
        self._state = self._prose

    def _orphan(self, marker: str) -> None:
        """Take a closer whose opener was never seen: what went before was thought, unless a zone was closed before."""
        if self._zone_closed:
            self._out.junction(marker, "text")
        else:
            self._out.was_reasoning(marker)
        self._zone_closed = self._line = True

    def _reasoning(self, text: str, at: int, final: bool) -> int:
        """Look for the closer of the zone, and for a call that may end it instead."""
        begin = at
        while True:
            found = self._zone_scanner.search(text, at)
            if found is None:
                cut = len(text) if final else self._zone_scanner.hold(text, at)
                self._out.words(text[begin:cut])
                return cut if cut == len(text) else ~cut
            start, end = found.span()
            group = found.lastgroup or ""
            if group == "closer":
                self._out.words(text[begin:start])
                self._leave_zone()
                return end
            ready = self._any_ready(found, text, final)
            if ready is False:
                at = start + 1
                self._zone_scanner = self._plan.zone_scanner(self._zone_closer, self._tired)
                continue
            if ready is None:  # what it stands in may become the closer too
                start = min(start, self._zone_scanner.hold(text, at))
            self._out.words(text[begin:start])
            if ready is None:
                return ~start
            self._state = self._suspecting
            return start

    def _any_ready(self, found: re.Match[str], text: str, final: bool) -> bool | None:
        """Tell whether one of the heads that stand here begins a call; None: more text is needed."""
        for group, end in self._zone_scanner.all_at(text, found):
            ready = self._ready(group, text, found.start(), end, final)
            if ready is not False:
                return ready
        return False

    def _suspecting(self, text: str, at: int, _final: bool) -> int:
        """Hold a call inside an open zone: thought if the zone closes, a call if it never does."""
        size = len(self._zone_closer)
        seam = self._seam + text[at : at + size]
        found = seam.find(self._zone_closer)
        end = at + found + size - len(self._seam) if found >= 0 else text.find(self._zone_closer, at) + size
        if end < size and found < 0:
            self._suspect.append(text[at:])
            self._seam = (self._seam + text[max(at, len(text) - size) :])[-size + 1 :]
            return len(text)
        thought = "".join((*self._suspect, text[at:end]))
        self._suspect, self._seam = [], ""
        if self._may_rescue(thought[:-size]):
            self._drafts = [thought[:-size], thought[-size:]]
            self._state = self._drafted
            return end
        self._out.words(thought[:-size])
        self._leave_zone()
        return end

    def _may_rescue(self, thought: str) -> bool:
        """Tell whether calls that end a closed zone may have been meant: nothing else stands behind their beginning."""
        if self._rules.rescue is False or self._out.spoke or self._out.called:
            return False
        alone = self._read_alone(thought, None)
        if not alone.calls or alone.content or alone.malformed:
            return False
        return self._rules.rescue is True or all(each.dialect in RESCUED for each in alone.calls)

    def _drafted(self, text: str, at: int, _final: bool) -> int:
        """Wait after a zone that ended in calls: words show that they were drafts."""
        bare = at
        while bare < len(text) and text[bare] in SPACE:
            bare += 1
        self._drafts.append(text[at:bare])
        if bare < len(text):
            thought, _, *space = self._drafts
            self._drafts = []
            self._out.words(thought)
            self._leave_zone()
            self._out.words("".join(space))
        return bare

    def _rescue(self, finish_reason: str | None) -> None:
        """Read the calls that ended the reasoning of a reply that is over without another word."""
        thought, closer, *space = self._drafts
        self._drafts = []
        self._out.liberty(Fix("marker", "nothing was said after the reasoning, so the call that ends it is meant"))
        self._out.cut_short()
        self._state = self._prose
        self._run(thought, final=True)
        self._end_candidate(finish_reason)
        self._out.mark(closer, "markup")
        self._out.words("".join(space))

    def _unsuspect(self, finish_reason: str | None) -> None:
        """Decide on a zone that never closed: a call that ends the reply ended it; anything else was thought."""
        held = "".join(self._suspect)
        self._suspect = []
        alone = self._read_alone(held, finish_reason)
        if finish_reason == "length" or alone.content or not alone.calls:
            self._out.words(held)
            return
        self._out.cut_short()
        self._state = self._prose
        self._run(held, final=True)
