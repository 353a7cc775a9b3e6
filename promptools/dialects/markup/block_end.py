"""How a block of markup ends: as a call, a malformed call or text; and what the end of the text itself means."""

from __future__ import annotations

from abc import abstractmethod

from promptools.dialects.markup.block import Segment
from promptools.dialects.markup.block_value import Valued
from promptools.dialects.markup.collected import Collected
from promptools.dialects.markup.tags import Tag, unblank
from promptools.dialects.settle import STOPPED, broken
from promptools.parsing.parts import note
from promptools.types import Fix, Malformed, MalformedReason


class Ended(Valued):
    """The states and decisions at the end of a block."""

    @abstractmethod
    def _spoke(self) -> bool: ...
    @abstractmethod
    def _between(self, token: Tag | str) -> None: ...
    @abstractmethod
    def _end_call(self, end: int, fix: Fix | None = None) -> None: ...

    def _inner_decided(self) -> None:
        """Add the parts that the reader of JSON made of a body."""
        inner, self._inner = self._inner, None
        assert inner is not None
        self.tries += inner.tries
        self._at = len(self._tokens)
        self._tokens.append("".join(part.raw for part in inner.parts))
        if all(part.kind == "text" for part in inner.parts):
            self._give_up("the JSON in it is no call", None)
            return
        call, self._call = self._call, None
        for fix in call.fixes if call is not None else []:
            note(inner.parts, fix)
        self._segments.append(Segment(self._at, self._at + 1, None, inner.parts))
        self._words = []
        self._state = self._between
        if not self._wrapped or call is None:
            self._finish(self._at + 1)

    def _give_up(self, why: str, token: Tag | str | None) -> None:
        """Skip what is not a call: where a call is intended it is a malformed one, else it is text."""
        named = self._call is not None and self._call.tool is not None
        if self._place.sentinel or self._started or (self._place.expected and named):
            self._why = why
            self._state = self._skipping
            if isinstance(token, Tag):
                self._skipping(token)
        elif self._segments:
            self._finish(self._segments[-1].end, self._no_wrapper_closer())
        else:
            if isinstance(token, str):  # from its first visible character on it is read again, however the text was cut
                self._put_back(len(unblank(token)))
            self._text(self._at + (not isinstance(token, Tag)), why)

    def _skipping(self, token: Tag | str) -> None:
        """In what is not a call, up to its end."""
        if isinstance(token, str) or not token.close or token.kind not in ("call", "wrap"):
            return
        end = self._at + (token.kind == "call")
        self._segments.append(Segment(self._start, end, self._broken("invalid_json", self._why), []))
        self._call, self._words, self._reopen = None, [], None
        self._state = self._between
        if token.kind == "wrap":
            self._between(token)
        elif not self._wrapped:
            self._finish(end)

    def _broken(self, reason: MalformedReason, why: str) -> Malformed:
        call = self._call
        name = None if call is None else call.tool.name if call.tool is not None else call.said
        return broken(reason, why, self._place.dialect, name)

    def _end(self, finish_reason: str | None) -> None:
        """Decide at the end of the text."""
        self._at = len(self._tokens)
        length = finish_reason == "length"
        if self._state == self._ending:
            if self._closes_own() or not (self._nested or length or (self._quoted and self._undone)):
                self._ended()
            else:
                self._not_ended()
        if self._over:
            return
        if self._state == self._in_call:
            self._end_in_call(finish_reason)
        elif self._state == self._between:
            if length and self._wrapped and self._reopen is not None:  # the value may go on
                self._call = self._segments[-1].call if isinstance(self._segments[-1].call, Collected) else None
                self._start = self._segments.pop().start
                self._truncate("the text ended before its wrapper did")
            elif self._cut.startswith("</") and not self._spoke():
                self._finish(self._at, Fix("closer", f"no {self._grammar.wrapper[1]!r}, only {self._cut!r}"))
            else:
                self._finish(self._segments[-1].end, self._no_wrapper_closer())
        elif self._state == self._skipping:
            self._segments.append(Segment(self._start, self._at, self._broken("invalid_json", self._why), []))
            self._finish(self._at)
        elif self._state == self._outside and not self._begun(length=length):
            self._text(self._at, "no call follows the opener")
        else:
            self._truncate(f"the text ended inside {self._key!r}" if self._key else "the text ended inside it")

    def _begun(self, *, length: bool) -> bool:
        """Return whether a call was coming when the text ended after the wrapper's opening tag."""
        return self._place.expected or (self._place.sentinel and (length or self._cut != ""))

    def _end_in_call(self, finish_reason: str | None) -> None:
        call = self._call
        assert call is not None
        stopped = finish_reason in STOPPED
        meant = self._wrapped or self._place.meant
        closing = self._cut.startswith("</")
        cut = self._cut != "" and not closing
        if not call.values and not meant:
            self._text(self._at, "only the beginning of a call is there")
        elif cut or finish_reason == "length" or not (stopped or (call.values and closing)):
            self._truncate("the text ended before its closer")
        else:
            call.unclosed = True
            self._end_call(self._at, self._missing(0))
            if not self._over:
                self._finish(self._at, self._no_wrapper_closer())

    def _truncate(self, why: str) -> None:
        """Report that the current call was cut off; or return the block as text, if no call is certain."""
        call = self._call
        known = self._rules.tools is None or (call is not None and call.tool is not None)
        certain = call is not None and known and not (self._quoted and self._undone)
        if not (self._place.meant or certain):
            if self._segments:
                self._finish(self._segments[-1].end, self._no_wrapper_closer())
            else:
                self._text(self._at, f"{why}, and that a call was meant is not certain")
            return
        malformed = self._broken("truncated", why)
        self._segments.append(Segment(self._start, self._at, malformed, []))
        self._finish(self._at)
