"""The core of the parser: the loop over its states, and the life of a candidate call.

A state is a method `(text, at, final) -> int`. It consumes some of `text[at:]`, writes what is certain to the output
and returns the offset to go on from. When only more text can decide, it returns `~offset`: the text from there on is
held back in `_carry` and prepended to the next chunk. With `final`, no more text will come, and a state decides.

    prose      _opening, _prose, _first_word, _after, _imagined   prose.py
    code       _inline, _code, _fence, _in_run                    fences.py
    reasoning  _zone_begins, _reasoning, _suspecting, _drafted    thought.py
    candidate  _feeding                                           here

Where the scanner finds the head of a dialect and `_ready` accepts it, `_open` makes a candidate of that dialect: a
parser of one block of calls, which is fed all text until it is decided. `_decided` writes its parts, as calls or as
text, and goes on in `_back` (it was a call) or `_lost` (it was none). Text that it read but did not take is `_rest`.

Context decides too. A call may be mentioned (the text before it shows so), quoted (it occurs in the conversation's
sources) or a part of something larger (a value, a program); then it is text. A `firm` candidate is a call whatever
follows; any other is emitted in a group, which the output turns back into text when text follows.

Invariant: each character fed is in exactly one of the output, `_carry`, the candidate and the held lists (`_lead`,
`_suspect`, `_drafts`, `_tail`), and reaches the output once and in order, so that the spans tile the reply.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Literal, TypeAlias

from promptools.dialects.base import A_NAME, A_TAG
from promptools.dialects.settle import Place, Rules
from promptools.parsing.engine.mention import LINE, follows_call, is_mentioned
from promptools.parsing.engine.plan import Plan
from promptools.parsing.output import SPACE, Output
from promptools.parsing.parts import Candidate, Part
from promptools.parsing.scanner import Scanner, Sweep
from promptools.parsing.tokens import are_tokens
from promptools.parsing.zones import CLOSER_OF, TAGS
from promptools.types import DiscardWhy, Span, Try

if TYPE_CHECKING:
    from promptools.dialects.base import Dialect
    from promptools.parsing.sources import Sources

PART = "it is a part of something larger"
MENTIONED = "the text before it shows that it is talked about"
QUOTED = "it is quoted from the conversation"
STEM = 256
"""Characters of a call's beginning that are compared with the sources, to see early that it is not quoted."""
NEAR = 64
"""Characters before a bare call that are searched for signs that it is part of something larger."""
_STRUCT = re.compile(r"[^\W\d_a-z]\w*[ ]?\Z")
"""The name of a type, as Rust prints it before the fields of a struct."""
_QUOTE = re.compile(r"[ ]{0,3}>")
_FENCE = re.compile(r"\A(?:`{3,}|~{3,})[^\n`]*+\n?")
_STEM = re.compile(rf"[^])}}<>\n]{{0,{STEM}}}+")
"""Text after a call's opener, up to anything that may end the call."""
_BARE_KEY = re.compile(r"\{\s*[^\W\d]")
_IN_WORD = re.compile(r"[A-Za-z0-9_][A-Za-z]\Z")
"""A marker that begins with a letter, inside a longer word."""
_INDEXED = re.compile(r"[A-Za-z0-9_)\]]\Z")
_INDEX = re.compile(r"\[\s*[^\W\d]")
"""A subscript after a name in a program, `list[int]`; text in other scripts needs no space before a bracket."""

State: TypeAlias = Callable[[str, int, bool], int]
"""Consume `text[at:]`; return the offset to go on from, or `~offset` of the text to hold back."""


class Machine(ABC):
    """A state machine over text; `at` is the offset of its text in the reply."""

    def __init__(self, rules: Rules, plan: Plan, out: Output, at: int = 0) -> None:
        self._rules = rules
        self._plan = plan
        self._names = rules.tools.names if rules.tools is not None else None
        self._sought = plan.sought(self._names)
        self._out = out
        self._carry = ""
        self._fed = at
        self.header: tuple[Dialect, str] | None = None
        """Once a message with a header was found: the dialect that reads it, and the text from the header on."""
        self._rest = ""
        self._candidate: Candidate | None = None
        self._group = ""
        """The scanner group of the marker that the candidate began with."""
        self._shown = False
        """The candidate is in a fence and not firm: text after it shows that it is talked about, however it ends."""
        self._opened_at = 0
        self._named_end = -1
        """Where the last text ended that began with a tool's name, as a call does; -1: there was none."""
        self._mentioned = False
        """The text before the candidate shows that it is talked about."""
        self._begun: str | None = None
        """The beginning of the candidate's text, as compared with the sources; None: it is not quoted."""
        self._stem_ends = self._compared = 0
        """How much of `_begun` no call can have ended in, and how much of it was last looked up in the sources."""
        self.inside_words = False
        """The text is part of a larger one: other text precedes it."""
        self._lead: list[Part] = []
        """Markup of a fence whose first word is not decided yet."""
        self._state: State = self._prose
        self._back: State = self._prose
        self._lost: State = self._prose
        """The state after a candidate: `_back` if it was a call, `_lost` if it was none."""
        self._then: State = self._prose
        """The state after a run of backticks."""
        self._fence_fresh = False
        self._label = ""
        self._line = True
        """What comes next is the first word of a line, or of the content."""
        self._sweeps: dict[Scanner, Sweep] = {}
        self._swept_text = ""

    @abstractmethod
    def _reasoning_over(self) -> bool: ...
    @abstractmethod
    def _prose(self, text: str, at: int, final: bool) -> int: ...
    @abstractmethod
    def _after(self, text: str, at: int, final: bool) -> int: ...
    @abstractmethod
    def _fence(self, text: str, at: int, final: bool) -> int: ...
    @abstractmethod
    def _code(self, text: str, at: int, final: bool) -> int: ...

    def take(self, text: str) -> None:
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
            if self._rest:
                back, self._rest = self._rest, ""
                if len(back) <= moved:
                    moved -= len(back)
                else:
                    text, moved = back + text[moved:], 0
            at = moved
        self._carry = ""

    def let_go(self) -> None:
        """Drop the states: bound methods are reference cycles, which keep all text alive until the collector runs."""
        del self._state, self._back, self._lost, self._then

    def _take_space(self, text: str, at: int) -> int:
        """Write white space at `text[at]` to the output, and return where it ends."""
        bare = at
        while bare < len(text) and text[bare] in SPACE:
            bare += 1
        if bare > at:
            self._out.words(text[at:bare])
        return bare

    def _line_heads(self, text: str, at: int) -> Iterator[tuple[str, int]]:
        """Yield the group and end of each head that the first word of a line may begin."""
        if self._sought.first.match(text, at) is not None:
            yield from self._plan.line_heads(text, at)

    def _swept(self, scanner: Scanner, text: str) -> Sweep:
        """Return the sweep over this text, kept between calls so that all searches together are O(n)."""
        if text is not self._swept_text:
            self._swept_text = text
            self._sweeps.clear()
        known = self._sweeps.get(scanner)
        if known is None:
            known = self._sweeps[scanner] = Sweep(scanner, text)
        return known

    # --- candidates ----------------------------------------------------------------------------------------------

    def _ready(self, group: str, text: str, start: int, end: int, final: bool, *, first: bool = True) -> bool | None:
        """Whether a candidate starts here; None: more text is needed. `first`: all text before it is written."""
        ready = self._may_begin(group, text, start, end, final, first=first)
        if ready is False and self._out.explains:
            self._note_refused(group, text, start, end)
        return ready

    def _note_refused(self, group: str, text: str, start: int, end: int) -> None:
        """Record why what looks like the head of a call began none."""
        dialect, head = self._plan.heads[group]
        if head.labels and self._fence_label not in head.labels:
            why = "no block of code of this kind holds a call of it"
        elif head.begins is None:
            why = f"behind its head comes none of {' '.join(head.opens)}"
        else:
            why = "what its head stands before and behind shows no call"
        end = next((start + len(literal) for literal in head.literals if text.startswith(literal, start)), end)
        at = self._fed - len(text)
        self._out.refused(Try(dialect.name, Span(at + start, at + end), "text", why))

    def _may_begin(self, group: str, text: str, start: int, end: int, final: bool, *, first: bool) -> bool | None:
        dialect, head = self._plan.heads[group]
        if text[start:end] in CLOSER_OF and first and not self._reasoning_over():
            return False
        if head.labels and self._fence_label not in head.labels:
            return False
        if head.begins is None:
            if end < len(text) and text[end] in head.opens:
                return True
            if final and end == len(text):
                if head.alone:
                    return re.compile(head.alone).fullmatch(text, start, end) is not None
                return dialect.name == self._rules.expect and text.startswith(head.literals, start)
            return None if not final and end == len(text) else False
        near = (first and (self._out.fresh or self._out.grouped)) or self._fence_fresh
        fresh = near or (self._rules.expect == dialect.name and not head.first)
        ready = head.begins(text, start, end, fresh=fresh, rules=self._rules)
        return False if ready is None and (final or end < len(text)) else ready

    @property
    def _fence_label(self) -> str | None:
        """The label of the open fence, such as `json`; None outside of fences."""
        return self._label if self._lead or self._state == self._fence else None

    def _open(self, group: str, text: str, start: int, end: int) -> int:
        """Start a candidate, and return the offset from which it is fed."""
        dialect, head = self._plan.heads[group]
        tier = head.tier or dialect.tier
        sure = tier in ("S", "A")
        fenced = bool(self._lead) or self._state == self._fence
        # inside a line it may be talked about: then it counts no more than one of a dialect that was not asked for
        before = self._out.last_words(LINE)
        quoted = tier != "S" and not fenced and _is_quoted(before)
        # the same holds for a tool's name that is also a tag of reasoning, of an answer or of a result
        quoted = quoted or (head.gate == A_TAG and text[start:end] in TAGS)
        expected = dialect.name == self._rules.expect and not quoted and (sure or fenced or self._begins_line())
        program = fenced and head.first
        expected = expected and not program
        self._mentioned = self._rules.strictness != "lenient" and is_mentioned(
            before, fenced=fenced, sentinel=tier == "S", expected=expected
        )
        if tier == "A" and _IN_WORD.search(before + text[start : start + 1]):
            self._mentioned = True
        expected = expected and not self._mentioned
        marker, begin = (text[start:end], end) if head.opens else (head.alias, start)
        self._back, self._lost = (self._fence, self._code) if fenced else (self._after, self._prose)
        if head.fenced and self._lead and self._lead[0].raw[0] in "`~":  # the fence is the block's own opener
            marker, self._lead, self._back = self._lead[0].raw, [], self._after
        doubted = quoted or self._mentioned
        firm = not (doubted or program) and ((sure and not fenced) or expected or self._rules.strictness == "lenient")
        self._shown = self._back == self._fence and not firm
        alone = sure and firm and not (self._out.spoke or self.inside_words or self._rules.strictness == "strict")
        first = self._out.fresh and not (self._out.grouped or fenced or doubted or self.inside_words)
        evidence = Place(dialect.name, wrapped=sure, expected=expected, sentinel=tier == "S", alone=alone, first=first)
        self._candidate = dialect.candidate(marker, self._rules, evidence, firm=firm)
        self._opened_at = self._fed - len(text) + begin - (len(marker) if marker != head.alias else 0)
        self._group = group
        if self._rules.sources is not None:
            self._begun, self._compared = ("" if marker[:1] in ("`", "~") else marker), 0
            self._stem_ends = len(self._begun)
        self._state = self._feeding
        return begin

    def _feeding(self, text: str, at: int, _final: bool) -> int:
        """Feed the candidate until it is decided."""
        candidate = self._candidate
        assert candidate is not None
        end = candidate.feed(text, at)
        if end is None:
            if self._begun is None or not self._may_be_quoted(self._begun, text, at):
                self._go_live(candidate)
            return len(text)
        self._decided(candidate, self._fed - len(text) + end)
        return end

    def _may_be_quoted(self, begun: str, text: str, at: int) -> bool:
        """Whether the candidate may be quoted from the conversation, by its text before anything that may end it.

        The sources are searched again only at twice the length: O(n) in all.
        """
        if self._stem_ends < len(begun):
            return True
        stem = _STEM.match(text, at)
        assert stem is not None
        self._begun = begun = begun + text[at : stem.end() + 1]
        over = stem.end() < len(text) or len(begun) > STEM
        self._stem_ends = len(begun) - over
        if self._compared and not over and len(begun) < 2 * self._compared:
            return True
        self._compared = len(begun)
        assert self._rules.sources is not None
        if self._rules.sources.may_hold(begun[: self._stem_ends]):
            return True
        self._begun = None
        return False

    def _go_live(self, candidate: Candidate) -> None:
        """Emit what is certain early: in a group, or after a fence's opener, only settled parts."""
        if not candidate.live:
            return
        live, candidate.live = candidate.live, []
        if self._out.grouped or self._lead:
            live = [early for early in live if isinstance(early, Part)]
        if live and candidate.head:
            live.insert(0, Part("markup", candidate.head))
            candidate.head = ""
            candidate.parts = candidate.parts[1:]  # if it is already decided, `parts` begin with the head
        for early in live:
            if not isinstance(early, Part):
                self._out.go_live(early)
            elif self._lead:
                self._lead.append(early)
            else:
                self._out.parts([early], firm=candidate.firm and not self._shown)

    def _decided(self, candidate: Candidate, end: int) -> None:
        """Emit the parts of a decided candidate, and choose the next state; `end`: the offset up to which it read."""
        if self._rules.sources is not None and self._quotes(candidate, self._rules.sources):
            self._take_quoted(candidate)
            return
        self._go_live(candidate)
        self._candidate = None
        lead, self._lead = self._lead, []
        parts = candidate.parts
        kinds = [part.kind for part in parts]
        is_call = "text" not in kinds  # markup alone counts too: a tool turn without a call
        if is_call and (self._mentioned or (not candidate.firm and not lead and self._is_part(parts))):
            is_call = False
        if self._is_named:
            self._named_end = end - len(candidate.rest)
        if is_call:
            firm = candidate.firm and not self._shown and not any(map(_is_unknown, parts))
            self._out.parts([*lead, *parts], firm=firm)
            self._state = self._back
        else:
            self._state = self._lost
            if lead or not self._takes_tokens("".join(part.raw for part in parts)):
                self._note_token()
                for part in (*lead, *parts):
                    self._give_back(part.raw)
        if not is_call or self._state != self._fence:
            self._fence_fresh = False
        last = len(candidate.tries) - 1
        for number, attempt in enumerate(candidate.tries):
            # the last attempt covers all that was taken; what it read after that depends on the chunks
            upto = end - len(candidate.rest) if number == last else self._opened_at + attempt.cost
            span = Span(self._opened_at, upto)
            whole = is_call or attempt.outcome == "text"
            outcome = (attempt.outcome, attempt.why) if whole else ("text", MENTIONED if self._mentioned else PART)
            self._out.tried(Try(attempt.strategy, span, *outcome, attempt.cost))
        self._rest = candidate.rest

    def _quotes(self, candidate: Candidate, sources: Sources) -> bool:
        """Whether the candidate's call is quoted from the conversation; a fence around it may be the model's own."""
        parts = whole(candidate)
        if not any(part.kind in ("call", "malformed") for part in parts):
            return False
        if any(part.malformed is not None and part.malformed.reason == "truncated" for part in parts):
            return False
        return sources.hold(unfenced("".join(part.raw for part in parts)))

    def _take_quoted(self, candidate: Candidate) -> None:
        """Take a quoted call as text; if no text precedes it, it is a call unless text follows."""
        self._candidate = None
        parts = [*self._lead, *whole(candidate)]
        self._lead = []
        raw = "".join(part.raw for part in parts)
        outcome: Literal["call", "text"] = "text" if self._out.spoke or self.inside_words else "call"
        if outcome == "text":
            self._note_token()
            self._out.words(raw)
            self._state, self._fence_fresh = self._lost, False
        else:
            self._out.quoted(parts)
            self._state = self._back
        span = Span(self._opened_at, self._opened_at + len(raw))
        dialect = self._plan.heads[self._group][0].name
        self._out.tried(Try(dialect, span, outcome, QUOTED, len(raw)))
        self._rest = candidate.rest

    def _takes_tokens(self, raw: str) -> bool:
        """Mark special tokens around nothing as markup: neither a call nor text. Return whether they were that."""
        dialect, head = self._plan.heads[self._group]
        if self._mentioned or (head.tier or dialect.tier) != "S" or not are_tokens(raw):
            return False
        bare = raw.rstrip(SPACE)
        self._out.token(bare, "markup")
        self._out.words(raw[len(bare) :])
        return True

    def _note_token(self) -> None:
        """Note that the special token which began the candidate is text: so are those that close it."""
        dialect, head = self._plan.heads[self._group]
        self._out.quotes_tokens = self._out.quotes_tokens or (head.tier or dialect.tier) == "S"

    def _give_back(self, raw: str) -> None:
        """Write the text of a candidate that is no call; a tag in it may still be a tag."""
        self._out.words(raw)

    @property
    def _is_named(self) -> bool:
        """Whether the candidate begins with a tool's name at the beginning of a line."""
        return self._plan.heads[self._group][1].gate == A_NAME

    def _begins_line(self) -> bool:
        """Whether what comes next is the first thing on its line."""
        return self._out.last_words(NEAR).rstrip(" \t")[-1:] in ("", "\n", "\r")

    def _is_part(self, parts: list[Part]) -> bool:
        """Whether what looks like a bare call is in a block quote, a larger structure, or a program."""
        before = self._out.last_words(NEAR)
        if _is_quoted(before) or before.rstrip().endswith(('":', "':", "=", "(")):
            return True
        if self._is_named and not self._out.grouped:
            since = self._opened_at - self._named_end if self._named_end >= 0 else None
            if follows_call(self._out.last_words(LINE), since, self._rules):
                return True
        raw = "".join(part.raw for part in parts[:2])
        if _INDEXED.search(before) and _INDEX.match(raw):
            return True
        return bool(_STRUCT.search(before)) and _BARE_KEY.match(raw) is not None

    def _mark(self, raw: str, why: DiscardWhy) -> None:
        self._out.mark(raw, why)


def _is_unknown(part: Part) -> bool:
    """Whether this is a call of a tool that was not offered, which is text if text follows."""
    failed = part.malformed
    return failed is not None and failed.reason == "unknown_tool" and failed.call is not None


def whole(candidate: Candidate) -> list[Part]:
    """Return all parts of a decided candidate, those included that could have been emitted early."""
    early = [early_part for early_part in candidate.live if isinstance(early_part, Part)]
    if not early or not candidate.head:
        return [*early, *candidate.parts]
    return [Part("markup", candidate.head), *early, *candidate.parts[1:]]


def unfenced(raw: str) -> str:
    """Return the text without a fence around it."""
    return _FENCE.sub("", raw.rstrip().rstrip("`~"))


def _is_quoted(before: str) -> bool:
    """Whether what follows `before` is in a Markdown block quote that begins on the same line."""
    _, begins, line = before.rpartition("\n")
    return _QUOTE.match(line) is not None and (begins != "" or len(line) < NEAR)
