"""The states after calls that nothing closes: the next call of a row, doubts about a guess, or the end of a list."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from typing import Final, TypeAlias

from promptools.dialects.readers.literals.python_names import CONTINUED_LINE, name_pattern
from promptools.dialects.readers.python_calls.python_parts import PythonCallParts
from promptools.patterns import lazy_pattern
from promptools.schema.spelling import is_offered_name

TextState: TypeAlias = Callable[[str, int, bool], int]
"""Takes `(text, at, final)`; `final`: no more text comes. Returns the next index, or `~index` to wait there."""

CALLEE_PATTERN: Final = name_pattern(r"\w", r"[\w.:/-]", 127)
_ROW_GAP = rf"(?:\s|{CONTINUED_LINE}|\\\r?\Z){{0,64}}+"
_NEXT_IN_ROW = lazy_pattern(
    rf"[ \t]{{0,16}}+(?:(?:[,;]|(?=\\)){_ROW_GAP}(?:({CALLEE_PATTERN})[ \t]{{0,8}}+(?:\Z|\())?+)?+"
)
"""A separator and the next call of a row, or what there is of them: a line that ends in a backslash goes on."""
_BEGINS = lazy_pattern(rf"\s{{0,64}}+(?:\Z|({CALLEE_PATTERN})[ \t]{{0,8}}+(?:\Z|\())")
_ANY_QUOTE = lazy_pattern("[\"'“”‘’]")
_LIST_ENDS = lazy_pattern(r"(\)\s{0,64}+(?:,\s{0,64}+)?(?:\Z|\]))(?:\Z|[ \t]{0,64}+(?:\Z|[\r\n]))")
"""The end of a list of calls at the end of a line, or what there is of it."""


class UnclosedCallStates(PythonCallParts):
    """The states after a call."""

    opening_bracket = "("
    """What opens the arguments."""
    _state: TextState

    @abstractmethod
    def _in_callee(self, text: str, at: int, final: bool) -> int: ...

    def _after_row_call(self, text: str, at: int, final: bool) -> int:
        """After a call without brackets around it: take a separator and the next call, or end."""
        match = _NEXT_IN_ROW.match(text, at)
        assert match is not None
        if match.end() == len(text) and text[-1] != self.opening_bracket and not final:
            return ~at
        if not self._layout.in_row or match[1] is None or not is_offered_name(match[1], self._rules.tools):
            self._notice_quote(text, match.end())
            self._end_unclosed()
            return at
        self._state = self._in_callee
        return self._consume(text, at, match.start(1))

    def _end_unclosed(self) -> None:
        """End calls that nothing closes. A guess that would be emitted at once is first checked by what follows."""
        if self.definite and self._is_uncertain:
            self._add_part("markup")
            self._state = self._after_guess
        else:
            self._finish()

    def _after_guess(self, text: str, at: int, final: bool) -> int:
        """After a string whose end was guessed: either the next call begins, or the guess is doubted."""
        match = _BEGINS.match(text, at)
        if match is not None and match.end() == len(text) and text[-1] != self.opening_bracket and not final:
            return ~at
        if match is not None and match[1] is not None and is_offered_name(match[1], self._rules.tools):
            self._finish()
        else:
            self._state = self._after_uncertain
        return at

    def _after_uncertain(self, text: str, at: int, _final: bool) -> int:
        """After such a string, in other text: a further quote may end the string as well, so the call is refused."""
        match = _ANY_QUOTE.search(text, at)
        end = self._consume(text, at, match.start() if match is not None else len(text))
        if match is not None:
            self._reject_uncertain()
            self._return_pending()
            self._finish()
        return end

    def _is_unreadable(self, broken: bool) -> bool:
        """Return whether a call with an unreadable value is intended. A signature has names too, but no values."""
        call = self._call
        return call is not None and call.tool is not None and (broken or call.expects_value)

    def _skip_unreadable(self, text: str, at: int, final: bool) -> int:
        """Consume what cannot be read up to the end of its list: the end of a line that ends like a list of calls."""
        match = _LIST_ENDS.search(text, at)
        if match is None or (match.end() == len(text) and not final):
            end = self._consume(text, at, match.start() if match is not None else len(text))
            self._skipped += end - at
            return end if end == len(text) else ~end
        end = self._consume(text, at, match.end(1))
        self._add_malformed()
        self._finish()
        return end
