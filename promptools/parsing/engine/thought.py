"""Reasoning: what stands between its tags is thought, calls and all."""

from __future__ import annotations

import re
from abc import abstractmethod
from bisect import bisect_left
from typing import NamedTuple

from promptools.parsing.engine.machine import Machine
from promptools.parsing.output import SPACE
from promptools.parsing.scanner import Scanner
from promptools.parsing.zones import CLOSER_OF, SUFFIX
from promptools.types import Fix

RESCUED = frozenset(("kimi_k2",))
"""Dialects of models that, at third parties, end their reasoning with the call itself (Kimi K2 Thinking, qwen-code)."""
READINGS = 8
"""Texts held in a zone that never closed that are read alone, in one reply: each reading is O(n) in its characters.

One is enough where a text means alone what it means behind what came before it. A frame that was open may change that.
"""
LONGEST = max(map(len, CLOSER_OF))
"""Characters of an opener."""
_SUFFIXED_CLOSER = re.compile(rf"</think:{SUFFIX}>")


class Alone(NamedTuple):
    """What a text is when it is read as a reply of its own."""

    called: bool
    spoke: bool
    malformed: bool
    dialects: frozenset[str]
    """Of its calls."""
    verdicts: dict[int, bool]
    """Whether the reply ends in calls and nothing else from a place on, by the characters from there to its end.

    The places are the beginning, and each call in a zone that never closed.
    """


class Closers:
    """The places of zones' closers in one text, for searches from the front to the back: together they are O(n).

    Closers with a suffix may be any number, so they are found in one go.
    """

    def __init__(self, text: str) -> None:
        self.text = text
        self._next: dict[str, int] = {}
        self._suffixed: dict[str, list[int]] | None = None

    def find(self, closer: str, at: int) -> int:
        """Return the index of the next `closer` from `at` on, or -1."""
        place = self._next.get(closer, 0)
        if 0 <= place < at or closer not in self._next:
            find = self._find_suffixed if closer.startswith("</think:") else self.text.find
            place = self._next[closer] = find(closer, at)
        return place

    def _find_suffixed(self, closer: str, at: int) -> int:
        if self._suffixed is None:
            self._suffixed = {}
            for found in _SUFFIXED_CLOSER.finditer(self.text, at):
                self._suffixed.setdefault(found[0], []).append(found.start())
        places = self._suffixed.get(closer, [])
        index = bisect_left(places, at)
        return places[index] if index < len(places) else -1


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
    _tail: list[str]
    """The closer and the white space behind calls that are being rescued."""
    _closers = Closers("")
    _readings = 0
    _verdicts: dict[int, bool]
    """What `Alone` says of the text that is held, or was."""

    @abstractmethod
    def _read_alone(self, text: str, finish_reason: str | None) -> Alone: ...

    def _enter_zone(self, closer: str) -> None:
        self._out.zone("reasoning")
        self._zone_closer = closer
        self._zone_scanner = self._plan.zone_scanner(closer)
        self._state = self._reasoning

    def _zone_begins(self, text: str, at: int, final: bool) -> int:
        """Take an opener that a server put back before a reply that starts inside the zone."""
        bare = self._take_space(text, at)
        if bare > at:
            return bare
        opener = next((each for each in CLOSER_OF if text.startswith(each, at)), None)
        if opener is None and not final and any(each.startswith(text[at : at + LONGEST]) for each in CLOSER_OF):
            return ~at
        self._state = self._reasoning
        if opener is None:
            return at
        self._out.junction(opener, "reasoning")
        self._enter_zone(CLOSER_OF[opener])
        return at + len(opener)

    def _leave_zone(self) -> None:
        self._out.junction(self._zone_closer, "text")
        self._zone_closed = self._line = True
        self._state = self._prose

    def _reasoning_over(self) -> bool:
        """Tell whether a zone has closed, or something was said or called: a tool's name may be a tag from then on."""
        return self._zone_closed or not self._out.fresh or self._out.called

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
        search = self._zone_scanner.search
        while True:
            found = search(text, at)
            if found is None:
                cut = len(text) if final else self._zone_scanner.hold(text, at)
                self._out.words(text[begin:cut])
                return cut if cut == len(text) else ~cut
            start, end = found.span()
            group = found.lastgroup or ""
            closes = group == "closer" and self._closes(found, final)
            if closes:
                self._out.words(text[begin:start])
                self._leave_zone()
                return end
            ready = closes if group == "closer" else self._any_ready(found, text, final)
            if ready is False:
                at = start + 1
                search = self._swept(self._zone_scanner, text).search
                continue
            if ready is None:  # what it stands in may become the closer too
                start = min(start, self._zone_scanner.hold(text, at))
            self._out.words(text[begin:start])
            if ready is None:
                return ~start
            self._state = self._suspecting
            return start

    def _closes(self, found: re.Match[str], final: bool) -> bool | None:
        """Tell whether this is the closer of the zone, and not one with another suffix; None: more text must tell."""
        if found[0] == self._zone_closer:
            return True
        return None if not final and found.end() == len(found.string) and found[0][-1] != ">" else False

    def _any_ready(self, found: re.Match[str], text: str, final: bool) -> bool | None:
        """Tell whether one of the heads that stand here begins a call; None: more text is needed."""
        for group, end in self._zone_scanner.all_at(text, found):
            ready = self._ready(group, text, found.start(), end, final)
            if ready is not False:
                return ready
        return False

    def _suspecting(self, text: str, at: int, final: bool) -> int:
        """Hold a call inside an open zone: thought if the zone closes, a call if it never does."""
        size = len(self._zone_closer)
        seam = self._seam + text[at : at + size]
        found = seam.find(self._zone_closer)
        place = at + found - len(self._seam) if found >= 0 else self._closer_after(text, at)
        if found < 0 and place < 0:
            if final and not self._suspect:
                return self._unclosed(text, at)
            self._suspect.append(text[at:])
            self._seam = (self._seam + text[max(at, len(text) - size) :])[-size + 1 :]
            return len(text)
        end = place + size
        thought = "".join((*self._suspect, text[at:end]))
        self._suspect, self._seam = [], ""
        if self._may_rescue(thought[:-size]):
            self._drafts = [thought[:-size], thought[-size:]]
            self._state = self._drafted
            return end
        self._out.words(thought[:-size])
        self._leave_zone()
        return end

    def _closer_after(self, text: str, at: int) -> int:
        """Return where the closer of the zone is in `text` from `at` on, or -1. All searches together are O(n)."""
        if self._closers.text is not text:
            self._closers = Closers(text)
        return self._closers.find(self._zone_closer, at)

    def _unclosed(self, text: str, at: int) -> int:
        """Decide on a call in a zone that the text never closes, if that is known already; else hold it."""
        meant = self._verdicts.get(len(text) - at)
        if meant is None:
            self._suspect = [text[at:]]
            return len(text)
        if meant:
            self._out.cut_short()
            self._state = self._prose
            return at
        self._out.words(text[at:])
        return len(text)

    def _may_rescue(self, thought: str) -> bool:
        """Tell whether calls that end a closed zone may have been meant: nothing else stands behind their beginning."""
        if self._rules.rescue is False or self._out.spoke or self._out.called:
            return False
        alone = self._read_alone(thought, None)
        self._verdicts = alone.verdicts
        if not alone.called or alone.spoke or alone.malformed:
            return False
        return self._rules.rescue is True or alone.dialects <= RESCUED

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

    def _rescue(self) -> None:
        """Read the calls that ended the reasoning of a reply that is over without another word."""
        thought, closer, *space = self._drafts
        self._drafts = []
        self._out.liberty(Fix("marker", "nothing was said after the reasoning, so the call that ends it is meant"))
        self._out.cut_short()
        self._state = self._prose
        self._tail = [closer, *space]
        self._run(thought, final=True)

    def _end_rescue(self) -> None:
        """Take the closer and the white space behind the calls that were rescued."""
        closer, *space = self._tail
        self._tail = []
        self._out.mark(closer, "markup")
        self._out.words("".join(space))

    def _unsuspect(self, finish_reason: str | None) -> None:
        """Decide on a zone that never closed: a call that ends the reply ended it; anything else was thought."""
        held = "".join(self._suspect)
        self._suspect, self._seam = [], ""
        if not self._is_meant(held, finish_reason):
            self._out.words(held)
            return
        self._out.cut_short()
        self._state = self._prose
        self._run(held, final=True)

    def _is_meant(self, held: str, finish_reason: str | None) -> bool:
        """Tell whether the reply ends in calls, and nothing else, from a call in a zone that never closed on."""
        if finish_reason == "length":
            return False
        if len(held) not in self._verdicts:
            if self._readings == READINGS:
                return False
            self._readings += 1
            self._verdicts = self._read_alone(held, finish_reason).verdicts
        return self._verdicts[len(held)]
