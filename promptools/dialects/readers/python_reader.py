"""Read Python calls of tools, between markers or without them: `[get_weather(city="Oslo"), ping()]`.

The reader is a set of states, each a method `(text, at, final)` that returns the index at which to continue, or
`~index` if more text is needed from that index on. `CallLayout` defines what a dialect allows.

    _begin          the bracket around the calls, if any    _after_call       after a call: a separator, or the end
    _in_callee      a name and its opening bracket          _after_calls      after the calls: their closer
    _in_arguments   the arguments (`PythonCall`)            _after_closer     the calls repeated, with another closer
    _in_print       the closing bracket of `print(`         _skip_to_closer   unreadable text, up to the closer

Four more states follow calls that nothing closes: `_after_row_call`, `_after_guess`, `_after_uncertain` and
`_skip_unreadable`. `_pending_text` holds the text consumed since the last part. At the end, `_finish` makes parts that
tile the text, or `_give_up` turns all of it into text. If the name of a call was already emitted, that call becomes
malformed instead.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, TypeAlias

from promptools.dialects.calls.envelope import NotACall
from promptools.dialects.calls.json_body import call_part
from promptools.dialects.calls.parse_options import COMPLETE_FINISH_REASONS, Evidence, ParseOptions
from promptools.dialects.calls.resolve import malformed_call
from promptools.dialects.contract import trace_entry
from promptools.dialects.readers.python_arguments import (
    CONTINUED_LINE,
    SPACE,
    UNCERTAIN_END,
    LiteralError,
    may_continue_line,
    name_pattern,
)
from promptools.dialects.readers.python_call import PythonCall
from promptools.jsontext.quotes import UNESCAPED_QUOTES
from promptools.parsing.parts import (
    NEED_MORE,
    CandidateBase,
    NeedMore,
    Part,
    PartKind,
    TriedStrategy,
    add_fix,
    total_length,
)
from promptools.patterns import lazy_pattern
from promptools.schema.spelling import is_offered_name
from promptools.types import Fix

FENCE: Final = "```"


@dataclass(frozen=True, slots=True)
class CallLayout:
    """Defines how a dialect lays out its calls: the brackets around them, their separator, and their closing marker."""

    closers: tuple[str, ...] = ()
    """The markers that may close the calls. If there are none, the calls end at their last bracket."""
    brackets: bool | None = None
    """Whether the calls are in square brackets; None if the brackets are optional."""
    one_per_line: bool = False
    """Whether several calls may come without square brackets, on separate lines or separated by `,` or `;`."""
    in_row: bool = False
    """Whether several calls may come without square brackets, separated by commas or semicolons."""
    spaced_names: bool = False
    """Whether tool names may contain spaces if the calls are in square brackets."""
    statements: bool = False
    """Whether a call may be part of a statement that prints or assigns the result."""
    whole_reply: bool = False
    """Whether only calls and control tokens may come between the opener and the end of the reply."""
    closer_is_final: bool = False
    """Whether the closing marker never occurs in prose, so that the calls are accepted whatever follows the marker."""
    may_repeat: bool = False
    """Whether the same calls may be repeated after their closing marker, with another closing marker after them."""
    fenced: bool = False
    """Whether the calls are in a code fence, which ends before their closing marker."""
    all_quoted: bool = False
    """Whether the string delimiters (`<|"|>`) of Gemma's objects enclose values of every type, not only strings."""


def _has_guessed_end(part: Part) -> bool:
    """Return whether a part is a call with a string whose end was guessed."""
    return part.call is not None and any(fix.detail.startswith(UNESCAPED_QUOTES) for fix in part.call.fixes)


TextState: TypeAlias = Callable[[str, int, bool], int]
"""A state of a reader: a method that takes `(text, at, final)`; `final` means that no more text comes.

It returns the index to go on from, or `~index` to wait there for more text.
"""

CALLEE_PATTERN: Final = name_pattern(r"\w", r"[\w.:/-]", 127)
_ROW_GAP = rf"(?:\s|{CONTINUED_LINE}|\\\r?\Z){{0,64}}+"
_NEXT_IN_ROW = lazy_pattern(
    rf"[ \t]{{0,16}}+(?:(?:[,;]|(?=\\)){_ROW_GAP}(?:({CALLEE_PATTERN})[ \t]{{0,8}}+(?:\Z|\())?+)?+"
)
"""Matches a separator and the beginning of the next call; at the end of the text, both may be incomplete.

A backslash at the end of a line, which continues the line, may replace the separator or follow it.
"""
_BEGINS = lazy_pattern(rf"\s{{0,64}}+(?:\Z|({CALLEE_PATTERN})[ \t]{{0,8}}+(?:\Z|\())")
_ANY_QUOTE = lazy_pattern("[\"'“”‘’]")
_LIST_ENDS = lazy_pattern(r"(\)\s{0,64}+(?:,\s{0,64}+)?(?:\Z|\]))(?:\Z|[ \t]{0,64}+(?:\Z|[\r\n]))")
"""Matches the closing brackets of a list of calls at the end of a line.

At the end of the text, the closing brackets may be incomplete.
"""
_CALLEE = lazy_pattern(rf"({CALLEE_PATTERN})[ \t]{{0,8}}+(?:\Z|\()")
_SPACED_CALLEE = lazy_pattern("(" + name_pattern(r"\w", r"[\w.:/ -]", 127) + r")(?:\Z|\()")
# smolagents' CodeAgent assigns what a call returns.
_STATEMENT = lazy_pattern(
    r"(?:[^\W\d]\w{0,63}[ \t]{0,4}=(?!=)[ \t]{0,4})?(?:await[ \t]{1,4})?(print[ \t]?\([ \t]{0,4})?(?:await[ \t]{1,4})?"
    rf"(?!print\b|await\b)({CALLEE_PATTERN})[ \t]{{0,4}}\("
)
STATEMENT_LIMIT = 320
"""How many characters at the beginning of a statement may come before the arguments of its call."""


class PythonCallReader(CandidateBase):
    """Reads Python calls, as a `promptools.parsing.parts.Candidate`."""

    opening_bracket = "("
    """The bracket that opens the arguments of a call."""

    def __init__(
        self, head: str, layout: CallLayout, options: ParseOptions, evidence: Evidence, *, definite: bool
    ) -> None:
        super().__init__(definite=definite, head=head)
        self._layout = layout
        self._options = options
        self._evidence = evidence
        self._pending_text: list[str] = []
        """The text consumed since the last part."""
        self._finished_parts: list[Part] = []
        self._call: PythonCall | None = None
        self._bracketed = False
        self._list_closed = False
        """Whether the bracket around the calls has been closed."""
        self._quote_follows = False
        """Whether a quote follows the last call. If so, the call's last string may extend to this quote."""
        self._error = ""
        self._unreadable = ""
        """Why a call to an offered tool cannot be read; empty if there is no such call.

        The call becomes text, and the reason is reported with this text.
        """
        self.lacks_value = False
        """Whether a value in a call to an offered tool cannot be read.

        A list that contains such a call was meant as a list of calls, not as text.
        """
        self._skipped: int = 0
        """How many characters at the end of `_pending_text` were skipped, because they follow an unreadable call."""
        self._has_emitted = False
        """Whether the name of a call has been emitted."""
        self._decided = False
        self._state: TextState = self._begin
        self._carried_text = ""
        self._comment = False
        self._open_prints = 0
        """The number of `print(` brackets that are open around the call."""
        self._reread_text = ""
        """Consumed text that must be read again."""
        self._streams = definite and evidence.implies_call
        self._repeated_text = ""
        self._in_fence = layout.fenced

    @property
    def comments_follow(self) -> bool:
        """Whether a comment may follow the calls on the same line.

        A comment may follow only a list in square brackets. After other calls, a comment is part of a program.
        """
        return self._bracketed

    def feed(self, piece: str, start: int) -> int | None:
        """Read `piece[start:]`; return the index just past the consumed text, or None if more text is needed."""
        # without carried text the piece is read in place: copying it for each call would be quadratic
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
        """Decide whether the text read so far is a call, since no more text will come."""
        text = self._carried_text
        # in arguments that were cut off by the length limit, an unfinished name is not an error
        text, at = self._run(text, 0, final=finish_reason != "length" or self._state != self._in_arguments)
        if not self._decided:
            self._consume(text, at, len(text))
            self._on_end_of_text(finish_reason)
        elif at < len(text):
            self.unread += text[at:]

    def _run(self, text: str, at: int, *, final: bool) -> tuple[str, int]:
        """Consume the text as far as possible; return the text, and the index up to which it was consumed.

        The returned text differs from `text` if consumed text had to be read again.
        """
        while at < len(text) and not self._decided:
            moved = self._state(text, at, final)
            if moved < 0:
                return text, ~moved
            at = moved
            if self._reread_text:
                text, at, self._reread_text = self._reread_text + text[at:], 0, ""
        return text, at

    # --- the states -------------------------------------------------------------------------------------------------

    def _skip_space(self, text: str, at: int) -> int:
        """Skip white space, and comments if statements are allowed or the calls are in brackets."""
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
        # LFM2 leaves out the brackets around a single call; Ollama's parser accepts such a call.
        self._bracketed = text[at] == "[" and self._layout.brackets is not False
        self._state = self._in_callee
        if self._bracketed:
            return self._consume(text, at, at + 1)
        return at

    def _in_callee(self, text: str, at: int, final: bool) -> int:
        """Consume the name of the next call and its opening bracket, or the end of the list."""
        at = self._skip_space(text, at)
        if at == len(text):
            return at
        if not final and may_continue_line(text, at):
            return ~at
        if self._bracketed and text[at] == "]" and (self._finished_parts or self._evidence.sentinel):
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
            if self._layout.whole_reply and self._evidence.implies_call and self._finished_parts:
                self._return_pending()
                self._finish()
                return at
            if not self._finished_parts and not self._bracketed:
                if not self.head and not self._pending_text:  # else a candidate would begin here again
                    at = self._consume(text, at, at + 1)
                self._give_up("no call")
                return at
            self._notice_quote(text, at)
            return self._reject("no call", at)
        self._add_part("markup")
        self._call = PythonCall(
            name,
            self._options,
            self._evidence,
            streams=self._streams,
            gemma=self.opening_bracket == "{",
            all_quoted=self._layout.all_quoted,
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
        # ToolACE-8B writes names with spaces.
        match = (_SPACED_CALLEE if self._layout.spaced_names and self._bracketed else _CALLEE).match(text, at)
        return (match[1].strip(), match.end()) if match is not None else ("", at)

    def _may_become_call(self, text: str, at: int) -> bool:
        """Return whether a statement may still turn out to be a call."""
        return (
            self._layout.statements and len(text) - at < STATEMENT_LIMIT and "\n" not in text[at : at + STATEMENT_LIMIT]
        )

    def _in_arguments(self, text: str, at: int, final: bool) -> int:
        """Consume the arguments of a call. When they end, resolve the call."""
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
        """End a broken call where its unclosed string runs into the next call; the next call is read again."""
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
        """Handle what follows a call: a separator, or the end of the calls."""
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
        """Accept the closing marker in place of the list's closing bracket. Reject the calls if neither is there."""
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
        """Consume the closing marker after the calls, or decide what other text in its place means."""
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
        if self._layout.whole_reply and text[at] != "<" and not self._evidence.implies_call:
            return self._reject("something else follows the call", at)
        return self._on_foreign_text(text, at)

    def _on_foreign_text(self, text: str, at: int) -> int:
        """Accept or reject the calls when prose or another marker comes in place of their closing marker."""
        self._notice_quote(text, at)
        if self._is_uncertain and text[at] != "<":
            return self._reject(UNCERTAIN_END, at, broken=True)
        sure = self._evidence.implies_call or self._options.strictness == "lenient"
        if not sure and text[at] != "<":
            return self._reject("text follows the calls before their closer", at)
        self._record_missing_closer()
        self._finish()
        return at

    def _after_closer(self, text: str, at: int, final: bool) -> int:
        """Consume a repetition of the calls, together with its closing marker; if there is none, finish."""
        bare = SPACE.match(text, at)
        assert bare is not None
        # LFM2 repeats its calls before a second end token; vLLM 0.32's parser drops the repetition too.
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
        """Return the closing marker at `text[at]`; "" if there is none.

        If the text ends inside a closing marker, return `NEED_MORE` or, if `final` is true, the part of the marker that
        has arrived.
        """
        for closer in (*self._layout.closers, FENCE) if self._in_fence else self._layout.closers:
            if text.startswith(closer, at):
                return closer
            if len(text) - at < len(closer) and closer.startswith(text[at:]):
                return text[at:] if final else NEED_MORE
        return ""

    def _reject(self, why: str, at: int, *, broken: bool = False) -> int:
        """Handle unreadable text: if a call is intended, skip to the closing marker, else turn the block into text."""
        self.lacks_value = self._is_unreadable(broken)
        in_call = self._names_tool and self._state == self._in_arguments
        self._unreadable = why if self.lacks_value or in_call else ""
        if self._evidence.at_start and self._bracketed and not self._layout.closers and self.lacks_value:
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
        """Consume the text up to the closing marker as a malformed call."""
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

    # --- after calls that nothing closes ----------------------------------------------------------------------------

    def _after_row_call(self, text: str, at: int, final: bool) -> int:
        """After a call without square brackets, consume the separator before another call, or end the calls."""
        match = _NEXT_IN_ROW.match(text, at)
        assert match is not None
        if match.end() == len(text) and text[-1] != self.opening_bracket and not final:
            return ~at
        if not self._layout.in_row or match[1] is None or not is_offered_name(match[1], self._options.tools):
            self._notice_quote(text, match.end())
            self._end_unclosed()
            return at
        self._state = self._in_callee
        return self._consume(text, at, match.start(1))

    def _end_unclosed(self) -> None:
        """End calls that no marker closes. If the end of a string was guessed, check the text after the calls first."""
        if self.definite and self._is_uncertain:
            self._add_part("markup")
            self._state = self._after_guess
        else:
            self._finish()

    def _after_guess(self, text: str, at: int, final: bool) -> int:
        """Check the guessed end of a string: if another call follows, the guess is right; else it stays uncertain."""
        match = _BEGINS.match(text, at)
        if match is not None and match.end() == len(text) and text[-1] != self.opening_bracket and not final:
            return ~at
        if match is not None and match[1] is not None and is_offered_name(match[1], self._options.tools):
            self._finish()
        else:
            self._state = self._after_uncertain
        return at

    def _after_uncertain(self, text: str, at: int, _final: bool) -> int:
        """Search for another quote after the uncertain end of a string. If there is one, reject the call."""
        match = _ANY_QUOTE.search(text, at)
        end = self._consume(text, at, match.start() if match is not None else len(text))
        if match is not None:
            self._reject_uncertain()
            self._return_pending()
            self._finish()
        return end

    def _is_unreadable(self, broken: bool) -> bool:
        """Return whether the current call is to an offered tool, and a value in the call cannot be read.

        A function's signature is not such a call, because it has names of parameters but no values.
        """
        call = self._call
        return call is not None and call.tool is not None and (broken or call.expects_value)

    def _skip_unreadable(self, text: str, at: int, final: bool) -> int:
        """Skip unreadable text up to the end of the list: the first line that ends like a list of calls, with `)]`."""
        match = _LIST_ENDS.search(text, at)
        if match is None or (match.end() == len(text) and not final):
            end = self._consume(text, at, match.start() if match is not None else len(text))
            self._skipped += end - at
            return end if end == len(text) else ~end
        end = self._consume(text, at, match.end(1))
        self._add_malformed()
        self._finish()
        return end

    # --- the text that was taken, and its calls ---------------------------------------------------------------------

    def _consume(self, text: str, at: int, end: int) -> int:
        if end > at:
            self._pending_text.append(text[at:end])
        return end

    def _add_part(self, kind: PartKind) -> None:
        """Make a part from the text consumed since the last part. Markup before the first part is added to `head`."""
        raw, self._pending_text = "".join(self._pending_text), []
        if kind == "markup" and not self._finished_parts:
            self.head += raw
        elif raw:
            self._finished_parts.append(Part(kind, raw))

    def _return_pending(self) -> None:
        """Make the text consumed since the last call unread, so that it is read again."""
        self.unread, self._pending_text = "".join(self._pending_text), []

    def _resolve_call(self, call: PythonCall, *fixes: Fix) -> bool:
        """Resolve the call whose last bracket has arrived; if it is not a call, give up and return False."""
        try:
            outcome = call.resolve(*fixes)
        except NotACall as no:
            self._give_up(str(no))
            return False
        self._finished_parts.append(call_part(outcome, "".join(self._pending_text)))
        self._pending_text = []
        return True

    def _stream_call(self, call: PythonCall, *, last: bool = False) -> None:
        """Emit the calls before `call`, and the part of `call` that can no longer change.

        `last`: whether `call` has ended.
        """
        early = call.stream(last=last)
        if early and self._finished_parts:
            self._emit_early(self._finished_parts)
            self._finished_parts = []
        self._has_emitted = self._has_emitted or bool(early)
        self.early += early

    @property
    def _names_tool(self) -> bool:
        return self._call is not None and self._call.tool is not None

    @property
    def _call_name(self) -> str | None:
        return self._call.name if self._call is not None else None

    @property
    def _is_intended(self) -> bool:
        """Whether calls are intended, even if something is wrong with them."""
        return self._has_emitted or self._evidence.implies_call

    @property
    def _is_uncertain(self) -> bool:
        """Whether the end of a string was guessed. The guess holds only if nothing unexpected follows the calls."""
        return self._quote_follows or any(map(_has_guessed_end, self._finished_parts))

    def _notice_quote(self, text: str, at: int) -> None:
        """Remember whether a quote follows the last call, since the call's last string may extend to this quote."""
        quote = self._call.last_quote if self._call is not None else ""
        self._quote_follows = self._quote_follows or (quote != "" and text.startswith(quote, at))

    # --- the end of the text ----------------------------------------------------------------------------------------

    def _begins_call(self, text: str) -> bool:
        """Return whether a text that was cut off begins a call. In Python's syntax, a tool's name is not enough."""
        del text
        return False

    def _on_end_of_text(self, finish_reason: str | None) -> None:
        """Decide on the calls when the text has ended before they were complete."""
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
            self._end_before_call(finish_reason)
        elif self._state == self._in_callee and "".join(self._pending_text).strip(" \t\r\n,;"):
            self._end_in_name()
        else:
            self._record_missing_closer()
        if not self._decided:
            self._finish()

    def _end_in_arguments(self, finish_reason: str | None) -> None:
        """Decide on a call when the text has ended inside its arguments."""
        call = self._call
        assert call is not None
        raw = "".join(self._pending_text)
        closer = min((at for at in map(raw.find, self._layout.closers) if at >= 0), default=-1)
        after = call.end_string() if finish_reason != "length" else None
        cut = raw.rfind(after) if after else -1
        if cut >= 0:
            self._pending_text = [raw[:cut]]
            if self._resolve_call(call):
                self.unread = raw[cut:]
        elif closer >= 0 and (self._is_intended or call.tool is not None):
            self._pending_text = [raw[:closer]]
            self._error = "a string or bracket in it is never closed"
            self._add_malformed()
            self.unread = raw[closer:]
        elif finish_reason in COMPLETE_FINISH_REASONS and call.close_missing_bracket():
            if (
                self._resolve_call(call, Fix("closer", "the last bracket is missing"))
                and self._finished_parts[-1].malformed is not None
            ):
                self._finished_parts[-1] = self._truncated_part(
                    self._finished_parts[-1].raw
                )  # what is missing may have been cut
        elif self._is_intended or (
            call.tool is not None and (call.has_arguments or (self._evidence.wrapped and finish_reason == "length"))
        ):
            self._finished_parts.append(self._truncated_part("".join(self._pending_text)))
            self._pending_text = []
        else:
            self._give_up("the text ended inside its arguments")

    def _end_in_name(self) -> None:
        """Decide on the calls when the text has ended inside the name of another call."""
        raw = "".join(self._pending_text)
        name = raw.strip(" \t\r\n,;")
        tools = self._options.tools
        begun = tools is not None and any(offered.startswith(name) for offered in tools.all_names)
        if begun or (self._is_intended and not self._layout.whole_reply):
            self._pending_text = [raw[: raw.find(name)]]
            self._add_part("markup")
            self._call = None
            self._finished_parts.append(self._truncated_part(raw[raw.find(name) :]))
        elif self._evidence.implies_call:
            self._return_pending()
        else:
            self._give_up("the list of calls holds something else")

    def _end_before_call(self, finish_reason: str | None) -> None:
        """Decide on the text if it has ended before the arguments of its first call."""
        begun = finish_reason == "length" and self._begins_call("".join(self._pending_text))
        if begun or (self._is_intended and (self.head or self._pending_text)):
            self._finished_parts.append(self._truncated_part(self.head + "".join(self._pending_text)))
            self._pending_text, self.head = [], ""
        else:
            self._give_up("the text ended before a call")

    def _record_missing_closer(self) -> None:
        missing = "]" if self._bracketed and not self._list_closed else "".join(self._layout.closers[:1])
        if not missing:
            return
        add_fix(reversed(self._finished_parts), Fix("closer", f"no {missing!r}"))

    def _truncated_part(self, raw: str) -> Part:
        malformed = malformed_call("truncated", "the text ended inside it", self._evidence.dialect, self._call_name)
        return Part("malformed", raw, malformed=malformed)

    # --- the outcome ------------------------------------------------------------------------------------------------

    def _finish(self) -> None:
        failed = [part.malformed for part in self._finished_parts if part.malformed is not None]
        unknown = any(malformed.reason == "unknown_tool" for malformed in failed)
        if unknown and not self._has_emitted and any(part.call for part in self._finished_parts):  # all calls or none
            self._give_up("another tool of the same turn is not offered")
            return
        if self._pending_text:
            self._add_part("markup")
        opening = [Part("markup", self.head)] if self.head else []
        self.parts = [*opening, *self._finished_parts]
        all_parts = [*self._emitted, *self.parts]
        self.tries.append(trace_entry(self._evidence.dialect, total_length(all_parts), all_parts))
        self._decided = True

    def _give_up(self, why: str, *, read_again: int = 0) -> None:
        """Turn the block into text, or into a malformed call if the name of a call was emitted.

        The last `read_again` characters will be read again.
        """
        if self._has_emitted:
            self._error = why
            self._add_malformed()
            self._finish()
            return
        raw = "".join((*(part.raw for part in self._finished_parts), *self._pending_text))
        raw, self.unread = raw[: len(raw) - read_again], raw[len(raw) - read_again :]
        self._decided = True
        broken = self._unreadable and malformed_call("invalid_json", why, self._evidence.dialect, self._call_name)
        self.parts = [Part("text", self.head + raw, malformed=broken or None)]
        self.tries.append(TriedStrategy(self._evidence.dialect, "text", why, len(self.head + raw)))

    def _add_malformed(self) -> None:
        self._reject_uncertain()
        malformed = malformed_call("invalid_json", self._error, self._evidence.dialect, self._call_name)
        self._finished_parts.append(Part("malformed", "".join(self._pending_text), malformed=malformed))
        self._pending_text = []

    def _reject_uncertain(self) -> None:
        """Mark as malformed the first call with a string whose end was guessed, and all calls after that call."""
        last = next(
            (index for index in reversed(range(len(self._finished_parts))) if self._finished_parts[index].call), 0
        )
        guesses = (
            index
            for index, part in enumerate(self._finished_parts)
            if _has_guessed_end(part) or (self._quote_follows and index == last)
        )
        first = next(guesses, len(self._finished_parts))
        for part in self._finished_parts[first:]:
            if part.call is not None:
                malformed = malformed_call("invalid_json", UNCERTAIN_END, self._evidence.dialect, part.call.name)
                part.kind, part.call, part.malformed = "malformed", None, malformed


# Calls in Python's syntax in a dialect whose calls have another syntax.


PYTHON_FIX = Fix("json", "the arguments were in a Python call")


class PythonFallbackReader(PythonCallReader):
    """Reads Python calls where the dialect's calls have another syntax, and records a fix on each call.

    No call is emitted before its end, because the fix must be recorded first.
    """

    def __init__(
        self, head: str, layout: CallLayout, options: ParseOptions, evidence: Evidence, *, definite: bool
    ) -> None:
        super().__init__(head, layout, options, evidence, definite=definite)
        self._streams = False

    def feed(self, piece: str, start: int) -> int | None:
        """Read `piece[start:]`; return the index just past the consumed text, or None if more text is needed."""
        end = super().feed(piece, start)
        if end is not None:
            self._record_fixes()
        return end

    def close(self, finish_reason: str | None) -> None:
        """Decide whether the text read so far is a call, since no more text will come."""
        super().close(finish_reason)
        self._record_fixes()

    def _record_fixes(self) -> None:
        for part in self.parts:
            add_fix([part], PYTHON_FIX)
