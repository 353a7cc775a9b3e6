"""The state of a block of markup: tokens in, calls out, and in the end the parts that tile the text.

A call that has ended is a `CallSegment`, a range of tokens; the tokens between segments are markup. A body in JSON is
left to another reader (`_json_reader`) until that has decided. The block ends in `_finish`, which resolves the segments
and tiles the text with parts, or in `_finish_as_text`, which returns it as text. The tokens after its end become
`unread`, and are read again. What is not a call ends it (`_give_up`), or is malformed where a call is intended.

Where a call is intended it is emitted while it is being written (`MemberStreamer`). Emitted parts are never taken back.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

from promptools.dialects.calls.parse_options import Evidence, ParseOptions
from promptools.dialects.calls.resolve import malformed_call
from promptools.dialects.calls.streaming.member_streamer import MemberStreamer
from promptools.dialects.readers.json_block.block_markers import Closers
from promptools.dialects.readers.json_block.block_reader import JsonBlockReader
from promptools.dialects.readers.markup.block_parts import BlockParts, CallSegment, was_repaired
from promptools.dialects.readers.markup.markup_call import MarkupCall, MarkupGrammar
from promptools.dialects.readers.markup.open_value import OpenValue
from promptools.dialects.readers.tags.tag_names import Tag, strip_blank
from promptools.dialects.readers.tags.tag_reader import TagReader
from promptools.dialects.readers.tags.tag_tokenizer import TagTokenizer
from promptools.dialects.readers.tags.token_buffer import TokenBuffer
from promptools.parsing.parts import Candidate, EarlyOutput, NeedMore, add_fix
from promptools.types import Fix, Malformed, MalformedReason

MAX_OPEN_BODIES = 8
"""Open bodies at the end of the text that are closed, each within what the one before returned."""


class MarkupBlock(TagReader, ABC):
    """What the states of a block share: its tokens, its segments, and how it ends."""

    def __init__(self, grammar: MarkupGrammar, rules: ParseOptions, place: Evidence, *, definite: bool) -> None:
        self._tags = self._make_tokenizer(grammar, rules)
        super().__init__(TokenBuffer(self._tags), place, definite=definite)
        self._grammar = grammar
        self._rules = rules
        self._names = grammar.names
        self._state = self._before_calls
        self._block = BlockParts(self._buffer, place, self.tries)
        self._segments = self._block.segments
        self._pending_fixes: list[Fix] = []
        """Fixes made before the current call."""
        self._call_start = 0
        """The index at which the current call begins."""
        self._json_reader: Candidate | None = None
        self._streamer: MemberStreamer | None = None
        """Streams the current call."""
        self._has_emitted = False
        """A call, or its name, has been emitted."""
        self._in_wrapper = False
        self._wrapper_name: str | None = None
        self._outside_text: list[str] = []
        """The text between the tags outside of values."""
        self._call: MarkupCall | None = None
        self._value: OpenValue | None = None
        """The value that is read, or was read last."""
        self._reopenable: OpenValue | None = None
        """The last value, while text after its call may still be part of it."""
        self._emits_calls = self._may_stream = definite and place.implies_call
        """A call of the block may be emitted before the next one begins, or even while it comes."""
        self._drops_line_break = False
        """The value that begins next follows a line break that is no part of it."""
        self._cut_tag = ""
        """What the text ended in that may have become a tag."""
        self._skip_reason = ""

    def _make_tokenizer(self, grammar: MarkupGrammar, rules: ParseOptions) -> TagTokenizer:
        tags = TagTokenizer(grammar.names)
        tags.splits_cdata = grammar.cdata
        tools = rules.tools
        tags.spaced_keys = tools.spaced_keys if tools is not None else ()
        tags.elements = grammar.names.naming_elements | tools.all_keys if tools is not None else None
        return tags

    @property
    def _may_be_quoted(self) -> bool:
        """Whether nothing but its tags makes this a call: it has no wrapper, and the request asked for none."""
        return not (self._in_wrapper or self._place.implies_call)

    @abstractmethod
    def _before_calls(self, token: Tag | str) -> None: ...
    @abstractmethod
    def _skipping(self, token: Tag | str) -> None: ...
    @abstractmethod
    def _between(self, token: Tag | str) -> NeedMore | None: ...
    @abstractmethod
    def _end_block(self, finish_reason: str | None) -> None: ...

    def _on_end_of_text(self, finish_reason: str | None) -> None:
        """Decide at the end of the text: first the bodies that are open, each within what the one before returned."""
        attempts = MAX_OPEN_BODIES
        while self._json_reader is not None and not self._decided:
            attempts -= 1
            self._json_reader.close(finish_reason)
            self._emit(self._json_reader.early, len(self._tokens))
            self._buffer.restore(self._json_reader.unread)
            self._on_json_decided()
            self._buffer.advance()
            if attempts:
                self._run()
        if not self._decided:
            self._end_block(finish_reason)

    def _run(self) -> None:
        while not self._decided and (self._step() if self._json_reader is None else self._step_json()):
            if self._streamer is not None and self._streamer.pending:
                self._emit(self._streamer.pending, self._call_start)

    def _step_json(self) -> bool:
        """Feed the reader of JSON; return whether it has decided."""
        assert self._json_reader is not None
        decided = self._buffer.feed_to(self._json_reader)
        self._emit(self._json_reader.early, len(self._tokens))
        if decided:
            self._on_json_decided()
            self._buffer.advance()
        return decided

    def _emit(self, live: list[EarlyOutput], before: int) -> None:
        """Emit what is certain of a call after the parts before it; `before`: the index at which the call begins."""
        if live and not self._decided:
            self._has_emitted = True
            self._emit_before(before)
            self.early += live
        live.clear()

    def _emit_before(self, index: int) -> None:
        """Emit the parts before `index`."""
        if index > self._block.emitted_to:
            parts = self._block.tile(index, has_emitted=self._has_emitted)
            self._has_emitted = self._has_emitted or bool(parts)
            self._emit_early(parts)

    def _start_json(self, name: str | None) -> None:
        """Leave the text that follows to a reader of JSON: the arguments of `name`, or whole calls."""
        wrappers = (self._grammar.wrapper, *self._grammar.other_wrappers)
        ends_call = tuple(filter(None, (self._grammar.closers[0], self._grammar.json_closer)))
        right = ends_call if name is not None else tuple(closer for _, closer in wrappers)
        openers = tuple(opener for opener, _ in wrappers if opener)
        ends = Closers(right=right, wrong=("<function>", "</think>"), openers=openers)
        early: list[Fix] = []
        if name is None:
            early, self._pending_fixes = self._pending_fixes, early
        self._json_reader = JsonBlockReader(
            "", ends, self._rules, self._place, definite=self.definite, name=name, fixes=early
        )

    def _on_json_decided(self) -> None:
        """Add the parts that the reader of JSON made of a body."""
        inner, self._json_reader = self._json_reader, None
        assert inner is not None
        self.tries += inner.tries
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

    # --- what is missing, or odd -------------------------------------------------------------------------------------

    def _record_spelling(self, tag: Tag) -> None:
        """Record a tag that is not as the family is trained to write it."""
        fix = self._grammar.spelling_fix(tag)
        if fix is not None:
            self._record_fix(fix)

    def _record_fix(self, fix: Fix) -> None:
        if self._call is not None:
            self._call.record_fix(fix)
        else:
            self._pending_fixes.append(fix)

    def _missing_wrapper_fix(self) -> Fix | None:
        return Fix("closer", f"no {self._grammar.wrapper[1]!r}") if self._in_wrapper else None

    # --- the outcome ---------------------------------------------------------------------------------------------

    def _finish(self, end: int, fix: Fix | None = None) -> None:
        """Resolve the calls before index `end`; the tokens from there on are read again."""
        parts = self._block.tile(end, has_emitted=self._has_emitted)
        if not (parts or self._has_emitted):
            self._finish_as_text(end, "it calls no offered tool")
            return
        if fix is not None:
            add_fix(reversed(parts), fix)
        if self._rules.strictness == "strict" and not self._place.implies_call and was_repaired(parts):
            self._finish_as_text(end, "strict allows no repair of the markup")
            return
        self._finish_parts(parts, end)

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
                self._buffer.put_back(len(strip_blank(token)))
            self._finish_as_text(self._index + (not isinstance(token, Tag)), why)

    def _malformed(self, reason: MalformedReason, why: str) -> Malformed:
        call = self._call
        name = None if call is None else call.tool.name if call.tool is not None else call.name
        return malformed_call(reason, why, self._place.dialect, name)

    def _call_was_coming(self, *, length: bool) -> bool:
        """Return whether a call was coming when the text ended after the wrapper's opening tag."""
        return self._place.expected or (self._place.sentinel and (length or self._cut_tag != ""))

    def _truncate(self, why: str) -> None:
        """Report that the current call was cut off; or return the block as text, if no call is certain."""
        call = self._call
        known = self._rules.tools is None or (call is not None and call.tool is not None)
        certain = (
            call is not None
            and known
            and not (self._may_be_quoted and self._value is not None and self._value.unmatched_closer)
        )
        if not (self._place.implies_call or certain):
            if self._segments:
                self._finish(self._segments[-1].end, self._missing_wrapper_fix())
            else:
                self._finish_as_text(self._index, f"{why}, and that a call was meant is not certain")
            return
        malformed = self._malformed("truncated", why)
        self._segments.append(CallSegment(self._call_start, self._index, malformed, []))
        self._finish(self._index)
