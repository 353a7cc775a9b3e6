"""Marker, JSON, marker: the reader of most dialects, with everything that models get wrong about that shape.

The text is an opening marker (the head, already matched), one or several JSON bodies, and a closing marker. Any of it
may be damaged: the closer is missing, cut short or another dialect's; the next opener comes in its place; a list of
calls is left open; quotes inside a string are not escaped, so that the brackets do not show where the JSON ends.

The reader is in one of two states:

- In a body (`_in_body`): `JsonBody` follows the brackets, while `Marks` searches for markers inside what looks like a
  string. At each of the first `RETRIES` markers the text before it is read as if it ended there, and the first that is
  readable wins. If none is, the body ends at its last bracket, at the end of the text, or at the first marker that
  follows balanced brackets (`_border`).
- After a body (`_after_body`): a closer finishes the block; a bracket, or a further name, starts the next body.
  Anything else is foreign text: whether the block is accepted without its closer then depends on how sure its markers
  are, and on the request.

Bodies that were read are in `_done`; the text after the last of them is in `_gap`. In the end all of it becomes parts
that tile the text exactly (`_finish`), or all of it becomes text again (`_give_up`), except for calls whose name has
already been emitted: these are reported as malformed, never taken back. Total work is O(n): characters are looked at
once, plus at most `RETRIES` attempts per body.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from promptools.dialects.base import tried
from promptools.dialects.blocks.markers import BARE_GAP, MADE_UP, Closers, Marks, fence_closers, named
from promptools.dialects.blocks.resumed import next_block
from promptools.dialects.body import JsonBody, is_unreadable, not_cut, read_calls
from promptools.dialects.envelope import NoCall, Node
from promptools.dialects.live import LiveArguments
from promptools.dialects.settle import STOPPED, Place, Rules, broken
from promptools.parsing.guess import UNESCAPED
from promptools.parsing.parts import Part, Tried, Undecided, note, size_of
from promptools.types import Fix, MalformedReason

__all__ = ["Closers", "WrappedCandidate", "fence_closers"]

LOOK_LIMIT = 64
"""Characters after a value that are looked at together to find the closer."""
RETRIES = 4
"""Markers inside what looks like a string that are tried as its end: enough for odd quotes, and still linear."""
NOTHING = "{}"
"""The body that a call without arguments is read as."""

_SPACE = re.compile(r"\s*+")
_NEXT = re.compile(r"\{|\[\s{0,64}+(?:\{|\[|\Z)")
"""The beginning of another body of calls. A list needs a bracket inside: `[1]` is a footnote."""


class WrappedCandidate(Undecided):
    """Reads one block between two markers, as a `promptools.parsing.parts.Candidate`."""

    def __init__(
        self,
        head: str,
        closers: Closers,
        rules: Rules,
        place: Place,
        *,
        firm: bool,
        name: str | None = None,
        fixes: Sequence[Fix] = (),
        keys: tuple[str, str] | None = None,
    ) -> None:
        """Begin after `head`.

        `name`: the tool that the marker names, so that the body is its arguments; empty if the marker should name one,
        but does not. `fixes`: what was repaired to read the marker. `keys`: the family's own keys of the name and the
        arguments, where no other family uses them.
        """
        super().__init__(firm=firm, head=head)
        self._name = name if name is not None else named(head)
        self._fixes = fixes
        self._keys = keys
        self._closers = closers
        self._rules = rules
        self._place = place
        self._ended = False
        """The value has ended: its closer, or the next value, is looked for."""
        self._body = JsonBody()
        self._bracket: list[str] = []
        """The bracket of a list and the space after it, until the next character shows what the list holds."""
        self._lists = 0
        """Lists of calls that are open."""
        self._listed = False
        """A list of calls has been closed."""
        self._done: list[Part] = []
        self._gap: list[str] = []
        self._surplus = ""
        """Surplus brackets after the last value, so far."""
        self._fenced = "`" in head
        """A code fence inside the block is open."""
        self._look = ""
        self._marks = Marks(closers)
        self._retries = RETRIES
        self._lost: list[Part] | None = None
        self._first_mark = self._first_closer = -1
        """Offsets in the body of the first marker and of the first right closer; -1 if there is none."""
        self._border: tuple[int, str] | None = None
        """Where the body ends if it cannot be read any further, and the marker there."""
        self._over = False
        self._stands = 0  # parts of earlier bodies that are final: a call among them may have been emitted
        self._live = self._listener()

    def feed(self, piece: str, start: int) -> int | None:
        """Read more text; see `Candidate`."""
        at = start
        if self._is_void and at < len(piece) and piece[at] != "{":
            self._ended = True
        while at < len(piece):
            at = self._after_body(piece, at) if self._ended else self._in_body(piece, at)
            if self._over:
                return at
        return None

    def close(self, finish_reason: str | None) -> None:
        """Decide at the end of the text."""
        if not self._ended:
            self._end_bracket()
            self._close_body(finish_reason)
        elif self._look and not any(mark.startswith(self._look) for mark in self._expected()):
            self._foreign(self._look)
        elif self._is_void and not self._may_be_void(finish_reason):
            self._cut_short()
        else:
            self._finish(self._look, self._closing_fix(self._look.strip()))

    @property
    def _is_void(self) -> bool:
        """Whether the tool is named and nothing of a body has come."""
        return self._name is not None and not self._body.begun and not self._done

    def _may_be_void(self, finish_reason: str | None) -> bool:
        """Return whether a name at the end of the text may be a call without arguments; a cut name matches no tool."""
        tools = self._rules.tools
        offered = tools is None or not self._name or tools.find(self._name) is not None
        return self._is_void and offered and finish_reason in STOPPED

    # --- the body ------------------------------------------------------------------------------------------------

    def _in_body(self, piece: str, at: int) -> int:
        """Consume the body up to the next marker in it, or to the end of the piece."""
        if self._bracket or (piece[at] == "[" and self._name is None and not self._body.begun):
            return self._in_bracket(piece, at)
        stop, mark = self._marks.next(piece, at) if self._retries else (len(piece), "")
        if self._lost is None:
            end = self._body.feed(piece, at, stop)
            if self._live is not None:
                self._listen(piece[at : stop if end is None else end], last=end is not None)
            if end is not None:
                self._body_ended()
                return end
        else:
            self._body.extend(piece[at:stop])
        if mark:
            self._try_mark(mark)
        return stop

    def _in_bracket(self, piece: str, at: int) -> int:
        """Consume the bracket of a list. Calls in it are read one by one; any other list is read as a whole."""
        match = _SPACE.match(piece, at if self._bracket else at + 1)
        assert match is not None
        end = match.end()
        self._bracket.append(piece[at:end])
        if end < len(piece):
            if piece[end] == "{":
                self._done.append(Part("markup", "".join(self._bracket)))
                self._bracket = []
                self._lists += 1
            self._end_bracket()
        return end

    def _end_bracket(self) -> None:
        """Treat the bracket of a list as the beginning of a body."""
        opener, self._bracket = "".join(self._bracket), []
        if opener:
            self._body.feed(opener, 0, len(opener))

    def _try_mark(self, mark: str) -> None:
        """Treat a marker inside what looks like a string as the end, if the text before it can be read as a call."""
        raw = self._body.raw
        inside = raw[: -len(mark)]
        self._first_mark = len(inside) if self._first_mark < 0 else self._first_mark
        if self._first_closer < 0 and mark in self._closers.right:
            self._first_closer = len(inside)
        opener = mark not in (*self._closers.right, *self._closers.wrong)
        whole = inside.rstrip(" \t\r\n,;`").endswith(("}", "]")) and inside.count("{") <= inside.count("}")
        if self._border is None and whole:
            self._border = len(inside), mark
        self._retries -= 1
        parts = self._read(inside, close=True, stopped=not opener)
        if parts is not None and not is_unreadable(parts) and self._gap_after(parts, inside):
            if opener:
                self.rest = mark
            self._finish("" if opener else mark, self._mark_fix(mark))
        elif self._lost is not None and mark in self._closers.right:
            lost = self._lost[0]
            self._done.append(Part(lost.kind, inside, malformed=lost.malformed))
            self._finish(mark, None)

    def _gap_after(self, parts: list[Part], inside: str) -> bool:
        """Return whether the parts take all of `inside`, except for what may precede a closer; if so, add them."""
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
        if parts is None and self._started:  # the list or block goes on after it
            self._done.append(self._broken(raw, "invalid_json", "the JSON is no call"))
            self._ended = True
        elif parts is None:
            self._give_up("the JSON is no call")
        elif is_unreadable(parts) and self._border is not None and self._end_at(*self._border):
            return
        elif is_unreadable(parts) and self._retries:
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
            parts = self.other(raw) or read_calls(
                raw,
                self._rules,
                self._place,
                node=node,
                close=close,
                stopped=stopped,
                name=self._name,
                strict=strict,
                keys=self._keys,
            )
            if self._crosses(parts):
                return [self._broken(raw, "invalid_json", "a string without its closing quote runs past a marker")]
            return self._live.begun(parts) if self._live is not None else parts
        except NoCall as no:
            self.tries.append(Tried(self._place.dialect, "text", str(no), len(raw)))
            if self._name == "":
                return [self._broken(raw, "unknown_tool", "it names no tool, and its arguments do not fit just one")]
            return None

    def _crosses(self, parts: list[Part]) -> bool:
        """Return whether the end of a string is a guess, and a marker of the family comes before it."""
        marked = 0 <= self._first_mark < size_of(parts)
        calls = [part.call for part in parts if part.call is not None] if marked else []
        return any(fix.detail.startswith(UNESCAPED) for call in calls for fix in call.fixes)

    def other(self, raw: str) -> list[Part] | None:
        """Read a body that is not JSON or not a call; None if it is like any other. Raise `NoCall` to reject it."""
        del raw
        return None

    def _close_body(self, finish_reason: str | None) -> None:
        """Decide on a body that never ended."""
        raw = self._body.raw
        if not raw:  # the opener alone
            if self._may_be_void(finish_reason):
                self._finish("", self._closing_fix())
            else:
                self._cut_short()
            return
        if self._border is None and finish_reason != "length" and self._resumes(raw):
            return
        border = self._border or (self._first_closer, "")
        if border[0] >= 0 and self._end_at(*border):
            return
        lossy = finish_reason == "length"
        parts = self._lost or self._read(raw, close=not lossy, stopped=finish_reason in STOPPED)
        if parts is None:
            self._give_up("the block never ended")
            return
        if self._lost:
            parts = [Part("malformed", raw, malformed=parts[0].malformed)]
        if self._gap_after(parts, raw):
            self._finish("", self._closing_fix())
        else:
            self._give_up("words follow the JSON inside the block")

    def _end_at(self, at: int, mark: str) -> bool:
        """End a broken body before a marker in it. As a marker did come, the text before it was not cut off."""
        raw = self._body.raw
        parts = self._read(raw[:at])
        if parts is None or not self._gap_after(parts, raw[:at]):
            return False
        self._done = [not_cut(part, self._place.dialect) for part in self._done]
        closer = mark if mark in (*self._closers.right, *self._closers.wrong) else ""
        self.rest = raw[at + len(closer) :]
        self._finish(closer, None)
        return True

    def _resumes(self, raw: str) -> bool:
        """End a broken body before the whole blocks that follow it; return whether there are any."""
        at = next_block(raw, self._closers, self._rules, self._place, self._keys) if self._first_mark >= 0 else -1
        if at < 0:
            return False
        parts = self._read(raw[:at])
        if parts is None:
            self._give_up("the block never ended", keep=at - len(raw))
            return True
        why = "a string or bracket in it is never closed"
        broken = next((part for part in parts if part.malformed is not None), None)
        lost = not_cut(broken, self._place.dialect) if broken else self._broken(raw[:at], "invalid_json", why)
        self._done.append(Part("malformed", raw[:at], malformed=lost.malformed))
        self.rest = raw[at:]
        self._finish("", None)
        return True

    # --- calls that go out while they come -----------------------------------------------------------------------

    def _listener(self) -> LiveArguments | None:
        """Return what streams the next body's call, or None if its call may not be emitted early."""
        if not (self.firm and self._place.meant):
            return None
        return LiveArguments(self._rules, self._name, keyed=self._keys is not None and not self._keys[0])

    @property
    def _started(self) -> bool:
        """Whether the name of this body's call has been emitted."""
        return self._live is not None and self._live.started

    def _listen(self, text: str, *, last: bool) -> None:
        """Emit what is certain of the body's call; the calls before it are emitted along with its name."""
        assert self._live is not None
        before = self._started
        early = self._live.feed(text, last=last)
        if self._started and not before and self._done:
            self._mark_fixes()
            self._let_go(self._done)
            self._done, self._stands = [], 0
        self.live += early

    # --- what follows --------------------------------------------------------------------------------------------

    def _after_body(self, piece: str, at: int) -> int:
        """Look for the closer, the next value, or foreign text."""
        taken = piece[at : at + LOOK_LIMIT]
        self._look += taken
        end = at + len(taken)
        gap = (self._closers.gap if self._fenced else BARE_GAP).match(self._look)
        assert gap is not None
        self._fenced = self._fenced and "`" not in gap[0]
        self._add_gap(gap[0])
        self._look = look = self._look[gap.end() :]
        if not look:
            return end
        match = self._closers.pattern.match(look)
        if match is not None:
            mark = match[0]
            opener = mark in self._closers.openers
            self.rest = look if opener else look[len(mark) :]
            self._look = ""
            self._finish("" if opener else mark, self._mark_fix(mark))
        elif look == "<" or any(expected.startswith(look) for expected in (*self._expected(), *MADE_UP)):
            return end
        elif self._name is None and not self._is_void and (following := _NEXT.match(look)) is not None:
            if following.end() == len(look) and look[-1] != "{":
                return end
            self._next_body()
            held = len(look) - len(taken)
            if held > 0:  # it could have been a closer
                self._in_body(look[:held], 0)
            return end - min(len(look), len(taken))
        elif (again := self._again(look)) is not None:
            if again.end() < len(look):
                self._next_body(again)
                return end - len(look) + again.end()
        else:
            self._foreign(look)
        return end

    def _again(self, look: str) -> re.Match[str] | None:
        """Match what precedes another body, or the beginning of it if that is all that has come."""
        match = self._closers.again.match(look) if self._closers.again is not None else None
        return match if match is not None and (match.end() == len(look) or look[match.end()] in "{[") else None

    def _expected(self) -> tuple[str, ...]:
        return (*self._closers.marks, "```") if self._fenced else self._closers.marks

    def _add_gap(self, gap: str) -> None:
        if "}" in gap or "]" in gap:
            closed = min(gap.count("]"), self._lists)
            self._lists -= closed
            self._listed = self._listed or closed > 0
            self._surplus += "".join(char for char in gap.replace("]", "", closed) if char in "}]")
        self._gap.append(gap)

    def _note_surplus(self) -> None:
        """Record the surplus brackets as one fix, however they came."""
        if self._surplus:
            self._note(Fix("closer", f"{self._surplus!r} too many"))
            self._surplus = ""

    def _next_body(self, again: re.Match[str] | None = None) -> None:
        """Start another body in the same block, after the name of its tool if there is one."""
        self._note_surplus()
        if self._started:
            self._stands = len(self._done)
        if again is not None:
            self._gap.append(again[0])
            self._name = again[1]
        self._live = self._listener()
        self._done.append(Part("markup", "".join(self._gap)))
        self._gap, self._look, self._marks = [], "", Marks(self._closers)
        self._body, self._lost, self._border = JsonBody(), None, None
        self._first_mark = self._first_closer = -1
        self._ended = False

    def _foreign(self, look: str) -> None:
        """Decide on prose, or another dialect's marker, where the closer belongs."""
        gap = "".join(self._gap)
        loose = look.startswith(("<|", "</", "<｜", *MADE_UP)) or (
            not self._is_void
            and (
                self._place.expected
                or self._rules.strictness == "lenient"
                or not self._closers.needed
                or (self._closers.line and "\n" in gap)
                or self._listed  # Granite 3.1 writes no closer: the list's bracket is one
            )
        )
        if not loose or (self._lists and not look.startswith("<")):
            self._give_up("words follow the JSON inside the block", keep=-len(look))
            return
        bare = gap.rstrip()
        self._look, self._gap, self.rest = (
            "",
            [bare],
            gap[len(bare) :] + look,
        )  # the white space belongs to the text after it
        self._finish("", self._closing_fix())

    # --- the outcome ---------------------------------------------------------------------------------------------

    def _mark_fix(self, mark: str) -> Fix | None:
        if mark in self._closers.right:
            return None
        return self._closing_fix() if mark in self._closers.openers else Fix("closer", f"closed by {mark!r}")

    def _closing_fix(self, tail: str = "") -> Fix | None:
        if not self._closers.right or (not self._closers.needed and not tail):
            return None
        return Fix("closer", f"no {self._closers.right[0]!r}" + (f", only {tail!r}" if tail else ""))

    def _finish(self, closing: str, fix: Fix | None) -> None:
        self._note_surplus()
        if self._is_void:
            self._take_nothing()
        if self._lists:
            self._note(Fix("closer", "no ']'"))
        if fix is not None:
            self._note(fix)
        self._mark_fixes()
        closing = "".join(self._gap) + closing
        self.parts = parts = [*self._opening(), *self._done]
        if closing:
            parts.append(Part("markup", closing))
        all_parts = [*self._gone, *parts]
        self.tries.append(tried(self._place.dialect, size_of(all_parts), all_parts))
        self._over = True

    def _mark_fixes(self) -> None:
        """Record what was repaired in the marker on the block's first call."""
        if any(part.call is not None for part in self._done):
            for fix in self._fixes:
                note(self._done, fix)
            self._fixes = ()

    def _note(self, fix: Fix) -> None:
        note(reversed(self._done), fix)

    def _opening(self) -> list[Part]:
        return [Part("markup", self.head)] if self.head else []

    def _broken(self, raw: str, reason: MalformedReason, why: str) -> Part:
        return Part("malformed", raw, malformed=broken(reason, why, self._place.dialect, self._name or None))

    def _take_nothing(self) -> None:
        """Read the marker alone as a call without arguments."""
        self._done = self._read(NOTHING) or [Part("text", self.head)]
        self._done[0].raw, self.head = self.head, ""
        self._note(Fix("json", "no arguments: taken as {}"))

    def _cut_short(self) -> None:
        """Report that the text ended before the body."""
        self.parts = [self._broken(self.head + self._look, "truncated", "it ended after its opener")]
        self._over = True

    def _given_up(self, raw: str, why: str) -> list[Part]:
        """Return the block as text, or as a malformed call if its name has been emitted."""
        if self._started:
            return [*self._opening(), self._broken(raw[len(self.head) :], "invalid_json", why)]
        return [Part("text", raw)]

    def _give_up(self, why: str, *, keep: int | None = None) -> None:
        """Return everything as text; the last `-keep` characters of it are read again."""
        body = "" if self._ended else self._body.raw
        if self._stands:
            self.rest = "".join((*(part.raw for part in self._done[self._stands :]), body, *self._gap, self._look))
            self._gap, self._look, self._surplus = [], "", ""
            del self._done[self._stands :]
            self._finish("", self._closing_fix())
            return
        done = "".join(part.raw for part in self._done)
        raw = self.head + done + body + "".join(self._gap) + self._look + self.rest
        cut = len(raw) if keep is None else len(raw) + keep
        self.parts = self._given_up(raw[:cut], why)
        self.rest = raw[cut:]
        self.tries.append(Tried(self._place.dialect, "text", why, cut))
        self._over = True
