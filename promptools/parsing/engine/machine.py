"""What every state of the parser stands on: the rules, the way out, the text that is held, and the candidate."""

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
"""Characters of a call's beginning by which it is known that it is not quoted."""
NEAR = 64
"""Characters before a bare call that may show that it is a part of something."""
_STRUCT = re.compile(r"[^\W\d_a-z]\w*[ ]?\Z")
"""The name of a type, as Rust prints it before a struct's fields."""
_QUOTE = re.compile(r"[ ]{0,3}>")
_FENCE = re.compile(r"\A(?:`{3,}|~{3,})[^\n`]*+\n?")
_STEM = re.compile(rf"[^])}}<>\n]{{0,{STEM}}}+")
"""What follows a call's opener before anything that may end the call."""
_BARE_KEY = re.compile(r"\{\s*[^\W\d]")
_IN_WORD = re.compile(r"[A-Za-z0-9_][A-Za-z]\Z")
"""A marker that begins with a letter, at the end of a longer word."""
_INDEXED = re.compile(r"[A-Za-z0-9_)\]]\Z")
_INDEX = re.compile(r"\[\s*[^\W\d]")
"""What stands behind a name in a program, `list[int]`; words in other scripts need no space before a bracket."""

State: TypeAlias = Callable[[str, int, bool], int]
"""Take `text` from `at` on; `final`: no more will come. Give the index to go on from, or `~index` of what is held."""


class Machine(ABC):
    """A state machine over text: each state is a method, and says where the next one goes on."""

    def __init__(self, rules: Rules, plan: Plan, out: Output, at: int = 0) -> None:
        self._rules = rules
        self._plan = plan
        self._names = rules.tools.names if rules.tools is not None else None
        self._sought = plan.sought(self._names)
        self._out = out
        self._carry = ""
        self._fed = at
        self.header: tuple[Dialect, str] | None = None
        """From here on messages have headers: the dialect that reads them, and the text that is left."""
        self._rest = ""
        self._candidate: Candidate | None = None
        self._group = ""
        """The kind of marker that the candidate began with."""
        self._shown = False
        """The candidate stands in a fence, where words behind it show that it is talked about, however it ends."""
        self._opened_at = 0
        self._named_end = -1
        """Where the last text ended that began as a call by its tool's name; -1: there was none."""
        self._mentioned = False
        """The text before the candidate shows that it is talked about."""
        self._begun: str | None = None
        """The candidate's text, as far as it is needed to see that it is not quoted; None: it is not."""
        self._stem_ends = self._compared = 0
        """Where no call of its kind can have ended, and how much of that was looked for in the conversation."""
        self.inside_words = False
        """What is read is a part of a text: words come before it."""
        self._lead: list[Part] = []
        """Markup of a fence whose first words are not decided yet."""
        self._state: State = self._prose
        self._back: State = self._prose
        self._lost: State = self._prose
        """Where to go on after a candidate: if it was a call, if it was none."""
        self._then: State = self._prose
        """Where to go on after a run of backticks."""
        self._fence_fresh = False
        self._label = ""
        self._line = True
        """What comes next is the first word of a line, or of what is said."""
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
        """Take a piece of text."""
        self._fed += len(text)
        self._run(self._carry + text if self._carry else text, final=False)

    @abstractmethod
    def finish(self, finish_reason: str | None) -> None:
        """Take what is held: the text is over."""

    def _run(self, text: str, *, final: bool) -> None:
        """Drive the states over `text`; what they hold is carried into the next run."""
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
        """Drop the states: bound to the parser, they would keep it and all its text until the collector comes."""
        del self._state, self._back, self._lost, self._then

    def _take_space(self, text: str, at: int) -> int:
        """Take white space for words of the reply, and return where it ends."""
        bare = at
        while bare < len(text) and text[bare] in SPACE:
            bare += 1
        if bare > at:
            self._out.words(text[at:bare])
        return bare

    def _line_heads(self, text: str, at: int) -> Iterator[tuple[str, int]]:
        """Give the heads that the first word of a line may begin, and their ends."""
        if self._sought.first.match(text, at) is not None:
            yield from self._plan.line_heads(text, at)

    def _swept(self, scanner: Scanner, text: str) -> Sweep:
        """Give the sweep through this text, which may have begun before the last call."""
        if text is not self._swept_text:
            self._swept_text = text
            self._sweeps.clear()
        known = self._sweeps.get(scanner)
        if known is None:
            known = self._sweeps[scanner] = Sweep(scanner, text)
        return known

    # --- candidates ----------------------------------------------------------------------------------------------

    def _ready(self, group: str, text: str, start: int, end: int, final: bool, *, first: bool = True) -> bool | None:
        """Tell whether a candidate starts here; None: more text is needed. `first`: no words before it are unsaid."""
        ready = self._may_begin(group, text, start, end, final, first=first)
        if ready is False and self._out.explains:
            self._note_refused(group, text, start, end)
        return ready

    def _note_refused(self, group: str, text: str, start: int, end: int) -> None:
        """Note for somebody who wants to know why what looks like the head of a call began none."""
        dialect, head = self._plan.heads[group]
        if head.labels and self._fence_label not in head.labels:
            why = "no block of code of this kind holds a call of it"
        elif head.begins is None:
            why = f"behind its head comes none of {' '.join(head.opens)}"
        else:
            why = "what its head stands before and behind shows no call"
        end = next((start + len(each) for each in head.literals if text.startswith(each, start)), end)
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
        """Give the word behind the backticks of the fence that is open; None: none is."""
        return self._label if self._lead or self._state == self._fence else None

    def _open(self, group: str, text: str, start: int, end: int) -> int:
        """Start a candidate: what stands behind its head is fed to it."""
        dialect, head = self._plan.heads[group]
        tier = head.tier or dialect.tier
        sure = tier in ("S", "A")
        fenced = bool(self._lead) or self._state == self._fence
        # in the midst of a line it may be talked about: then it is as good as one that nobody asked for
        before = self._out.last_words(LINE)
        quoted = tier != "S" and not fenced and _is_quoted(before)
        # so is a tool's name that is a tag of reasoning, of an answer or of a result
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
        if head.fenced and self._lead and self._lead[0].raw[0] in "`~":  # the fence is the block's own marker
            marker, self._lead, self._back = self._lead[0].raw, [], self._after
        doubted = quoted or self._mentioned
        firm = not (doubted or program) and ((sure and not fenced) or expected or self._rules.strictness == "lenient")
        self._shown = self._back == self._fence and not firm
        alone = sure and firm and not (self._out.spoke or self.inside_words or self._rules.strictness == "strict")
        first = self._out.fresh and not (self._out.grouped or fenced or doubted or self.inside_words)
        place = Place(dialect.name, wrapped=sure, expected=expected, sentinel=tier == "S", alone=alone, first=first)
        self._candidate = dialect.candidate(marker, self._rules, place, firm=firm)
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
        """Whether the candidate may be quoted from the conversation, by what comes before anything that may end it.

        It is looked for again at twice the length.
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
        """Let out what is certain: in a group, or behind a fence's opener, that is the settled parts alone."""
        if not candidate.live:
            return
        live, candidate.live = candidate.live, []
        if self._out.grouped or self._lead:
            live = [each for each in live if isinstance(each, Part)]
        if live and candidate.head:
            live.insert(0, Part("markup", candidate.head))
            candidate.head = ""
            candidate.parts = candidate.parts[1:]  # if it is decided already, they begin with the head
        for each in live:
            if not isinstance(each, Part):
                self._out.go_live(each)
            elif self._lead:
                self._lead.append(each)
            else:
                self._out.parts([each], firm=candidate.firm and not self._shown)

    def _decided(self, candidate: Candidate, end: int) -> None:
        """Hand over what the candidate left, and go on where it stood; `end`: up to where it looked at the text."""
        if self._rules.sources is not None and self._quotes(candidate, self._rules.sources):
            self._take_quoted(candidate)
            return
        self._go_live(candidate)
        self._candidate = None
        lead, self._lead = self._lead, []
        parts = candidate.parts
        kinds = [part.kind for part in parts]
        is_call = "text" not in kinds  # or a call of nothing: the markup of a turn without one
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
        for number, each in enumerate(candidate.tries):
            # the last one is of all that was taken; what it looked at behind that depends on how the text came
            upto = end - len(candidate.rest) if number == last else self._opened_at + each.cost
            span = Span(self._opened_at, upto)
            whole = is_call or each.outcome == "text"
            said = (each.outcome, each.why) if whole else ("text", MENTIONED if self._mentioned else PART)
            self._out.tried(Try(each.strategy, span, *said, each.cost))
        self._rest = candidate.rest

    def _quotes(self, candidate: Candidate, sources: Sources) -> bool:
        """Whether a call is quoted from the conversation; the fence around it may be the model's own."""
        parts = whole(candidate)
        if not any(part.kind in ("call", "malformed") for part in parts):
            return False
        if any(part.malformed is not None and part.malformed.reason == "truncated" for part in parts):
            return False
        return sources.hold(unfenced("".join(part.raw for part in parts)))

    def _take_quoted(self, candidate: Candidate) -> None:
        """Take a quoted call for text; where nothing was said yet it is a call, if nothing will be."""
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
        """Take special tokens around nothing: they call nothing and are no words."""
        dialect, head = self._plan.heads[self._group]
        if self._mentioned or (head.tier or dialect.tier) != "S" or not are_tokens(raw):
            return False
        bare = raw.rstrip(SPACE)
        self._out.token(bare, "markup")
        self._out.words(raw[len(bare) :])
        return True

    def _note_token(self) -> None:
        """Note that the token which the candidate began with is a word: so are those that close it."""
        dialect, head = self._plan.heads[self._group]
        self._out.quotes_tokens = self._out.quotes_tokens or (head.tier or dialect.tier) == "S"

    def _give_back(self, raw: str) -> None:
        """Take what a candidate was that is no call: words, or a tag that it began with."""
        self._out.words(raw)

    @property
    def _is_named(self) -> bool:
        """Tell whether the candidate begins with a tool's name at the beginning of a line."""
        return self._plan.heads[self._group][1].gate == A_NAME

    def _begins_line(self) -> bool:
        """Tell whether what comes next is the first thing on its line."""
        return self._out.last_words(NEAR).rstrip(" \t")[-1:] in ("", "\n", "\r")

    def _is_part(self, parts: list[Part]) -> bool:
        """Tell whether what looks like a bare call is a quote, a value in a larger text of braces, or in a program."""
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
    """Whether this is a call of a tool that nobody offers, which is text if words follow."""
    failed = part.malformed
    return failed is not None and failed.reason == "unknown_tool" and failed.call is not None


def whole(candidate: Candidate) -> list[Part]:
    """Return all parts of a candidate that is decided, those too that might have gone out before."""
    early = [each for each in candidate.live if isinstance(each, Part)]
    if not early or not candidate.head:
        return [*early, *candidate.parts]
    return [Part("markup", candidate.head), *early, *candidate.parts[1:]]


def unfenced(raw: str) -> str:
    """Return the text without a fence around it."""
    return _FENCE.sub("", raw.rstrip().rstrip("`~"))


def _is_quoted(before: str) -> bool:
    """Tell whether what stands behind these words is in a block quote of Markdown, of one line."""
    _, begins, line = before.rpartition("\n")
    return _QUOTE.match(line) is not None and (begins != "" or len(line) < NEAR)
