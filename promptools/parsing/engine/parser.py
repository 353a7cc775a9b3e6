"""The public parser: text in, events out, in one piece or in chunks.

`Engine` is a state machine over the model's text (`machine.py` has its theory). In *prose* it searches for the next
marker: a reasoning tag, a run of backticks, the head of a dialect, a brace. From a head on, a candidate of that dialect
takes the text until it is decided. Candidates of tier S and A are calls at once; those of tier B (bare JSON) are
tentative: they are calls if only calls, fences and white space follow, and otherwise become text again, byte for byte.

Once a header of a format with channels (Harmony, Muse) is found, `Channelled` takes over for the rest of the reply.

Held back are: the longest suffix that may become a marker (at most a few hundred characters), trailing white space
(`SPACE_HOLD`), an undecided candidate, and a tentative call until the reply ends.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache, partial
from typing import TYPE_CHECKING

from promptools import dialects as registry
from promptools.dialects.settle import Rules
from promptools.errors import UsageError, clip
from promptools.parsing.engine import short
from promptools.parsing.engine.channels import Channelled
from promptools.parsing.engine.fences import Fences
from promptools.parsing.engine.plan import Plan, plan_of, prose_plan, usual_plan
from promptools.parsing.engine.prose import Prose
from promptools.parsing.engine.thought import Alone, Thought
from promptools.parsing.events import Event, Reasoning, Text, WasReasoning
from promptools.parsing.output import Output
from promptools.parsing.sources import Sources
from promptools.types import NewId, Reply, RestoreArguments, Strictness, Try

if TYPE_CHECKING:
    from promptools.dialects.base import Dialect
    from promptools.harmony.scan import Piece
    from promptools.parsing.parts import Candidate
    from promptools.schema import Tools
    from promptools.schema.read import ToolLike

RESYNCS = 8
"""Candidates, open at the end of the text, whose unread rest is parsed again; the rest of any further one is text."""


class Engine(Fences, Thought, Prose):
    """Parses prose: a reply, or the content of one message of it."""

    def __init__(self, rules: Rules, plan: Plan, out: Output, at: int = 0) -> None:
        super().__init__(rules, plan, out, at)
        self._suspect, self._drafts, self._tail, self._verdicts, self._talked = [], [], [], {}, {}
        if plan.headers:
            self._state = self._opening

    def begin_inside(self) -> None:
        """Start inside a reasoning zone whose opener the chat template printed."""
        self._enter_zone("</think>")
        self._state = self._zone_begins

    def finish(self, finish_reason: str | None) -> None:
        """End the text, and decide on everything held back; `finish_reason` is the server's."""
        self._cut = finish_reason == "length"
        if self._carry:
            self._run(self._carry, final=True)
        self._end(finish_reason)

    def _end(self, finish_reason: str | None) -> None:
        """Decide what is open at the end of the text, until nothing is: each decision may open something else."""
        left = RESYNCS
        while True:
            if self._suspect:
                self._unsuspect(finish_reason)
            elif self._drafts:
                self._rescue()
            elif self._candidate is not None:
                left -= 1
                self._end_candidate(self._candidate, finish_reason, again=left > 0)
            elif self._tail:
                self._end_rescue()
            else:
                return

    def _end_candidate(self, candidate: Candidate, finish_reason: str | None, *, again: bool) -> None:
        """Close the candidate that is open at the end of the text; `again`: parse the text that it did not take."""
        candidate.close(finish_reason)
        self._decided(candidate, self._fed)
        rest, self._rest = self._rest, ""
        if again:
            self._run(rest, final=True)
        else:
            self._out.words(rest)

    def _read_alone(self, text: str, finish_reason: str | None) -> Alone:
        """Parse `text` as a reply of its own, by the same rules."""
        return AloneReader(self._rules, self._plan).read(text, finish_reason)


class AloneReader(Engine):
    """Parses the text held in a reasoning zone as a reply of its own, to see whether it ends in calls.

    That text may have such a zone in turn, whose call begins another text to be parsed alone. It is not parsed again
    but begins a new level, with an output of its own, so that all levels together cost one pass over the text. Calls
    are not rescued.
    """

    def __init__(self, rules: Rules, plan: Plan) -> None:
        super().__init__(rules._replace(rescue=False), plan, _silent())
        self.inside_words = True
        self._levels: list[tuple[Output, int]] = []
        """The output of each finished level, and the characters from its beginning to the end of the text."""
        self._size = 0

    def read(self, text: str, finish_reason: str | None) -> Alone:
        """Parse the whole text. O(n) in characters."""
        self._size = len(text)
        self._run(text, final=True)
        self._end(finish_reason)
        self.let_go()
        self._levels.append((self._out, self._size))
        return self._found(finish_reason)

    def _unclosed(self, text: str, at: int) -> int:
        """Begin another level, with an empty output."""
        self._levels.append((self._out, self._size))
        self._out, self._size = _silent(), len(text) - at
        self._framed, self._talked, self._zone_closed, self._line = "", {}, False, True
        self._state = self._opening if self._plan.headers else self._prose
        return at

    def _found(self, finish_reason: str | None) -> Alone:
        """Combine the levels, from the last to the first: one that ends in calls is part of the one before."""
        result = Alone(False, False, False, frozenset(), {})
        for out, size in reversed(self._levels):
            out.end(finish_reason)
            reply = out.reply
            meant = result.called and not result.spoke
            deeper = result if meant else Alone(False, False, False, frozenset(), result.verdicts)
            result = Alone(
                called=bool(reply.calls) or deeper.called,
                spoke=bool(reply.content),
                malformed=bool(reply.malformed) or deeper.malformed,
                dialects=deeper.dialects.union(call.dialect for call in reply.calls),
                verdicts=result.verdicts,
            )
            result.verdicts[size] = result.called and not result.spoke
        return result


def _silent() -> Output:
    """Return an output that makes no events."""
    out = Output(None)
    out.told = False
    return out


class StreamParser:
    """Parses one model reply as it streams: `feed` chunks, then `close`; `reply` is available at any time.

    `tools`: the offered ones; None means unknown, so names are not checked; an empty list means that none is offered.
    `dialect`: the only dialect to parse. With `harmony`, the reply begins inside a header, as that of a completions
    endpoint does.
    `expect`: the dialect that the request asked for (default: `dialect`), whose block is a call even if prose follows.
    `strictness`: `strict`, `balanced` or `lenient`.
    `in_reasoning`: the chat template printed the opening tag of the reasoning.
    `json_answer`: the request asked for JSON, so bare JSON is the answer.
    `rescue`: whether a call that ends the reasoning of an otherwise empty reply was meant (None: only in dialects whose
    models are known to do so).
    `accept`: the dialects that are read beside the expected one (None: all).
    `sources`: texts of the conversation, such as users' messages and tools' results: a call that is quoted from one of
    them is text, unless it is the whole reply.
    `new_id`: makes the ids of calls (default: a digest of the text up to the call).
    `restore`: as in `promptools.types.RestoreArguments`.

    O(n) in characters. Raises UsageError for invalid options and for text after `close`; never for the model's text.
    """

    _whole = False
    _explains = False

    def __init__(
        self,
        tools: Tools | list[ToolLike] | None = None,
        *,
        dialect: str | None = None,
        expect: str | None = None,
        strictness: Strictness = "balanced",
        in_reasoning: bool = False,
        json_answer: bool = False,
        rescue: bool | None = None,
        accept: Iterable[str] | None = None,
        sources: Iterable[str] = (),
        new_id: NewId | None = None,
        restore: RestoreArguments | None = None,
    ) -> None:
        if strictness not in ("strict", "balanced", "lenient"):
            raise UsageError(f"strictness is {strictness!r}; wanted is 'strict', 'balanced' or 'lenient'.")
        if new_id is not None and not callable(new_id):
            raise UsageError(f"new_id is {new_id!r}; wanted is a function without arguments that gives an id.")
        prepared = _prepared(tools)
        anchors = prepared.all_keys if prepared is not None else frozenset[str]()
        if expect is not None:
            registry.get(expect)
        else:
            expect = dialect
        self._rules = rules = Rules(
            prepared,
            strictness,
            expect,
            json_answer,
            anchors,
            rescue,
            self._whole,
            accept=_accepted(accept),
            sources=_sources(sources),
            restore=restore,
        )
        self._plan = plan_of(rules, dialect)
        self._out = Output(new_id)
        self._out.told = not self._whole
        self._out.explains = self._explains
        self._closed = False
        self._engine = Engine(rules, self._plan, self._out)
        self._messages: Channelled | None = None
        """The parser of the rest, once a message with a header was found."""
        self._early: list[Event] | None = None
        """Events held until the first header of a reply that must have one shows whether its text was reasoning."""
        if in_reasoning:
            self._engine.begin_inside()
        elif dialect is not None and registry.get(dialect).channels is not None:
            self._messages = self._channelled(registry.get(dialect), inside=True)
            self._early = []

    def feed(self, chunk: str) -> list[Event]:
        """Feed a chunk of the reply, and return the events that became certain."""
        if self._closed:
            raise UsageError("The parser was fed after close(); make a new StreamParser for the next reply.")
        if not isinstance(chunk, str):
            raise UsageError(f"The parser was fed {type(chunk).__name__}; decode the reply to str first.")
        if self._messages is not None:
            self._messages.feed(chunk)
        elif chunk:
            self._engine.take(chunk)
            self._change_over()
        return self._drained()

    def feed_pieces(self, pieces: Iterable[Piece]) -> list[Event]:
        """Feed Harmony whose control tokens are known as such; `dialect` must be `harmony`."""
        assert self._messages is not None, "only Harmony has control tokens"
        self._messages.feed_pieces(pieces)
        return self._drained()

    def close(self, finish_reason: str | None = None) -> list[Event]:
        """End the reply, and return the remaining events; a second close returns none."""
        if self._closed:
            return []
        self._closed = True
        if self._messages is None:
            self._engine.finish(finish_reason)
            self._change_over()
        if self._messages is not None:
            self._messages.close(finish_reason)
        self._out.end(finish_reason)
        self._engine.let_go()
        return self._drained()

    @property
    def reply(self) -> Reply:
        """The reply as parsed so far; complete after `close`."""
        return self._out.reply

    def _drained(self) -> list[Event]:
        """Return the events that are certain."""
        events = self._out.drain()
        if self._early is None:
            return events
        self._early += events
        waits = any(isinstance(event, Text) for event in self._early)
        if waits and not self._closed and self._messages is not None and not self._messages.decided:
            return []
        events, self._early = self._early, None if waits else []
        return _reclassified(events)

    def _change_over(self) -> None:
        """Change over to messages with headers, if one was found."""
        if self._engine.header is not None:
            dialect, rest = self._engine.header
            self._messages = self._channelled(dialect, inside=False)
            self._messages.feed(rest)

    def _channelled(self, dialect: Dialect, *, inside: bool) -> Channelled:
        # the plan of a pinned dialect has no other one, but a message's content may
        plan = prose_plan(plan_of(self._rules, None) if inside else self._plan)
        return Channelled(dialect, self._rules, self._out, partial(Engine, self._rules, plan, self._out), inside=inside)


def _reclassified(events: list[Event]) -> list[Event]:
    """Return held events with text that proved to be reasoning turned into it."""
    end = max((event.span.end for event in events if isinstance(event, WasReasoning)), default=0)
    return [
        Reasoning(event.text, event.span) if isinstance(event, Text) and event.span.end <= end else event
        for event in events
        if not isinstance(event, WasReasoning)
    ]


class _WholeParser(StreamParser):
    """A parser of whole replies, which makes no events."""

    _whole = True

    def read(self, text: str, finish_reason: str | None) -> Reply:
        """Parse a whole reply."""
        self.feed(text)
        self.close(finish_reason)
        return self.reply


class ExplainingParser(StreamParser):
    """A parser that records what looked like the head of a call and began none."""

    _explains = True

    @property
    def refusals(self) -> list[Try]:
        """The heads that began no call, in the order in which they were tried."""
        return self._out.refusals


def _accepted(names: Iterable[str] | None) -> frozenset[str] | None:
    """Return the dialects to accept, None for all. Raises UsageError for an unknown name."""
    if names is None:
        return None
    if isinstance(names, str) or not isinstance(names, Iterable):
        raise UsageError(f"accept is {clip(repr(names))}; wanted are the names of dialects, or None.")
    given = tuple(names)
    wrong = registry.unknown(given)
    if wrong:
        raise UsageError(f"accept: {wrong}.")
    return frozenset(given)


def _sources(texts: Iterable[str]) -> Sources | None:
    """Return what a reply may quote, None for nothing. Raises UsageError for anything but an iterable of texts."""
    if isinstance(texts, str) or not isinstance(texts, Iterable):
        raise UsageError(f"sources is {clip(repr(texts))}; wanted are the texts that the reply may quote.")
    return None if texts == () else Sources(texts)


def _prepared(tools: Tools | list[ToolLike] | None) -> Tools | None:
    if tools is None:
        return None
    return _tools().prepare(tools)


@cache  # even a repeated import costs as much as a dozen steps
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
    rescue: bool | None = None,
    accept: Iterable[str] | None = None,
    sources: Iterable[str] = (),
    new_id: NewId | None = None,
) -> Reply:
    """Parse a whole reply: `StreamParser`, which explains the options, fed once and closed. O(n) in characters.

    Raises UsageError for invalid options.

    >>> parse('{"tool": "add", "arguments": {"a": 1, "b": 2}}').calls[0].arguments
    {'a': 1, 'b': 2}
    """
    plain = expect in short.EXPECTED and dialect is None and strictness == "balanced" and new_id is None
    plain = plain and accept is None and sources == ()
    if plain and not (in_reasoning or json_answer) and isinstance(text, str):
        prepared = _prepared(tools)
        reply = short.read(text, prepared, usual_plan(expect), finish_reason) if prepared else None
        if reply is not None:
            return reply
    parser = _WholeParser(
        tools,
        dialect=dialect,
        expect=expect,
        strictness=strictness,
        in_reasoning=in_reasoning,
        json_answer=json_answer,
        rescue=rescue,
        accept=accept,
        sources=sources,
        new_id=new_id,
    )
    return parser.read(text, finish_reason)
