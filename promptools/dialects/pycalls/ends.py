"""The states after calls that nothing closes: the next call of a row, doubts about a guess, or the end of a list."""

from __future__ import annotations

import re
from abc import abstractmethod
from collections.abc import Callable
from typing import Final, TypeAlias

from promptools.dialects.pycalls.names import is_offered, name_of
from promptools.dialects.pycalls.parts import CallParts

State: TypeAlias = Callable[[str, int, bool], int]
"""Takes `(text, at, final)`; `final`: no more text comes. Returns the next index, or `~index` to wait there."""

NAME: Final = name_of(r"\w", r"[\w.:/-]", 127)
_NEXT = re.compile(rf"[ \t]{{0,16}}+(?:[,;]\s{{0,64}}+(?:({NAME})[ \t]{{0,8}}+(?:\Z|\())?+)?+")
"""A separator and the next call of a row, or what there is of them."""
_BEGINS = re.compile(rf"\s{{0,64}}+(?:\Z|({NAME})[ \t]{{0,8}}+(?:\Z|\())")
_ANY_QUOTE = re.compile("[\"'“”‘’]")
_LIST_ENDS = re.compile(r"(\)\s{0,64}+(?:,\s{0,64}+)?(?:\Z|\]))(?:\Z|[ \t]{0,64}+(?:\Z|[\r\n]))")
"""The end of a list of calls at the end of a line, or what there is of it."""


class CallEnds(CallParts):
    """The states after a call."""

    bracket = "("
    """What opens the arguments."""
    _state: State

    @abstractmethod
    def _callee(self, text: str, at: int, final: bool) -> int: ...

    def _row(self, text: str, at: int, final: bool) -> int:
        """After a call without brackets around it: take a separator and the next call, or end."""
        match = _NEXT.match(text, at)
        assert match is not None
        if match.end() == len(text) and text[-1] != self.bracket and not final:
            return ~at
        if not self._layout.row or match[1] is None or not is_offered(match[1], self._rules):
            self._notice_quote(text, match.end())
            self._end()
            return at
        self._state = self._callee
        return self._take(text, at, match.start(1))

    def _end(self) -> None:
        """End calls that nothing closes. A guess that would be emitted at once is first checked by what follows."""
        if self.firm and self._doubted:
            self._cut("markup")
            self._state = self._guessed
        else:
            self._finish()

    def _guessed(self, text: str, at: int, final: bool) -> int:
        """After a string whose end was guessed: either the next call begins, or the guess is doubted."""
        match = _BEGINS.match(text, at)
        if match is not None and match.end() == len(text) and text[-1] != self.bracket and not final:
            return ~at
        if match is not None and match[1] is not None and is_offered(match[1], self._rules):
            self._finish()
        else:
            self._state = self._doubting
        return at

    def _doubting(self, text: str, at: int, _final: bool) -> int:
        """After such a string, in other text: a further quote may end the string as well, so the call is refused."""
        match = _ANY_QUOTE.search(text, at)
        end = self._take(text, at, match.start() if match is not None else len(text))
        if match is not None:
            self._refuse_doubted()
            self._give_back()
            self._finish()
        return end

    def _is_unread(self, broken: bool) -> bool:
        """Return whether a call with an unreadable value is intended. A signature has names too, but no values."""
        call = self._call
        return call is not None and call.tool is not None and (broken or call.gives_value)

    def _unread(self, text: str, at: int, final: bool) -> int:
        """Consume what cannot be read up to the end of its list: the end of a line that ends like a list of calls."""
        match = _LIST_ENDS.search(text, at)
        if match is None or (match.end() == len(text) and not final):
            end = self._take(text, at, match.start() if match is not None else len(text))
            return end if end == len(text) else ~end
        end = self._take(text, at, match.end(1))
        self._malformed()
        self._finish()
        return end
