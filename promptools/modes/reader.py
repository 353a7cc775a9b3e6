"""Read one choice of a reply in any mode: text, reasoning and structured calls become one stream of events.

A reply has three channels, each with its own source:

- `content` goes through `StreamParser`, which finds the calls in text. With token ids (Harmony) it gets pieces, so that
  text that merely looks like a control token is not taken for one.
- `tool_calls` are put together by the assembler and checked by the same rules as calls in text. The arguments of a call
  may be streamed before it is complete; what was sent then fixes how the finished call is written.
- `reasoning` is passed on as it is. Only when nothing else came is it searched for calls that it ends with.

All events pass through the call filter, which decides what the request allows and numbers the calls across sources;
what it emits is recorded in `reply`. With `response_format` beside tools, the finished content is checked once more for
calls that the parser left alone because a JSON answer was expected.

Two defects of servers are handled here: raw Harmony that vLLM's parser returns as content, and streams of white space
without end after a complete call.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from promptools.dialects.arguments import read_arguments
from promptools.dialects.settle import Rules, broken
from promptools.harmony.items import Detokenizer
from promptools.harmony.scan import Piece, raw_of
from promptools.modes.checks import HARMONY_CALL
from promptools.modes.continued import continued
from promptools.modes.form import calls_instead
from promptools.modes.gate import Gate, Source
from promptools.modes.history import quotable
from promptools.modes.names import renamed
from promptools.modes.partial import SHORT, PartialArguments
from promptools.modes.structured import NATIVE, PLACE, Assembler, Slot
from promptools.modes.words import Words
from promptools.parsing.engine import StreamParser
from promptools.parsing.engine.channels import DONE
from promptools.parsing.events import CallArgs, CallEnd, CallStart, End, Event, Reasoning, Text, WasReasoning
from promptools.parsing.output import SPACE
from promptools.schema import Tools
from promptools.types import Call, Discarded, Fix, Malformed, Reply, Span, Trace

if TYPE_CHECKING:
    from collections.abc import Callable

    from promptools.modes.ask import Ask
    from promptools.modes.mode import Upstream
    from promptools.types import NewId
    from promptools.wire.chat import Delta

HARMONY = "harmony"
"""The dialect of a raw reply of gpt-oss; such a reply is parsed for no other."""
_NOWHERE = Span(0, 0)
"""The span of structured calls, which are not in the text."""
_CALLS = frozenset(("tool_calls", "function_call"))
_LEAK = re.compile(r"<\|(?:return|call)\|>\s*\Z")
"""What vLLM's Harmony parser returns of a reply that ends inside a header: raw text, in one piece (0.28 to 0.32)."""
BLANKS = 100
"""Characters of white space that end a reply after a complete call: no model goes on after so many, and one that its
server keeps from stopping writes them until its context is full (llama.cpp, `tool_choice: required`)."""
_STARTS, _ENDS_HEADER, _CALLED = "<|start|>", "<|message|>", "<|call|>"


class ReplyReader:
    """The reader of every mode; `upstream.dialect` is the dialect that the prompt asked for, if any."""

    def __init__(self, ask: Ask, upstream: Upstream, new_id: NewId) -> None:
        self._ask = ask
        self._new_id = new_id
        self._harmony = upstream.dialect == HARMONY
        self._dialect = None if self._harmony else upstream.dialect
        self._prefill = upstream.prefill
        decode = upstream.prompt.decode if upstream.prompt is not None else None
        self._tokens = Detokenizer(decode) if decode is not None else None
        sent_names = {name: sent_name for sent_name, name in upstream.names.items()}
        none = ask.choice.kind == "none"
        self._tools = Tools([]) if none else renamed(ask.tools, sent_names)
        self._gate = Gate(ask, upstream)
        self._parser: StreamParser | None = None
        self._server = Assembler(lambda name: self._tools.get(name) is not None)
        self._count = 0
        self._ids: set[str] = set()
        self._restore = upstream.restore
        self._live = ask.stream and ask.options.arguments != "whole" and not none and self._restore is None
        self._rules = Rules(
            self._tools,
            ask.options.strictness,
            None,
            ask.json_answer,
            self._tools.all_keys,
            restore=self._restore,
        )
        self._words = Words(markup=not self._harmony)  # headers are not text, and would corrupt the history
        self._content: list[str] = []
        self._reasoning: list[str] = []
        self._thought = 0
        self._discarded: list[Discarded] = []
        self._stop_reason: str | int | None = None
        self._finish_reason: str | None = None
        self._leak = ""
        self._opening: dict[str, Any] = {}
        """The arguments that the parser of the content was made with."""
        self._blanks = 0
        """Characters of white space at the end of the reply so far."""
        self._looked = 0
        """Characters of text when the reply was last checked for ending in a call."""
        self.over = False
        """Whether a complete call was followed by so much white space that the stream may be dropped."""

    @property
    def raw(self) -> str:
        """The model's text without reasoning, followed by the arguments of structured calls that failed."""
        failed = (malformed.raw for malformed in self._gate.malformed if malformed.dialect == NATIVE)
        return self._words.kept() + "".join(failed)

    @property
    def reply(self) -> Reply:
        """The reply so far."""
        tries = self._parser.reply.trace.tries if self._parser is not None else ()
        return Reply(
            calls=tuple(self._gate.calls),
            content="".join(self._content),
            reasoning="".join(self._reasoning),
            malformed=tuple(self._gate.malformed),
            discarded=tuple(self._discarded),
            finish_reason=self._finish_reason,
            fixes=self._parser.reply.fixes if self._parser is not None else (),
            trace=Trace(tries=tries, notes=tuple(self._gate.notes)),
        )

    def feed(self, delta: Delta) -> list[Event]:
        """Add a delta of this choice and return the events that are certain."""
        if delta.stop_reason is not None:
            self._stop_reason = delta.stop_reason
        events: list[Event] = []
        if delta.reasoning:
            events += self._think(delta.reasoning)
        text = delta.content + delta.refusal
        if self._tokens is not None and delta.ids is not None:
            events += self._read_pieces(list(self._tokens.feed(delta.ids)))
        elif self._leak or (self._may_leak and _LEAK.search(text)):
            self._leak += text
        elif text:
            events += self._read(text)
        for call in delta.tool_calls:
            slot = self._server.add(call)
            if self._live and call.arguments:
                events += self._go_live(slot, call.arguments)
        for slot in self._server.complete():
            events += self._structured(slot, ended=True)
        self._count_blanks(delta, text)
        return events

    def _count_blanks(self, delta: Delta, text: str) -> None:
        """Count the white space at the end of the reply, and set `over` after too much of it.

        The text is parsed again only after it has doubled in length, so the check costs O(1) per character.
        """
        length = len(text.rstrip())
        if length or delta.reasoning or delta.tool_calls:
            self._blanks = 0
        self._blanks += len(text) - length
        if self._tokens is not None or self.over or self._blanks < BLANKS:
            return
        if self._words.size >= 2 * self._looked:
            self._looked = self._words.size
            self.over = self._ends_in_call()

    def _ends_in_call(self) -> bool:
        """Whether the reply, if it ended here, would hold a call and nothing incomplete."""
        slots = self._server.slots
        if self._parser is None or not all(slot.whole for slot in slots):
            return False
        json_answer = self._ask.json_answer and not self._ask.checks_form
        parser = self._new_parser(**self._opening, json_answer=json_answer, new_id=str)
        parser.feed(self._words.whole())
        parser.close("stop")
        return not parser.reply.malformed and bool(slots or parser.reply.calls)

    def close(self, finish_reason: str | None) -> list[Event]:
        """End the reply and return the last events."""
        self._finish_reason = finish_reason
        events: list[Event] = []
        if self._tokens is not None:
            events += self._read_pieces(list(self._tokens.close()))
        if self._parser is not None:
            events += self._take(self._parser.close(finish_reason), "text", self._words.cut)
        slots = self._server.rest()
        for slot in slots:
            events += self._structured(slot, ended=slot is not slots[-1] or finish_reason in DONE)
        if self._leak:
            events += self._leaked()
        if self._ask.checks_form:
            self._read_answer()
        return events + self._rescue()

    @property
    def _may_leak(self) -> bool:
        """Whether content may be raw Harmony that the server's parser failed on."""
        accepted = self._ask.accept is None or HARMONY in self._ask.accept
        return self._parser is None and not self._harmony and accepted

    # --- where events come from ----------------------------------------------------------------------------------

    def _think(self, text: str) -> list[Event]:
        start, self._thought = self._thought, self._thought + len(text)
        self._reasoning.append(text)
        return [Reasoning(text, Span(start, self._thought))]

    def _read(self, text: str) -> list[Event]:
        if self._parser is None:
            # where reasoning has a field of its own, the opening tag in the template does not apply to the content
            in_reasoning = self._ask.profile.in_reasoning and not self._thought
            self._opening = {"in_reasoning": in_reasoning, "pinned": HARMONY if self._harmony else None}
            self._parser = self._new_parser(**self._opening)
            text = self._prefill + text
        self._words.add(text)
        return self._take(self._parser.feed(text), "text", self._words.cut)

    def _read_pieces(self, pieces: list[Piece]) -> list[Event]:
        """Read decoded tokens, so that text that looks like a control token is not taken for one."""
        if not pieces:
            return []
        events = self._read("") if self._parser is None else []
        assert self._parser is not None
        self._words.add("".join(map(raw_of, pieces)))
        return events + self._take(self._parser.feed_pieces(pieces), "text", self._words.cut)

    def _leaked(self) -> list[Event]:
        """Read Harmony that the server's parser returned as content: without a header, or with an unfinished one."""
        self._words.add(self._leak)
        self._parser = parser = self._new_parser(pinned=HARMONY)
        events: list[Event] = [*parser.feed(self._leak), *parser.close(self._finish_reason)]
        reply = parser.reply
        header = self._leak[max(0, self._leak.rfind(_STARTS)) :]
        unended = header.rstrip().endswith(_CALLED) and _ENDS_HEADER not in header
        if unended and not (reply.calls or reply.malformed):
            message = "The reply ended inside the header of a Harmony message."
            span = Span(0, len(self._leak))
            events = [Malformed(0, self._leak, "truncated", message, span, dialect=HARMONY)]
        elif not (reply.content.strip() or reply.calls or reply.malformed):
            self._words = Words(markup=False)  # a header that nothing follows is not an answer, whatever else fails
        return self._take(events, "text", self._words.cut)

    def _new_parser(
        self,
        *,
        in_reasoning: bool = False,
        certain: bool = False,
        pinned: str | None = None,
        json_answer: bool | None = None,
        new_id: NewId | None = None,
    ) -> StreamParser:
        return StreamParser(
            self._tools,
            dialect=pinned,
            expect=self._dialect,
            strictness="lenient" if certain else self._ask.options.strictness,
            in_reasoning=in_reasoning,
            json_answer=self._ask.json_answer if json_answer is None else json_answer,
            rescue=self._ask.options.rescue,
            accept=self._ask.accept,
            sources=quotable(self._ask.messages),
            new_id=new_id or self._new_id,
            restore=self._restore,
        )

    def _structured(self, slot: Slot, *, ended: bool) -> list[Event]:
        """Parse and check a structured call, which may hold several glued together."""
        raw = slot.text
        events: list[Event] = []
        for position, outcome in enumerate(read_arguments(slot.name, raw, self._rules, PLACE, ended=ended).found):
            number, call_id = self._place(slot) if position == 0 else self._place(Slot(None))
            sent = slot.live.sent if slot.live is not None and position == 0 else ""
            if sent:
                outcome = self._continued(sent, outcome)  # noqa: PLW2901  the same call, bound to its beginning
            if isinstance(outcome, Call):
                rest = outcome.arguments_json[len(sent) :] if position == 0 else ""
                end = CallEnd(number, replace(outcome, id=call_id), _NOWHERE)
                emitted: list[Event] = [CallArgs(number, rest, _NOWHERE), end]  # the filter knows if it was streamed
            else:
                call = replace(outcome.call, id=call_id) if outcome.call is not None else None
                emitted = [replace(outcome, index=number, raw=raw, call=call)]
            events += self._take(emitted, "server", lambda _: raw)
        return events

    def _go_live(self, slot: Slot, text: str) -> list[Event]:
        """Stream what is certain of a structured call's arguments; a call that comes complete is repaired whole."""
        if slot.whole and (slot.live is None or not slot.live.began):
            return []
        if slot.live is None:
            least = 0 if self._ask.options.arguments == "live" else SHORT
            slot.live = PartialArguments(self._tools.graph(slot.name), least)
        began = slot.live.began
        fragment = slot.live.feed(text)
        if not fragment:
            return []
        number, call_id = self._place(slot)
        start: list[Event] = [] if began else [CallStart(number, call_id, slot.name, _NOWHERE)]
        events = self._take(start, "server", lambda _: "")
        if start and not events:
            slot.live.cancel()
            return []
        return events + self._take([CallArgs(number, fragment, _NOWHERE)], "server", lambda _: "")

    def _continued(self, sent: str, outcome: Call | Malformed) -> Call | Malformed:
        """Rewrite a call so that its arguments begin with what was sent; one that fails its schema is passed on."""
        misfit = isinstance(outcome, Malformed) and outcome.reason == "invalid_arguments"
        call = outcome.call if isinstance(outcome, Malformed) else outcome
        if call is None or not (misfit or call is outcome) or (misfit and self._ask.options.on_malformed == "error"):
            return outcome
        agrees = call.arguments_json.startswith(sent)
        text = call.arguments_json if agrees else continued(sent, call.arguments)
        if text is None:
            return broken("invalid_json", "its beginning reads otherwise than the whole", NATIVE, call.name)
        if misfit:
            self._gate.notes.append(
                f"the call of {call.name!r} was handed over although it does not fit: its beginning had been streamed"
            )
        return replace(call, arguments_json=text)

    def _place(self, slot: Slot) -> tuple[int, str]:
        """Assign a call its number and a unique id, once, and return them."""
        if slot.number is None:
            slot.number, self._count = self._count, self._count + 1
            if not slot.id or slot.id in self._ids:
                slot.id = self._new_id()
            self._ids.add(slot.id)
        assert slot.id is not None
        return slot.number, slot.id

    def _read_answer(self) -> None:
        """Extract the calls from an answer that does not fit `response_format`.

        No event reports them: their text has already been emitted, and is held until the reply is judged.
        """
        text = "".join(self._content)
        if self._gate.calls or self._gate.malformed or not (text.strip() and len(self._ask.offered)):
            return
        calls, rest = calls_instead(self._ask, text, self._new_parser(json_answer=False), self._finish_reason)
        if calls:
            self._content = [rest]
            self._take(calls, "answer", lambda span: text[span.start : span.end])

    def _rescue(self) -> list[Event]:
        """Search the reasoning when nothing else came: servers put calls there (vllm#39056, ai-dynamo/dynamo#10366).

        Only calls at the end of the reasoning count; anything before is a draft. Calls of dangerous tools never do.
        """
        reasoning = "".join(self._reasoning)
        empty = not (self._gate.calls or self._gate.malformed or "".join(self._content).strip())
        if not (empty and reasoning.strip() and len(self._tools) and self._finish_reason in DONE):
            return []
        # the server itself reports that the model made a call
        certain = self._finish_reason in _CALLS or self._stop_reason == HARMONY_CALL
        parser = self._new_parser(certain=certain)
        trailing: list[CallEnd] = []
        for event in [*parser.feed(reasoning), *parser.close(self._finish_reason)]:
            if isinstance(event, CallEnd):
                trailing.append(event)
            elif isinstance(event, Malformed) or (isinstance(event, Text) and event.text.strip()):
                trailing = []
        events: list[Event] = []
        for call_end in trailing:
            tool = self._tools.get(call_end.call.name)
            if tool is not None and not tool.dangerous:
                fix = Fix("marker", "the call stood in the reasoning")
                call = replace(call_end.call, fixes=(*call_end.call.fixes, fix))
                events += self._take(
                    [replace(call_end, call=call)], "thoughts", lambda span: reasoning[span.start : span.end]
                )
        return events

    # --- where events go -----------------------------------------------------------------------------------------

    def _take(self, events: list[Event], source: Source, raw_of: Callable[[Span], str]) -> list[Event]:
        """Pass events through the call filter and record what it emits."""
        out: list[Event] = []
        for event in events:
            if source == "text":
                self._words.see(event)
            match event:
                case CallStart():
                    out += self._gate.started(event, source)
                case CallArgs():
                    out += self._gate.more(event, source)
                case CallEnd():
                    out += self._gate.ended(event, source, raw_of)
                case Malformed():
                    out += self._gate.failed(event, source)
                case End():
                    pass
                case _:
                    out.append(event)
        for event in out:
            self._note(event)
        return out

    def _note(self, event: Event) -> None:
        match event:
            case Text(text=text):
                self._content.append(text)
            case Reasoning(text=text):
                self._reasoning.append(text)
            case WasReasoning():
                thought = "".join(self._content)
                self._reasoning.append(thought if self._reasoning else thought.lstrip(SPACE))
                self._content = []
            case Discarded():
                self._discarded.append(event)
            case _:
                pass
