"""The base of the markup reader: tokens in, segments out, and in the end the parts that tile the text.

Text arrives in pieces. `Tags` splits it into tokens, each a tag or the text between two, and each token goes to
`_state`, a bound method that is the current state. All tokens are kept, and a position in the block is an index into
them, so that what turns out not to be a call can be returned as text unchanged.

A call that has ended is a `Segment`, a range of tokens; the tokens between segments are markup. A body in JSON is left
to another reader (`_inner`) until that has decided. The block ends in `_finish`, which resolves the segments and tiles
the text with parts, or in `_text`, which returns it as text. The tokens after its end become `rest` and are read again.

Where a call is intended it is emitted while it is being written (`LiveMarkup`). Emitted parts are never taken back:
`_told` is the index up to which this happened.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import NamedTuple, TypeAlias

from promptools.dialects.base import tried
from promptools.dialects.blocks.wrapped import Closers, WrappedCandidate
from promptools.dialects.body import part_of
from promptools.dialects.envelope import NoCall
from promptools.dialects.markup.collected import Collected, Grammar
from promptools.dialects.markup.live import LiveMarkup
from promptools.dialects.markup.tags import Tag, Tags
from promptools.dialects.settle import Place, Rules, broken
from promptools.parsing.parts import Candidate, Early, Part, Tried, Undecided, note, size_of
from promptools.types import Call, Fix, Malformed

RESYNCS = 8
"""Open bodies at the end of the text that are closed, each within what the one before returned."""
State: TypeAlias = "Callable[[Tag | str], None]"


class Segment(NamedTuple):
    """Tokens of the block that are one call, or what a reader of JSON made of one."""

    start: int
    end: int
    call: Collected | Malformed | None
    parts: list[Part]
    live: LiveMarkup | None = None
    """What streamed it, if it was emitted early."""


class Block(Undecided, ABC):
    """What the states of a block share: its tokens, its segments, and how it ends."""

    def __init__(self, grammar: Grammar, rules: Rules, place: Place, *, firm: bool) -> None:
        super().__init__(firm=firm)
        self._grammar = grammar
        self._rules = rules
        self._place = place
        self._tags = Tags()
        self._tags.spaced = rules.tools.spaced_keys if rules.tools is not None else ()
        self._carry = ""
        self._state: State = self._outside
        self._over = False
        self._tokens: list[str] = []
        """Every token so far; a position in the block is an index into it."""
        self._at = 0
        """The index of the current token."""
        self._unread = 0
        """Characters at the end of the current token that are read again."""
        self._segments: list[Segment] = []
        self._early: list[Fix] = []
        """Fixes made before the current call."""
        self._start = 0
        """The index at which the current call begins."""
        self._inner: Candidate | None = None
        self._live: LiveMarkup | None = None
        """Streams the current call."""
        self._told = 0
        """The index up to which parts have been emitted."""
        self._started = False
        """A call, or its name, has been emitted."""

    @abstractmethod
    def _outside(self, token: Tag | str) -> None: ...
    @abstractmethod
    def _inner_decided(self) -> None: ...
    @abstractmethod
    def _end(self, finish_reason: str | None) -> None: ...

    def feed(self, piece: str, start: int) -> int | None:
        """Read more text; see `Candidate`."""
        carry, self._carry = self._carry, ""
        text, at = (carry + piece[start:], 0) if carry else (piece, start)
        text, at = self._take(text, at, final=False)
        if not self._over:
            self._carry = text[at:]
            return None
        back = self.rest
        left = len(back) + len(text) - at - (len(piece) - start)
        if left <= 0:
            self.rest = ""
            return start - left
        self.rest = (back + text[at : at + left])[:left]
        return start

    def close(self, finish_reason: str | None) -> None:
        """Decide at the end of the text."""
        text, at = self._take(self._carry, 0, final=True)
        for left in reversed(range(RESYNCS)):
            if self._inner is None:
                break
            self._inner.close(finish_reason)
            self._let_out(self._inner.live, len(self._tokens))
            text, at = self._inner.rest, 0
            self._inner_decided()
            if left and not self._over:  # what it returned may hold the next body, open as well
                text, at = self._take(text, 0, final=True)
        if not self._over:
            self._end(finish_reason)
        self.rest += text[at:]

    def _take(self, text: str, at: int, *, final: bool) -> tuple[str, int]:
        """Consume all tokens that are complete; return the text and the index up to which it was taken."""
        while at < len(text) and not self._over:
            if self._inner is not None:
                end = self._inner.feed(text, at)
                self._let_out(self._inner.live, len(self._tokens))
                if end is None:
                    return text, len(text)
                rest = self._inner.rest
                text, at = (text, end - len(rest)) if len(rest) <= end else (rest + text[end:], 0)
                self._inner_decided()
                continue
            token = self._tags.next(text, at, final=final)
            if token is None:
                break
            raw = token if isinstance(token, str) else token.raw
            at += len(raw)
            self._at = len(self._tokens)
            self._tokens.append(raw)
            self._state(token)
            if self._live is not None and self._live.out:
                self._let_out(self._live.out, self._start)
            if self._unread:
                at, self._unread = at - self._unread, 0
        return text, at

    def _let_out(self, live: list[Early], before: int) -> None:
        """Emit what is certain of a call after the parts before it; `before`: the index at which the call begins."""
        if live and not self._over:
            self._started = True
            self._go_before(before)
            self.live += live
        live.clear()

    def _go_before(self, place: int) -> None:
        """Emit the parts before index `place`."""
        if place > self._told:
            parts = self._tiles(place)
            self._started = self._started or bool(parts)
            self._let_go(parts)

    def _put_back(self, count: int) -> None:
        """Have the last `count` characters of the current token read again."""
        self._unread = count
        if count:
            self._tokens[-1] = self._tokens[-1][:-count]

    def _read_json(self, name: str | None) -> None:
        """Leave the text that follows to a reader of JSON: the arguments of `name`, or whole calls."""
        wrapper, closers = self._grammar.wrapper, self._grammar.closers
        right = closers[:1] if name is not None else wrapper[1:]
        openers = tuple(opener for opener in wrapper[:1] if opener)
        ends = Closers(right=right, wrong=("<function>", "</think>"), openers=openers)
        early: list[Fix] = []
        if name is None:
            early, self._early = self._early, early
        self._inner = WrappedCandidate("", ends, self._rules, self._place, firm=self.firm, name=name, fixes=early)

    # --- the outcome ---------------------------------------------------------------------------------------------

    def _text(self, end: int, why: str) -> None:
        """Return the tokens before `end` as text."""
        end = max(end, 1)
        raw = "".join(self._tokens[:end])
        self.parts = [Part("text", raw)]
        self.rest = "".join(self._tokens[end:])
        self.tries.append(Tried(self._place.dialect, "text", why, len(raw) + len(self.rest)))
        self._over = True

    def _finish(self, end: int, fix: Fix | None = None) -> None:
        """Resolve the calls before index `end`; the tokens from there on are read again."""
        parts = self._tiles(end)
        if not (parts or self._started):
            self._text(end, "it calls no offered tool")
            return
        if fix is not None:
            note(reversed(parts), fix)
        if self._rules.strictness == "strict" and not self._place.meant and _loose(parts):
            self._text(end, "strict takes no liberties with the markup")
            return
        self.parts = parts
        self.rest = "".join(self._tokens[end:])
        all_parts = [*self._gone, *parts]
        self.tries.append(tried(self._place.dialect, size_of(all_parts), all_parts))
        self._over = True

    def _tiles(self, end: int) -> list[Part]:
        """Resolve the calls before index `end` that were not emitted; return no parts if none of them is a call."""
        place = self._place._replace(alone=False)
        settled = [self._settled(segment, place) for segment in self._segments]
        if self._place.alone and not any(settled):
            settled = [self._settled(segment, self._place) for segment in self._segments]
        if not (any(settled) or self._started):
            return []
        meant = self._place._replace(sentinel=True)  # beside a real call, a call is intended
        settled = [
            tiles or self._settled(segment, meant) for tiles, segment in zip(settled, self._segments, strict=True)
        ]
        parts: list[Part] = []
        at = self._told
        for segment, tiles in zip(self._segments, settled, strict=True):
            self._mark(parts, at, segment.start)
            parts += tiles or [self._no_name(segment)]
            at = segment.end
        self._mark(parts, at, end)
        self._segments, self._told = [], end
        return parts

    def _mark(self, parts: list[Part], start: int, end: int) -> None:
        raw = "".join(self._tokens[start:end])
        if raw:
            parts.append(Part("markup", raw))

    def _settled(self, segment: Segment, place: Place) -> list[Part]:
        if segment.call is None:
            return segment.parts
        raw = "".join(self._tokens[segment.start : segment.end])
        if isinstance(segment.call, Malformed):
            return [Part("malformed", raw, malformed=segment.call)]
        try:
            outcome = self._outcome(segment.call, place)
            if segment.live is not None:
                outcome = segment.live.settle(outcome, place.dialect)
            return [part_of(outcome, raw)]
        except NoCall as no:
            self.tries.append(Tried(place.dialect, "text", str(no), len(raw)))
            return []

    def _outcome(self, call: Collected, place: Place) -> Call | Malformed:
        outcome = call.settle(place)
        if call.wrong:
            return broken("invalid_json", call.wrong, place.dialect, outcome.name)
        if isinstance(outcome, Malformed) and call.unclosed and outcome.reason == "invalid_arguments":
            return broken("truncated", "the text ended before its last parameters", place.dialect, outcome.name)
        return outcome

    def _no_name(self, segment: Segment) -> Part:
        raw = "".join(self._tokens[segment.start : segment.end])
        malformed = broken("invalid_json", "what stands where the name belongs is no name", self._place.dialect, None)
        return Part("malformed", raw, malformed=malformed)


def _loose(parts: list[Part]) -> bool:
    """Return whether the markup of a call was repaired, or cannot be read."""
    fixes = [fix.kind for part in parts if part.call is not None for fix in part.call.fixes]
    broke = any(part.malformed is not None and part.malformed.call is None for part in parts)
    return broke or not {"closer", "marker", "unwrap", "duplicate"}.isdisjoint(fixes)
