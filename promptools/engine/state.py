"""The core of the parser: the loop over its states, and the life of a candidate call.

A state is a method `(text, at, final) -> int`. It consumes some of `text[at:]`, writes what is certain to the output
and returns the offset to go on from. When only more text can decide, it returns `~offset`: the text from there on is
held back in `_carry` and prepended to the next chunk. With `final`, no more text will come, and a state decides.

    prose      _reply_start, _prose, _first_word, _after_call, _made_up_result        prose.py
    code       _inline_code, _fenced_code, _after_fenced_call, _in_run                code.py
    reasoning  _reasoning_start, _reasoning, _holding_call, _holding_trailing_calls   reasoning.py
    candidate  _in_candidate                                                          here

Where the scanner finds the head of a dialect and `_check_head` accepts it, `_open_candidate` makes a candidate of that
dialect: a parser of one block of calls, which is fed all text until it is decided. `_finish_candidate` writes its
parts, as calls or as text, and goes on in `_on_call` (it was a call) or `_on_text` (it was none). Text that it read but
did not take is `_unread`.

Context decides too. A call may be mentioned (the text before it shows so), quoted (it occurs in the conversation's
sources) or a part of something larger (a value, a program); then it is text. A `definite` candidate is a call whatever
follows; any other is emitted in a group, which the output turns back into text when text follows.

Invariant: each character fed is in exactly one of the output, `_carry`, the candidate and the held lists
(`_fence_markup`, `_held_call`, `_trailing_calls`, `_rescue_tail`), and reaches the output once and in order, so that
the spans tile the reply.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Literal, TypeAlias

from promptools.dialects.calls.resolve import Evidence, ParseOptions
from promptools.dialects.contract import NAME_GATE, TAG_GATE
from promptools.engine.mention import CONTEXT, continues_program, is_mentioned
from promptools.engine.scan_plan import ScanPlan
from promptools.parsing.emitter import SPACE, Emitter
from promptools.parsing.parts import Candidate, Part
from promptools.parsing.scanner import ForwardSearch, MarkerScanner
from promptools.parsing.special_tokens import is_only_tokens
from promptools.types import DiscardWhy, ParseAttempt, Span

if TYPE_CHECKING:
    from promptools.dialects.contract import Dialect
    from promptools.parsing.quotable_texts import QuotableTexts

PART_OF_LARGER = "it is a part of something larger"
MENTIONED = "the text before it shows that it is talked about"
QUOTED = "it is quoted from the conversation"
MAX_STEM = 256
"""Characters of a call's beginning that are compared with the sources, to see early that it is not quoted."""
NEAR_CONTEXT = 64
"""Characters before a bare call that are searched for signs that it is part of something larger."""
_STRUCT = re.compile(r"[^\W\d_a-z]\w*[ ]?\Z")
"""The name of a type, as Rust prints it before the fields of a struct."""
_QUOTE = re.compile(r"[ ]{0,3}>")
_FENCE = re.compile(r"\A(?:`{3,}|~{3,})[^\n`]*+\n?")
_STEM = re.compile(rf"[^])}}<>\n]{{0,{MAX_STEM}}}+")
"""Text after a call's opener, up to anything that may end the call."""
_BARE_KEY = re.compile(r"\{\s*[^\W\d]")
_IN_WORD = re.compile(r"[A-Za-z0-9_][A-Za-z]\Z")
"""A marker that begins with a letter, inside a longer word."""
_INDEXED = re.compile(r"[A-Za-z0-9_)\]]\Z")
_INDEX = re.compile(r"\[\s*[^\W\d]")
"""A subscript after a name in a program, `list[int]`; text in other scripts needs no space before a bracket."""

State: TypeAlias = Callable[[str, int, bool], int]
"""Consume `text[at:]`; return the offset to go on from, or `~offset` of the text to hold back."""


class StateMachine(ABC):
    """A state machine over text; `at` is the offset of its text in the reply."""

    def __init__(self, rules: ParseOptions, plan: ScanPlan, out: Emitter, at: int = 0) -> None:
        self._rules = rules
        self._plan = plan
        self._names = rules.tools.names if rules.tools is not None else None
        self._tool_scanners = plan.scanners_for(self._names)
        self._out = out
        self._carry = ""
        self._fed = at
        self.found_header: tuple[Dialect, str] | None = None
        """Once a message with a header was found: the dialect that reads it, and the text from the header on."""
        self._unread = ""
        self._candidate: Candidate | None = None
        self._head_group = ""
        """The scanner group of the marker that the candidate began with."""
        self._shown_in_fence = False
        """The candidate is in a fence and not definite: text after it shows that it is quoted, however it ends."""
        self._candidate_start = 0
        self._last_named_end = -1
        """Where the last text ended that began with a tool's name, as a call does; -1: there was none."""
        self._mentioned = False
        """The text before the candidate shows that it is talked about."""
        self._quote_stem: str | None = None
        """The beginning of the candidate's text, as compared with the sources; None: it is not quoted."""
        self._stem_end = self._compared_size = 0
        """How much of `_quote_stem` no call can have ended in, and how much of it was last looked up in the sources."""
        self.follows_text = False
        """The text is part of a larger one: other text precedes it."""
        self._fence_markup: list[Part] = []
        """Markup of a fence whose first word is not decided yet."""
        self._state: State = self._prose
        self._on_call: State = self._prose
        self._on_text: State = self._prose
        """The state after a candidate: `_on_call` if it was a call, `_on_text` if it was none."""
        self._after_run: State = self._prose
        """The state after a run of backticks."""
        self._at_fence_start = False
        self._open_fence_label = ""
        self._at_line_start = True
        """What comes next is the first word of a line, or of the content."""
        self._sweeps: dict[MarkerScanner, ForwardSearch] = {}
        self._swept_text = ""

    @abstractmethod
    def _past_reasoning(self) -> bool: ...
    @abstractmethod
    def _prose(self, text: str, at: int, final: bool) -> int: ...
    @abstractmethod
    def _after_call(self, text: str, at: int, final: bool) -> int: ...
    @abstractmethod
    def _after_fenced_call(self, text: str, at: int, final: bool) -> int: ...
    @abstractmethod
    def _fenced_code(self, text: str, at: int, final: bool) -> int: ...

    def feed(self, text: str) -> None:
        """Feed a chunk of text."""
        self._fed += len(text)
        self._run(self._carry + text if self._carry else text, final=False)

    @abstractmethod
    def finish(self, finish_reason: str | None) -> None:
        """End the text: decide on everything held back."""

    def _run(self, text: str, *, final: bool) -> None:
        """Run the states over `text`; what they hold back is prepended to the next run."""
        at = 0
        while at < len(text):
            moved = self._state(text, at, final)
            if moved < 0:
                self._carry = text[~moved:]
                return
            if self._unread:
                back, self._unread = self._unread, ""
                if len(back) <= moved:
                    moved -= len(back)
                else:
                    text, moved = back + text[moved:], 0
            at = moved
        self._carry = ""

    def release(self) -> None:
        """Drop the states: bound methods are reference cycles, which keep all text alive until the collector runs."""
        del self._state, self._on_call, self._on_text, self._after_run

    def _write_space(self, text: str, at: int) -> int:
        """Write white space at `text[at]` to the output, and return where it ends."""
        bare = at
        while bare < len(text) and text[bare] in SPACE:
            bare += 1
        if bare > at:
            self._out.add_text(text[at:bare])
        return bare

    def _line_heads(self, text: str, at: int) -> Iterator[tuple[str, int]]:
        """Yield the group and end of each head that the first word of a line may begin."""
        if self._tool_scanners.first_word.match(text, at) is not None:
            yield from self._plan.line_heads(text, at)

    def _sweep_over(self, scanner: MarkerScanner, text: str) -> ForwardSearch:
        """Return the sweep over this text, kept between calls so that all searches together are O(n)."""
        if text is not self._swept_text:
            self._swept_text = text
            self._sweeps.clear()
        known = self._sweeps.get(scanner)
        if known is None:
            known = self._sweeps[scanner] = ForwardSearch(scanner, text)
        return known

    # --- candidates ----------------------------------------------------------------------------------------------

    def _check_head(
        self, group: str, text: str, start: int, end: int, final: bool, *, first: bool = True
    ) -> bool | None:
        """Whether a candidate starts here; None: more text is needed. `first`: all text before it is written."""
        ready = self._head_begins(group, text, start, end, final, first=first)
        if ready is False and self._out.records_refusals:
            self._record_refusal(group, text, start, end)
        return ready

    def _record_refusal(self, group: str, text: str, start: int, end: int) -> None:
        """Record why what looks like the head of a call began none."""
        dialect, head = self._plan.heads[group]
        if head.fence_labels and self._fence_label not in head.fence_labels:
            why = "no block of code of this kind holds a call of it"
        elif head.begins is None:
            why = f"its head is followed by none of {' '.join(head.body_starts)}"
        else:
            why = "what surrounds its head shows no call"
        end = next((start + len(literal) for literal in head.literals if text.startswith(literal, start)), end)
        at = self._fed - len(text)
        self._out.add_refusal(ParseAttempt(dialect.name, Span(at + start, at + end), "text", why))

    def _head_begins(self, group: str, text: str, start: int, end: int, final: bool, *, first: bool) -> bool | None:
        dialect, head = self._plan.heads[group]
        if text[start:end] in self._plan.markers.reasoning_tags and first and not self._past_reasoning():
            return False
        if head.fence_labels and self._fence_label not in head.fence_labels:
            return False
        if head.begins is None:
            if end < len(text) and text[end] in head.body_starts:
                return True
            if final and end == len(text):
                if head.sure_pattern:
                    return re.compile(head.sure_pattern).fullmatch(text, start, end) is not None
                return dialect.name == self._rules.expect and text.startswith(head.literals, start)
            return None if not final and end == len(text) else False
        near = (first and (self._out.at_start or self._out.has_group)) or self._at_fence_start
        fresh = near or (self._rules.expect == dialect.name and not head.at_start)
        ready = head.begins(text, start, end, fresh=fresh, rules=self._rules)
        return False if ready is None and (final or end < len(text)) else ready

    @property
    def _fence_label(self) -> str | None:
        """The label of the open fence, such as `json`; None outside of fences."""
        return self._open_fence_label if self._fence_markup or self._state == self._after_fenced_call else None

    def _open_candidate(self, group: str, text: str, start: int, end: int) -> int:
        """Start a candidate, and return the offset from which it is fed."""
        dialect, head = self._plan.heads[group]
        tier = head.tier or dialect.tier
        sure = tier in ("S", "A")
        fenced = bool(self._fence_markup) or self._state == self._after_fenced_call
        # inside a line it may be talked about: then it counts no more than one of a dialect that was not asked for
        before = self._out.last_text(CONTEXT)
        quoted = tier != "S" and not fenced and _is_quoted(before)
        # the same holds for a tool's name that is also a tag of reasoning, of an answer or of a result
        quoted = quoted or (head.gate == TAG_GATE and text[start:end] in self._plan.markers.reserved_tags)
        expected = dialect.name == self._rules.expect and not quoted and (sure or fenced or self._begins_line())
        program = fenced and head.at_start
        expected = expected and not program
        self._mentioned = self._rules.strictness != "lenient" and is_mentioned(
            before, fenced=fenced, sentinel=tier == "S", expected=expected
        )
        if tier == "A" and _IN_WORD.search(before + text[start : start + 1]):
            self._mentioned = True
        expected = expected and not self._mentioned
        marker, begin = (text[start:end], end) if head.body_starts else (head.alias, start)
        self._on_call, self._on_text = (
            (self._after_fenced_call, self._fenced_code) if fenced else (self._after_call, self._prose)
        )
        if (
            head.fenced and self._fence_markup and self._fence_markup[0].raw[0] in "`~"
        ):  # the fence is the block's own opener
            marker, self._fence_markup, self._on_call = self._fence_markup[0].raw, [], self._after_call
        doubted = quoted or self._mentioned
        definite = not (doubted or program) and (
            (sure and not fenced) or expected or self._rules.strictness == "lenient"
        )
        self._shown_in_fence = self._on_call == self._after_fenced_call and not definite
        alone = (
            sure and definite and not (self._out.has_text or self.follows_text or self._rules.strictness == "strict")
        )
        first = self._out.at_start and not (self._out.has_group or fenced or doubted or self.follows_text)
        evidence = Evidence(
            dialect.name, wrapped=sure, expected=expected, sentinel=tier == "S", wrapper_first=alone, at_start=first
        )
        self._candidate = dialect.candidate(marker, self._rules, evidence, definite=definite)
        self._candidate_start = self._fed - len(text) + begin - (len(marker) if marker != head.alias else 0)
        self._head_group = group
        if self._rules.sources is not None:
            self._quote_stem, self._compared_size = ("" if marker[:1] in ("`", "~") else marker), 0
            self._stem_end = len(self._quote_stem)
        self._state = self._in_candidate
        return begin

    def _in_candidate(self, text: str, at: int, _final: bool) -> int:
        """Feed the candidate until it is decided."""
        candidate = self._candidate
        assert candidate is not None
        end = candidate.feed(text, at)
        if end is None:
            if self._quote_stem is None or not self._may_be_quoted(self._quote_stem, text, at):
                self._emit_early(candidate)
            return len(text)
        self._finish_candidate(candidate, self._fed - len(text) + end)
        return end

    def _may_be_quoted(self, beginning: str, text: str, at: int) -> bool:
        """Whether the candidate may be quoted from the conversation, by its text before anything that may end it.

        The sources are searched again only at twice the length: O(n) in all.
        """
        if self._stem_end < len(beginning):
            return True
        stem = _STEM.match(text, at)
        assert stem is not None
        self._quote_stem = beginning = beginning + text[at : stem.end() + 1]
        over = stem.end() < len(text) or len(beginning) > MAX_STEM
        self._stem_end = len(beginning) - over
        if self._compared_size and not over and len(beginning) < 2 * self._compared_size:
            return True
        self._compared_size = len(beginning)
        assert self._rules.sources is not None
        if self._rules.sources.may_contain_prefix(beginning[: self._stem_end]):
            return True
        self._quote_stem = None
        return False

    def _emit_early(self, candidate: Candidate) -> None:
        """Emit what is certain early: in a group, or after a fence's opener, only settled parts."""
        if not candidate.early:
            return
        live, candidate.early = candidate.early, []
        if self._out.has_group or self._fence_markup:
            live = [early for early in live if isinstance(early, Part)]
        if live and candidate.head:
            live.insert(0, Part("markup", candidate.head))
            candidate.head = ""
            candidate.parts = candidate.parts[1:]  # if it is already decided, `parts` begin with the head
        for early in live:
            if not isinstance(early, Part):
                self._out.emit_early(early)
            elif self._fence_markup:
                self._fence_markup.append(early)
            else:
                self._out.add_parts([early], definite=candidate.definite and not self._shown_in_fence)

    def _finish_candidate(self, candidate: Candidate, end: int) -> None:
        """Emit the parts of a decided candidate, and choose the next state; `end`: the offset up to which it read."""
        if self._rules.sources is not None and self._is_quotation(candidate, self._rules.sources):
            self._write_quoted(candidate)
            return
        self._emit_early(candidate)
        self._candidate = None
        lead, self._fence_markup = self._fence_markup, []
        parts = candidate.parts
        kinds = [part.kind for part in parts]
        is_call = "text" not in kinds  # markup alone counts too: a tool turn without a call
        if is_call and (self._mentioned or (not candidate.definite and not lead and self._is_part(parts))):
            is_call = False
        if self._is_named:
            self._last_named_end = end - len(candidate.unread)
        if is_call:
            definite = candidate.definite and not self._shown_in_fence and not any(map(_is_unknown, parts))
            self._out.add_parts([*lead, *parts], definite=definite)
            self._state = self._on_call
        else:
            self._state = self._on_text
            if lead or not self._drop_tokens("".join(part.raw for part in parts)):
                self._note_quoted_token()
                for part in (*lead, *parts):
                    self._write_text(part.raw)
        if not is_call or self._state != self._after_fenced_call:
            self._at_fence_start = False
        last = len(candidate.tries) - 1
        for number, attempt in enumerate(candidate.tries):
            # the last attempt covers all that was taken; what it read after that depends on the chunks
            upto = end - len(candidate.unread) if number == last else self._candidate_start + attempt.cost
            span = Span(self._candidate_start, upto)
            whole = is_call or attempt.outcome == "text"
            outcome = (
                (attempt.outcome, attempt.why) if whole else ("text", MENTIONED if self._mentioned else PART_OF_LARGER)
            )
            self._out.add_try(ParseAttempt(attempt.strategy, span, *outcome, attempt.cost))
        self._unread = candidate.unread

    def _is_quotation(self, candidate: Candidate, sources: QuotableTexts) -> bool:
        """Whether the candidate's call is quoted from the conversation; a fence around it may be the model's own."""
        parts = all_parts(candidate)
        if not any(part.kind in ("call", "malformed") for part in parts):
            return False
        if any(part.malformed is not None and part.malformed.reason == "truncated" for part in parts):
            return False
        return sources.contain_call(without_fence("".join(part.raw for part in parts)))

    def _write_quoted(self, candidate: Candidate) -> None:
        """Take a quoted call as text; if no text precedes it, it is a call unless text follows."""
        self._candidate = None
        parts = [*self._fence_markup, *all_parts(candidate)]
        self._fence_markup = []
        raw = "".join(part.raw for part in parts)
        outcome: Literal["call", "text"] = "text" if self._out.has_text or self.follows_text else "call"
        if outcome == "text":
            self._note_quoted_token()
            self._out.add_text(raw)
            self._state, self._at_fence_start = self._on_text, False
        else:
            self._out.add_quoted_call(parts)
            self._state = self._on_call
        span = Span(self._candidate_start, self._candidate_start + len(raw))
        dialect = self._plan.heads[self._head_group][0].name
        self._out.add_try(ParseAttempt(dialect, span, outcome, QUOTED, len(raw)))
        self._unread = candidate.unread

    def _drop_tokens(self, raw: str) -> bool:
        """Mark special tokens around nothing as markup: neither a call nor text. Return whether they were that."""
        dialect, head = self._plan.heads[self._head_group]
        if self._mentioned or (head.tier or dialect.tier) != "S" or not is_only_tokens(raw):
            return False
        bare = raw.rstrip(SPACE)
        self._out.add_token(bare, "markup")
        self._out.add_text(raw[len(bare) :])
        return True

    def _note_quoted_token(self) -> None:
        """Note that the special token which began the candidate is text: so are those that close it."""
        dialect, head = self._plan.heads[self._head_group]
        self._out.tokens_are_text = self._out.tokens_are_text or (head.tier or dialect.tier) == "S"

    def _write_text(self, raw: str) -> None:
        """Write the text of a candidate that is no call; a tag in it may still be a tag."""
        self._out.add_text(raw)

    @property
    def _is_named(self) -> bool:
        """Whether the candidate begins with a tool's name at the beginning of a line."""
        return self._plan.heads[self._head_group][1].gate == NAME_GATE

    def _begins_line(self) -> bool:
        """Whether what comes next is the first thing on its line."""
        return self._out.last_text(NEAR_CONTEXT).rstrip(" \t")[-1:] in ("", "\n", "\r")

    def _is_part(self, parts: list[Part]) -> bool:
        """Whether what looks like a bare call is in a block quote, a larger structure, or a program."""
        before = self._out.last_text(NEAR_CONTEXT)
        if _is_quoted(before) or before.rstrip().endswith(('":', "':", "=", "(")):
            return True
        if self._is_named and not self._out.has_group:
            since = self._candidate_start - self._last_named_end if self._last_named_end >= 0 else None
            if continues_program(self._out.last_text(CONTEXT), since, self._rules):
                return True
        raw = "".join(part.raw for part in parts[:2])
        if _INDEXED.search(before) and _INDEX.match(raw):
            return True
        return bool(_STRUCT.search(before)) and _BARE_KEY.match(raw) is not None

    def _mark(self, raw: str, why: DiscardWhy) -> None:
        self._out.add_discarded(raw, why)


def _is_unknown(part: Part) -> bool:
    """Whether this is a call of a tool that was not offered, which is text if text follows."""
    failed = part.malformed
    return failed is not None and failed.reason == "unknown_tool" and failed.call is not None


def all_parts(candidate: Candidate) -> list[Part]:
    """Return all parts of a decided candidate, those included that could have been emitted early."""
    early = [early_part for early_part in candidate.early if isinstance(early_part, Part)]
    if not early or not candidate.head:
        return [*early, *candidate.parts]
    return [Part("markup", candidate.head), *early, *candidate.parts[1:]]


def without_fence(raw: str) -> str:
    """Return the text without a fence around it."""
    return _FENCE.sub("", raw.rstrip().rstrip("`~"))


def _is_quoted(before: str) -> bool:
    """Whether what follows `before` is in a Markdown block quote that begins on the same line."""
    _, begins, line = before.rpartition("\n")
    return _QUOTE.match(line) is not None and (begins != "" or len(line) < NEAR_CONTEXT)
