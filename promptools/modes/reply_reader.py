"""Read one choice of a reply in any mode: text, reasoning and structured calls become one stream of events.

A reply has three channels, each read in its own way:

- `content` goes through `StreamParser`, which finds the calls in text. If the reply has token ids (Harmony), the parser
  reads tokens that were decoded one by one, so text that merely looks like a control token is not mistaken for one.
- `tool_calls` are read by `StructuredCalls`, which streams their arguments and checks them like calls in text.
- `reasoning` is passed on by `Thoughts`. The end of the reasoning is searched for calls only if the reply contains
  nothing else.

All events pass through the call filter. It decides what the request allows, and numbers the calls across all channels.
The events that it emits are recorded in `reply`. If there are tools and `response_format`, the finished content is
checked once more for calls that the parser ignored because a JSON answer was expected.

This module handles two server defects: raw Harmony that vLLM's parser returns as content, and endless white space
after a complete call.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

from promptools.dialects.calls.parse_options import ParseOptions
from promptools.engine import StreamParser
from promptools.engine.message_router import COMPLETE_REASONS
from promptools.harmony.parser import Detokenizer
from promptools.harmony.tokens import Piece, raw_text
from promptools.modes.bare_arguments import read_bare_arguments, takes_bare_arguments
from promptools.modes.call_filter import CallFilter, CallSource
from promptools.modes.history import quotable_texts
from promptools.modes.response_format import calls_in_answer
from promptools.modes.structured_calls import NATIVE, StructuredCalls
from promptools.modes.tool_names import rename_tools
from promptools.modes.verdict import HARMONY_CALL
from promptools.parsing.events import CallArgs, CallEnd, CallStart, End, Event, Reasoning, Text, WasReasoning
from promptools.parsing.parts import SPACE
from promptools.patterns import lazy_pattern
from promptools.schema import Tools
from promptools.types import Discarded, Fix, Malformed, Reply, Span, Trace

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from promptools.modes.prepared_request import PreparedRequest
    from promptools.modes.tool_request import ToolRequest
    from promptools.types import NewId, RestoreArguments
    from promptools.wire.chat_decoder import Delta


# The raw text of one choice, and which spans of it are content and calls rather than reasoning.


class RawText:
    """Stores the whole text of a choice, and the spans of everything in it except reasoning and reasoning tags.

    If `markup` is false, only the spans of text and calls are kept. O(n) in characters and events.
    """

    def __init__(self, *, markup: bool = True) -> None:
        self._with_markup = markup
        self.size = 0
        """Number of characters added so far."""
        self._pieces: list[str] = []
        self._spans: list[Span] = []
        self.in_reasoning = False
        """Whether the text ends inside reasoning, or between reasoning and its closing tag."""
        self._last_is_markup = False
        """Whether the last kept span holds text that the parser discarded, such as markup."""
        self._reasoning_end = -1
        """The offset at which the last reasoning ended; -1 if there was none."""
        self._spans_before_tag = 0
        """Number of spans kept before the last tag.

        The tag, and white space after it, are dropped if the tag turns out to open reasoning.
        """

    def add(self, text: str) -> None:
        """Add text."""
        self._pieces.append(text)
        self.size += len(text)

    def record(self, event: Event) -> None:
        """Record an event of the parser that reads the text."""
        match event:
            case WasReasoning():
                self._spans, self.in_reasoning = [], True
            case Reasoning():
                if self._last_is_markup and not self.in_reasoning:
                    del self._spans[self._spans_before_tag :]  # the tag that opened the reasoning
                self.in_reasoning, self._last_is_markup, self._reasoning_end = True, False, event.span.end
            case Malformed(raw=raw) if not self._with_markup and raw.startswith("<|"):
                self.in_reasoning = False  # a call that was cut off in or just after its header: none of it is content
            case Text() | CallEnd() | Malformed():
                self.in_reasoning = False
                self._add_span(event.span, markup=False)
            case Discarded() if event.span.start == self._reasoning_end:
                self.in_reasoning = self.in_reasoning and event.why != "markup"  # markup: the tag that closed it
            case Discarded() if not self.in_reasoning:
                if self._with_markup:
                    if event.why != "space" or not self._last_is_markup:
                        self._spans_before_tag = len(self._spans)
                    self._add_span(event.span, markup=True)
            case Discarded(why="markup"):
                self.in_reasoning = False  # the tag that closed it
            case _:
                pass

    def _add_span(self, span: Span, *, markup: bool) -> None:
        last = self._spans[-1] if self._spans else None
        if last is not None and last.end == span.start and not (markup or self._last_is_markup):
            self._spans[-1] = Span(last.start, span.end)
        else:
            self._spans.append(span)
        self._last_is_markup = markup

    def slice(self, span: Span) -> str:
        """Return the text of `span`."""
        return self.full_text()[span.start : span.end]

    def without_reasoning(self) -> str:
        """Return everything except reasoning, byte for byte."""
        text = self.full_text()
        return "".join(text[span.start : span.end] for span in sorted(self._spans))

    def full_text(self) -> str:
        """Return all the text."""
        if len(self._pieces) > 1:
            self._pieces = ["".join(self._pieces)]
        return self._pieces[0] if self._pieces else ""


# Cut off the turns that a model invents after its own if nothing stops it.


class TurnEnd:
    """Passes on the text of a reply up to the first of the end markers `ends`. O(n) in characters."""

    def __init__(self, ends: Sequence[str]) -> None:
        self._ends = ends
        self._pattern = re.compile("|".join(map(re.escape, ends)) or "(?!)")
        self._longest = max(map(len, ends), default=0)
        self._held = ""
        self._cut: list[str] = []

    @property
    def discarded(self) -> str:
        """The end marker and everything after it."""
        return "".join(self._cut)

    def feed(self, text: str) -> str:
        """Add text; return the part that certainly belongs to the reply."""
        if not self._ends:
            return text
        if self._cut:
            self._cut.append(text)
            return ""
        text = self._held + text
        match, held = self._pattern.search(text), self._hold_from(text)
        if match is not None and match.start() <= held:  # else another end marker may have begun before this one
            return self._cut_at(match.start(), text)
        self._held = text[held:]
        return text[:held]

    def close(self) -> str:
        """Return the text that was held back."""
        match = self._pattern.search(self._held)
        return self._cut_at(match.start() if match is not None else len(self._held), self._held)

    def _cut_at(self, start: int, text: str) -> str:
        self._held = ""
        if start < len(text):
            self._cut.append(text[start:])
        return text[:start]

    def _hold_from(self, text: str) -> int:
        """Return the index at which an incomplete end marker may begin in `text`; `len(text)` if there is none."""
        first = max(0, len(text) - self._longest + 1)
        starts = (at for at in range(first, len(text)) if any(end.startswith(text[at:]) for end in self._ends))
        return next(starts, len(text))


# The reasoning of a reply: passed on as it comes, except for calls that it may end with.
#
# Servers leave a call in the reasoning if the model made the call without closing its thought (vllm#39056,
# ai-dynamo/dynamo#10366). Such a call counts if nothing else comes: no content, no other call. Until that is known,
# the calls at the end of the reasoning so far are held, so that their markup is not shown if they count. Any text
# after them shows that they were drafts.


class LastCalls(NamedTuple):
    """Holds the calls at the end of a text, and the offset at which the text before these calls ends."""

    calls: tuple[CallEnd, ...] = ()
    text_end: int = 0

    def after(self, events: Iterable[Event]) -> LastCalls:
        """Return the calls that are at the end of the text after `events` have been added to it."""
        calls, text_end = self
        for event in events:
            if isinstance(event, CallEnd):
                calls = (*calls, event)
            elif isinstance(event, Malformed) or (isinstance(event, (Text, Reasoning)) and event.text.strip(SPACE)):
                calls, text_end = (), max(text_end, event.span.end)
            elif isinstance(event, Discarded) and not calls and event.raw.startswith("</"):
                text_end = event.span.end  # a closing tag of something that could not be read
        return LastCalls(calls, text_end)


class Thoughts:
    """Collects the reasoning of one choice. `parser` finds calls in it; if None, the reasoning is not searched.

    O(n) in characters: held pieces are joined only when some of them are passed on.
    """

    def __init__(self, parser: StreamParser | None) -> None:
        self._parser = parser
        self._last = LastCalls()
        self._pieces: list[str] = []
        self._held: list[str] = []
        self._shown = 0
        """Number of characters of reasoning that were passed on."""

    @property
    def text(self) -> str:
        """The complete reasoning."""
        return "".join(self._pieces)

    def feed(self, text: str) -> str:
        """Add text; return the reasoning that can be passed on now: everything before any calls at its end."""
        if not text:
            return ""
        self._pieces.append(text)
        self._held.append(text)
        if self._parser is None:
            return self.release()
        self._last = self._last.after(self._parser.feed(text))
        return self.release(self._last.text_end)

    def add_shown(self, text: str) -> None:
        """Add text that was already sent and turned out to be reasoning."""
        self.feed(text)
        self.release()

    def stop(self) -> str:
        """Stop searching for calls, because the reply has more than reasoning; return the held reasoning."""
        self._parser = None
        return self.release()

    def release(self, end: int | None = None) -> str:
        """Return the held reasoning up to the offset `end`, plus white space after `end`; all if `end` is None."""
        if end is not None and end <= self._shown and self._held and self._held[0][0] not in SPACE:
            return ""
        held, self._held = "".join(self._held), []
        if end is not None:
            rest = held[max(0, end - self._shown) :].lstrip(SPACE)
            held = held[: len(held) - len(rest)]
            self._held = [rest] if rest else []
        self._shown += len(held)
        return held


HARMONY = "harmony"
"""The name of the dialect of gpt-oss's raw replies, which are never parsed with any other dialect."""
_CALL_REASONS = frozenset(("tool_calls", "function_call"))
_HARMONY_LEAK = lazy_pattern(r"<\|(?:return|call)\|>\s*\Z")
"""Matches the raw text that vLLM's Harmony parser returns, in one piece, for a reply that ends inside a header.

Seen in vLLM 0.28 to 0.32.
"""
MAX_TRAILING_SPACE = 100
"""Number of white space characters after a complete call that make the reply count as ended.

After that much white space, no model writes anything else. If a server keeps the model from stopping, the model fills
the context with white space (llama.cpp, `tool_choice: required`).
"""
_START, _MESSAGE, _CALL = "<|start|>", "<|message|>", "<|call|>"


class ReplyReader:
    """Reads one choice of a reply, in any mode, and returns it as events.

    The events contain no call if `tool_choice` is `none`, and at most one if `parallel_tool_calls` is false. They never
    contain `End`, since the request may still be retried. `prepared.dialect` is the dialect that the prompt asked for.
    """

    def __init__(self, request: ToolRequest, prepared: PreparedRequest, new_id: NewId) -> None:
        self._request = request
        self._new_id = new_id
        self._harmony = prepared.dialect == HARMONY
        self._dialect = None if self._harmony else prepared.dialect
        self._prepared = prepared
        self._turn = TurnEnd(_possible_ends(prepared.turn_ends))
        decode = prepared.prompt.decode if prepared.prompt is not None else None
        self._detokenizer = Detokenizer(decode) if decode is not None else None
        self._tools = _sent_tools(request.tools, prepared) if request.choice.kind != "none" else Tools([])
        self._filter = CallFilter(request, prepared)
        self._parser: StreamParser | None = None
        self._options = _parse_options(request, self._tools, prepared.restore)
        self._structured = StructuredCalls(request, self._options, new_id, self._filter.notes)
        self._raw_text = RawText(markup=not self._harmony)  # headers are not text, and would corrupt the history
        self._content: list[str] = []
        self._reasoning: list[str] = []
        self._thoughts: Thoughts | None = None
        """Collects the reasoning, and finds calls at its end; None until there is any reasoning."""
        self._held_thought: Span | None = None
        """The span of the first held piece of reasoning that came in the content; None if no such piece is held."""
        self._reasoning_size = self._shown_reasoning = 0
        self._discarded: list[Discarded] = []
        """Text that was removed from the end of the reply, before the parser read it."""
        self._stop_reason: str | int | None = None
        self._finish_reason: str | None = None
        self._text_end = 0
        """The offset in the text at which the last piece of content ended."""
        self._leak = ""
        self._parser_arguments: dict[str, Any] = {}
        """The arguments with which the content parser was created."""
        self._trailing_space = 0
        """Number of white space characters at the end of the reply so far."""
        self._checked_size = 0
        """The length of the text when the reply was last checked for a call at its end."""
        self.may_stop = False
        """Whether so much white space follows a complete call that reading the stream may stop."""

    @property
    def text(self) -> str:
        """The text of the reply with all markup: the prefill, and what the model wrote after it."""
        return self._raw_text.full_text()

    @property
    def raw(self) -> str:
        """The text without reasoning, then the arguments of the server's calls that were malformed or left out."""
        failed = (malformed.raw for malformed in self._filter.malformed if malformed.dialect == NATIVE)
        return self._raw_text.without_reasoning() + "".join((*failed, *self._filter.left_out))

    @property
    def reply(self) -> Reply:
        """The reply so far; complete after `close`."""
        parsed = self._parser.reply if self._parser is not None else Reply()
        return Reply(
            calls=tuple(self._filter.calls),
            content="".join(self._content),
            reasoning="".join(self._reasoning),
            malformed=tuple(self._filter.malformed),
            discarded=(*parsed.discarded, *self._filter.discarded, *self._discarded),
            finish_reason=self._finish_reason,
            fixes=parsed.fixes,
            trace=Trace(tries=parsed.trace.tries, notes=tuple(self._filter.notes)),
        )

    def feed(self, delta: Delta) -> list[Event]:
        """Add a delta of this choice; return the events that later deltas can no longer change."""
        if delta.stop_reason is not None:
            self._stop_reason = delta.stop_reason
        events: list[Event] = []
        if delta.reasoning:
            events += self._add_reasoning(delta.reasoning)
        text = delta.content + delta.refusal
        if self._thoughts is not None and (delta.tool_calls or text.strip()):
            events += self._show_thoughts(self._thoughts.stop())
        if self._detokenizer is not None and delta.ids is not None:
            events += self._read_pieces(list(self._detokenizer.feed(delta.ids)))
        elif self._leak or (self._may_leak and _HARMONY_LEAK.search(text)):
            self._leak += text
        elif text := self._turn.feed(text):
            events += self._read_text(text)
        if delta.tool_calls:
            in_thought = self._parser is not None and self._parser.in_reasoning
            events += self._structured.feed(delta.tool_calls, self._emit_structured, in_thought=in_thought)
        self._count_trailing_space(delta, text)
        return events

    def _count_trailing_space(self, delta: Delta, text: str) -> None:
        """Count the white space at the end of the reply, and set `may_stop` if there is too much.

        The text is parsed again only after it has doubled in length, so the check costs O(1) per character.
        """
        length = len(text.rstrip())
        if length or delta.reasoning or delta.tool_calls:
            self._trailing_space = 0
        self._trailing_space += len(text) - length
        if self._detokenizer is not None or self.may_stop or self._trailing_space < MAX_TRAILING_SPACE:
            return
        if self._raw_text.size >= 2 * self._checked_size:
            self._checked_size = self._raw_text.size
            self.may_stop = self._ends_in_call()

    def _ends_in_call(self) -> bool:
        """Return whether the reply would contain a call, and nothing incomplete, if it ended here."""
        structured = self._structured.pending
        if self._parser is None or not all(call.complete for call in structured):
            return False
        json_answer = self._request.json_answer and not self._request.checks_response_format
        parser = self._new_parser(**self._parser_arguments, json_answer=json_answer, new_id=str)
        parser.feed(self._raw_text.full_text())
        parser.close("stop")
        return not parser.reply.malformed and bool(structured or parser.reply.calls)

    def close(self, finish_reason: str | None) -> list[Event]:
        """End the reply and return the last events; a `finish_reason` of None means that the stream was cut off."""
        events: list[Event] = []
        if rest := self._turn.close():
            events += self._read_text(rest)
        if self._turn.discarded:
            size = self._raw_text.size
            turn = Discarded(self._turn.discarded, "turn", Span(size, size + len(self._turn.discarded)))
            self._discarded.append(turn)
            finish_reason = "stop"
        self._finish_reason = finish_reason
        if self._detokenizer is not None:
            events += self._read_pieces(list(self._detokenizer.close()))
        if self._parser is not None:
            events += self._filter_events(self._parser.close(finish_reason), "text", self._raw_text.slice)
        events += self._structured.close(self._emit_structured, complete=finish_reason in COMPLETE_REASONS)
        if self._structured.has_thoughts and finish_reason in _CALL_REASONS and "".join(self._content).strip():
            self._finish_reason = "stop"  # the server's reason refers to the call that was left out of the thought
        if self._leak:
            events += self._read_leak()
        if finish_reason in COMPLETE_REASONS and takes_bare_arguments(self._request):
            self._read_bare_arguments()
        if self._request.checks_response_format and not self._harmony:  # in Harmony, an answer cannot contain calls
            self._read_answer()
        return events + self._recover_from_reasoning()

    @property
    def _may_leak(self) -> bool:
        """Whether content may be raw Harmony that the server's parser failed to parse."""
        accepted = self._request.accepted_dialects is None or HARMONY in self._request.accepted_dialects
        return self._parser is None and not self._harmony and accepted

    # --- where events come from ----------------------------------------------------------------------------------

    def _add_reasoning(self, text: str) -> list[Event]:
        self._reasoning_size += len(text)
        return self._show_thoughts(self._open_thoughts().feed(text))

    def _open_thoughts(self) -> Thoughts:
        """Return the `Thoughts` object, which is created on first use.

        The object searches the reasoning for calls only if no content and no call came before the reasoning.
        """
        if self._thoughts is None:
            alone = not (self._structured.pending or self._content or self._filter.calls) and len(self._tools)
            self._thoughts = Thoughts(self._new_parser(lenient=True, new_id=str) if alone else None)
        return self._thoughts

    def _pass_thought(self, event: Reasoning) -> list[Event]:
        """Pass on reasoning that came in the content, but hold back a call at the end of the reasoning."""
        self._held_thought = self._held_thought or event.span
        shown = self._open_thoughts().feed(event.text)
        return self._take_thought(shown, event.span.end)

    def _end_thoughts(self, event: Event) -> list[Event]:
        """Pass on the held reasoning that came in the content, now that `event` follows it.

        If the event is text with only white space, pass on nothing.
        """
        if self._thoughts is None or (isinstance(event, Text) and not event.text.strip()):
            return []
        held = self._held_thought
        return self._take_thought(self._thoughts.stop(), held.end if held is not None else 0)

    def _take_thought(self, shown: str, end: int) -> list[Event]:
        held, self._held_thought = self._held_thought, None
        if not shown:
            self._held_thought = held
            return []
        return [Reasoning(shown, Span(held.start if held is not None else end, end))]

    def _show_thoughts(self, text: str) -> list[Event]:
        if not text:
            return []
        start, self._shown_reasoning = self._shown_reasoning, self._shown_reasoning + len(text)
        self._reasoning.append(text)
        return [Reasoning(text, Span(start, self._shown_reasoning))]

    def _read_text(self, text: str) -> list[Event]:
        if self._parser is None:
            # if the reasoning came in a separate field, the opening tag in the template does not apply to the content
            known = self._prepared.in_reasoning
            known = self._request.profile.in_reasoning if known is None else known
            in_reasoning = known and not self._reasoning_size
            self._parser_arguments = {"in_reasoning": in_reasoning, "pinned": HARMONY if self._harmony else None}
            self._parser = self._new_parser(**self._parser_arguments)
            text = self._prepared.prefill + text
        self._raw_text.add(text)
        return self._filter_events(self._parser.feed(text), "text", self._raw_text.slice)

    def _read_pieces(self, pieces: list[Piece]) -> list[Event]:
        """Read text that was decoded token by token; return the events.

        This way, text that merely looks like a control token is not mistaken for one.
        """
        if not pieces:
            return []
        events = self._read_text("") if self._parser is None else []
        assert self._parser is not None
        self._raw_text.add("".join(map(raw_text, pieces)))
        return events + self._filter_events(self._parser.feed_pieces(pieces), "text", self._raw_text.slice)

    def _read_leak(self) -> list[Event]:
        """Read raw Harmony text that the server's parser returned as content; its header is missing or unfinished."""
        self._raw_text.add(self._leak)
        self._parser = parser = self._new_parser(pinned=HARMONY)
        events: list[Event] = [*parser.feed(self._leak), *parser.close(self._finish_reason)]
        reply = parser.reply
        header = self._leak[max(0, self._leak.rfind(_START)) :]
        unended = header.rstrip().endswith(_CALL) and _MESSAGE not in header
        read = self._filter.calls  # if the server itself read a call, its parser did not fail: this is the model's text
        if unended and not (read or reply.calls or reply.malformed):
            message = "The reply ended inside the header of a Harmony message."
            span = Span(0, len(self._leak))
            events = [Malformed(0, self._leak, "truncated", message, span, dialect=HARMONY)]
        elif not (reply.content.strip() or reply.calls or reply.malformed):
            self._raw_text = RawText(
                markup=False
            )  # a header that nothing follows is not an answer, whatever else fails
        return self._filter_events(events, "text", self._raw_text.slice)

    def _new_parser(
        self,
        *,
        in_reasoning: bool = False,
        lenient: bool = False,
        pinned: str | None = None,
        json_answer: bool | None = None,
        new_id: NewId | None = None,
    ) -> StreamParser:
        return StreamParser(
            self._tools,
            dialect=pinned,
            expect=self._dialect,
            strictness="lenient" if lenient else self._request.options.strictness,
            in_reasoning=in_reasoning,
            json_answer=self._request.json_answer if json_answer is None else json_answer,
            rescue=self._request.options.rescue,
            accept=self._request.accepted_dialects,
            sources=quotable_texts(self._request.messages),
            new_id=new_id or self._new_id,
            restore=self._prepared.restore,
            undeclared=self._request.options.takes_undeclared and self._request.choice.kind != "none",
        )

    def _read_answer(self) -> None:
        """Extract the calls from an answer that does not match `response_format`.

        No events are emitted for the calls, since their text was already emitted as content. The client has not
        received that text, because its stream holds the text back until the verdict on the reply is known.
        """
        text = "".join(self._content)
        if self._filter.calls or self._filter.malformed or not (text.strip() and len(self._request.offered)):
            return
        calls, rest = calls_in_answer(self._request, text, self._new_parser(json_answer=False), self._finish_reason)
        if calls:
            self._content = [rest]
            self._filter_events(calls, "answer", lambda span: text[span.start : span.end])

    def _read_bare_arguments(self) -> None:
        """Treat an answer that consists only of arguments as the forced call.

        No event is emitted for the call, since its text was already emitted as content. The client has not received
        that text, because its stream holds all text back until there is a call.
        """
        text = "".join(self._content)
        if self._filter.calls or self._filter.malformed or not text.strip():
            return
        callable_tools = _sent_tools(self._request.offered, self._prepared)
        options = self._options._replace(tools=callable_tools, json_answer=False, anchors=callable_tools.all_keys)
        call = read_bare_arguments(text, options)
        if call is not None:
            self._content = []
            event = CallEnd(0, replace(call, id=self._new_id()), Span(0, len(text)))
            self._filter_events([event], "answer", lambda span: text[span.start : span.end])

    def _recover_from_reasoning(self) -> list[Event]:
        """If the reply has only reasoning, return the calls at its end, because some servers do not parse calls there.

        Examples are vllm#39056 and ai-dynamo/dynamo#10366. Only calls at the end of the reasoning are returned;
        earlier ones are drafts. Calls to dangerous tools are never returned.
        """
        if self._thoughts is None:
            return []
        calls, text_end = self._calls_in_thoughts(self._thoughts.text)
        events = self._show_thoughts(self._thoughts.release(text_end if calls else None))
        for call_end in calls:
            fix = Fix("marker", "the call was in the reasoning")
            call = replace(call_end.call, fixes=(*call_end.call.fixes, fix))
            events += self._filter_events([replace(call_end, call=call)], "thoughts", self._slice_of_thoughts)
        return events

    def _calls_in_thoughts(self, reasoning: str) -> LastCalls:
        """Return the calls at the end of the reasoning, if the reply has nothing else."""
        empty = not (self._filter.calls or self._filter.malformed or "".join(self._content).strip())
        if not (empty and reasoning.strip() and len(self._tools) and self._finish_reason in COMPLETE_REASONS):
            return LastCalls()
        # the server itself reports that the model made a call
        certain = self._finish_reason in _CALL_REASONS or self._stop_reason == HARMONY_CALL
        parser = self._new_parser(lenient=certain)
        last = LastCalls().after([*parser.feed(reasoning), *parser.close(self._finish_reason)])
        tools = [self._tools.get(call_end.call.name) for call_end in last.calls]
        meant = zip(last.calls, tools, strict=True)
        return last._replace(calls=tuple(each for each, tool in meant if tool is not None and not tool.dangerous))

    def _slice_of_thoughts(self, span: Span) -> str:
        return "" if self._thoughts is None else self._thoughts.text[span.start : span.end]

    # --- where events go -----------------------------------------------------------------------------------------

    def _filter_events(self, events: list[Event], source: CallSource, raw_of: Callable[[Span], str]) -> list[Event]:
        """Pass events through the call filter and record what it emits."""
        out: list[Event] = []
        for event in events:
            if source == "text":
                self._raw_text.record(event)
                if isinstance(event, (Text, CallStart, CallEnd, Malformed)):
                    out += self._end_thoughts(event)
            match event:
                case CallStart():
                    out += self._filter.on_start(event, source)
                case CallArgs():
                    out += self._filter.on_arguments(event, source)
                case CallEnd():
                    passed = self._filter.on_end(event, source, raw_of)
                    out += map(self._with_space_before, passed) if source == "text" else passed
                case Malformed():
                    out += self._filter.on_malformed(event, source)
                case End():
                    pass
                case Reasoning():
                    out += self._pass_thought(event)
                case _:
                    if source == "text" and isinstance(event, Text):
                        self._text_end = event.span.end
                    out.append(event)
        for event in out:
            self._record(event)
        return out

    def _with_space_before(self, event: Event) -> Event:
        """Return the event. If it is text that was first read as a call, restore the white space before it."""
        if not isinstance(event, Text) or not self._text_end:
            return event
        between = self._raw_text.slice(Span(self._text_end, event.span.start))
        self._text_end = event.span.end
        space = between[: len(between) - len(between.lstrip(SPACE))]
        return replace(event, text=space + event.text)

    def _emit_structured(self, events: list[Event], raw: str) -> list[Event]:
        return self._filter_events(events, "server", lambda _: raw)

    def _record(self, event: Event) -> None:
        match event:
            case Text(text=text):
                self._content.append(text)
            case Reasoning(text=text):
                self._reasoning.append(text)
            case WasReasoning():
                thought = "".join(self._content)
                thought = thought if self._reasoning else thought.lstrip(SPACE)
                self._reasoning.append(thought)
                self._open_thoughts().add_shown(thought)
                self._content = []
            case _:
                pass


def _possible_ends(turn_ends: Sequence[str]) -> tuple[str, ...]:
    """Return `turn_ends`, and also each of them without white space, because the model may leave white space out."""
    return tuple(dict.fromkeys((*turn_ends, *("".join(end.split()) for end in turn_ends))))


def _sent_tools(tools: Tools, prepared: PreparedRequest) -> Tools:
    """Return the tools with the names that were sent to the server."""
    return rename_tools(tools, {name: sent_name for sent_name, name in prepared.client_names.items()})


def _parse_options(request: ToolRequest, tools: Tools, restore: RestoreArguments | None) -> ParseOptions:
    """Return the options for parsing structured calls and bare arguments; the text parser has its own options."""
    return ParseOptions(
        tools,
        request.options.strictness,
        None,
        request.json_answer,
        tools.all_keys,
        restore=restore,
        undeclared=request.options.takes_undeclared,
    )
