"""What a block of calls results in: the parts that tile its text, and the outcome of calls that did not end."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from promptools.dialects.calls.envelope import NotACall
from promptools.dialects.calls.json_body import call_part
from promptools.dialects.calls.parse_options import COMPLETE_FINISH_REASONS, Evidence, ParseOptions
from promptools.dialects.calls.resolve import malformed_call
from promptools.dialects.contract import trace_entry
from promptools.dialects.readers.literals.python_arguments import UNCERTAIN_END
from promptools.dialects.readers.python_calls.python_call import PythonCall
from promptools.jsontext.quotes import UNESCAPED_QUOTES
from promptools.parsing.parts import CandidateBase, Part, PartKind, TriedStrategy, add_fix, total_length
from promptools.types import Fix

FENCE: Final = "```"


@dataclass(frozen=True, slots=True)
class CallLayout:
    """How a dialect lays out its calls: in brackets or not, one a line or not, and what closes them."""

    closers: tuple[str, ...] = ()
    """What closes them; if empty, the last bracket does."""
    brackets: bool | None = None
    """They are in square brackets; None: they may be."""
    one_per_line: bool = False
    """Several may come without brackets, one a line."""
    in_row: bool = False
    """Several may come without brackets, a comma or a semicolon between two."""
    spaced_names: bool = False
    """Names may hold spaces."""
    statements: bool = False
    """A statement may print or assign the call's result."""
    whole_reply: bool = False
    """Nothing but calls and control tokens may come between the opener and the end of the reply."""
    closer_is_final: bool = False
    """The closer cannot be prose: anything may follow it."""
    may_repeat: bool = False
    """The calls may be repeated after their closer, with another closer."""
    fenced: bool = False
    """A code fence is around them, which ends before their closer."""


def _has_guessed_end(part: Part) -> bool:
    """Return whether a call holds a string whose end was guessed."""
    return part.call is not None and any(fix.detail.startswith(UNESCAPED_QUOTES) for fix in part.call.fixes)


class PythonCallParts(CandidateBase):
    """The text that a block of calls has taken, and the parts made of it."""

    def __init__(self, head: str, layout: CallLayout, rules: ParseOptions, place: Evidence, *, definite: bool) -> None:
        super().__init__(definite=definite, head=head)
        self._layout = layout
        self._rules = rules
        self._place = place
        self._pending_text: list[str] = []
        """Text that was taken since the last part."""
        self._finished_parts: list[Part] = []
        self._call: PythonCall | None = None
        self._bracketed = False
        self._list_closed = False
        """The bracket around the calls was closed."""
        self._quote_follows = False
        """A quote follows the last call, whose last string may end there."""
        self._error = ""
        self._unreadable = ""
        """Why a call of an offered tool cannot be read: with it, text shows how calls look."""
        self.lacks_value = False
        """A value of a call of an offered tool cannot be read, so a list with it was meant all the same."""
        self._skipped: int = 0
        """Characters of the pending text, at its end, that come after what cannot be read."""
        self._has_emitted = False
        """The name of a call has been emitted."""
        self._decided = False

    @property
    def comments_follow(self) -> bool:
        """Whether a comment may follow on the same line: after a list, as a call with a comment is one of a program."""
        return self._bracketed

    def _consume(self, text: str, at: int, end: int) -> int:
        if end > at:
            self._pending_text.append(text[at:end])
        return end

    def _resolve_call(self, call: PythonCall, *fixes: Fix) -> bool:
        """Resolve the call whose last bracket has come; return False if it is not one, and the block is given up."""
        try:
            outcome = call.resolve(*fixes)
        except NotACall as no:
            self._give_up(str(no))
            return False
        self._finished_parts.append(call_part(outcome, "".join(self._pending_text)))
        self._pending_text = []
        return True

    def _stream_call(self, call: PythonCall, *, last: bool = False) -> None:
        """Emit what is certain of a call, which may have ended; the calls before it are emitted along with its name."""
        early = call.stream(last=last)
        if early and self._finished_parts:
            self._emit_early(self._finished_parts)
            self._finished_parts = []
        self._has_emitted = self._has_emitted or bool(early)
        self.early += early

    def _add_part(self, kind: PartKind) -> None:
        """Make a part of the text taken since the last one; before the first call it is added to the head."""
        raw, self._pending_text = "".join(self._pending_text), []
        if kind == "markup" and not self._finished_parts:
            self.head += raw
        elif raw:
            self._finished_parts.append(Part(kind, raw))

    # --- the outcome -----------------------------------------------------------------------------------------------

    @property
    def _names_tool(self) -> bool:
        return self._call is not None and self._call.tool is not None

    @property
    def _is_intended(self) -> bool:
        """Whether calls are intended, whatever is wrong with them."""
        return self._has_emitted or self._place.implies_call

    @property
    def _is_uncertain(self) -> bool:
        """Whether the end of a string is a guess, which is valid only if nothing strange follows."""
        return self._quote_follows or any(map(_has_guessed_end, self._finished_parts))

    def _notice_quote(self, text: str, at: int) -> None:
        """Remember a quote after the last call, whose last string may end there instead."""
        quote = self._call.last_quote if self._call is not None else ""
        self._quote_follows = self._quote_follows or (quote != "" and text.startswith(quote, at))

    def _reject_uncertain(self) -> None:
        """Make calls with a guessed string, and those after them, malformed."""
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
                malformed = malformed_call("invalid_json", UNCERTAIN_END, self._place.dialect, part.call.name)
                part.kind, part.call, part.malformed = "malformed", None, malformed

    def _add_malformed(self) -> None:
        self._reject_uncertain()
        malformed = malformed_call("invalid_json", self._error, self._place.dialect, self._call_name)
        self._finished_parts.append(Part("malformed", "".join(self._pending_text), malformed=malformed))
        self._pending_text = []

    @property
    def _call_name(self) -> str | None:
        return self._call.name if self._call is not None else None

    def _end_in_arguments(self, finish_reason: str | None) -> None:
        """Decide on a call whose arguments did not end."""
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
            call.tool is not None and (call.has_arguments or (self._place.wrapped and finish_reason == "length"))
        ):
            self._finished_parts.append(self._truncated_part("".join(self._pending_text)))
            self._pending_text = []
        else:
            self._give_up("the text ended inside its arguments")

    def _end_in_name(self) -> None:
        """Decide on calls after which another name began."""
        raw = "".join(self._pending_text)
        name = raw.strip(" \t\r\n,;")
        tools = self._rules.tools
        begun = tools is not None and any(offered.startswith(name) for offered in tools.all_names)
        if begun or (self._is_intended and not self._layout.whole_reply):
            self._pending_text = [raw[: raw.find(name)]]
            self._add_part("markup")
            self._call = None
            self._finished_parts.append(self._truncated_part(raw[raw.find(name) :]))
        elif self._place.implies_call:
            self._return_pending()
        else:
            self._give_up("the list of calls holds something else")

    def _return_pending(self) -> None:
        """Return what was taken since the last call, to be read again."""
        self.unread, self._pending_text = "".join(self._pending_text), []

    def _end_before_call(self) -> None:
        if self._is_intended and (self.head or self._pending_text):
            self._finished_parts.append(self._truncated_part(self.head + "".join(self._pending_text)))
            self._pending_text, self.head = [], ""
        else:
            self._give_up("the text ended before a call")

    def _truncated_part(self, raw: str) -> Part:
        malformed = malformed_call("truncated", "the text ended inside it", self._place.dialect, self._call_name)
        return Part("malformed", raw, malformed=malformed)

    def _record_missing_closer(self) -> None:
        missing = "]" if self._bracketed and not self._list_closed else "".join(self._layout.closers[:1])
        if not missing:
            return
        add_fix(reversed(self._finished_parts), Fix("closer", f"no {missing!r}"))

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
        self.tries.append(trace_entry(self._place.dialect, total_length(all_parts), all_parts))
        self._decided = True

    def _give_up(self, why: str, *, read_again: int = 0) -> None:
        """Return the block as text, or as a malformed call if the name of a call has been emitted.

        The last `read_again` characters that were taken are read again.
        """
        if self._has_emitted:
            self._error = why
            self._add_malformed()
            self._finish()
            return
        raw = "".join((*(part.raw for part in self._finished_parts), *self._pending_text))
        raw, self.unread = raw[: len(raw) - read_again], raw[len(raw) - read_again :]
        self._decided = True
        broken = self._unreadable and malformed_call("invalid_json", why, self._place.dialect, self._call_name)
        self.parts = [Part("text", self.head + raw, malformed=broken or None)]
        self.tries.append(TriedStrategy(self._place.dialect, "text", why, len(self.head + raw)))
