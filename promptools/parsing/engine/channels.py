"""Replies in a format whose messages have headers: reasoning, content and calls are messages of their own.

From the first header on, the dialect's cutter takes all text and yields segments (`promptools.parsing.segments`): for a
message `Opened`, `Said` and `Ended`, and `Beside` for text outside of messages. `Channelled` routes them:

    reasoning           to the output, verbatim
    content             to an engine that parses it as prose, since models put calls of other dialects there
    the text of a call  to the argument streamer, and as a whole to the argument parser at the message's end
    another role        left out; once the assistant has spoken, so is all that follows

The header of a call is emitted with its first text. Text before the first header is ambiguous until a header shows
whether it was reasoning; `decided` is true once nothing can change it.
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
"""Finish reasons of a complete reply: servers leave out the token that ended its last message."""


class Channelled:
    """Routes segments to the output, in order. `prose` makes the engine that parses the content of one message."""

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
        """The call may be quoted from the conversation: nothing of it is emitted before its end."""
        self._firm = True
        """Calls remain calls whatever follows."""
        self._verbatim = False
        """The last call was quoted, so the space after it is text."""
        self._expected = inside or rules.expect == dialect.name
        self._spoke = False
        """The assistant has begun a message."""
        self._told = False
        """It has addressed the user: text before a call is content, too."""
        self._thought = False
        """Its reasoning has a header: text without one is no reasoning."""
        self._noted: tuple[Fix, ...] = ()
        self._imagined = False
        """Another role speaks: all that follows is made up, and left out."""
        self._at = 0

    @property
    def decided(self) -> bool:
        """Whether no later header can turn the text so far into reasoning."""
        return self._told or self._thought

    def feed(self, text: str) -> None:
        """Feed a chunk of text."""
        self._route(self._cutter.feed(text), None)

    def feed_pieces(self, pieces: Iterable[Piece]) -> None:
        """Feed Harmony whose control tokens are known as such."""
        from promptools.dialects.cutter import HarmonyCutter  # already imported if the cutter is one

        assert isinstance(self._cutter, HarmonyCutter), f"{self._dialect.name} is no Harmony"
        self._sources = None  # a known control token is never a quote
        self._route(self._cutter.feed_pieces(pieces), None)

    def close(self, finish_reason: str | None) -> None:
        """End the text; `finish_reason` is the server's."""
        self._route(self._cutter.close(), finish_reason)
        self._prose_ends(finish_reason)

    def _route(self, segments: list[Segment], finish_reason: str | None) -> None:
        for segment in segments:
            if self._imagined:
                self._out.mark(segment.raw, "result")
            else:
                self._one(segment, finish_reason)
            self._at += len(segment.raw)

    def _one(self, segment: Segment, finish_reason: str | None) -> None:
        match segment:
            case Opened():
                self._opens(segment)
            case Said(raw):
                self._says(raw)
            case Ended():
                self._ends(segment, finish_reason)
            case Beside(_, raw, fixes) if self._open is not None and self._open.kind == "call":
                # a second <|message|> before the arguments: emitted with them, as the header is
                self._open = self._open._replace(raw=self._open.raw + raw, fixes=(*self._open.fixes, *fixes))
            case Beside(kind, raw, fixes):
                if kind == "words" or (kind == "space" and self._verbatim):
                    self._words(raw)
                else:
                    self._prose_ends(None)
                    self._out.mark(raw, kind)
                if fixes != self._noted:  # text in several chunks is noted once
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
        """Add the fixes of a message that is not a call."""
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
                    for early in self._live.feed(raw):
                        self._out.go_live(early)
            case _:  # another role speaks
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
        """Whether a call is quoted from the conversation; if not, emit the header that was held."""
        assert self._sources is not None
        if ended.whole and self._sources.hold("".join((opened.raw, *self._call, ended.raw))):
            return True
        if self._call:
            self._out.frame(opened.raw, "text", exact=opened.exact)
        return False

    def _take_quoted(self, opened: Opened, ended: Ended) -> None:
        """Take a quoted call as text; if no text precedes it, it is a call unless text follows."""
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
        """Parse the arguments of a call whose message is over; not `done`: it was cut off."""
        raw = "".join(self._call)
        live, self._live, self._call = self._live, None, []
        evidence = Place(self._dialect.name, wrapped=True, expected=True)
        if not done and raw.strip()[:1] not in ("{", "[", '"'):
            # plain text may be an argument, but not a part of it, and not a part of a header
            malformed = broken("truncated", "the text ended before its arguments", evidence.dialect, opened.name)
            self._emit([Part("malformed", raw or opened.raw, malformed=malformed)], opened)
            return
        if raw.lstrip().startswith("<"):
            from promptools.dialects.beam import OPENER, read_parameters  # rare: loaded when needed

            if raw.lstrip().startswith(OPENER):
                self._emit([part_of(read_parameters(opened.name, raw, self._rules, evidence, ended=done), raw)], opened)
                return
        read = read_arguments(opened.name, raw, self._rules, evidence, ended=done, words=True)
        parts: list[Part] = []
        at = 0
        for result, end in zip(read.found, read.ends, strict=True):
            outcome = live.settle(result) if live is not None and not parts else result
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
        attempt = tried(self._dialect.name, size, parts)
        self._out.tried(Try(attempt.strategy, Span(at - size, at), attempt.outcome, attempt.why, attempt.cost))

    # --- prose ---------------------------------------------------------------------------------------------------

    def _words(self, raw: str) -> None:
        if self._prose is None:
            self._prose = self._new_prose(self._at)
        self._prose.take(raw)

    def _prose_ends(self, finish_reason: str | None) -> None:
        prose, self._prose = self._prose, None
        if prose is not None:
            prose.finish(finish_reason)
            prose.let_go()
