"""How a block of markup ends: as a call, a malformed call or text; and what the end of the text itself means."""

from __future__ import annotations

from abc import abstractmethod

from promptools.dialects.calls.resolve import COMPLETE_FINISH_REASONS, malformed_call
from promptools.dialects.readers.markup.markup_block import CallSegment
from promptools.dialects.readers.markup.markup_call import MarkupCall
from promptools.dialects.readers.markup.tag_names import Tag, strip_blank
from promptools.dialects.readers.markup.value_states import ValueStates
from promptools.parsing.parts import add_fix
from promptools.types import Fix, Malformed, MalformedReason


class EndStates(ValueStates):
    """The states and decisions at the end of a block."""

    @abstractmethod
    def _has_outside_text(self) -> bool: ...
    @abstractmethod
    def _between(self, token: Tag | str) -> None: ...
    @abstractmethod
    def _end_call(self, end: int, fix: Fix | None = None) -> None: ...

    def _on_json_decided(self) -> None:
        """Add the parts that the reader of JSON made of a body."""
        inner, self._json_reader = self._json_reader, None
        assert inner is not None
        self.tries += inner.tries
        self._index = len(self._tokens)
        self._tokens.append("".join(part.raw for part in inner.parts))
        if all(part.kind == "text" for part in inner.parts):
            self._give_up("the JSON in it is no call", None)
            return
        call, self._call = self._call, None
        for fix in call.fixes if call is not None else []:
            add_fix(inner.parts, fix)
        self._segments.append(CallSegment(self._index, self._index + 1, None, inner.parts))
        self._outside_text = []
        self._state = self._between
        if not self._in_wrapper or call is None:
            self._finish(self._index + 1)

    def _give_up(self, why: str, token: Tag | str | None) -> None:
        """Skip what is not a call: where a call is intended it is a malformed one, else it is text."""
        named = self._call is not None and self._call.tool is not None
        if self._place.sentinel or self._has_emitted or (self._place.expected and named):
            self._skip_reason = why
            self._state = self._skipping
            if isinstance(token, Tag):
                self._skipping(token)
        elif self._segments:
            self._finish(self._segments[-1].end, self._missing_wrapper_fix())
        else:
            if isinstance(token, str):  # from its first visible character on it is read again, however the text was cut
                self._put_back(len(strip_blank(token)))
            self._finish_as_text(self._index + (not isinstance(token, Tag)), why)

    def _skipping(self, token: Tag | str) -> None:
        """In what is not a call, up to its end."""
        if isinstance(token, str) or not token.close or token.kind not in ("call", "wrap"):
            return
        end = self._index + (token.kind == "call")
        self._segments.append(
            CallSegment(self._call_start, end, self._malformed("invalid_json", self._skip_reason), [])
        )
        self._call, self._outside_text, self._reopen_index = None, [], None
        self._state = self._between
        if token.kind == "wrap":
            self._between(token)
        elif not self._in_wrapper:
            self._finish(end)

    def _malformed(self, reason: MalformedReason, why: str) -> Malformed:
        call = self._call
        name = None if call is None else call.tool.name if call.tool is not None else call.written_name
        return malformed_call(reason, why, self._place.dialect, name)

    def _on_end_of_text(self, finish_reason: str | None) -> None:
        """Decide at the end of the text."""
        self._index = len(self._tokens)
        length = finish_reason == "length"
        if self._state == self._after_closer:
            if self._is_own_closer() or not (
                self._contains_call or length or (self._may_be_quoted and self._unmatched_closer)
            ):
                self._accept_end()
            else:
                self._resume_value()
        if self._decided:
            return
        if self._state == self._in_call:
            self._end_in_call(finish_reason)
        elif self._state == self._between:
            if length and self._in_wrapper and self._reopen_index is not None:  # the value may go on
                self._call = self._segments[-1].call if isinstance(self._segments[-1].call, MarkupCall) else None
                self._call_start = self._segments.pop().start
                self._truncate("the text ended before its wrapper did")
            elif self._cut_tag.startswith(self._names.closer_start) and not self._has_outside_text():
                self._finish(self._index, Fix("closer", f"no {self._grammar.wrapper[1]!r}, only {self._cut_tag!r}"))
            else:
                self._finish(self._segments[-1].end, self._missing_wrapper_fix())
        elif self._state == self._skipping:
            self._segments.append(
                CallSegment(self._call_start, self._index, self._malformed("invalid_json", self._skip_reason), [])
            )
            self._finish(self._index)
        elif self._state == self._before_calls and not self._call_was_coming(length=length):
            self._finish_as_text(self._index, "no call follows the opener")
        else:
            self._truncate(f"the text ended inside {self._key!r}" if self._key else "the text ended inside it")

    def _call_was_coming(self, *, length: bool) -> bool:
        """Return whether a call was coming when the text ended after the wrapper's opening tag."""
        return self._place.expected or (self._place.sentinel and (length or self._cut_tag != ""))

    def _end_in_call(self, finish_reason: str | None) -> None:
        call = self._call
        assert call is not None
        stopped = finish_reason in COMPLETE_FINISH_REASONS
        meant = self._in_wrapper or self._place.implies_call
        closing = self._cut_tag.startswith(self._names.closer_start)
        cut = self._cut_tag != "" and not closing
        if not call.values and not meant:
            self._finish_as_text(self._index, "only the beginning of a call is there")
        elif cut or finish_reason == "length" or not (stopped or (call.values and closing)):
            self._truncate("the text ended before its closer")
        else:
            call.unclosed = True
            self._end_call(self._index, self._missing_closer_fix())
            if not self._decided:
                self._finish(self._index, self._missing_wrapper_fix())

    def _truncate(self, why: str) -> None:
        """Report that the current call was cut off; or return the block as text, if no call is certain."""
        call = self._call
        known = self._rules.tools is None or (call is not None and call.tool is not None)
        certain = call is not None and known and not (self._may_be_quoted and self._unmatched_closer)
        if not (self._place.implies_call or certain):
            if self._segments:
                self._finish(self._segments[-1].end, self._missing_wrapper_fix())
            else:
                self._finish_as_text(self._index, f"{why}, and that a call was meant is not certain")
            return
        malformed = self._malformed("truncated", why)
        self._segments.append(CallSegment(self._call_start, self._index, malformed, []))
        self._finish(self._index)
