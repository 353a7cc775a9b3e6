"""A reply whose every word belongs to a message with a header: thoughts, words and calls each go their own way.

From the first header on, a dialect's cutter takes all text. What it says are words for the user is prose like any
other, and read as such: models put calls of other dialects there.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Literal, assert_never

from promptools.dialects.arguments import read_arguments
from promptools.dialects.base import tried
from promptools.dialects.body import part_of
from promptools.dialects.live import LiveArguments
from promptools.dialects.settle import Place, Rules, broken
from promptools.parsing.engine.machine import QUOTED
from promptools.parsing.parts import Part, size_of
from promptools.parsing.segments import Beside, Ended, Opened, Said, Segment
from promptools.types import Fix, Span, Try

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from promptools.dialects.base import Dialect
    from promptools.harmony.scan import Piece
    from promptools.parsing.engine.machine import Machine
    from promptools.parsing.output import Output

DONE = frozenset(("stop", "tool_calls", "function_call"))
"""Finish reasons of a model that was done: servers leave out the token that ended its last message."""


class Channelled:
    """Takes segments in their order and hands them on. `prose` makes the parser of one message's words."""

    def __init__(
        self, dialect: Dialect, rules: Rules, out: Output, prose: Callable[[int], Machine], *, inside: bool
    ) -> None:
        assert dialect.channels is not None
        self._cutter = dialect.channels.cutter(rules, inside)
        self._dialect = dialect
        self._rules = rules
        self._out = out
        self._new_prose = prose
        self._prose: Machine | None = None
        self._open: Opened | None = None
        self._call: list[str] = []
        self._live: LiveArguments | None = None
        self._sources = rules.sources
        self._doubted = False
        """The call may be quoted from the conversation: nothing of it goes out before its end."""
        self._firm = True
        """Calls stand whatever follows."""
        self._verbatim = False
        """A call came last that is quoted, so that the space after it is text."""
        self._expected = inside or rules.expect == dialect.name
        self._spoke = False
        """The assistant has said something."""
        self._told = False
        """It has said something to the user: what it says before a call is for the user, too."""
        self._thought = False
        """Its thoughts have a header: words that have none are no thoughts."""
        self._noted: tuple[Fix, ...] = ()
        self._imagined = False
        """Somebody else speaks: all that follows was said to nobody."""
        self._at = 0

    @property
    def decided(self) -> bool:
        """Whether what was said so far stays what it is."""
        return self._told or self._thought

    def feed(self, text: str) -> None:
        """Take a piece of text."""
        self._route(self._cutter.feed(text), None)

    def feed_pieces(self, pieces: Iterable[Piece]) -> None:
        """Take Harmony of which it is known what in it is a control token."""
        from promptools.dialects.cutter import HarmonyCutter  # there already, where it is

        assert isinstance(self._cutter, HarmonyCutter), f"{self._dialect.name} is no Harmony"
        self._sources = None  # a control token is never quoted
        self._route(self._cutter.feed_pieces(pieces), None)

    def close(self, finish_reason: str | None) -> None:
        """Say that the text is over, and why."""
        self._route(self._cutter.close(), finish_reason)
        self._prose_ends(finish_reason)

    def _route(self, segments: list[Segment], finish_reason: str | None) -> None:
        for each in segments:
            if self._imagined:
                self._out.mark(each.raw, "result")
            else:
                self._one(each, finish_reason)
            self._at += len(each.raw)

    def _one(self, segment: Segment, finish_reason: str | None) -> None:
        match segment:
            case Opened():
                self._opens(segment)
            case Said(raw):
                self._says(raw)
            case Ended():
                self._ends(segment, finish_reason)
            case Beside(_, raw, fixes) if self._open is not None and self._open.kind == "call":
                # a second <|message|>, before the arguments: the header goes out with them, and so does this
                self._open = self._open._replace(raw=self._open.raw + raw, fixes=(*self._open.fixes, *fixes))
            case Beside(kind, raw, fixes):
                if kind == "words" or (kind == "space" and self._verbatim):
                    self._words(raw)
                else:
                    self._prose_ends(None)
                    self._out.mark(raw, kind)
                if fixes != self._noted:  # words that come in pieces are noted once
                    self._noted = fixes
                    for fix in fixes:
                        self._out.liberty(fix)
            case _:
                assert_never(segment)

    # --- messages ------------------------------------------------------------------------------------------------

    def _opens(self, opened: Opened) -> None:
        self._prose_ends(None)
        self._noted, self._verbatim = (), False
        if not self._spoke and self._out.fresh:
            self._out.leave_space()
        self._open = opened
        if opened.kind == "other" and self._spoke:
            self._imagined = True
            self._out.mark(opened.raw, "result")
            self._liberties(opened)
            return
        if opened.final and not self._told and not self._thought and self._out.spoke:
            self._out.was_reasoning("")
        self._thought = self._thought or opened.kind == "thoughts"
        self._spoke = self._spoke or opened.kind != "other"
        self._told = self._told or (opened.kind == "words" and not opened.vague)
        self._told = self._told or (opened.kind == "call" and self._out.spoke)
        if opened.kind == "call":
            self._call = []
            self._doubted = self._sources is not None and self._sources.may_hold(opened.raw)
            self._live = LiveArguments(self._rules, opened.name) if self._expected and not self._doubted else None
            return
        zone: Literal["text", "reasoning"] = "reasoning" if opened.kind == "thoughts" else "text"
        self._out.frame(opened.raw, zone, exact=opened.exact)
        if opened.kind != "other":
            self._out.apart(zone)
        self._liberties(opened)

    def _liberties(self, opened: Opened) -> None:
        """Note what was done to a message that is no call."""
        if opened.kind == "other":
            self._out.liberty(Fix("marker", f"{self._dialect.name}: a message of somebody else's was left out"))
        elif not self._expected:
            became = "reasoning" if opened.kind == "thoughts" else "content"
            self._out.liberty(Fix("marker", f"{self._dialect.name}: the markers around {became} were taken out"))
        for fix in opened.fixes:
            self._out.liberty(fix)

    def _says(self, raw: str) -> None:
        assert self._open is not None
        match self._open.kind:
            case "thoughts":
                self._out.words(raw)
            case "words" if self._open.plain:
                self._out.words(raw)
            case "words":
                self._words(raw)
            case "call":
                if not self._call and not self._doubted:
                    self._out.frame(self._open.raw, "text", exact=self._open.exact)
                self._call.append(raw)
                if self._live is not None:
                    for each in self._live.feed(raw):
                        self._out.go_live(each)
            case _:  # somebody else speaks
                self._out.mark(raw, "debris")

    def _ends(self, ended: Ended, finish_reason: str | None) -> None:
        opened, self._open = self._open, None
        assert opened is not None
        if opened.kind == "call":
            opened = opened._replace(fixes=(*opened.fixes, *ended.fixes))
            if self._doubted and self._quotes(opened, ended):
                self._take_quoted(opened, ended)
                return
            self._settle(opened, done=ended.whole or (finish_reason in DONE and not ended.headless))
        self._prose_ends(None if ended.whole else finish_reason)
        self._out.frame(ended.raw, "text", exact=opened.exact)

    def _quotes(self, opened: Opened, ended: Ended) -> bool:
        """Whether a call is quoted from the conversation; if not, what was held of it goes out."""
        assert self._sources is not None
        if ended.whole and self._sources.hold("".join((opened.raw, *self._call, ended.raw))):
            return True
        if self._call:
            self._out.frame(opened.raw, "text", exact=opened.exact)
        return False

    def _take_quoted(self, opened: Opened, ended: Ended) -> None:
        """Take a quoted call for text; where nothing was said yet it is a call, if nothing will be."""
        raw = "".join((opened.raw, *self._call, ended.raw))
        if self._out.spoke:
            at = self._out.at
            self._out.words(raw)
            self._out.tried(Try(self._dialect.name, Span(at, at + len(raw)), "text", QUOTED, len(raw)))
        else:
            self._firm = False
            self._out.parts([Part("markup", opened.raw)], firm=False)
            self._settle(opened, done=True)
            self._out.parts([Part("markup", ended.raw)], firm=False)
            self._firm = True
        self._verbatim = True

    def _settle(self, opened: Opened, *, done: bool) -> None:
        """Read the arguments of a call that is over."""
        raw = "".join(self._call)
        live, self._live, self._call = self._live, None, []
        place = Place(self._dialect.name, wrapped=True, expected=True)
        if not done and raw.strip()[:1] not in ("{", "[", '"'):
            # words may be what was meant, but not the half of them, or of a header
            said = broken("truncated", "the text ended before its arguments", place.dialect, opened.name)
            self._emit([Part("malformed", raw or opened.raw, malformed=said)], opened)
            return
        if raw.lstrip().startswith("<"):
            from promptools.dialects.beam import OPENER, read_parameters  # seldom met

            if raw.lstrip().startswith(OPENER):
                self._emit([part_of(read_parameters(opened.name, raw, self._rules, place, ended=done), raw)], opened)
                return
        read = read_arguments(opened.name, raw, self._rules, place, ended=done, words=True)
        parts: list[Part] = []
        at = 0
        for each, end in zip(read.found, read.ends, strict=True):
            outcome = live.settle(each) if live is not None and not parts else each
            parts.append(part_of(outcome, raw[at:end] or opened.raw))
            at = end
        self._emit(parts, opened)
        if at < len(raw):
            self._words(raw[at:])

    def _emit(self, parts: list[Part], opened: Opened) -> None:
        for part in parts:
            if part.call is not None and opened.fixes:
                part.call = replace(part.call, fixes=(*opened.fixes, *part.call.fixes))
        self._out.parts(parts, firm=self._firm)
        size = size_of(parts)
        at = self._out.at
        each = tried(self._dialect.name, size, parts)
        self._out.tried(Try(each.strategy, Span(at - size, at), each.outcome, each.why, each.cost))

    # --- words ---------------------------------------------------------------------------------------------------

    def _words(self, raw: str) -> None:
        if self._prose is None:
            self._prose = self._new_prose(self._at)
        self._prose.take(raw)

    def _prose_ends(self, finish_reason: str | None) -> None:
        prose, self._prose = self._prose, None
        if prose is not None:
            prose.finish(finish_reason)
            prose.let_go()
