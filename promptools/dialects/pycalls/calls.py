"""Python calls of tools, one or several, between markers or bare: `[get_weather(city="Oslo"), ping()]`.

The reader is a set of states, each a method `(text, at, final)` that returns the index to go on from, or `~index` if
more text is needed from there on. `Layout` defines what a dialect allows.

    _begin      the bracket around the calls, if any        _between    after a call: a separator, or the end
    _callee     a name and its opening bracket              _tail       after the calls: their closer
    _inside     the arguments (`OneCall`)                   _echoing    the calls repeated, with another closer
    _wrapped    the closing bracket of `print(`             _losing     unreadable text, up to the closer

`_row`, `_guessed`, `_doubting` and `_unread`, for calls that nothing closes, are in `ends`; the parts made of the text
are in `parts`. Text that was taken since the last part is `_segment`. In the end all calls become parts that tile
the text (`_finish`), or all become text (`_give_up`), unless the name of one was emitted already.
"""

from __future__ import annotations

import re

from promptools.dialects.pycalls.arguments import UNSURE, Refused
from promptools.dialects.pycalls.call import OneCall
from promptools.dialects.pycalls.ends import NAME, CallEnds, State
from promptools.dialects.pycalls.names import name_of
from promptools.dialects.pycalls.parts import Layout
from promptools.dialects.settle import Place, Rules
from promptools.parsing.parts import note
from promptools.types import Fix

_SPACE = re.compile(r"[\s\ufeff\u200b]*+")
_CALLEE = re.compile(rf"({NAME})[ \t]{{0,8}}+(?:\Z|\()")
_SPACED = re.compile("(" + name_of(r"\w", r"[\w.:/ -]", 127) + r")(?:\Z|\()")
_STATEMENT = re.compile(
    r"(?:[^\W\d]\w{0,63}[ \t]{0,4}=(?!=)[ \t]{0,4})?(?:await[ \t]{1,4})?(print[ \t]?\([ \t]{0,4})?(?:await[ \t]{1,4})?"
    rf"(?!print\b|await\b)({NAME})[ \t]{{0,4}}\("
)
STATEMENT_LIMIT = 320
"""Characters within which a statement's call must begin."""


class CallBlock(CallEnds):
    """Reads calls, as a `promptools.parsing.parts.Candidate`."""

    def __init__(self, head: str, layout: Layout, rules: Rules, place: Place, *, firm: bool) -> None:
        super().__init__(head, layout, rules, place, firm=firm)
        self._state: State = self._begin
        self._carry = ""
        self._comment = False
        self._wrappers = 0
        """Brackets of `print(` that are open around the call."""
        self._again = ""
        """Text that was taken and is read again."""
        self._goes_live = firm and place.meant
        self._echo = ""

    def feed(self, piece: str, start: int) -> int | None:
        """Read more text; see `Candidate`."""
        # without a carry the piece is read in place: copying it for each call would be quadratic
        text, at = (self._carry + piece[start:], 0) if self._carry else (piece, start)
        text, at = self._run(text, at, final=False)
        if not self._over:
            self._carry = text[at:]
            return None
        unread, own = len(text) - at, len(piece) - start
        if unread > own:
            self.rest += text[at : len(text) - own]
        return len(piece) - min(unread, own)

    def close(self, finish_reason: str | None) -> None:
        """Decide at the end of the text."""
        text = self._carry
        # a name that was cut off inside arguments is not an error in them
        text, at = self._run(text, 0, final=finish_reason != "length" or self._state != self._inside)
        if not self._over:
            self._take(text, at, len(text))
            self._cut_short(finish_reason)
        elif at < len(text):
            self.rest += text[at:]

    def _run(self, text: str, at: int, *, final: bool) -> tuple[str, int]:
        """Consume the text as far as it is decided; return it, and the index up to which it was taken."""
        while at < len(text) and not self._over:
            moved = self._state(text, at, final)
            if moved < 0:
                return text, ~moved
            at = moved
            if self._again:
                text, at, self._again = self._again + text[at:], 0, ""
        return text, at

    # --- the states ------------------------------------------------------------------------------------------------

    def _space(self, text: str, at: int) -> int:
        """Skip white space, and comments where statements are allowed."""
        while at < len(text):
            if self._comment:
                end = text.find("\n", at)
                self._comment = end < 0
                at = self._take(text, at, end if end >= 0 else len(text))
                continue
            match = _SPACE.match(text, at)
            assert match is not None
            at = self._take(text, at, match.end())
            if not self._layout.python or not text.startswith("#", at):
                break
            self._comment = True
        return at

    def _begin(self, text: str, at: int, _final: bool) -> int:
        """Consume the bracket around the calls, if there is one."""
        at = self._space(text, at)
        if at == len(text):
            return at
        self._bracketed = text[at] == "[" and self._layout.brackets is not False
        self._state = self._callee
        if self._bracketed:
            return self._take(text, at, at + 1)
        return at

    def _callee(self, text: str, at: int, final: bool) -> int:
        """Consume the name of the next call and its opening bracket, or what ends the list."""
        at = self._space(text, at)
        if at == len(text):
            return at
        if self._bracketed and text[at] == "]" and (self._done or self._place.sentinel):
            self._state, self._listed = self._tail, True
            return self._take(text, at, at + 1)
        if not self._bracketed and self._done:
            closer = self._closer_at(text, at, final)
            if closer is None:
                return ~at
            if closer:
                self._state = self._tail
                return at
        name, end = self._named(text, at)
        if not name or text[end - 1] != self.bracket:
            if (name and end == len(text)) or (self._may_come(text, at) and not final):
                return ~at
            if self._layout.alone and self._place.meant and self._done:
                self._give_back()
                self._finish()
                return at
            if not self._done and not self._bracketed:
                if not self.head and not self._segment:  # or it would begin here again
                    at = self._take(text, at, at + 1)
                self._give_up("no call")
                return at
            self._notice_quote(text, at)
            return self._refuse("no call", at)
        self._cut("markup")
        self._call = OneCall(name, self._rules, self._place, live=self._goes_live, braces=self.bracket == "{")
        self._state = self._inside
        return self._take(text, at, end)

    def _named(self, text: str, at: int) -> tuple[str, int]:
        if self._layout.python:
            match = _STATEMENT.match(text, at)
            if match is None:
                return "", at
            self._wrappers = int(match[1] is not None)
            return match[2], match.end()
        match = (_SPACED if self._layout.spaced and self._bracketed else _CALLEE).match(text, at)
        return (match[1].strip(), match.end()) if match is not None else ("", at)

    def _may_come(self, text: str, at: int) -> bool:
        """Return whether a statement may still turn out to be a call."""
        return self._layout.python and len(text) - at < STATEMENT_LIMIT and "\n" not in text[at : at + STATEMENT_LIMIT]

    def _inside(self, text: str, at: int, final: bool) -> int:
        """Consume the arguments."""
        call = self._call
        assert call is not None
        try:
            ended = call.feed(text, at, final=final)
        except Refused as refused:
            self._let_out(call)
            end = self._take(text, at, refused.start if refused.start >= 0 else call.at)
            if refused.back >= 0:
                self._break_off(refused)
                return end
            return self._refuse(refused.reason, end, broken=refused.kind != "code")
        self._let_out(call, last=ended)
        end = self._take(text, at, call.at)
        if not ended:
            return ~end if end < len(text) else end
        if not self._call_ends(call):
            return end
        self._state = self._wrapped if self._wrappers else self._between
        if self._state == self._between and not self._bracketed and not (self._layout.right or self._layout.lines):
            self._state = self._row
        return end

    def _break_off(self, refused: Refused) -> None:
        """End a broken call where its string runs into the next one, which is read again."""
        raw = "".join(self._segment)
        cut = len(raw) - refused.back
        self._segment = [raw[:cut]]
        if self._call is not None and self._call.end_string() is not None:
            self._again = raw[cut:]
            if self._call_ends(self._call):
                self._state = self._between
        elif self._meant or (self._offered and self._layout.right):
            self._lost, self._again = refused.reason, raw[cut:]
            self._malformed()
            self._state = self._wrapped if self._wrappers else self._between
        else:
            self._give_up(refused.reason)
            self.rest = raw[cut:]

    def _wrapped(self, text: str, at: int, _final: bool) -> int:
        """Consume the closing bracket of `print(`."""
        at = self._space(text, at)
        if at == len(text):
            return at
        if text[at] != ")":
            return self._refuse("something else is printed", at)
        self._state = self._between
        return self._take(text, at, at + 1)

    def _between(self, text: str, at: int, final: bool) -> int:
        """After a call: take a separator, or go on to the end."""
        at = self._space(text, at)
        if at == len(text):
            return at
        if self._bracketed:
            if text[at] == ",":
                self._state = self._callee
            elif text[at] == "]":
                self._state, self._listed = self._tail, True
                if not self._layout.right and not self._layout.alone:
                    at = self._take(text, at, at + 1)
                    self._end()
                    return at
            else:
                return self._unlisted(text, at, final)
            return self._take(text, at, at + 1)
        if self._layout.lines and (text[at] in ",;" or "\n" in "".join(self._segment)):
            self._state = self._callee
            return self._take(text, at, at + 1) if text[at] in ",;" else at
        self._state = self._tail
        return at

    def _unlisted(self, text: str, at: int, final: bool) -> int:
        """Accept the block's closer in place of the list's bracket, or refuse."""
        closer = self._closer_at(text, at, final)
        if closer is None:
            return ~at
        if not closer:
            self._notice_quote(text, at)
            return self._refuse("a list of calls holds something else", at)
        note(reversed(self._done), Fix("closer", "no ']'"))
        self._state = self._tail
        return at

    def _tail(self, text: str, at: int, final: bool) -> int:
        """After the calls: take their closer, or decide on foreign text."""
        at = self._space(text, at)
        if at == len(text):
            return at
        closer = self._closer_at(text, at, final)
        if closer is None:
            return ~at
        if closer:
            calls = "".join((*(part.raw for part in self._done), *self._segment)).strip()
            self._echo = f"[{calls}" if self._bracketed else calls
            if closer not in self._layout.right:
                note(reversed(self._done), Fix("closer", f"only {closer!r} of its closer was there"))
            end = self._take(text, at, at + len(closer))
            self._cut("markup")
            self.firm = self.firm or self._layout.seals
            if self._layout.echoed:
                self._state = self._echoing
            else:
                self._finish()
            return end
        if self._layout.alone and text[at] != "<" and not self._place.meant:
            return self._refuse("something else follows the call", at)
        return self._foreign(text, at)

    def _foreign(self, text: str, at: int) -> int:
        """Decide on prose, or another marker, where the closer belongs."""
        self._notice_quote(text, at)
        if self._doubted and text[at] != "<":
            return self._refuse(UNSURE, at, broken=True)
        sure = self._place.meant or self._rules.strictness == "lenient"
        if not sure and text[at] != "<":
            return self._refuse("words follow the calls before their closer", at)
        self._without_closer()
        self._finish()
        return at

    def _echoing(self, text: str, at: int, final: bool) -> int:
        """Consume the calls once more, if they are repeated before another closer."""
        bare = _SPACE.match(text, at)
        assert bare is not None
        for echo in {self._echo, self._echo.removeprefix("[")}:
            for closer in self._layout.right:
                whole = echo + closer
                seen = text[bare.end() : bare.end() + len(whole)]
                if seen == whole:
                    end = self._take(text, at, bare.end() + len(whole))
                    self._cut("repeat")
                    return end
                if whole.startswith(seen) and not final:
                    return ~at
        self._finish()
        return at

    def _closer_at(self, text: str, at: int, final: bool) -> str | None:
        """Return the closer at `text[at]`, or its beginning at the end; "" if none, None if more text is needed."""
        for closer in self._layout.right:
            if text.startswith(closer, at):
                return closer
            if len(text) - at < len(closer) and closer.startswith(text[at:]):
                return text[at:] if final else None
        return ""

    def _refuse(self, why: str, at: int, *, broken: bool = False) -> int:
        """Skip what cannot be read up to the closer if a call is intended; else give up."""
        if self._place.first and self._bracketed and not self._layout.right and self._is_unread(broken):
            self._lost, self._state = why, self._unread
            return at
        closes = bool(self._layout.right) and (self._meant or (broken and self._offered))
        if not closes and not self._started:
            self._give_up(why)
            return at
        self._lost = why
        self._state = self._losing
        return at

    def _losing(self, text: str, at: int, final: bool) -> int:
        """Consume everything up to the closer."""
        offsets = [(text.find(closer, at), closer) for closer in self._layout.right]
        first = min((candidate for candidate in offsets if candidate[0] >= 0), default=None)
        if first is None:
            keep = max((len(closer) for closer in self._layout.right), default=1) - 1
            end = len(text) if final else max(at, len(text) - keep)
            self._take(text, at, end)
            return end if end == len(text) else ~end
        self._take(text, at, first[0])
        self._malformed()
        self._segment = [first[1]]
        self._finish()
        return first[0] + len(first[1])

    def _cut_short(self, finish_reason: str | None) -> None:
        """Decide on calls after which the text ended too early."""
        if self._state == self._losing:
            self._malformed()
        elif self._state == self._unread:
            self._give_up(self._lost)
        elif self._state == self._doubting:
            self._give_back()
        elif self._state == self._echoing:
            self._finish()
        elif self._state == self._inside:
            self._cut_inside(finish_reason)
        elif self._state == self._tail and self._listed:
            self._without_closer()
        elif self._state == self._wrapped or not any(part.call or part.malformed for part in self._done):
            self._cut_before_call()
        elif self._state == self._callee and "".join(self._segment).strip(" \t\r\n,;"):
            self._cut_in_name()
        else:
            self._without_closer()
        if not self._over:
            self._finish()
