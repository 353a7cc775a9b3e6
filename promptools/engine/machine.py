"""The machine that runs the parser's states over a text and, at the end of the text, decides what is still open.

In *prose*, the machine searches for the next marker: a reasoning tag, a run of backticks, the head of a dialect (the
text that begins a call), a brace. From a head on, a candidate of that dialect reads the text until it is decided
whether this is a call. A call of tier S (in special tokens) or A (in readable tags such as `<tool_call>`, which prose
may contain) stays a call whatever follows. A call of tier B (bare JSON) is tentative: it stays a call if only calls,
fences and white space follow. If other text follows, it becomes text again, byte for byte.

The machine holds back: the longest end of the text that may become a marker (at most a few hundred characters),
trailing white space (`MAX_HELD_SPACE`), an undecided candidate, and a tentative call until the reply ends.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from promptools.engine.candidates import close_candidate, in_candidate
from promptools.engine.prose import (
    after_call,
    after_fenced_call,
    fenced_code,
    first_word,
    in_run,
    inline_code,
    inline_start,
    made_up_result,
    prose,
    reply_start,
)
from promptools.engine.reasoning import (
    end_rescue,
    holding_call,
    holding_trailing_calls,
    reasoning,
    reasoning_start,
    rescue_trailing_calls,
    resolve_held_call,
)
from promptools.engine.state import Levels, ParserState, StandaloneResult, StateFunction, StateName
from promptools.engine.tags import enter_reasoning
from promptools.parsing.emitter import Emitter
from promptools.parsing.parts import NEED_MORE

if TYPE_CHECKING:
    from promptools.dialects.calls.parse_options import ParseOptions
    from promptools.dialects.contract import Dialect
    from promptools.engine.scan_plan import ScanPlan

STATES: Final[dict[StateName, StateFunction]] = {
    "reply_start": reply_start,
    "prose": prose,
    "first_word": first_word,
    "after_call": after_call,
    "made_up_result": made_up_result,
    "inline_start": inline_start,
    "inline_code": inline_code,
    "fenced_code": fenced_code,
    "after_fenced_call": after_fenced_call,
    "in_run": in_run,
    "reasoning_start": reasoning_start,
    "reasoning": reasoning,
    "holding_call": holding_call,
    "holding_trailing_calls": holding_trailing_calls,
    "in_candidate": in_candidate,
}
"""Maps the name of each state to its function."""
MAX_RESYNC_WORK = 8
"""Limit on the text that is parsed again because a possible call never ended, as a multiple of the first such text.

A candidate (text that may be a call) that is open at the end of the text may give back a remainder: text that it read
but did not take. The remainder is parsed again. It may contain another unclosed candidate, which gives back another
remainder. All remainders together may be this many times as long as the first. Any further remainder becomes text, even
if it contains a call.

A candidate proves to be unclosed only at the end of the text. So without a limit, a text with many such candidates
would take quadratic time. Each remainder is shorter than the one before, so later remainders cost less. Therefore the
limit counts characters rather than candidates. Up to about sixteen candidates of equal length are all read.

No known rule finds every call and stays linear. If one candidate is unclosed, a later candidate of the same kind may
still be closed: it is read from another quotation mark on, so text that was inside a string for the first candidate may
be outside of a string for the later one. Where a candidate closes also depends on its markers, and on how its dialect
repairs broken text.
Reading only the last candidates of the text would return calls that an earlier candidate quotes. Where one broken
string runs over whole blocks and only such blocks follow, `promptools.dialects.readers.json_block` finds the blocks
from the end, without this limit.
"""


class Engine:
    """Parses prose: a reply, or the content of a message.

    `at` is the offset in the reply at which this text begins. With `alone`, calls count only if the text contains
    nothing else.
    """

    def __init__(
        self, options: ParseOptions, plan: ScanPlan, out: Emitter, at: int = 0, *, alone: bool = False
    ) -> None:
        self._state = ParserState(options, plan, out, parse_standalone, at, alone=alone)

    @property
    def found_header(self) -> tuple[Dialect, str] | None:
        """The dialect of the first message header, and the text from that header on; None until a header is found."""
        return self._state.found_header

    def begin_in_reasoning(self) -> None:
        """Start inside reasoning, since the chat template has already printed the opening tag."""
        enter_reasoning(self._state, "")
        self._state.next = "reasoning_start"

    def feed(self, text: str) -> None:
        """Feed a chunk of text."""
        state = self._state
        state.fed += len(text)
        _run(state, state.carry + text if state.carry else text, final=False)

    @property
    def in_reasoning(self) -> bool:
        """Whether the text so far ends inside reasoning."""
        return self._state.next in ("reasoning_start", "reasoning", "holding_call")

    def finish(self, finish_reason: str | None) -> None:
        """Signal the end of the text, and decide how to read the text that is still held back.

        `finish_reason` is the finish reason from the server.
        """
        state = self._state
        state.truncated = finish_reason == "length"
        if state.carry:
            _run(state, state.carry, final=True)
        _resolve_open(state, finish_reason)


def _run(state: ParserState, text: str, *, final: bool) -> None:
    """Run the states over `text`. Text that the states hold back is prepended to the next run."""
    at = 0
    while at < len(text):
        moved = STATES[state.next](state, text, at, final)
        if moved is NEED_MORE:
            state.carry = text[state.held_from :]
            return
        if state.unread:
            back, state.unread = state.unread, ""
            if len(back) <= moved:
                moved -= len(back)
            else:
                text, moved = back + text[moved:], 0
        at = moved
    state.carry = ""


def _resolve_open(state: ParserState, finish_reason: str | None) -> None:
    """At the end of the text, decide how to read what is still open: held calls and an unfinished candidate.

    Text that such a decision gives back may open another call, which is decided next.
    """
    left: int | None = None
    while True:
        if state.reasoning.held_call:
            _run(state, resolve_held_call(state, finish_reason), final=True)
        elif state.reasoning.trailing_calls:
            _run(state, rescue_trailing_calls(state), final=True)
        elif state.candidate is not None:
            close_candidate(state, finish_reason)
            rest, state.unread = state.unread, ""
            left = (MAX_RESYNC_WORK * len(rest) if left is None else left) - len(rest)
            if left >= 0:
                _run(state, rest, final=True)
            else:
                state.out.add_text(rest)
        elif state.reasoning.rescue_tail:
            end_rescue(state)
        else:
            return


def parse_standalone(state: ParserState, text: str, finish_reason: str | None) -> StandaloneResult:
    """Parse a held text as a separate reply, and return what it contains. O(n).

    Calls in closed reasoning do not count. If the text contains a call in unclosed reasoning, a new level with its own
    output begins at that call. So all levels together take one pass, and no text is parsed twice.
    """
    options = state.options._replace(rescue=False)
    alone = ParserState(options, state.plan, state.out.silent(), parse_standalone)
    alone.follows_text = True
    levels = alone.levels = Levels(len(text))
    _run(alone, text, final=True)
    _resolve_open(alone, finish_reason)
    levels.finished.append((alone.out, levels.size))
    return _combine_levels(levels, finish_reason)


def _combine_levels(levels: Levels, finish_reason: str | None) -> StandaloneResult:
    """Combine the results of all levels (see `parse_standalone`), from the last level to the first.

    If a level contains calls and no text, its calls also count as calls of the level before it.
    """
    result = StandaloneResult(False, False, False, False, frozenset(), {})
    for out, size in reversed(levels.finished):
        out.end(finish_reason)
        reply = out.record.reply
        meant = result.has_calls and not result.has_text
        deeper = result if meant else StandaloneResult(False, False, False, False, frozenset(), result.verdicts)
        result = StandaloneResult(
            has_calls=bool(reply.calls) or deeper.has_calls,
            has_text=bool(reply.content),
            has_malformed=bool(reply.malformed) or deeper.has_malformed,
            has_truncated=any(call.reason == "truncated" for call in reply.malformed) or deeper.has_truncated,
            dialects=deeper.dialects.union(call.dialect for call in reply.calls),
            verdicts=result.verdicts,
        )
        result.verdicts[size] = result.has_calls and not result.has_text
    return result
