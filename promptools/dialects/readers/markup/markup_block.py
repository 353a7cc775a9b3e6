"""The base of the markup reader: tokens in, segments out, and in the end the parts that tile the text.

Text arrives in pieces. `TagTokenizer` splits it into tokens, each a tag or the text between two, and each token goes to
`_state`, a bound method that is the current state. All tokens are kept, and a position in the block is an index into
them, so that what turns out not to be a call can be returned as text unchanged.

A call that has ended is a `CallSegment`, a range of tokens; the tokens between segments are markup. A body in JSON is
left to another reader (`_json_reader`) until that has decided. The block ends in `_finish`, which resolves the segments
and tiles the text with parts, or in `_finish_as_text`, which returns it as text. The tokens after its end become `rest`
and are read again.

Where a call is intended it is emitted while it is being written (`MarkupStreamer`). Emitted parts are never taken back:
`_emitted_to` is the index up to which this happened.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import NamedTuple, TypeAlias

from promptools.dialects.calls.envelope import NotACall
from promptools.dialects.calls.json_body import call_part
from promptools.dialects.calls.resolve import Evidence, ParseOptions, malformed_call
from promptools.dialects.contract import trace_entry
from promptools.dialects.readers.json_block.block_reader import Closers, JsonBlockReader
from promptools.dialects.readers.markup.markup_call import MarkupCall, MarkupGrammar
from promptools.dialects.readers.markup.markup_streamer import MarkupStreamer
from promptools.dialects.readers.markup.tag_names import Tag
from promptools.dialects.readers.markup.tag_tokenizer import TagTokenizer
from promptools.parsing.parts import Candidate, CandidateBase, EarlyOutput, Part, TriedStrategy, add_fix, total_length
from promptools.types import Call, Fix, Malformed

MAX_OPEN_BODIES = 8
"""Open bodies at the end of the text that are closed, each within what the one before returned."""
TokenState: TypeAlias = "Callable[[Tag | str], None]"


class CallSegment(NamedTuple):
    """Tokens of the block that are one call, or what a reader of JSON made of one."""

    start: int
    end: int
    call: MarkupCall | Malformed | None
    parts: list[Part]
    streamer: MarkupStreamer | None = None
    """What streamed it, if it was emitted early."""


class MarkupBlock(CandidateBase, ABC):
    """What the states of a block share: its tokens, its segments, and how it ends."""

    def __init__(self, grammar: MarkupGrammar, rules: ParseOptions, place: Evidence, *, definite: bool) -> None:
        super().__init__(definite=definite)
        self._grammar = grammar
        self._rules = rules
        self._place = place
        self._names = grammar.names
        self._tags = TagTokenizer(grammar.names)
        self._tags.spaced_keys = rules.tools.spaced_keys if rules.tools is not None else ()
        self._carried_text = ""
        self._state: TokenState = self._before_calls
        self._decided = False
        self._tokens: list[str] = []
        """Every token so far; a position in the block is an index into it."""
        self._index = 0
        """The index of the current token."""
        self._reread_size = 0
        """Characters at the end of the current token that are read again."""
        self._segments: list[CallSegment] = []
        self._pending_fixes: list[Fix] = []
        """Fixes made before the current call."""
        self._call_start = 0
        """The index at which the current call begins."""
        self._json_reader: Candidate | None = None
        self._streamer: MarkupStreamer | None = None
        """Streams the current call."""
        self._emitted_to = 0
        """The index up to which parts have been emitted."""
        self._has_emitted = False
        """A call, or its name, has been emitted."""

    @abstractmethod
    def _before_calls(self, token: Tag | str) -> None: ...
    @abstractmethod
    def _on_json_decided(self) -> None: ...
    @abstractmethod
    def _on_end_of_text(self, finish_reason: str | None) -> None: ...

    def feed(self, piece: str, start: int) -> int | None:
        """Read more text; see `Candidate`."""
        carry, self._carried_text = self._carried_text, ""
        text, at = (carry + piece[start:], 0) if carry else (piece, start)
        text, at = self._consume(text, at, final=False)
        if not self._decided:
            self._carried_text = text[at:]
            return None
        back = self.unread
        left = len(back) + len(text) - at - (len(piece) - start)
        if left <= 0:
            self.unread = ""
            return start - left
        self.unread = (back + text[at : at + left])[:left]
        return start

    def close(self, finish_reason: str | None) -> None:
        """Decide at the end of the text."""
        text, at = self._consume(self._carried_text, 0, final=True)
        for left in reversed(range(MAX_OPEN_BODIES)):
            if self._json_reader is None:
                break
            self._json_reader.close(finish_reason)
            self._emit(self._json_reader.early, len(self._tokens))
            text, at = self._json_reader.unread, 0
            self._on_json_decided()
            if left and not self._decided:  # what it returned may hold the next body, open as well
                text, at = self._consume(text, 0, final=True)
        if not self._decided:
            self._on_end_of_text(finish_reason)
        self.unread += text[at:]

    def _consume(self, text: str, at: int, *, final: bool) -> tuple[str, int]:
        """Consume all tokens that are complete; return the text and the index up to which it was taken."""
        while at < len(text) and not self._decided:
            if self._json_reader is not None:
                end = self._json_reader.feed(text, at)
                self._emit(self._json_reader.early, len(self._tokens))
                if end is None:
                    return text, len(text)
                rest = self._json_reader.unread
                text, at = (text, end - len(rest)) if len(rest) <= end else (rest + text[end:], 0)
                self._on_json_decided()
                continue
            token = self._tags.next(text, at, final=final)
            if token is None:
                break
            raw = token if isinstance(token, str) else token.raw
            at += len(raw)
            self._index = len(self._tokens)
            self._tokens.append(raw)
            self._state(token)
            if self._streamer is not None and self._streamer.pending:
                self._emit(self._streamer.pending, self._call_start)
            if self._reread_size:
                at, self._reread_size = at - self._reread_size, 0
        return text, at

    def _emit(self, live: list[EarlyOutput], before: int) -> None:
        """Emit what is certain of a call after the parts before it; `before`: the index at which the call begins."""
        if live and not self._decided:
            self._has_emitted = True
            self._emit_before(before)
            self.early += live
        live.clear()

    def _emit_before(self, index: int) -> None:
        """Emit the parts before `index`."""
        if index > self._emitted_to:
            parts = self._tile(index)
            self._has_emitted = self._has_emitted or bool(parts)
            self._emit_early(parts)

    def _put_back(self, count: int) -> None:
        """Have the last `count` characters of the current token read again."""
        self._reread_size = count
        if count:
            self._tokens[-1] = self._tokens[-1][:-count]

    def _start_json(self, name: str | None) -> None:
        """Leave the text that follows to a reader of JSON: the arguments of `name`, or whole calls."""
        wrappers = (self._grammar.wrapper, *self._grammar.other_wrappers)
        right = self._grammar.closers[:1] if name is not None else tuple(closer for _, closer in wrappers)
        openers = tuple(opener for opener, _ in wrappers if opener)
        ends = Closers(right=right, wrong=("<function>", "</think>"), openers=openers)
        early: list[Fix] = []
        if name is None:
            early, self._pending_fixes = self._pending_fixes, early
        self._json_reader = JsonBlockReader(
            "", ends, self._rules, self._place, definite=self.definite, name=name, fixes=early
        )

    # --- the outcome ---------------------------------------------------------------------------------------------

    def _finish_as_text(self, end: int, why: str) -> None:
        """Return the tokens before `end` as text."""
        end = max(end, 1)
        raw = "".join(self._tokens[:end])
        self.parts = [Part("text", raw)]
        self.unread = "".join(self._tokens[end:])
        self.tries.append(TriedStrategy(self._place.dialect, "text", why, len(raw) + len(self.unread)))
        self._decided = True

    def _finish(self, end: int, fix: Fix | None = None) -> None:
        """Resolve the calls before index `end`; the tokens from there on are read again."""
        parts = self._tile(end)
        if not (parts or self._has_emitted):
            self._finish_as_text(end, "it calls no offered tool")
            return
        if fix is not None:
            add_fix(reversed(parts), fix)
        if self._rules.strictness == "strict" and not self._place.implies_call and _was_repaired(parts):
            self._finish_as_text(end, "strict allows no repair of the markup")
            return
        self.parts = parts
        self.unread = "".join(self._tokens[end:])
        all_parts = [*self._emitted, *parts]
        self.tries.append(trace_entry(self._place.dialect, total_length(all_parts), all_parts))
        self._decided = True

    def _tile(self, end: int) -> list[Part]:
        """Resolve the calls before index `end` that were not emitted; return no parts if none of them is a call."""
        place = self._place._replace(wrapper_first=False)
        settled = [self._resolve_segment(segment, place) for segment in self._segments]
        if self._place.wrapper_first and not any(settled):
            settled = [self._resolve_segment(segment, self._place) for segment in self._segments]
        if not (any(settled) or self._has_emitted):
            return []
        meant = self._place._replace(sentinel=True)  # beside a real call, a call is intended
        settled = [
            tiles or self._resolve_segment(segment, meant)
            for tiles, segment in zip(settled, self._segments, strict=True)
        ]
        parts: list[Part] = []
        at = self._emitted_to
        for segment, tiles in zip(self._segments, settled, strict=True):
            self._add_markup(parts, at, segment.start)
            parts += tiles or [self._nameless_part(segment)]
            at = segment.end
        self._add_markup(parts, at, end)
        self._segments, self._emitted_to = [], end
        return parts

    def _add_markup(self, parts: list[Part], start: int, end: int) -> None:
        raw = "".join(self._tokens[start:end])
        if raw:
            parts.append(Part("markup", raw))

    def _resolve_segment(self, segment: CallSegment, place: Evidence) -> list[Part]:
        if segment.call is None:
            return segment.parts
        raw = "".join(self._tokens[segment.start : segment.end])
        if isinstance(segment.call, Malformed):
            return [Part("malformed", raw, malformed=segment.call)]
        try:
            outcome = self._resolve_call(segment.call, place)
            if segment.streamer is not None:
                outcome = segment.streamer.reconcile(outcome, place.dialect)
            return [call_part(outcome, raw)]
        except NotACall as no:
            self.tries.append(TriedStrategy(place.dialect, "text", str(no), len(raw)))
            return []

    def _resolve_call(self, call: MarkupCall, place: Evidence) -> Call | Malformed:
        outcome = call.resolve(place)
        if call.error:
            return malformed_call("invalid_json", call.error, place.dialect, outcome.name)
        if isinstance(outcome, Malformed) and call.unclosed and outcome.reason == "invalid_arguments":
            return malformed_call("truncated", "the text ended before its last parameters", place.dialect, outcome.name)
        return outcome

    def _nameless_part(self, segment: CallSegment) -> Part:
        raw = "".join(self._tokens[segment.start : segment.end])
        malformed = malformed_call("invalid_json", "what is in the name's place is no name", self._place.dialect, None)
        return Part("malformed", raw, malformed=malformed)


def _was_repaired(parts: list[Part]) -> bool:
    """Return whether the markup of a call was repaired, or cannot be read."""
    fixes = [fix.kind for part in parts if part.call is not None for fix in part.call.fixes]
    broke = any(part.malformed is not None and part.malformed.call is None for part in parts)
    return broke or not {"closer", "marker", "unwrap", "duplicate"}.isdisjoint(fixes)
