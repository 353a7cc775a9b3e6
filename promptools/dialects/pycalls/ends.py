"""What follows calls that nothing closes: the next one of a row, what tells against a guess, or the end of a list."""

from __future__ import annotations

import re
from abc import abstractmethod
from collections.abc import Callable
from typing import Final, TypeAlias

from promptools.dialects.pycalls.names import is_offered, name_of
from promptools.dialects.pycalls.parts import CallParts

State: TypeAlias = Callable[[str, int, bool], int]
"""Take `text` from `at` on; `final`: no more will come. Return the index to go on from, or `~index` of what is held."""

NAME: Final = name_of(r"\w", r"[\w.:/-]", 127)
_NEXT = re.compile(rf"[ \t]{{0,16}}+(?:[,;]\s{{0,64}}+(?:({NAME})[ \t]{{0,8}}+(?:\Z|\())?+)?+")
"""A separator and the next call of a row, or what there is of them."""
_BEGINS = re.compile(rf"\s{{0,64}}+(?:\Z|({NAME})[ \t]{{0,8}}+(?:\Z|\())")
_ANY_QUOTE = re.compile("[\"'“”‘’]")
_LIST_ENDS = re.compile(r"(\)\s{0,64}+(?:,\s{0,64}+)?(?:\Z|\]))(?:\Z|[ \t]{0,64}+(?:\Z|[\r\n]))")
"""The end of a list of calls at the end of a line, or what there is of it."""


class CallEnds(CallParts):
    """The states behind a call."""

    bracket = "("
    """What opens the arguments."""
    _state: State

    @abstractmethod
    def _callee(self, text: str, at: int, final: bool) -> int: ...

    def _row(self, text: str, at: int, final: bool) -> int:
        """After a call that stands without brackets: a separator and the next call, or the end."""
        found = _NEXT.match(text, at)
        assert found is not None
        if found.end() == len(text) and text[-1] != self.bracket and not final:
            return ~at
        if not self._layout.row or found[1] is None or not is_offered(found[1], self._rules):
            self._notice_quote(text, found.end())
            self._end()
            return at
        self._state = self._callee
        return self._take(text, at, found.start(1))

    def _end(self) -> None:
        """End calls that nothing closes; where a guess goes out at once, it is looked for what may tell against it."""
        if self.firm and self._doubted:
            self._cut("markup")
            self._state = self._guessed
        else:
            self._finish()

    def _guessed(self, text: str, at: int, final: bool) -> int:
        """Behind a string of which it was guessed where it ends: the next call begins there, or something else."""
        found = _BEGINS.match(text, at)
        if found is not None and found.end() == len(text) and text[-1] != self.bracket and not final:
            return ~at
        if found is not None and found[1] is not None and is_offered(found[1], self._rules):
            self._finish()
        else:
            self._state = self._doubting
        return at

    def _doubting(self, text: str, at: int, _final: bool) -> int:
        """Behind such a string words follow: another quote in them may be its end as well."""
        found = _ANY_QUOTE.search(text, at)
        end = self._take(text, at, found.start() if found is not None else len(text))
        if found is not None:
            self._refuse_doubted()
            self._give_back()
            self._finish()
        return end

    def _is_unread(self, broken: bool) -> bool:
        """Tell whether a call was meant whose value cannot be read; a signature has names too, but gives no values."""
        call = self._call
        return call is not None and call.tool is not None and (broken or call.gives_value)

    def _unread(self, text: str, at: int, final: bool) -> int:
        """Take what cannot be read up to the end of its list: the end of a line that ends as a list of calls does."""
        found = _LIST_ENDS.search(text, at)
        if found is None or (found.end() == len(text) and not final):
            end = self._take(text, at, found.start() if found is not None else len(text))
            return end if end == len(text) else ~end
        end = self._take(text, at, found.end(1))
        self._malformed()
        self._finish()
        return end
