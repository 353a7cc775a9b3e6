"""The one parser: text in, events out, one-shot or in pieces.

It is a state machine over the model's text. In *prose* it looks for the next marker: a reasoning tag, a run of
backticks, the head of a dialect, a brace. A dialect's candidate takes the text from there until it is decided. Tier S
and A candidates stand at once; tier B ones (bare JSON) are tentative: they stand if nothing but calls, fences and white
space follows, and come back as text, byte for byte, when words do.

What is held back: the longest end that may become a marker (at most a few hundred characters), trailing white space
(`SPACE_HOLD`), an undecided candidate, and a tentative call until the reply ends.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from promptools import dialects as registry
from promptools.dialects.settle import Rules
from promptools.errors import UsageError
from promptools.parsing.engine.fences import Fences
from promptools.parsing.engine.plan import plan_of
from promptools.parsing.engine.prose import Prose
from promptools.parsing.engine.thought import Thought
from promptools.parsing.events import Event
from promptools.types import NewId, Reply, Strictness

if TYPE_CHECKING:
    from promptools.schema import Tools
    from promptools.schema.read import ToolLike

RESYNCS = 8
"""Candidates still open at the end of the text that give back what stands behind a closer they had seen."""


class StreamParser(Fences, Thought, Prose):
    """Reads one model reply as it comes. `feed` pieces, then `close`; `reply` is there at any time. O(n) in characters.

    `tools`: None means unknown, so names are not checked; an empty list means that none were offered.
    `dialect` pins one dialect; `expect` names the one that the request asked for, whose block is a call even when prose
    follows; `in_reasoning`: the template printed the opener of the reasoning; `json_answer`: the request asked for
    JSON, so bare JSON is an answer; `new_id` makes ids (default: a digest of the text up to the call).

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
        if new_id is not None and not callable(new_id):
            raise UsageError(f"new_id is {new_id!r}; wanted is a function without arguments that gives an id.")
        prepared = _prepared(tools)
        anchors = prepared.all_keys if prepared is not None else frozenset[str]()
        if expect is not None:
            registry.get(expect)
        rules = Rules(prepared, strictness, expect, json_answer, anchors)
        super().__init__(rules, plan_of(rules, dialect), new_id)
        self._pinned = dialect
        self._closed = False
        self._suspect = []
        if in_reasoning:
            self._enter_zone("</think>")
            self._state = self._zone_begins

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
        if self._carry:
            self._run(self._carry, final=True)
        if self._suspect:
            self._unsuspect(finish_reason)
        for left in reversed(range(RESYNCS)):
            if self._candidate is None:
                break
            self._candidate.close(finish_reason)
            self._decided(self._candidate)
            rest, self._rest = self._rest, ""
            if left:
                self._run(rest, final=True)
            else:
                self._out.words(rest)
        self._out.end(finish_reason)
        self._let_go()
        return self._out.drain()

    @property
    def reply(self) -> Reply:
        """What has been read so far; whole after `close`."""
        return self._out.reply

    def _read_alone(self, text: str, finish_reason: str | None) -> Reply:
        """Read `text` as a reply of its own, by the same rules."""
        rules = self._rules
        alone = _WholeParser(
            rules.tools,
            dialect=self._pinned,
            expect=rules.expect,
            strictness=rules.strictness,
            json_answer=rules.json_answer,
        )
        return alone.read(text, finish_reason)


class _WholeParser(StreamParser):
    """A parser whose events nobody takes: it does not make them."""

    def read(self, text: str, finish_reason: str | None) -> Reply:
        """Read a whole reply."""
        self._out.told = False
        self.feed(text)
        self.close(finish_reason)
        return self.reply


def _prepared(tools: Tools | list[ToolLike] | None) -> Tools | None:
    if tools is None:
        return None
    return _tools().prepare(tools)


@cache  # even a repeated import costs what a dozen steps do
def _tools() -> type[Tools]:
    from promptools.schema.tools import Tools

    return Tools


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
    parser = _WholeParser(
        tools,
        dialect=dialect,
        expect=expect,
        strictness=strictness,
        in_reasoning=in_reasoning,
        json_answer=json_answer,
        new_id=new_id,
    )
    return parser.read(text, finish_reason)
