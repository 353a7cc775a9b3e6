"""The one parser: text in, events out, one-shot or in pieces.

It is a state machine over the model's text. In *prose* it looks for the next marker: a reasoning tag, a run of
backticks, the head of a dialect, a brace. A dialect's candidate takes the text from there until it is decided. Tier S
and A candidates stand at once; tier B ones (bare JSON) are tentative: they stand if nothing but calls, fences and white
space follows, and come back as text, byte for byte, when words do.

What is held back: the longest end that may become a marker (at most a few hundred characters), trailing white space
(`SPACE_HOLD`), an undecided candidate, and a tentative call until the reply ends.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import lru_cache

from promptools import dialects as registry
from promptools.dialects.base import Dialect, Head
from promptools.dialects.envelope import FIRST_KEYS
from promptools.dialects.settle import Place, Rules
from promptools.errors import UsageError
from promptools.parsing.events import Event
from promptools.parsing.output import SPACE, Output
from promptools.parsing.parts import Candidate, Part
from promptools.parsing.scanner import Marker, Scanner, by_group
from promptools.parsing.zones import CLOSER_OF, CLOSERS, DEBRIS, RESULTS
from promptools.schema import Tools
from promptools.schema.read import ToolLike
from promptools.types import DiscardWhy, Fix, NewId, Reply, Span, Strictness

RESYNCS = 8
"""Candidates still open at the end of the text that give back what stands behind a closer they had seen."""

_FENCE_HEAD = re.compile(r"(?:`{3,}|~{3,})[ \t]{0,16}[\w.+#-]{0,32}[ \t]{0,16}(?:\r?\n)?\s{0,256}")
_FENCE_GAP = re.compile(r"[\s,;]{0,256}")
_RUNS = {"`": re.compile(r"`+"), "~": re.compile(r"~+")}
_INLINE = re.compile(r"(`{1,2})(?!`)[^`\n]*\1(?!`)(?!\Z)")
_SEPARATOR = re.compile(r"[,;]\s{0,256}(?:(?=[{\[])|\Z)")
_SURPLUS = re.compile(r"[}\]]{1,3}")


class StreamParser:
    """Reads one model reply as it comes. `feed` pieces, then `close`; `reply` is there at any time. O(n) in characters.

    `tools`: None means unknown, so names are not checked; an empty list means that none were offered.
    `dialect` pins one dialect; `expect` names the one that the request asked for, whose block is a call even when prose
    follows; `in_reasoning`: the template printed the opener of the reasoning; `json_answer`: the request asked for JSON,
    so bare JSON is an answer; `new_id` makes ids (default: a digest of the text up to the call).

    Raises UsageError for bad options, and for text after `close`; never for what the text says.
    """

    def __init__(
        self,
        tools: Tools | list[ToolLike] | None = None,
        *,
        dialect: str | None = None,
        expect: str | None = None,
        strictness: Strictness = "balanced",
        in_reasoning: bool = False,
        json_answer: bool = False,
        new_id: NewId | None = None,
    ) -> None:
        if strictness not in ("strict", "balanced", "lenient"):
            raise UsageError(f"strictness is {strictness!r}; wanted is 'strict', 'balanced' or 'lenient'.")
        prepared = Tools.prepare(tools)
        anchors = prepared.all_keys if prepared is not None else frozenset[str]()
        if expect is not None:
            registry.get(expect)
        self._rules = Rules(prepared, strictness, expect, json_answer, anchors)
        self._pinned = dialect
        self._plan = _plan(tuple(each.name for each in _chosen(self._rules, dialect)))
        self._out = Output(new_id)
        self._carry = ""
        self._fed = 0
        self._closed = False
        self._candidate: Candidate | None = None
        self._opened_at = 0
        self._lead: list[Part] = []
        self._state: Callable[[str, int, bool], int] = self._prose
        self._back: Callable[[str, int, bool], int] = self._prose
        self._lost: Callable[[str, int, bool], int] = self._prose
        self._ticks = 0
        self._run_of = _RUNS["`"]
        self._fence_fresh = False
        self._zone_closer = ""
        self._zone_closed = False
        self._suspect: list[str] = []
        self._seam = ""
        self._rest = ""
        if in_reasoning:
            self._enter_zone("</think>")
            self._state = self._zone_begins

    # --- the way in ----------------------------------------------------------------------------------------------

    def feed(self, chunk: str) -> list[Event]:
        """Take a piece of the reply; give what became certain."""
        if self._closed:
            raise UsageError("The parser was fed after close(); make a new StreamParser for the next reply.")
        if not isinstance(chunk, str):
            raise UsageError(f"The parser was fed {type(chunk).__name__}; decode the reply to str first.")
        if chunk:
            self._fed += len(chunk)
            self._run(self._carry + chunk if self._carry else chunk, final=False)
        return self._out.drain()

    def close(self, finish_reason: str | None = None) -> list[Event]:
        """Say that the reply is over, and why; give the rest. A second close gives nothing."""
        if self._closed:
            return []
        self._closed = True
        carry, self._carry = self._carry, ""
        self._run(carry, final=True)
        if self._suspect:
            self._unsuspect(finish_reason)
        for turn in range(RESYNCS):
            if self._candidate is None:
                break
            self._candidate.close(finish_reason)
            self._decided(self._candidate, 0)
            rest, self._rest = self._rest, ""
            if turn == RESYNCS - 1:
                self._out.words(rest)
            else:
                self._run(rest, final=True)
        if self._candidate is not None:
            self._candidate.close(finish_reason)
            self._decided(self._candidate, 0)
            self._out.words(self._rest)
        self._out.end(finish_reason)
        return self._out.drain()

    @property
    def reply(self) -> Reply:
        """What has been read so far; whole after `close`."""
        return self._out.reply

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

    # --- prose ---------------------------------------------------------------------------------------------------

    def _prose(self, text: str, at: int, final: bool) -> int:
        """Look for the next marker."""
        begin = at
        while True:
            found = self._plan.scanner.search(text, at)
            if found is None:
                cut = len(text) if final else self._plan.scanner.hold(text, at)
                self._out.words(text[begin:cut])
                return cut if cut == len(text) else ~cut
            start, end = found.span()
            group = found.lastgroup or ""
            if group == "ticks":
                inline = _INLINE.match(text, start)
                if inline is not None:
                    at = inline.end()
                    continue
                self._out.words(text[begin:start])
                return self._backticks(text, start, end, final)
            if group in self._plan.heads:
                ready = self._ready(group, text, start, end, final)
                if ready is not False:
                    self._out.words(text[begin:start])
                    return ~start if ready is None else self._open(group, text, start, end)
                found = self._plan.literals.match(text, start)
                if found is None:
                    at = start + 1
                    continue
                group = found.lastgroup or ""
            self._out.words(text[begin:start])
            self._literal(group, found[0])
            return found.end()

    def _ready(self, group: str, text: str, start: int, end: int, final: bool) -> bool | None:
        """Does a candidate start here? None: more text is needed to tell."""
        dialect, head = self._plan.heads[group]
        if head.begins is None:
            if end < len(text) and text[end] in head.opens:
                return True
            if final and end == len(text) and dialect.name == self._rules.expect:
                return True
            return False if final or end < len(text) else None
        fresh = self._out.fresh or self._out.grouped or self._rules.expect == dialect.name or self._fence_fresh
        ready = head.begins(text, start, end, fresh=fresh, known=self._knows)
        return False if ready is None and (final or end < len(text)) else ready

    def _knows(self, key: str) -> bool:
        """May an object whose first key is this be a call, anywhere in prose?"""
        tools = self._rules.tools
        if key in FIRST_KEYS:
            return True
        if tools is None:
            return False
        return tools.get(key) is not None or self._rules.strictness == "lenient"

    def _open(self, group: str, text: str, start: int, end: int) -> int:
        """Start a candidate: what stands behind its head is fed to it."""
        dialect, head = self._plan.heads[group]
        expected = dialect.name == self._rules.expect
        fenced = bool(self._lead) or self._state == self._fence
        sure = dialect.tier in ("S", "A") and not fenced
        firm = sure or expected or self._rules.strictness == "lenient"
        place = Place(dialect.name, wrapped=dialect.tier in ("S", "A"), expected=expected)
        begin = end if head.opens else start
        lead = text[start:begin] if text[start] != '"' else '"'
        if self._lead and not head.opens and text[start] != '"':  # the fence is the block's own marker
            lead, self._lead = self._lead[0].raw, []
            self._candidate = dialect.candidate(lead, self._rules, place, firm=firm)
            self._back, self._lost = self._after, self._code
        else:
            self._candidate = dialect.candidate(lead, self._rules, place, firm=firm)
            self._back, self._lost = (self._fence, self._code) if fenced else (self._after, self._prose)
        self._opened_at = self._fed - len(text) + begin - len(lead if head.opens or text[start] != '"' else "")
        self._state = self._feeding
        return begin

    def _literal(self, group: str, marker: str) -> None:
        """Take a tag, a lone closer, or debris."""
        if group == "opener":
            self._out.junction(marker, "reasoning")
            self._enter_zone(CLOSER_OF[marker])
        elif group == "closer":
            self._orphan(marker)
        elif not self._out.beside_call:
            if group == "lone" and not marker.startswith("</"):  # doubled, perhaps: the next one may open a call
                self._out.parts([Part("markup", marker)], firm=False)
            else:
                self._out.words(marker)
        elif group == "debris":
            self._mark(marker, "debris")
            self._state = self._after_space
        else:
            if self._out.grouped and marker.startswith("</"):
                self._out.note(Fix("marker", f"only the closer {marker!r} was there"))
                self._out.accept()
            self._mark(marker, "markup")
            self._state = self._after_space

    # --- code ----------------------------------------------------------------------------------------------------

    def _backticks(self, text: str, start: int, end: int, final: bool) -> int:
        """Enter inline code or a fence."""
        if end == len(text) and not final:
            return ~start
        self._run_of = _RUNS[text[start]]
        self._ticks = end - start
        if self._ticks < 3:
            self._out.words(text[start:end])
            self._state = self._inline
            return end
        head = _FENCE_HEAD.match(text, start)
        assert head is not None
        inside = head.end()
        if inside == len(text):
            if not final:
                return ~start
            self._out.words(text[start:])
            return inside
        self._fence_fresh = self._out.fresh
        self._lead = [Part("markup", text[start:inside])]
        moved = self._inside(text, inside, final)
        if moved == ~inside:
            self._lead = []
            return ~start
        return moved

    def _inside(self, text: str, at: int, final: bool) -> int:
        """Start a candidate at this very place inside a fence, else it is code."""
        found = self._plan.scanner.match(text, at)
        group = (found.lastgroup or "") if found is not None else ""
        ready = self._ready(group, text, at, found.end(), final) if found and group in self._plan.heads else False
        if ready is None:
            return ~at
        if ready and found is not None:
            return self._open(group, text, at, found.end())
        if not final and self._plan.scanner.hold(text, at) == at:
            return ~at
        self._code_begins()
        return at

    def _code_begins(self) -> None:
        for part in self._lead:
            self._out.words(part.raw)
        self._lead = []
        self._fence_fresh = False
        self._state = self._code

    def _inline(self, text: str, at: int, final: bool) -> int:
        """Stay in inline code until the same run of backticks, or the end of the line."""
        begin = at
        while True:
            newline = text.find("\n", at)
            found = self._run_of.search(text, at)
            if found is None or 0 <= newline < found.start():
                end = newline if newline >= 0 else len(text)
                self._out.words(text[begin:end])
                if newline >= 0:
                    self._state = self._prose
                return end
            if found.end() == len(text) and not final:
                self._out.words(text[begin : found.start()])
                return ~found.start()
            at = found.end()
            if len(found[0]) == self._ticks:
                self._out.words(text[begin:at])
                self._state = self._prose
                return at

    def _code(self, text: str, at: int, final: bool) -> int:
        """Stay in a fence of plain code until a run of at least as many backticks."""
        begin = at
        while True:
            found = self._run_of.search(text, at)
            if found is None:
                self._out.words(text[begin:])
                return len(text)
            if found.end() == len(text) and not final:
                self._out.words(text[begin : found.start()])
                return ~found.start()
            at = found.end()
            if len(found[0]) >= self._ticks:
                self._out.words(text[begin:at])
                self._state = self._prose
                return at

    def _fence(self, text: str, at: int, final: bool) -> int:
        """After a call inside a fence: another one, or the closing backticks; anything else is code."""
        gap = _FENCE_GAP.match(text, at)
        assert gap is not None
        inside = gap.end()
        if inside == len(text):
            if final:
                self._mark(text[at:], "markup")
            return inside if final else ~at
        run = self._run_of.match(text, inside)
        if run is not None:
            if run.end() == len(text) and not final and len(run[0]) < self._ticks:
                return ~at
            if len(run[0]) >= self._ticks:
                self._mark(text[at : run.end()], "markup")
                self._state = self._prose
                return run.end()
        surplus = _SURPLUS.match(text, inside)
        if surplus is not None and inside == at:
            return self._stray(surplus)
        if text[inside] in self._plan.opens:
            self._lead = [Part("markup", text[at:inside])] if inside > at else []
            moved = self._inside(text, inside, final)
            if moved == ~inside:
                self._lead = []
                return ~at
            return moved
        self._code_begins()
        return at

    # --- candidates ----------------------------------------------------------------------------------------------

    def _feeding(self, text: str, at: int, final: bool) -> int:
        """Feed the candidate until it is decided."""
        candidate = self._candidate
        assert candidate is not None
        end = candidate.feed(text, at)
        if candidate.live:
            self._go_live(candidate)
        if end is None:
            return len(text)
        self._decided(candidate, end)
        return end

    def _go_live(self, candidate: Candidate) -> None:
        live, candidate.live = candidate.live, []
        if not self._out.grouped and not self._lead:
            for each in live:
                self._out.go_live(each, candidate.head)
            if candidate.head and candidate.parts:  # decided already: the markup before the call has just gone out
                candidate.parts = candidate.parts[1:]
            candidate.head = ""

    def _decided(self, candidate: Candidate, end: int) -> None:
        """Hand over what the candidate left, and go on where it stood."""
        self._candidate = None
        lead, self._lead = self._lead, []
        parts = candidate.parts
        is_call = any(part.kind in ("call", "malformed") for part in parts)
        if is_call:
            self._out.parts([*lead, *parts], firm=candidate.firm)
            self._state = self._back
        else:
            for part in (*lead, *parts):
                self._out.words(part.raw)
            self._state = self._lost
        if not is_call or self._state != self._fence:
            self._fence_fresh = False
        for each in candidate.tries:
            start = self._opened_at + each.span.start
            self._out.tried(replace(each, span=Span(start, start + each.span.end - each.span.start)))
        self._rest = candidate.rest

    def _after(self, text: str, at: int, final: bool) -> int:
        """After a call in prose: separators before the next call, and closers that are one too many."""
        self._state = self._prose
        surplus = _SURPLUS.match(text, at)
        if surplus is not None:
            self._state = self._after_space
            return self._stray(surplus)
        return self._after_space(text, at, final)

    def _after_space(self, text: str, at: int, final: bool) -> int:
        self._state = self._after_space
        bare = at
        while bare < len(text) and text[bare] in SPACE:
            bare += 1
        if bare > at:
            self._out.words(text[at:bare])
            return bare
        for opener in RESULTS:
            if text.startswith(opener, at):
                self._state = self._imagined
                return at
            if not final and len(text) - at < len(opener) and opener.startswith(text[at:]):
                return ~at
        found = _SEPARATOR.match(text, at)
        if found is not None:
            if found.end() == len(text) and not final:
                return ~at
            self._mark(found[0], "markup")
            return found.end()
        self._state = self._prose
        return at

    def _stray(self, surplus: re.Match[str]) -> int:
        self._out.note(Fix("closer", f"{surplus[0]!r} too many"))
        self._mark(surplus[0], "markup")
        return surplus.end()

    def _mark(self, raw: str, why: DiscardWhy) -> None:
        if raw:
            self._out.parts([Part(why, raw)], firm=not self._out.grouped)

    def _imagined(self, text: str, at: int, final: bool) -> int:
        """A result that the model made up: nothing from here on was said to anyone."""
        self._mark(text[at:], "result")
        return len(text)

    # --- reasoning -----------------------------------------------------------------------------------------------

    def _enter_zone(self, closer: str) -> None:
        self._out.zone("reasoning")
        self._zone_closer = closer
        self._zone_scanner = self._plan.zone_scanner(closer)
        self._state = self._reasoning

    def _zone_begins(self, text: str, at: int, final: bool) -> int:
        """Take an opener that a server put back before a reply that starts inside the zone."""
        bare = len(text) - len(text[at:].lstrip(SPACE))
        opener = next((each for each in CLOSER_OF if text.startswith(each, bare)), None)
        if opener is None and not final and any(each.startswith(text[bare:]) for each in CLOSER_OF):
            return ~at
        self._state = self._reasoning
        if opener is None:
            return at
        self._out.words(text[at:bare])
        self._out.junction(opener, "reasoning")
        self._enter_zone(CLOSER_OF[opener])
        return bare + len(opener)

    def _leave_zone(self) -> None:
        self._out.junction(self._zone_closer, "text")
        self._zone_closed = True
        self._state = self._prose

    def _orphan(self, marker: str) -> None:
        """Take a closer whose opener was never seen: what went before was thought, unless a zone was closed before."""
        if self._zone_closed:
            self._out.junction(marker, "text")
        else:
            self._out.was_reasoning(marker)
        self._zone_closed = True

    def _reasoning(self, text: str, at: int, final: bool) -> int:
        """Look for the closer of the zone, and for a call that may end it instead."""
        begin = at
        while True:
            found = self._zone_scanner.search(text, at)
            if found is None:
                cut = len(text) if final else self._zone_scanner.hold(text, at)
                self._out.words(text[begin:cut])
                return cut if cut == len(text) else ~cut
            start, end = found.span()
            group = found.lastgroup or ""
            if group == "closer":
                self._out.words(text[begin:start])
                self._leave_zone()
                return end
            ready = self._ready(group, text, start, end, final)
            if ready is False:
                at = start + 1
                continue
            self._out.words(text[begin:start])
            if ready is None:
                return ~start
            self._state = self._suspecting
            return start

    def _suspecting(self, text: str, at: int, final: bool) -> int:
        """Hold a call inside an open zone: thought if the zone closes, a call if it never does."""
        size = len(self._zone_closer)
        seam = self._seam + text[at : at + size]
        found = seam.find(self._zone_closer)
        end = at + found + size - len(self._seam) if found >= 0 else text.find(self._zone_closer, at) + size
        if end < size and found < 0:
            self._suspect.append(text[at:])
            self._seam = (self._seam + text[max(at, len(text) - size) :])[-size + 1 :]
            return len(text)
        thought = "".join((*self._suspect, text[at:end]))
        self._suspect, self._seam = [], ""
        self._out.words(thought[:-size])
        self._leave_zone()
        return end

    def _unsuspect(self, finish_reason: str | None) -> None:
        """The zone never closed: a call that ends the reply ended the zone; anything else was thought on."""
        held = "".join(self._suspect)
        self._suspect = []
        trial = StreamParser(
            self._rules.tools,
            dialect=self._pinned,
            expect=self._rules.expect,
            strictness=self._rules.strictness,
            json_answer=self._rules.json_answer,
        )
        trial.feed(held)
        trial.close(finish_reason)
        if finish_reason == "length" or trial.reply.content or not trial.reply.calls:
            self._out.words(held)
            return
        self._out.cut_short()
        self._state = self._prose
        self._run(held, final=True)


class _Plan:
    """What is looked for: compiled once for each set of dialects."""

    def __init__(self, names: tuple[str, ...]) -> None:
        chosen = [registry.get(name) for name in names]
        self.heads: dict[str, tuple[Dialect, Head]] = {
            f"head{number}": (dialect, head)
            for number, (dialect, head) in enumerate((dialect, head) for dialect in chosen for head in dialect.heads)
        }
        self.opens = "".join({literal[0] for _, head in self.heads.values() for literal in head.literals})
        self.certain = tuple(dialect.name for dialect in chosen if dialect.tier in "SA")
        lone = _literal_markers(names)
        self.scanner = Scanner([*_heads(names), *lone, Marker("ticks", ("`", "~~~"), "``*|~~~~*")])
        self.literals = Scanner(lone)

    def zone_scanner(self, closer: str) -> Scanner:
        """Give the scanner for inside a zone."""
        return _zone_scanner(self.certain, closer)


@lru_cache(maxsize=64)
def _plan(names: tuple[str, ...]) -> _Plan:
    return _Plan(names)


def _chosen(rules: Rules, pinned: str | None) -> Iterable[Dialect]:
    dialects = (registry.get(pinned),) if pinned is not None else registry.REGISTRY.values()
    return (dialect for dialect in dialects if _on(dialect, rules))


def _on(dialect: Dialect, rules: Rules) -> bool:
    if rules.tools is not None and not len(rules.tools):
        return dialect.tier == "S"
    if dialect.tier in "SA":
        return True
    if dialect.name == rules.expect:
        return True
    return rules.strictness != "strict" and not rules.json_answer


def _heads(names: tuple[str, ...]) -> list[Marker]:
    heads = [head for name in names for head in registry.get(name).heads]
    return [Marker(f"head{number}", head.literals, head.pattern, head.gate) for number, head in enumerate(heads)]


def _literal_markers(names: tuple[str, ...]) -> list[Marker]:
    lone = dict.fromkeys(closer for name in names for closer in registry.get(name).closers)
    openers = [re.escape(each) for each in lone if not each.startswith("</")]
    runs = f"(?:{'|'.join(openers)})+(?=(?:{'|'.join(openers)}))|" if openers else ""
    literal = "|".join(re.escape(each) for each in lone)
    markers = by_group({"opener": CLOSER_OF, "closer": CLOSERS, "debris": DEBRIS})
    return [*markers, Marker("lone", tuple(lone), runs + literal)] if lone else markers


@lru_cache(maxsize=64)
def _zone_scanner(names: tuple[str, ...], closer: str) -> Scanner:
    return Scanner([Marker("closer", (closer,)), *_heads(names)])


def parse(
    text: str,
    tools: Tools | list[ToolLike] | None = None,
    *,
    dialect: str | None = None,
    expect: str | None = None,
    strictness: Strictness = "balanced",
    finish_reason: str | None = None,
    in_reasoning: bool = False,
    json_answer: bool = False,
    new_id: NewId | None = None,
) -> Reply:
    """Read one whole reply: `StreamParser` fed once and closed. O(n) in characters. Raises UsageError for bad options.

    >>> parse('{"tool": "add", "arguments": {"a": 1, "b": 2}}').calls[0].arguments
    {'a': 1, 'b': 2}
    """
    parser = StreamParser(
        tools,
        dialect=dialect,
        expect=expect,
        strictness=strictness,
        in_reasoning=in_reasoning,
        json_answer=json_answer,
        new_id=new_id,
    )
    parser.feed(text)
    parser.close(finish_reason)
    return parser.reply
