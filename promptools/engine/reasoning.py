"""The states inside reasoning, where a call is a draft, unless it was meant.

Models close their reasoning before they call, mostly. Two cases need more text, or the end of the reply, to decide:

    <think> ... <call>            the zone may never close: the model ended it with the call itself
    <think> ... <call></think>    the zone closes and nothing follows: the call may be all that was meant

In the first, everything from the head of the call on is held (`_held_call`). If the closer comes, it was reasoning; if
the text ends first, the held text is parsed as a reply of its own (`StandaloneResult`) and counts if it is calls and
nothing else. In the second, the closed zone's calls are held (`_trailing_calls`) while only white space follows; other
text makes them reasoning, and the end of the reply rescues them, in dialects whose models are known to do so
(`Dialect.rescues`).

Searches are kept linear: `CloserIndex` remembers where the next closer is, and parsing alone is limited to
`MAX_STANDALONE_PARSES`.
"""

from __future__ import annotations

import re
from abc import abstractmethod
from bisect import bisect_left
from typing import NamedTuple

from promptools.dialects.reply_markers import ReplyMarkers
from promptools.engine.state import StateMachine
from promptools.parsing.emitter import SPACE
from promptools.parsing.scanner import MarkerScanner
from promptools.types import Fix

MAX_STANDALONE_PARSES = 8
"""How often, in one reply, text held in an unclosed zone is parsed alone: each parse is O(n) in its characters.

One is enough if the text means the same alone as after what precedes it. A frame that is open there may change that.
"""


class StandaloneResult(NamedTuple):
    """What a text contains when it is parsed as a reply of its own."""

    has_calls: bool
    has_text: bool
    has_malformed: bool
    dialects: frozenset[str]
    """Of its calls."""
    verdicts: dict[int, bool]
    """Whether the text from some offset on is calls and nothing else, by the characters from there to its end.

    The offsets are the beginning, and each call in a zone that never closed.
    """


class CloserIndex:
    """Finds closers of zones in one text, at offsets that only grow: all searches together are O(n).

    There may be any number of closers with a suffix, so those are found in one pass.
    """

    def __init__(self, text: str, markers: ReplyMarkers) -> None:
        self.text = text
        self._markers = markers
        self._next: dict[str, int] = {}
        self._suffixed: dict[str, list[int]] | None = None

    def find(self, closer: str, at: int) -> int:
        """Return the index of the next `closer` from `at` on, or -1."""
        next_at = self._next.get(closer, 0)
        if 0 <= next_at < at or closer not in self._next:
            find = self._find_suffixed if self._markers.suffixed_closer_start(closer) else self.text.find
            next_at = self._next[closer] = find(closer, at)
        return next_at

    def _find_suffixed(self, closer: str, at: int) -> int:
        if self._suffixed is None:
            self._suffixed = {}
            for match in self._markers.suffixed_closer.finditer(self.text, at):
                self._suffixed.setdefault(match[0], []).append(match.start())
        offsets = self._suffixed.get(closer, [])
        index = bisect_left(offsets, at)
        return offsets[index] if index < len(offsets) else -1


class ReasoningStates(StateMachine):
    """The states inside a reasoning zone."""

    _reasoning_closer = ""
    _reasoning_closed = False
    _reasoning_scanner: MarkerScanner
    _closer_overlap = ""
    _held_call: list[str]
    """A call inside an open zone, and all text after it."""
    _trailing_calls: list[str]
    """The calls that ended a zone, its closer, and white space after that: rescued if no text follows."""
    _rescue_tail: list[str]
    """The closer and the white space after calls that are being rescued."""
    _closers: CloserIndex | None = None
    _standalone_parses = 0
    _verdicts: dict[int, bool]
    """`StandaloneResult.verdicts` of the text that is held, or was."""

    @abstractmethod
    def _parse_standalone(self, text: str, finish_reason: str | None) -> StandaloneResult: ...

    def _enter_reasoning(self, closer: str) -> None:
        self._out.set_zone("reasoning")
        self._reasoning_closer = closer
        self._reasoning_scanner = self._plan.reasoning_scanner(closer)
        self._state = self._reasoning

    def _reasoning_start(self, text: str, at: int, final: bool) -> int:
        """Skip an opener that a server put back before a reply that starts inside the zone."""
        bare = self._write_space(text, at)
        if bare > at:
            return bare
        tags = self._plan.markers.reasoning_tags
        opener = next((tag for tag in tags if text.startswith(tag, at)), None)
        if opener is None and not final and any(tag.startswith(text[at : at + len(tag)]) for tag in tags):
            return ~at
        self._state = self._reasoning
        if opener is None:
            return at
        self._out.add_zone_tag(opener, "reasoning")
        self._enter_reasoning(tags[opener])
        return at + len(opener)

    def _leave_reasoning(self) -> None:
        self._out.add_zone_tag(self._reasoning_closer, "text")
        self._reasoning_closed = self._at_line_start = True
        self._state = self._prose

    def _past_reasoning(self) -> bool:
        """Whether a zone has closed, or text or a call was written: from then on a tag may be a tool's name."""
        return self._reasoning_closed or not self._out.at_start or self._out.has_call

    def _handle_orphan_closer(self, marker: str) -> None:
        """Act on a closer without an opener: the text before it was reasoning, unless a zone was closed before."""
        if self._reasoning_closed:
            self._out.add_zone_tag(marker, "text")
        else:
            self._out.reclassify_as_reasoning(marker)
        self._reasoning_closed = self._at_line_start = True

    def _reasoning(self, text: str, at: int, final: bool) -> int:
        """Search for the closer of the zone, and for a call that may end it instead."""
        begin = at
        search = self._reasoning_scanner.search
        while True:
            match = search(text, at)
            if match is None:
                cut = len(text) if final else self._reasoning_scanner.hold_from(text, at)
                self._out.add_text(text[begin:cut])
                return cut if cut == len(text) else ~cut
            start, end = match.span()
            group = match.lastgroup or ""
            closes = group == "closer" and self._is_closer(match, final)
            if closes:
                self._out.add_text(text[begin:start])
                self._leave_reasoning()
                return end
            ready = closes if group == "closer" else self._check_heads(match, text, final)
            if ready is False:
                at = start + 1
                search = self._sweep_over(self._reasoning_scanner, text).search
                continue
            if ready is None:  # the closer may begin before it
                start = min(start, self._reasoning_scanner.hold_from(text, at))
            self._out.add_text(text[begin:start])
            if ready is None:
                return ~start
            self._state = self._holding_call
            return start

    def _is_closer(self, match: re.Match[str], final: bool) -> bool | None:
        """Whether this is the closer of the zone, and not one with another suffix; None: more text is needed."""
        if match[0] == self._reasoning_closer:
            return True
        return None if not final and match.end() == len(match.string) and match[0][-1] != ">" else False

    def _check_heads(self, match: re.Match[str], text: str, final: bool) -> bool | None:
        """Whether one of the heads at the match begins a call; None: more text is needed."""
        for group, end in self._reasoning_scanner.matches_from(text, match):
            ready = self._check_head(group, text, match.start(), end, final)
            if ready is not False:
                return ready
        return False

    def _holding_call(self, text: str, at: int, final: bool) -> int:
        """Hold a call inside an open zone: reasoning if the zone closes, a call if it never does."""
        size = len(self._reasoning_closer)
        seam = self._closer_overlap + text[at : at + size]
        seam_at = seam.find(self._reasoning_closer)
        closer_at = at + seam_at - len(self._closer_overlap) if seam_at >= 0 else self._closer_after(text, at)
        if seam_at < 0 and closer_at < 0:
            if final and not self._held_call:
                return self._resolve_unclosed(text, at)
            self._held_call.append(text[at:])
            self._closer_overlap = (self._closer_overlap + text[max(at, len(text) - size) :])[-size + 1 :]
            return len(text)
        end = closer_at + size
        thought = "".join((*self._held_call, text[at:end]))
        self._held_call, self._closer_overlap = [], ""
        if self._may_rescue(thought[:-size]):
            self._trailing_calls = [thought[:-size], thought[-size:]]
            self._state = self._holding_trailing_calls
            return end
        self._out.add_text(thought[:-size])
        self._leave_reasoning()
        return end

    def _closer_after(self, text: str, at: int) -> int:
        """Return the offset of the zone's closer in `text` from `at` on, or -1. All searches together are O(n)."""
        if self._closers is None or self._closers.text is not text:
            self._closers = CloserIndex(text, self._plan.markers)
        return self._closers.find(self._reasoning_closer, at)

    def _resolve_unclosed(self, text: str, at: int) -> int:
        """Decide on a call in a zone that the text never closes, if its verdict is known; else hold it."""
        meant = self._verdicts.get(len(text) - at)
        if meant is None:
            self._held_call = [text[at:]]
            return len(text)
        if meant:
            self._out.end_reasoning()
            self._state = self._prose
            return at
        self._out.add_text(text[at:])
        return len(text)

    def _may_rescue(self, reasoning: str) -> bool:
        """Whether calls that end a closed zone may have been meant: nothing but calls follows the first."""
        if self._rules.rescue is False or self._out.has_text or self._out.has_call:
            return False
        alone = self._parse_standalone(reasoning, None)
        self._verdicts = alone.verdicts
        if not alone.has_calls or alone.has_text or alone.has_malformed:
            return False
        return self._rules.rescue is True or alone.dialects <= self._plan.markers.rescuing_dialects

    def _holding_trailing_calls(self, text: str, at: int, _final: bool) -> int:
        """Wait after a zone that ended in calls: text shows that they were drafts."""
        bare = at
        while bare < len(text) and text[bare] in SPACE:
            bare += 1
        self._trailing_calls.append(text[at:bare])
        if bare < len(text):
            thought, _, *space = self._trailing_calls
            self._trailing_calls = []
            self._out.add_text(thought)
            self._leave_reasoning()
            self._out.add_text("".join(space))
        return bare

    def _rescue_trailing_calls(self) -> None:
        """Parse the calls that ended the reasoning of a reply that has no other text."""
        thought, closer, *space = self._trailing_calls
        self._trailing_calls = []
        self._out.add_fix(Fix("marker", "nothing follows the reasoning, so the call that ends it is meant"))
        self._out.end_reasoning()
        self._state = self._prose
        self._rescue_tail = [closer, *space]
        self._run(thought, final=True)

    def _end_rescue(self) -> None:
        """Write the closer and the white space after the calls that were rescued."""
        closer, *space = self._rescue_tail
        self._rescue_tail = []
        self._out.add_discarded(closer, "markup")
        self._out.add_text("".join(space))

    def _resolve_held_call(self, finish_reason: str | None) -> None:
        """Decide on a zone that never closed: a call that ends the reply ended it; anything else was reasoning."""
        held = "".join(self._held_call)
        self._held_call, self._closer_overlap = [], ""
        if not self._ends_in_calls(held, finish_reason):
            self._out.add_text(held)
            return
        self._out.end_reasoning()
        self._state = self._prose
        self._run(held, final=True)

    def _ends_in_calls(self, held: str, finish_reason: str | None) -> bool:
        """Whether the held text, from a call in an unclosed zone on, contains calls and nothing else."""
        if finish_reason == "length":
            return False
        if len(held) not in self._verdicts:
            if self._standalone_parses == MAX_STANDALONE_PARSES:
                return False
            self._standalone_parses += 1
            self._verdicts = self._parse_standalone(held, finish_reason).verdicts
        return self._verdicts[len(held)]
