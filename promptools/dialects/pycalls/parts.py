"""What a block of calls results in: the parts that tile its text, and the outcome of calls that did not end."""

from __future__ import annotations

from dataclasses import dataclass

from promptools.dialects.base import tried
from promptools.dialects.body import part_of
from promptools.dialects.envelope import NoCall
from promptools.dialects.pycalls.arguments import UNSURE
from promptools.dialects.pycalls.call import OneCall
from promptools.dialects.settle import STOPPED, Place, Rules, broken
from promptools.parsing.guess import UNESCAPED
from promptools.parsing.parts import Part, PartKind, Tried, Undecided, note, size_of
from promptools.types import Fix


@dataclass(frozen=True, slots=True)
class Layout:
    """How a dialect lays out its calls: in brackets or not, one a line or not, and what closes them."""

    right: tuple[str, ...] = ()
    """What closes them; if empty, the last bracket does."""
    brackets: bool | None = None
    """They are in square brackets; None: they may be."""
    lines: bool = False
    """Several may come without brackets, one a line."""
    row: bool = False
    """Several may come without brackets, a comma or a semicolon between two."""
    spaced: bool = False
    """Names may hold spaces."""
    python: bool = False
    """A statement may print or assign the call's result."""
    alone: bool = False
    """Nothing but calls and control tokens may come between the opener and the end of the reply."""
    seals: bool = False
    """The closer cannot be prose: anything may follow it."""
    echoed: bool = False
    """The calls may be repeated after their closer, with another closer."""


def _is_guess(part: Part) -> bool:
    """Return whether a call holds a string whose end was guessed."""
    return part.call is not None and any(fix.detail.startswith(UNESCAPED) for fix in part.call.fixes)


class CallParts(Undecided):
    """The text that a block of calls has taken, and the parts made of it."""

    def __init__(self, head: str, layout: Layout, rules: Rules, place: Place, *, firm: bool) -> None:
        super().__init__(firm=firm, head=head)
        self._layout = layout
        self._rules = rules
        self._place = place
        self._segment: list[str] = []
        """Text that was taken since the last part."""
        self._done: list[Part] = []
        self._call: OneCall | None = None
        self._bracketed = False
        self._listed = False
        """The bracket around the calls was closed."""
        self._half = False
        """A quote follows the last call, whose last string may end there."""
        self._lost = ""
        self._started = False
        """The name of a call has been emitted."""
        self._over = False

    def _take(self, text: str, at: int, end: int) -> int:
        if end > at:
            self._segment.append(text[at:end])
        return end

    def _call_ends(self, call: OneCall, *fixes: Fix) -> bool:
        """Resolve the call whose last bracket has come; return False if it is not one, and the block is given up."""
        try:
            outcome = call.outcome(*fixes)
        except NoCall as no:
            self._give_up(str(no))
            return False
        self._done.append(part_of(outcome, "".join(self._segment)))
        self._segment = []
        return True

    def _let_out(self, call: OneCall, *, last: bool = False) -> None:
        """Emit what is certain of a call, which may have ended; the calls before it are emitted along with its name."""
        early = call.told(last=last)
        if early and self._done:
            self._let_go(self._done)
            self._done = []
        self._started = self._started or bool(early)
        self.live += early

    def _cut(self, kind: PartKind) -> None:
        """Make a part of the text taken since the last one; before the first call it is added to the head."""
        raw, self._segment = "".join(self._segment), []
        if kind == "markup" and not self._done:
            self.head += raw
        elif raw:
            self._done.append(Part(kind, raw))

    # --- the outcome -----------------------------------------------------------------------------------------------

    @property
    def _offered(self) -> bool:
        return self._call is not None and self._call.tool is not None

    @property
    def _meant(self) -> bool:
        """Whether calls are intended, whatever is wrong with them."""
        return self._started or self._place.meant

    @property
    def _doubted(self) -> bool:
        """Whether the end of a string is a guess, which is valid only if nothing strange follows."""
        return self._half or any(map(_is_guess, self._done))

    def _notice_quote(self, text: str, at: int) -> None:
        """Remember a quote after the last call, whose last string may end there instead."""
        quote = self._call.last_quote if self._call is not None else ""
        self._half = self._half or (quote != "" and text.startswith(quote, at))

    def _refuse_doubted(self) -> None:
        """Make calls with a guessed string, and those after them, malformed."""
        last = next((index for index in reversed(range(len(self._done))) if self._done[index].call), 0)
        guesses = (index for index, part in enumerate(self._done) if _is_guess(part) or (self._half and index == last))
        first = next(guesses, len(self._done))
        for part in self._done[first:]:
            if part.call is not None:
                malformed = broken("invalid_json", UNSURE, self._place.dialect, part.call.name)
                part.kind, part.call, part.malformed = "malformed", None, malformed

    def _malformed(self) -> None:
        self._refuse_doubted()
        malformed = broken("invalid_json", self._lost, self._place.dialect, self._name)
        self._done.append(Part("malformed", "".join(self._segment), malformed=malformed))
        self._segment = []

    @property
    def _name(self) -> str | None:
        return self._call.name if self._call is not None else None

    def _cut_inside(self, finish_reason: str | None) -> None:
        """Decide on a call whose arguments did not end."""
        call = self._call
        assert call is not None
        raw = "".join(self._segment)
        closer = min((at for at in map(raw.find, self._layout.right) if at >= 0), default=-1)
        after = call.end_string() if finish_reason != "length" else None
        cut = raw.rfind(after) if after else -1
        if cut >= 0:
            self._segment = [raw[:cut]]
            if self._call_ends(call):
                self.rest = raw[cut:]
        elif closer >= 0 and (self._meant or call.tool is not None):
            self._segment = [raw[:closer]]
            self._lost = "a string or bracket in it is never closed"
            self._malformed()
            self.rest = raw[closer:]
        elif finish_reason in STOPPED and call.complete():
            if (
                self._call_ends(call, Fix("closer", "the last bracket is missing"))
                and self._done[-1].malformed is not None
            ):
                self._done[-1] = self._truncated(self._done[-1].raw)  # what is missing may have been cut
        elif self._meant or (
            call.tool is not None and (call.begun or (self._place.wrapped and finish_reason == "length"))
        ):
            self._done.append(self._truncated("".join(self._segment)))
            self._segment = []
        else:
            self._give_up("the text ended inside its arguments")

    def _cut_in_name(self) -> None:
        """Decide on calls after which another name began."""
        raw = "".join(self._segment)
        name = raw.strip(" \t\r\n,;")
        tools = self._rules.tools
        begun = tools is not None and any(offered.startswith(name) for offered in tools.names)
        if begun or (self._meant and not self._layout.alone):
            self._segment = [raw[: raw.find(name)]]
            self._cut("markup")
            self._call = None
            self._done.append(self._truncated(raw[raw.find(name) :]))
        elif self._place.meant:
            self._give_back()
        else:
            self._give_up("the list of calls holds something else")

    def _give_back(self) -> None:
        """Return what was taken since the last call, to be read again."""
        self.rest, self._segment = "".join(self._segment), []

    def _cut_before_call(self) -> None:
        if self._meant and (self.head or self._segment):
            self._done.append(self._truncated(self.head + "".join(self._segment)))
            self._segment, self.head = [], ""
        else:
            self._give_up("the text ended before a call")

    def _truncated(self, raw: str) -> Part:
        malformed = broken("truncated", "the text ended inside it", self._place.dialect, self._name)
        return Part("malformed", raw, malformed=malformed)

    def _without_closer(self) -> None:
        missing = "]" if self._bracketed and not self._listed else "".join(self._layout.right[:1])
        if not missing:
            return
        note(reversed(self._done), Fix("closer", f"no {missing!r}"))

    def _finish(self) -> None:
        failed = [part.malformed for part in self._done if part.malformed is not None]
        unknown = any(malformed.reason == "unknown_tool" for malformed in failed)
        if unknown and not self._started and any(part.call for part in self._done):  # all calls or none
            self._give_up("a tool beside the others is not offered")
            return
        if self._segment:
            self._cut("markup")
        opening = [Part("markup", self.head)] if self.head else []
        self.parts = [*opening, *self._done]
        all_parts = [*self._gone, *self.parts]
        self.tries.append(tried(self._place.dialect, size_of(all_parts), all_parts))
        self._over = True

    def _give_up(self, why: str) -> None:
        """Return the block as text, or as a malformed call if the name of a call has been emitted."""
        if self._started:
            self._lost = why
            self._malformed()
            self._finish()
            return
        raw = "".join((*(part.raw for part in self._done), *self._segment))
        self._over = True
        self.parts = [Part("text", self.head + raw)]
        self.tries.append(Tried(self._place.dialect, "text", why, len(self.head + raw)))
