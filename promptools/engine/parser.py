"""The public parser: it turns a reply, whole or in chunks, into events, and explains how each part was read.

`Engine` runs a state machine over the model's text (`state.py` and `machine.py` explain it). Once a header of a format
with channels (Harmony, Muse) is found, `MessageRouter` takes over for the rest of the reply. `explain` returns how each
part of a reply was read, for `parse --explain` and the inspector.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Literal

from promptools.dialects import get as get_dialect
from promptools.dialects import unknown as unknown_dialect
from promptools.dialects.calls.parse_options import ParseOptions
from promptools.engine.machine import Engine
from promptools.engine.message_router import MessageRouter
from promptools.engine.plain_call import write_plain_call
from promptools.engine.scan_plan import content_plan, plan_for
from promptools.errors import UsageError, clip
from promptools.parsing.emitter import Emitter
from promptools.parsing.events import CallEnd, Event, Reasoning, Text, WasReasoning, join
from promptools.parsing.quotable_texts import QuotableTexts
from promptools.types import Discarded, Malformed, NewId, ParseAttempt, Reply, RestoreArguments, Span, Strictness

if TYPE_CHECKING:
    from promptools.dialects.contract import Dialect
    from promptools.harmony.tokens import Piece
    from promptools.schema import Tools
    from promptools.schema.tool_definition import ToolLike


class StreamParser:
    """Parses one model reply as it streams: `feed` chunks, then `close`; `reply` is available at any time.

    `tools`: the offered tools; None if they are unknown, so that names are not checked; an empty list if no tool is
    offered. `dialect`: the only dialect to parse. If it is `harmony`, the reply must begin inside a header, as replies
    of completions endpoints do. `expect`: the dialect that the request asked for (default: `dialect`); a block in this
    dialect is a call even if prose follows. `strictness`: `strict`, `balanced` or `lenient`. `in_reasoning`: whether
    the chat template printed the opening tag of the reasoning. `json_answer`: whether the request asked for JSON, so
    that bare JSON is the answer. `rescue`: whether a call that ends the reasoning of an otherwise empty reply counts
    (None: only in dialects whose models are known to call there). `accept`: the dialects that are read besides the
    expected one (None: all). `sources`: texts of the conversation, such as users' messages and tools' results; a call
    that is quoted from one of these is text, unless the call is the whole reply. `new_id`: a function that makes the
    ids of calls (default: a digest of the text up to the call). `restore`: see `promptools.types.RestoreArguments`.
    `undeclared`: whether calls to tools that are not offered count too if they are between the markers of calls.

    O(n) in characters. Raises UsageError for invalid options and for text after `close`; never for the model's text.
    """

    _is_whole = False
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
        undeclared: bool = False,
    ) -> None:
        _check_options(strictness, new_id)
        prepared = _prepare_tools(tools)
        if expect is not None:
            get_dialect(expect)
        self._options = ParseOptions(
            prepared,
            strictness,
            dialect if expect is None else expect,
            json_answer,
            prepared.all_keys if prepared is not None else frozenset(),
            rescue,
            self._is_whole,
            accept=_checked_accept(accept),
            sources=_checked_sources(sources),
            restore=restore,
            undeclared=undeclared,
        )
        self._pinned = dialect
        self._begins_in_reasoning = in_reasoning
        self._plan = plan_for(self._options, dialect)
        self._out = Emitter(new_id, self._plan.markers.tokens_before_text)
        self._out.record.emits_events = not self._is_whole
        self._out.records_refusals = self._explains
        if not self._is_whole:
            self._begin()

    def _begin(self) -> None:
        """Start to read the reply, either with the engine or with the message router."""
        self._closed = False
        self._engine = Engine(self._options, self._plan, self._out)
        self._router: MessageRouter | None = None
        """The router that reads the rest of the reply; None until a message with a header is found."""
        self._held_events: list[Event] | None = None
        """Events held until the first header shows whether the text before it was reasoning; None if none are held."""
        if self._begins_in_reasoning:
            self._engine.begin_in_reasoning()
        elif self._pinned is not None and get_dialect(self._pinned).channels is not None:
            self._router = self._new_router(get_dialect(self._pinned), in_header=True)
            self._held_events = []

    def feed(self, chunk: str) -> list[Event]:
        """Feed a chunk of the reply, and return the events that can no longer change."""
        if self._closed:
            raise UsageError("The parser was fed after close(); make a new StreamParser for the next reply.")
        if not isinstance(chunk, str):
            raise UsageError(f"The parser was fed {type(chunk).__name__}; decode the reply to str first.")
        if self._router is not None:
            self._router.feed(chunk)
        elif chunk:
            self._engine.feed(chunk)
            self._switch_to_messages()
        return self._drain()

    def feed_pieces(self, pieces: Iterable[Piece]) -> list[Event]:
        """Feed pieces of Harmony whose control tokens are already identified; `dialect` must be `harmony`."""
        assert self._router is not None, "only Harmony has control tokens"
        self._router.feed_pieces(pieces)
        return self._drain()

    @property
    def in_reasoning(self) -> bool:
        """Whether the text so far ends inside reasoning that was not closed."""
        return self._router is None and self._engine.in_reasoning

    def close(self, finish_reason: str | None = None) -> list[Event]:
        """Signal the end of the reply, and return the remaining events; a second call returns an empty list."""
        if self._closed:
            return []
        self._closed = True
        if self._router is None:
            self._engine.finish(finish_reason)
            self._switch_to_messages()
        if self._router is not None:
            self._router.close(finish_reason)
        self._out.end(finish_reason)
        return self._drain()

    @property
    def reply(self) -> Reply:
        """The reply as parsed so far; complete after `close`."""
        return self._out.record.reply

    def _drain(self) -> list[Event]:
        """Return the events that can no longer change and were not returned before."""
        events = self._out.record.drain()
        if self._held_events is None:
            return events
        self._held_events += events
        waits = any(isinstance(event, Text) for event in self._held_events)
        if waits and not self._closed and self._router is not None and not self._router.decided:
            return []
        events, self._held_events = self._held_events, None if waits else []
        return _with_reasoning(events)

    def _switch_to_messages(self) -> None:
        """If a message header was found, pass the rest of the reply to a message router."""
        if self._engine.found_header is not None:
            dialect, rest = self._engine.found_header
            self._router = self._new_router(dialect, in_header=False)
            self._router.feed(rest)

    def _new_router(self, dialect: Dialect, *, in_header: bool) -> MessageRouter:
        # the plan of a pinned dialect finds no other dialect, but a message's content may contain others
        plan = content_plan(plan_for(self._options, None) if in_header else self._plan)

        def new_engine(at: int, alone: bool) -> Engine:
            return Engine(self._options, plan, self._out, at, alone=alone)

        return MessageRouter(dialect, self._options, self._out, new_engine, in_header=in_header)


def _with_reasoning(events: list[Event]) -> list[Event]:
    """Apply the `WasReasoning` events: drop these events, and turn each `Text` inside their spans into `Reasoning`."""
    end = max((event.span.end for event in events if isinstance(event, WasReasoning)), default=0)
    return [
        Reasoning(event.text, event.span) if isinstance(event, Text) and event.span.end <= end else event
        for event in events
        if not isinstance(event, WasReasoning)
    ]


class _WholeReplyParser(StreamParser):
    """A parser of whole replies, which produces no events."""

    _is_whole = True

    def read(self, text: str, finish_reason: str | None) -> Reply:
        """Parse a whole reply."""
        is_text = isinstance(text, str)  # if not, `feed` raises the error
        if is_text and not self._begins_in_reasoning and write_plain_call(self._options, self._plan, self._out, text):
            self._out.end(finish_reason)
        else:
            self._begin()
            self.feed(text)
            self.close(finish_reason)
        return self.reply


class ExplainingParser(StreamParser):
    """A parser that also records every text that looked like the beginning of a call but was not one."""

    _explains = True

    @property
    def refusals(self) -> list[ParseAttempt]:
        """The texts that looked like the beginning of a call but were not, in the order in which they were tried."""
        return self._out.record.refusals


def _check_options(strictness: str, new_id: object) -> None:
    """Raise UsageError for an invalid option."""
    if strictness not in ("strict", "balanced", "lenient"):
        raise UsageError(f"strictness is {strictness!r}; expected 'strict', 'balanced' or 'lenient'.")
    if new_id is not None and not callable(new_id):
        raise UsageError(f"new_id is {new_id!r}; expected a function without arguments that returns an id.")


def _checked_accept(names: Iterable[str] | None) -> frozenset[str] | None:
    """Return the accepted dialects; None means all. Raises UsageError for an unknown name or a wrong type."""
    if names is None:
        return None
    if isinstance(names, str) or not isinstance(names, Iterable):
        raise UsageError(f"accept is {clip(repr(names))}; expected the names of dialects, or None.")
    given = tuple(names)
    wrong = unknown_dialect(given)
    if wrong:
        raise UsageError(f"accept: {wrong}.")
    return frozenset(given)


def _checked_sources(texts: Iterable[str]) -> QuotableTexts | None:
    """Return the texts that a reply may quote; None for `()`. Raises UsageError for a string or a non-iterable."""
    if isinstance(texts, str) or not isinstance(texts, Iterable):
        raise UsageError(f"sources is {clip(repr(texts))}; expected the texts that the reply may quote.")
    return None if texts == () else QuotableTexts(texts)


def _prepare_tools(tools: Tools | list[ToolLike] | None) -> Tools | None:
    if tools is None:
        return None
    return _tools_class().prepare(tools)


@cache  # a repeated import would cost as much as a dozen steps of the parser
def _tools_class() -> type[Tools]:
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
    """Parse a whole reply. `StreamParser` explains the options. O(n) in characters.

    Raises UsageError for invalid options.

    >>> parse('{"tool": "add", "arguments": {"a": 1, "b": 2}}').calls[0].arguments
    {'a': 1, 'b': 2}
    """
    parser = _WholeReplyParser(
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


# What a parser made of each character of a reply, and all that the parser tried: for `parse --explain` and the
# inspector.


PartKind = Literal["content", "reasoning", "call", "malformed", "discarded"]
_KINDS: dict[type, PartKind] = {
    Text: "content",
    Reasoning: "reasoning",
    CallEnd: "call",
    Malformed: "malformed",
    Discarded: "discarded",
}


@dataclass(frozen=True, slots=True)
class Explanation:
    """A whole reply, and how the parser read each part."""

    text: str
    reply: Reply
    parts: tuple[tuple[Span, PartKind], ...]
    """The span and the kind of each part of the text, in order. Together the spans cover the text."""
    tries: tuple[ParseAttempt, ...]
    """All attempts to read a call, in the order of the text, including those that found no call."""


def explain(parser: ExplainingParser, text: str, finish_reason: str | None = None) -> Explanation:
    """Parse a whole reply with `parser`, which must be new; return how each part was read."""
    events = [*parser.feed(text), *parser.close(finish_reason)]
    tries = sorted((*parser.reply.trace.tries, *parser.refusals), key=lambda attempt: attempt.span)
    return Explanation(text, parser.reply, tuple(spans(events)), tuple(tries))


def spans(events: Iterable[Event]) -> list[tuple[Span, PartKind]]:
    """Return the span and the kind of every part of the text, in order. Together the spans cover the text."""
    parts: list[tuple[Span, PartKind]] = []
    for event in join(events):
        if isinstance(event, WasReasoning):
            taken = event.span
            parts = [(s, "reasoning" if k == "content" and s.end <= taken.end else k) for s, k in parts]
        elif isinstance(event, Text | Reasoning | CallEnd | Malformed | Discarded):
            parts.append((event.span, _KINDS[type(event)]))
    return sorted(parts)


def describe_place(text: str, span: Span) -> str:
    """Return in words where an attempt to read a call began, such as "a fence" or "amid a line"."""
    tried = text[span.start : span.end]
    if tried.lstrip().startswith(("```", "~~~")):
        return "a fence"
    if tried.strip() == text.strip():
        return "the whole reply"
    before = text[: span.start].rpartition("\n")[2]
    return "amid a line" if before.strip() else "a line's beginning"
