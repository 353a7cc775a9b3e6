"""Marker, JSON, marker: the shape of most dialects, with everything that models get wrong about it.

Between the markers stand one value or several. The closer may be missing, cut short, or another dialect's; the opener
may come again where the closer belongs; quotes inside a string may be bare, so that brackets no longer tell where the
JSON ends and the closer has to.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache, lru_cache
from typing import TYPE_CHECKING

from promptools.dialects.base import tried
from promptools.dialects.body import JsonBody, read_calls
from promptools.dialects.envelope import NoCall, Node
from promptools.dialects.settle import Place, Rules, broken
from promptools.parsing.parts import Part, Tried, Undecided, note, size_of
from promptools.types import Fix

if TYPE_CHECKING:
    from promptools.dialects.live import LiveArguments

LOOK_LIMIT = 64
"""Characters after a value that are looked at together to find the closer."""
RETRIES = 4
"""Markers inside what looks like a string that are tried as the end: enough for odd quotes, and still linear."""
UNREADABLE = ("invalid_json", "truncated", "limit")

_GAP = r"[\s,;}\]]*"
_BARE_GAP = re.compile(_GAP)


@dataclass(frozen=True, slots=True)
class Closers:
    """What may stand where the closer belongs: the right one, others seen there, and what opens the next block."""

    right: tuple[str, ...]
    wrong: tuple[str, ...]
    openers: tuple[str, ...]
    marks: tuple[str, ...] = field(init=False)
    longest: int = field(init=False)
    pattern: re.Pattern[str] = field(init=False)
    gap: re.Pattern[str] = field(init=False)
    """What may stand between a value and what closes it."""

    def __post_init__(self) -> None:
        marks = tuple(sorted((*self.right, *self.wrong, *self.openers), key=len, reverse=True))
        object.__setattr__(self, "marks", marks)
        object.__setattr__(self, "longest", len(marks[0]))
        object.__setattr__(self, "pattern", re.compile("|".join(re.escape(mark) for mark in marks)))
        fence = "" if marks[0][0] in "`~" else f"(?:```)?{_GAP}"
        object.__setattr__(self, "gap", re.compile(_GAP + fence))


@lru_cache(maxsize=16)
def fence_closers(run: str) -> Closers:
    """Give what closes a fence that was opened by `run`."""
    return Closers(right=(run,), wrong=(), openers=())


class WrappedCandidate(Undecided):
    """A candidate between two markers, as `promptools.parsing.parts.Candidate`."""

    def __init__(
        self, head: str, closers: Closers, rules: Rules, place: Place, *, firm: bool, name: str | None = None
    ) -> None:
        super().__init__(firm=firm, head=head)
        self._name = name if name is not None else _named(head)
        self._closers = closers
        self._rules = rules
        self._place = place
        self._ended = False
        """The value has ended: its closer, or the next value, is looked for."""
        self._body = JsonBody()
        self._done: list[Part] = []
        self._gap: list[str] = []
        self._unfenced = False
        """The fence inside the block has been closed."""
        self._look = ""
        self._tail = ""
        self._retries = RETRIES
        self._lost: list[Part] | None = None
        self._first_closer = -1
        self._over = False
        goes_live = place.expected and firm and self._name is None
        self._live = _live(rules) if goes_live else None

    def feed(self, piece: str, start: int) -> int | None:
        """Take more text; see `Candidate`."""
        at = start
        while at < len(piece):
            at = self._after_body(piece, at) if self._ended else self._in_body(piece, at)
            if self._over:
                return at
        return None

    def close(self, finish_reason: str | None) -> None:
        """Decide: the text is over."""
        if self._ended:
            self._finish(self._look, self._closing_fix(self._look.strip()))
        else:
            self._close_body(finish_reason)

    # --- the body ------------------------------------------------------------------------------------------------

    def _in_body(self, piece: str, at: int) -> int:
        """Take the body up to the next marker in it, or to the end of the piece."""
        stop, mark = self._next_mark(piece, at)
        if self._lost is None:
            end = self._body.feed(piece, at, stop)
            if self._live is not None:
                self.live += self._live.feed(piece[at : stop if end is None else end])
            if end is not None:
                self._body_ended()
                return end
        else:
            self._body.extend(piece[at:stop])
        if mark:
            self._try_mark(mark)
        return stop

    def _next_mark(self, piece: str, at: int) -> tuple[int, str]:
        """Find the next closer or opener in the body: the index just past it, and itself."""
        if not self._retries:
            return len(piece), ""
        tail, self._tail = self._tail, ""
        if tail:
            seam = tail + piece[at : at + self._closers.longest]
            found = self._closers.pattern.search(seam)
            if found is not None and found.end() > len(tail):
                return at + found.end() - len(tail), found[0]
        found = self._closers.pattern.search(piece, at)
        if found is not None:
            return found.end(), found[0]
        self._tail = (tail + piece[max(at, len(piece) - self._closers.longest + 1) :])[1 - self._closers.longest :]
        return len(piece), ""

    def _try_mark(self, mark: str) -> None:
        """Take a marker inside what looks like a string as the end, if what stands before it is a call."""
        raw = self._body.raw
        inside = raw[: -len(mark)]
        if self._first_closer < 0 and mark in self._closers.right:
            self._first_closer = len(inside)
        opener = mark in self._closers.openers
        self._retries -= 1
        parts = self._read(inside, close=True, stopped=not opener)
        if parts is not None and not _unreadable(parts) and self._gap_after(parts, inside):
            if opener:
                self.rest = mark
            self._finish("" if opener else mark, self._mark_fix(mark))
        elif self._lost is not None and mark in self._closers.right:
            lost = self._lost[0]
            self._done.append(Part(lost.kind, inside, malformed=lost.malformed))
            self._finish(mark, None)

    def _gap_after(self, parts: list[Part], inside: str) -> bool:
        """Tell whether the parts take all of `inside`, but for what may stand before a closer."""
        after = inside[size_of(parts) :]
        if self._closers.gap.fullmatch(after) is None:
            return False
        self._done += parts
        self._add_gap(after)
        return True

    def _body_ended(self) -> None:
        """Read the value whose last bracket has come."""
        raw = self._body.raw
        parts = self._read(raw, node=self._body.node, strict=self._body.strict)
        if parts is None:
            self._give_up("the JSON is no call")
        elif _unreadable(parts) and self._retries:
            self._lost = parts
        elif self._gap_after(parts, raw):
            self._ended = True
        else:
            self._give_up("the JSON ends before its brackets do")

    def _read(
        self,
        raw: str,
        *,
        node: Node | None = None,
        close: bool = False,
        stopped: bool = False,
        strict: bool = True,
    ) -> list[Part] | None:
        try:
            parts = read_calls(
                raw,
                self._rules,
                self._place,
                node=node,
                close=close,
                stopped=stopped,
                name=self._name,
                strict=strict,
            )
            if self._live is None:
                return parts
            from promptools.dialects.live import agree

            return agree(parts, raw, self._rules)
        except NoCall as no:
            self.tries.append(Tried(self._place.dialect, "text", str(no), len(raw)))
            return None

    def _close_body(self, finish_reason: str | None) -> None:
        """Decide on a body that never ended."""
        raw = self._body.raw
        if not raw:  # the opener alone, where a call was asked for
            said = broken("truncated", "it ended after its opener", self._place.dialect, self._name)
            self.parts = [Part("malformed", self.head, malformed=said)]
            return
        if self._first_closer >= 0:  # a closer did come: what stands before it is broken, not cut
            parts = self._read(raw[: self._first_closer])
            if parts is not None and self._gap_after(parts, raw[: self._first_closer]):
                self._done = [_not_cut(part, self._place.dialect) for part in self._done]
                self.rest = raw[self._first_closer :]
                self._finish("", None)
                return
        lossy = finish_reason == "length"
        parts = self._lost or self._read(raw, close=not lossy, stopped=finish_reason in ("stop", "tool_calls"))
        if parts is None:
            self._give_up("the block never ended")
            return
        if self._lost:
            parts = [Part("malformed", raw, malformed=parts[0].malformed)]
        if self._gap_after(parts, raw):
            self._finish("", self._closing_fix())
        else:
            self._give_up("words follow the JSON inside the block")

    # --- what follows --------------------------------------------------------------------------------------------

    def _after_body(self, piece: str, at: int) -> int:
        """Look for the closer, the next value, or something foreign."""
        taken = piece[at : at + LOOK_LIMIT]
        self._look += taken
        end = at + len(taken)
        gap = (_BARE_GAP if self._unfenced else self._closers.gap).match(self._look)
        assert gap is not None
        self._unfenced = self._unfenced or "`" in gap[0]
        self._add_gap(gap[0])
        self._look = look = self._look[gap.end() :]
        if not look:
            return end
        found = self._closers.pattern.match(look)
        if found is not None:
            mark = found[0]
            opener = mark in self._closers.openers
            self.rest = look if opener else look[len(mark) :]
            self._look = ""
            self._finish("" if opener else mark, self._mark_fix(mark))
        elif look[0] in "{[":
            self._next_body()
            return end - len(look)
        elif not any(each.startswith(look) for each in self._expected()):
            self._foreign(look)
        return end

    def _expected(self) -> tuple[str, ...]:
        return self._closers.marks if self._unfenced else (*self._closers.marks, "```")

    def _add_gap(self, gap: str) -> None:
        if "}" in gap or "]" in gap:
            surplus = "".join(each for each in gap if each in "}]")
            self._note(Fix("closer", f"{surplus!r} too many"))
        self._gap.append(gap)

    def _next_body(self) -> None:
        """Start on one more value in the same block."""
        self._live = None
        self._done.append(Part("markup", "".join(self._gap)))
        self._gap, self._look, self._tail, self._unfenced = [], "", "", False
        self._body, self._lost, self._first_closer = JsonBody(), None, -1
        self._ended = False

    def _foreign(self, look: str) -> None:
        """Decide on words, or another dialect's marker, where the closer belongs."""
        loose = (
            self._place.expected
            or self._rules.strictness == "lenient"
            or look.startswith(("<|", "</", "<｜"))
            or self._body.raw.startswith("[")  # Granite 3.1 writes no closer: the list's bracket is one
        )
        if not loose:
            self._give_up("words follow the JSON inside the block", keep=-len(look))
            return
        self._look, self.rest = "", look
        self._finish("", self._closing_fix())

    # --- the outcome ---------------------------------------------------------------------------------------------

    def _mark_fix(self, mark: str) -> Fix | None:
        if mark in self._closers.right:
            return None
        return self._closing_fix() if mark in self._closers.openers else Fix("closer", f"closed by {mark!r}")

    def _closing_fix(self, tail: str = "") -> Fix:
        return Fix("closer", f"no {self._closers.right[0]!r}" + (f", only {tail!r}" if tail else ""))

    def _finish(self, closing: str, fix: Fix | None) -> None:
        if fix is not None:
            self._note(fix)
        closing = "".join(self._gap) + closing
        self.parts = parts = [*self._opening(), *self._done]
        if closing:
            parts.append(Part("markup", closing))
        self.tries.append(tried(self._place.dialect, size_of(parts), parts))
        self._over = True

    def _note(self, fix: Fix) -> None:
        note(reversed(self._done), fix)

    def _opening(self) -> list[Part]:
        return [Part("markup", self.head)] if self.head else []

    def _given_up(self, raw: str, why: str) -> list[Part]:
        """Make it text; or, where its name has gone out, the malformed call that it is."""
        if self._live is not None:
            whole = _live(self._rules)
            whole.feed(self._body.raw)
            if whole.started:
                said = broken("invalid_json", why, self._place.dialect, None)
                return [*self._opening(), Part("malformed", raw[len(self.head) :], malformed=said)]
        return [Part("text", raw)]

    def _give_up(self, why: str, *, keep: int | None = None) -> None:
        """Give everything back as text; from `keep` on it is looked at again."""
        done = "".join(part.raw for part in self._done)
        body = "" if self._ended else self._body.raw
        raw = self.head + done + body + "".join(self._gap) + self._look + self.rest
        cut = len(raw) if keep is None else len(raw) + keep
        self.parts = self._given_up(raw[:cut], why)
        self.rest = raw[cut:]
        self.tries.append(Tried(self._place.dialect, "text", why, len(raw)))
        self._over = True


@cache
def _names() -> tuple[re.Pattern[str], re.Pattern[str]]:
    """Give the patterns of a name among the marker's attributes, and on a line of its own."""
    attribute = r"""\s(?:name|tool|function)\s*=\s*(?:"([^"<>]*)"|'([^'<>]*)'|([^\s"'<>=]+))"""
    return re.compile(attribute), re.compile(r">\s*([A-Za-z_][\w.:-]*)\s*\Z")


def _named(head: str) -> str | None:
    """Give the name that the marker's attributes tell."""
    if ">" not in head:  # a fence or a bracket names nothing
        return None
    attribute, line = _names()
    found = attribute.search(head) or line.search(head)
    return next(group for group in found.groups() if group is not None) if found else None


def _unreadable(parts: Sequence[Part]) -> bool:
    return any(part.malformed is not None and part.malformed.reason in UNREADABLE for part in parts)


def _not_cut(part: Part, dialect: str) -> Part:
    """Say of a body that reads as cut that it is broken: its closer came."""
    if part.malformed is None or part.malformed.reason != "truncated":
        return part
    said = broken("invalid_json", "a string or bracket in it is never closed", dialect, part.malformed.name)
    return Part("malformed", part.raw, malformed=said)


def _live(rules: Rules) -> LiveArguments:
    from promptools.dialects.live import LiveArguments

    return LiveArguments(rules)
