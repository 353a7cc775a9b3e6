"""Python calls of tools, one or several, between markers or bare: `[get_weather(city="Oslo"), ping()]`.

The reader is a set of states, each a method `(text, at, final)` that returns the index to go on from, or `~index` if
more text is needed from there on. `CallLayout` defines what a dialect allows.

    _begin          the bracket around the calls, if any    _after_call       after a call: a separator, or the end
    _in_callee      a name and its opening bracket          _after_calls      after the calls: their closer
    _in_arguments   the arguments (`PythonCall`)            _after_closer     the calls repeated, with another closer
    _in_print       the closing bracket of `print(`         _skip_to_closer   unreadable text, up to the closer

`_after_row_call`, `_after_guess`, `_after_uncertain` and `_skip_unreadable` are in `unclosed_calls`; the parts made
of the text are in `python_parts`. Text taken since the last part is `_pending_text`. In the end all calls become
parts that tile the text (`_finish`), or all become text (`_give_up`), unless the name of one was emitted already.
"""

from __future__ import annotations

from promptools.dialects.calls.parse_options import Evidence, ParseOptions
from promptools.dialects.readers.literals.python_arguments import UNCERTAIN_END, LiteralError
from promptools.dialects.readers.literals.python_names import SPACE, may_continue_line, name_pattern
from promptools.dialects.readers.python_calls.python_call import PythonCall
from promptools.dialects.readers.python_calls.python_parts import FENCE, CallLayout
from promptools.dialects.readers.python_calls.unclosed_calls import CALLEE_PATTERN, TextState, UnclosedCallStates
from promptools.parsing.parts import NEED_MORE, NeedMore, add_fix
from promptools.patterns import lazy_pattern
from promptools.types import Fix

_CALLEE = lazy_pattern(rf"({CALLEE_PATTERN})[ \t]{{0,8}}+(?:\Z|\()")
_SPACED_CALLEE = lazy_pattern("(" + name_pattern(r"\w", r"[\w.:/ -]", 127) + r")(?:\Z|\()")
_STATEMENT = lazy_pattern(
    r"(?:[^\W\d]\w{0,63}[ \t]{0,4}=(?!=)[ \t]{0,4})?(?:await[ \t]{1,4})?(print[ \t]?\([ \t]{0,4})?(?:await[ \t]{1,4})?"
    rf"(?!print\b|await\b)({CALLEE_PATTERN})[ \t]{{0,4}}\("
)
STATEMENT_LIMIT = 320
"""Characters within which a statement's call must begin."""


class PythonCallReader(UnclosedCallStates):
    """Reads calls, as a `promptools.parsing.parts.Candidate`."""

    def __init__(self, head: str, layout: CallLayout, rules: ParseOptions, place: Evidence, *, definite: bool) -> None:
        super().__init__(head, layout, rules, place, definite=definite)
        self._state: TextState = self._begin
        self._carried_text = ""
        self._comment = False
        self._open_prints = 0
        """Brackets of `print(` that are open around the call."""
        self._reread_text = ""
        """Text that was taken and is read again."""
        self._streams = definite and place.implies_call
        self._repeated_text = ""
        self._in_fence = layout.fenced

    def feed(self, piece: str, start: int) -> int | None:
        """Read more text; see `Candidate`."""
        # without a carry the piece is read in place: copying it for each call would be quadratic
        text, at = (self._carried_text + piece[start:], 0) if self._carried_text else (piece, start)
        text, at = self._run(text, at, final=False)
        if not self._decided:
            self._carried_text = text[at:]
            return None
        unread, own = len(text) - at, len(piece) - start
        if unread > own:
            self.unread += text[at : len(text) - own]
        return len(piece) - min(unread, own)

    def close(self, finish_reason: str | None) -> None:
        """Decide at the end of the text."""
        text = self._carried_text
        # a name that was cut off inside arguments is not an error in them
        text, at = self._run(text, 0, final=finish_reason != "length" or self._state != self._in_arguments)
        if not self._decided:
            self._consume(text, at, len(text))
            self._on_end_of_text(finish_reason)
        elif at < len(text):
            self.unread += text[at:]

    def _run(self, text: str, at: int, *, final: bool) -> tuple[str, int]:
        """Consume the text as far as it is decided; return it, and the index up to which it was taken."""
        while at < len(text) and not self._decided:
            moved = self._state(text, at, final)
            if moved < 0:
                return text, ~moved
            at = moved
            if self._reread_text:
                text, at, self._reread_text = self._reread_text + text[at:], 0, ""
        return text, at

    # --- the states ------------------------------------------------------------------------------------------------

    def _skip_space(self, text: str, at: int) -> int:
        """Skip white space, and comments where statements are allowed."""
        while at < len(text):
            if self._comment:
                end = text.find("\n", at)
                self._comment = end < 0
                at = self._consume(text, at, end if end >= 0 else len(text))
                continue
            match = SPACE.match(text, at)
            assert match is not None
            at = self._consume(text, at, match.end())
            if not (self._layout.statements or self._bracketed) or not text.startswith("#", at):
                break
            self._comment = True
        return at

    def _begin(self, text: str, at: int, _final: bool) -> int:
        """Consume the bracket around the calls, if there is one."""
        at = self._skip_space(text, at)
        if at == len(text):
            return at
        self._bracketed = text[at] == "[" and self._layout.brackets is not False
        self._state = self._in_callee
        if self._bracketed:
            return self._consume(text, at, at + 1)
        return at

    def _in_callee(self, text: str, at: int, final: bool) -> int:
        """Consume the name of the next call and its opening bracket, or what ends the list."""
        at = self._skip_space(text, at)
        if at == len(text):
            return at
        if not final and may_continue_line(text, at):
            return ~at
        if self._bracketed and text[at] == "]" and (self._finished_parts or self._place.sentinel):
            self._state, self._list_closed = self._after_calls, True
            return self._consume(text, at, at + 1)
        if not self._bracketed and self._finished_parts:
            closer = self._closer_at(text, at, final)
            if closer is NEED_MORE:
                return ~at
            if closer:
                self._state = self._after_calls
                return at
        name, end = self._match_callee(text, at)
        if not name or text[end - 1] != self.opening_bracket:
            if (name and end == len(text)) or (self._may_become_call(text, at) and not final):
                return ~at
            if self._layout.whole_reply and self._place.implies_call and self._finished_parts:
                self._return_pending()
                self._finish()
                return at
            if not self._finished_parts and not self._bracketed:
                if not self.head and not self._pending_text:  # or it would begin here again
                    at = self._consume(text, at, at + 1)
                self._give_up("no call")
                return at
            self._notice_quote(text, at)
            return self._reject("no call", at)
        self._add_part("markup")
        self._call = PythonCall(
            name, self._rules, self._place, streams=self._streams, gemma=self.opening_bracket == "{"
        )
        self._state = self._in_arguments
        return self._consume(text, at, end)

    def _match_callee(self, text: str, at: int) -> tuple[str, int]:
        if self._layout.statements:
            match = _STATEMENT.match(text, at)
            if match is None:
                return "", at
            self._open_prints = int(match[1] is not None)
            return match[2], match.end()
        match = (_SPACED_CALLEE if self._layout.spaced_names and self._bracketed else _CALLEE).match(text, at)
        return (match[1].strip(), match.end()) if match is not None else ("", at)

    def _may_become_call(self, text: str, at: int) -> bool:
        """Return whether a statement may still turn out to be a call."""
        return (
            self._layout.statements and len(text) - at < STATEMENT_LIMIT and "\n" not in text[at : at + STATEMENT_LIMIT]
        )

    def _in_arguments(self, text: str, at: int, final: bool) -> int:
        """Consume the arguments."""
        call = self._call
        assert call is not None
        try:
            ended = call.feed(text, at, final=final)
        except LiteralError as refused:
            self._stream_call(call)
            end = self._consume(text, at, refused.start if refused.start >= 0 else call.at)
            if refused.overrun >= 0:
                self._end_at_overrun(refused)
                return end
            return self._reject(refused.reason, end, broken=refused.kind != "code")
        self._stream_call(call, last=ended)
        end = self._consume(text, at, call.at)
        if not ended:
            return ~end if end < len(text) else end
        if not self._resolve_call(call):
            return end
        self._state = self._in_print if self._open_prints else self._after_call
        if (
            self._state == self._after_call
            and not self._bracketed
            and not (self._layout.closers or self._layout.one_per_line)
        ):
            self._state = self._after_row_call
        return end

    def _end_at_overrun(self, refused: LiteralError) -> None:
        """End a broken call where its string runs into the next one, which is read again."""
        raw = "".join(self._pending_text)
        cut = len(raw) - refused.overrun
        self._pending_text = [raw[:cut]]
        if self._call is not None and self._call.end_string() is not None:
            self._reread_text = raw[cut:]
            if self._resolve_call(self._call):
                self._state = self._after_call
        elif self._is_intended or (self._names_tool and self._layout.closers):
            self._error, self._reread_text = refused.reason, raw[cut:]
            self._add_malformed()
            self._state = self._in_print if self._open_prints else self._after_call
        else:
            self._unreadable = refused.reason if self._names_tool else ""
            self._give_up(refused.reason)
            self.unread = raw[cut:]

    def _in_print(self, text: str, at: int, _final: bool) -> int:
        """Consume the closing bracket of `print(`."""
        at = self._skip_space(text, at)
        if at == len(text):
            return at
        if text[at] != ")":
            return self._reject("something else is printed", at)
        self._state = self._after_call
        return self._consume(text, at, at + 1)

    def _after_call(self, text: str, at: int, final: bool) -> int:
        """After a call: take a separator, or go on to the end."""
        at = self._skip_space(text, at)
        if at == len(text):
            return at
        if not final and may_continue_line(text, at):
            return ~at
        if self._bracketed:
            if text[at] == ",":
                self._state = self._in_callee
            elif text[at] == "]":
                self._state, self._list_closed = self._after_calls, True
                if not self._layout.closers and not self._layout.whole_reply:
                    at = self._consume(text, at, at + 1)
                    self._end_unclosed()
                    return at
            else:
                return self._without_bracket(text, at, final)
            return self._consume(text, at, at + 1)
        on_next_line = text[at] != "<" and "\n" in "".join(self._pending_text)
        if self._layout.one_per_line and (text[at] in ",;" or on_next_line):
            self._state = self._in_callee
            return self._consume(text, at, at + 1) if text[at] in ",;" else at
        self._state = self._after_calls
        return at

    def _without_bracket(self, text: str, at: int, final: bool) -> int:
        """Accept the block's closer in place of the list's bracket, or refuse."""
        closer = self._closer_at(text, at, final)
        if closer is NEED_MORE:
            return ~at
        if not closer:
            self._notice_quote(text, at)
            return self._reject("a list of calls holds something else", at)
        add_fix(reversed(self._finished_parts), Fix("closer", "no ']'"))
        self._state = self._after_calls
        return at

    def _after_calls(self, text: str, at: int, final: bool) -> int:
        """After the calls: take their closer, or decide on foreign text."""
        at = self._skip_space(text, at)
        if at == len(text):
            return at
        closer = self._closer_at(text, at, final)
        if closer is NEED_MORE:
            return ~at
        if closer == FENCE and self._in_fence:
            self._in_fence = False
            return self._consume(text, at, at + len(closer))
        if closer:
            if self._in_fence:
                add_fix(reversed(self._finished_parts), Fix("closer", f"no {FENCE!r}"))
            calls = "".join((*(part.raw for part in self._finished_parts), *self._pending_text)).strip()
            self._repeated_text = f"[{calls}" if self._bracketed else calls
            if closer not in self._layout.closers:
                add_fix(reversed(self._finished_parts), Fix("closer", f"only {closer!r} of its closer was there"))
            end = self._consume(text, at, at + len(closer))
            self._add_part("markup")
            self.definite = self.definite or self._layout.closer_is_final
            if self._layout.may_repeat:
                self._state = self._after_closer
            else:
                self._finish()
            return end
        if self._layout.whole_reply and text[at] != "<" and not self._place.implies_call:
            return self._reject("something else follows the call", at)
        return self._on_foreign_text(text, at)

    def _on_foreign_text(self, text: str, at: int) -> int:
        """Decide on prose, or another marker, where the closer belongs."""
        self._notice_quote(text, at)
        if self._is_uncertain and text[at] != "<":
            return self._reject(UNCERTAIN_END, at, broken=True)
        sure = self._place.implies_call or self._rules.strictness == "lenient"
        if not sure and text[at] != "<":
            return self._reject("text follows the calls before their closer", at)
        self._record_missing_closer()
        self._finish()
        return at

    def _after_closer(self, text: str, at: int, final: bool) -> int:
        """Consume the calls once more, if they are repeated before another closer."""
        bare = SPACE.match(text, at)
        assert bare is not None
        for echo in {self._repeated_text, self._repeated_text.removeprefix("[")}:
            for closer in self._layout.closers:
                whole = echo + closer
                seen = text[bare.end() : bare.end() + len(whole)]
                if seen == whole:
                    end = self._consume(text, at, bare.end() + len(whole))
                    self._add_part("repeat")
                    return end
                if whole.startswith(seen) and not final:
                    return ~at
        self._finish()
        return at

    def _closer_at(self, text: str, at: int, final: bool) -> str | NeedMore:
        """Return the closer at `text[at]`, or its beginning at the end; "" if there is none."""
        for closer in (*self._layout.closers, FENCE) if self._in_fence else self._layout.closers:
            if text.startswith(closer, at):
                return closer
            if len(text) - at < len(closer) and closer.startswith(text[at:]):
                return text[at:] if final else NEED_MORE
        return ""

    def _reject(self, why: str, at: int, *, broken: bool = False) -> int:
        """Skip what cannot be read up to the closer if a call is intended; else give up."""
        self.lacks_value = self._is_unreadable(broken)
        in_call = self._names_tool and self._state == self._in_arguments
        self._unreadable = why if self.lacks_value or in_call else ""
        if self._place.at_start and self._bracketed and not self._layout.closers and self.lacks_value:
            self._error, self._state = why, self._skip_unreadable
            return at
        closes = bool(self._layout.closers) and (self._is_intended or (broken and self._names_tool))
        if not closes and not self._has_emitted:
            if broken and self.definite and self._names_tool and not self._bracketed:  # after a label
                self._error = why
                self._add_malformed()
                self._finish()
            else:
                self._give_up(why)
            return at
        self._error = why
        self._state = self._skip_to_closer
        return at

    def _skip_to_closer(self, text: str, at: int, final: bool) -> int:
        """Consume everything up to the closer."""
        offsets = [(text.find(closer, at), closer) for closer in self._layout.closers]
        first = min((candidate for candidate in offsets if candidate[0] >= 0), default=None)
        if first is None:
            keep = max((len(closer) for closer in self._layout.closers), default=1) - 1
            end = len(text) if final else max(at, len(text) - keep)
            self._consume(text, at, end)
            return end if end == len(text) else ~end
        self._consume(text, at, first[0])
        self._add_malformed()
        self._pending_text = [first[1]]
        self._finish()
        return first[0] + len(first[1])

    def _on_end_of_text(self, finish_reason: str | None) -> None:
        """Decide on calls after which the text ended too early."""
        if self._state == self._skip_to_closer:
            self._add_malformed()
        elif self._state == self._skip_unreadable:
            self._give_up(self._error, read_again=self._skipped)
        elif self._state == self._after_uncertain:
            self._return_pending()
        elif self._state == self._after_closer:
            self._finish()
        elif self._state == self._in_arguments:
            self._end_in_arguments(finish_reason)
        elif self._state == self._after_calls and self._list_closed:
            self._record_missing_closer()
        elif self._state == self._in_print or not any(part.call or part.malformed for part in self._finished_parts):
            self._end_before_call()
        elif self._state == self._in_callee and "".join(self._pending_text).strip(" \t\r\n,;"):
            self._end_in_name()
        else:
            self._record_missing_closer()
        if not self._decided:
            self._finish()
