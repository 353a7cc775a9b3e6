"""The states inside reasoning, where a call is a draft, unless it was meant.

Models close their reasoning before they call, mostly. Two cases need more text, or the end of the reply, to decide:

    <think> ... <call>            the zone may never close: the model ended it with the call itself
    <think> ... <call></think>    the zone closes and nothing follows: the call may be all that was meant

In the first, everything from the head of the call on is held (`_suspect`). If the closer comes, it was reasoning; if
the text ends first, the held text is parsed as a reply of its own (`Alone`) and counts if it is calls and nothing else.
In the second, the closed zone's calls are held (`_drafts`) while only white space follows; other text makes them
reasoning, and the end of the reply rescues them, in dialects whose models are known to do so (`RESCUED`).

Searches are kept linear: `Closers` remembers where the next closer is, and parsing alone is limited to `READINGS`.
"""

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
"""Dialects of models that, on third-party servers, end reasoning with the call (Kimi K2 Thinking, qwen-code)."""
READINGS = 8
"""How often, in one reply, text held in an unclosed zone is parsed alone: each parse is O(n) in its characters.

One is enough if the text means the same alone as after what precedes it. A frame that is open there may change that.
"""
LONGEST = max(map(len, CLOSER_OF))
"""Most characters of an opener."""
_SUFFIXED_CLOSER = re.compile(rf"</think:{SUFFIX}>")


class Alone(NamedTuple):
    """What a text contains when it is parsed as a reply of its own."""

    called: bool
    spoke: bool
    malformed: bool
    dialects: frozenset[str]
    """Of its calls."""
    verdicts: dict[int, bool]
    """Whether the text from some offset on is calls and nothing else, by the characters from there to its end.

    The offsets are the beginning, and each call in a zone that never closed.
    """


class Closers:
    """Finds closers of zones in one text, at offsets that only grow: all searches together are O(n).

    There may be any number of closers with a suffix, so those are found in one pass.
    """

    def __init__(self, text: str) -> None:
        self.text = text
        self._next: dict[str, int] = {}
        self._suffixed: dict[str, list[int]] | None = None

    def find(self, closer: str, at: int) -> int:
        """Return the index of the next `closer` from `at` on, or -1."""
        next_at = self._next.get(closer, 0)
        if 0 <= next_at < at or closer not in self._next:
            find = self._find_suffixed if closer.startswith("</think:") else self.text.find
            next_at = self._next[closer] = find(closer, at)
        return next_at

    def _find_suffixed(self, closer: str, at: int) -> int:
        if self._suffixed is None:
            self._suffixed = {}
            for match in _SUFFIXED_CLOSER.finditer(self.text, at):
                self._suffixed.setdefault(match[0], []).append(match.start())
        offsets = self._suffixed.get(closer, [])
        index = bisect_left(offsets, at)
        return offsets[index] if index < len(offsets) else -1


class Thought(Machine):
    """The states inside a reasoning zone."""

    _zone_closer = ""
    _zone_closed = False
    _zone_scanner: Scanner
    _seam = ""
    _suspect: list[str]
    """A call inside an open zone, and all text after it."""
    _drafts: list[str]
    """The calls that ended a zone, its closer, and white space after that: rescued if no text follows."""
    _tail: list[str]
    """The closer and the white space after calls that are being rescued."""
    _closers = Closers("")
    _readings = 0
    _verdicts: dict[int, bool]
    """`Alone.verdicts` of the text that is held, or was."""

    @abstractmethod
    def _read_alone(self, text: str, finish_reason: str | None) -> Alone: ...

    def _enter_zone(self, closer: str) -> None:
        self._out.zone("reasoning")
        self._zone_closer = closer
        self._zone_scanner = self._plan.zone_scanner(closer)
        self._state = self._reasoning

    def _zone_begins(self, text: str, at: int, final: bool) -> int:
        """Skip an opener that a server put back before a reply that starts inside the zone."""
        bare = self._take_space(text, at)
        if bare > at:
            return bare
        opener = next((tag for tag in CLOSER_OF if text.startswith(tag, at)), None)
        if opener is None and not final and any(tag.startswith(text[at : at + LONGEST]) for tag in CLOSER_OF):
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
        """Whether a zone has closed, or text or a call was written: from then on a tag may be a tool's name."""
        return self._zone_closed or not self._out.fresh or self._out.called

    def _orphan(self, marker: str) -> None:
        """Act on a closer without an opener: the text before it was reasoning, unless a zone was closed before."""
        if self._zone_closed:
            self._out.junction(marker, "text")
        else:
            self._out.was_reasoning(marker)
        self._zone_closed = self._line = True

    def _reasoning(self, text: str, at: int, final: bool) -> int:
        """Search for the closer of the zone, and for a call that may end it instead."""
        begin = at
        search = self._zone_scanner.search
        while True:
            match = search(text, at)
            if match is None:
                cut = len(text) if final else self._zone_scanner.hold(text, at)
                self._out.words(text[begin:cut])
                return cut if cut == len(text) else ~cut
            start, end = match.span()
            group = match.lastgroup or ""
            closes = group == "closer" and self._closes(match, final)
            if closes:
                self._out.words(text[begin:start])
                self._leave_zone()
                return end
            ready = closes if group == "closer" else self._any_ready(match, text, final)
            if ready is False:
                at = start + 1
                search = self._swept(self._zone_scanner, text).search
                continue
            if ready is None:  # the closer may begin before it
                start = min(start, self._zone_scanner.hold(text, at))
            self._out.words(text[begin:start])
            if ready is None:
                return ~start
            self._state = self._suspecting
            return start

    def _closes(self, found: re.Match[str], final: bool) -> bool | None:
        """Whether this is the closer of the zone, and not one with another suffix; None: more text is needed."""
        if found[0] == self._zone_closer:
            return True
        return None if not final and found.end() == len(found.string) and found[0][-1] != ">" else False

    def _any_ready(self, found: re.Match[str], text: str, final: bool) -> bool | None:
        """Whether one of the heads at the match begins a call; None: more text is needed."""
        for group, end in self._zone_scanner.all_at(text, found):
            ready = self._ready(group, text, found.start(), end, final)
            if ready is not False:
                return ready
        return False

    def _suspecting(self, text: str, at: int, final: bool) -> int:
        """Hold a call inside an open zone: reasoning if the zone closes, a call if it never does."""
        size = len(self._zone_closer)
        seam = self._seam + text[at : at + size]
        seam_at = seam.find(self._zone_closer)
        closer_at = at + seam_at - len(self._seam) if seam_at >= 0 else self._closer_after(text, at)
        if seam_at < 0 and closer_at < 0:
            if final and not self._suspect:
                return self._unclosed(text, at)
            self._suspect.append(text[at:])
            self._seam = (self._seam + text[max(at, len(text) - size) :])[-size + 1 :]
            return len(text)
        end = closer_at + size
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
        """Return the offset of the zone's closer in `text` from `at` on, or -1. All searches together are O(n)."""
        if self._closers.text is not text:
            self._closers = Closers(text)
        return self._closers.find(self._zone_closer, at)

    def _unclosed(self, text: str, at: int) -> int:
        """Decide on a call in a zone that the text never closes, if its verdict is known; else hold it."""
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
        """Whether calls that end a closed zone may have been meant: nothing but calls follows the first."""
        if self._rules.rescue is False or self._out.spoke or self._out.called:
            return False
        alone = self._read_alone(thought, None)
        self._verdicts = alone.verdicts
        if not alone.called or alone.spoke or alone.malformed:
            return False
        return self._rules.rescue is True or alone.dialects <= RESCUED

    def _drafted(self, text: str, at: int, _final: bool) -> int:
        """Wait after a zone that ended in calls: text shows that they were drafts."""
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
        """Parse the calls that ended the reasoning of a reply that has no other text."""
        thought, closer, *space = self._drafts
        self._drafts = []
        self._out.liberty(Fix("marker", "nothing was said after the reasoning, so the call that ends it is meant"))
        self._out.cut_short()
        self._state = self._prose
        self._tail = [closer, *space]
        self._run(thought, final=True)

    def _end_rescue(self) -> None:
        """Write the closer and the white space after the calls that were rescued."""
        closer, *space = self._tail
        self._tail = []
        self._out.mark(closer, "markup")
        self._out.words("".join(space))

    def _unsuspect(self, finish_reason: str | None) -> None:
        """Decide on a zone that never closed: a call that ends the reply ended it; anything else was reasoning."""
        held = "".join(self._suspect)
        self._suspect, self._seam = [], ""
        if not self._is_meant(held, finish_reason):
            self._out.words(held)
            return
        self._out.cut_short()
        self._state = self._prose
        self._run(held, final=True)

    def _is_meant(self, held: str, finish_reason: str | None) -> bool:
        """Whether the held text, from a call in an unclosed zone on, contains calls and nothing else."""
        if finish_reason == "length":
            return False
        if len(held) not in self._verdicts:
            if self._readings == READINGS:
                return False
            self._readings += 1
            self._verdicts = self._read_alone(held, finish_reason).verdicts
        return self._verdicts[len(held)]
