"""Read one choice of a reply, whatever mode asked for it: text, thoughts and structured calls become events.

Text runs through the one parser there is; the server's own calls are checked like those in text; thoughts are passed
on, and looked through for a call only when nothing else came.
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
"""The dialect of a raw reply of gpt-oss: it is all that such a reply is read for."""
_NOWHERE = Span(0, 0)
"""Structured calls stand nowhere in the text."""
_CALLS = frozenset(("tool_calls", "function_call"))
_LEAK = re.compile(r"<\|(?:return|call)\|>\s*\Z")
"""What vLLM's Harmony parser leaves of a reply that ends inside a header: raw text, in one piece (0.28 to 0.32)."""
BLANKS = 100
"""Characters of white space that end a reply whose last words are a whole call: no model goes on after so many, and one
that its server keeps from ending writes them until its context is full (llama.cpp, `tool_choice: required`)."""
_STARTS, _ENDS_HEADER, _CALLED = "<|start|>", "<|message|>", "<|call|>"


class ReplyReader:
    """A `Reader` for every mode: `upstream.dialect` is the one that text was asked for in, if any."""

    def __init__(self, ask: Ask, upstream: Upstream, new_id: NewId) -> None:
        self._ask = ask
        self._new_id = new_id
        self._harmony = upstream.dialect == HARMONY
        self._dialect = None if self._harmony else upstream.dialect
        self._prefill = upstream.prefill
        decode = upstream.prompt.decode if upstream.prompt is not None else None
        self._tokens = Detokenizer(decode) if decode is not None else None
        sent = {name: other for other, name in upstream.names.items()}
        none = ask.choice.kind == "none"
        self._tools = Tools([]) if none else renamed(ask.tools, sent)
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
        self._words = Words(markup=not self._harmony)  # headers are no words, and would spoil the history
        self._content: list[str] = []
        self._reasoning: list[str] = []
        self._thought = 0
        self._discarded: list[Discarded] = []
        self._stop_reason: str | int | None = None
        self._finish_reason: str | None = None
        self._leak = ""
        self._opening: dict[str, Any] = {}
        """How the text's own parser was made."""
        self._blanks = 0
        """Characters of white space that came last."""
        self._looked = 0
        """Characters of text when a whole call was last looked for."""
        self.over = False
        """Did a whole call come, and then so much white space that nothing more is waited for?"""

    @property
    def raw(self) -> str:
        """The model's own words, thoughts left out, and then the arguments of the server's calls that failed."""
        failed = (each.raw for each in self._gate.malformed if each.dialect == NATIVE)
        return self._words.kept() + "".join(failed)

    @property
    def reply(self) -> Reply:
        """The reply as read so far."""
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
        """Take one delta of this choice."""
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
        """Note how much white space the reply ends in; a look at what stands before it costs O(1) a character."""
        words = len(text.rstrip())
        if words or delta.reasoning or delta.tool_calls:
            self._blanks = 0
        self._blanks += len(text) - words
        if self._tokens is not None or self.over or self._blanks < BLANKS:
            return
        if self._words.size >= 2 * self._looked:
            self._looked = self._words.size
            self.over = self._ends_in_call()

    def _ends_in_call(self) -> bool:
        """Whether all that came is whole, and a call among it, as it would be read if nothing came after it."""
        slots = self._server.slots
        if self._parser is None or not all(slot.whole for slot in slots):
            return False
        json_answer = self._ask.json_answer and not self._ask.checks_form
        parser = self._new_parser(**self._opening, json_answer=json_answer, new_id=str)
        parser.feed(self._words.whole())
        parser.close("stop")
        return not parser.reply.malformed and bool(slots or parser.reply.calls)

    def close(self, finish_reason: str | None) -> list[Event]:
        """End the reply."""
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
        """Whether text may come that the server's Harmony parser could not read."""
        accepted = self._ask.accept is None or HARMONY in self._ask.accept
        return self._parser is None and not self._harmony and accepted

    # --- where events come from ----------------------------------------------------------------------------------

    def _think(self, text: str) -> list[Event]:
        start, self._thought = self._thought, self._thought + len(text)
        self._reasoning.append(text)
        return [Reasoning(text, Span(start, self._thought))]

    def _read(self, text: str) -> list[Event]:
        if self._parser is None:
            # thoughts in a field of their own tell that the template's opener does not concern the content
            in_reasoning = self._ask.profile.in_reasoning and not self._thought
            self._opening = {"in_reasoning": in_reasoning, "pinned": HARMONY if self._harmony else None}
            self._parser = self._new_parser(**self._opening)
            text = self._prefill + text
        self._words.add(text)
        return self._take(self._parser.feed(text), "text", self._words.cut)

    def _read_pieces(self, pieces: list[Piece]) -> list[Event]:
        """Read tokens by what they are: text of the model's that looks like a control token is none."""
        if not pieces:
            return []
        events = self._read("") if self._parser is None else []
        assert self._parser is not None
        self._words.add("".join(map(raw_of, pieces)))
        return events + self._take(self._parser.feed_pieces(pieces), "text", self._words.cut)

    def _leaked(self) -> list[Event]:
        """Read what the server's Harmony parser gave back as it was: there is no header, or one that never ended."""
        self._words.add(self._leak)
        self._parser = parser = self._new_parser(pinned=HARMONY)
        events: list[Event] = [*parser.feed(self._leak), *parser.close(self._finish_reason)]
        said = parser.reply
        header = self._leak[max(0, self._leak.rfind(_STARTS)) :]
        unended = header.rstrip().endswith(_CALLED) and _ENDS_HEADER not in header
        if unended and not (said.calls or said.malformed):
            message = "The reply ended inside the header of a Harmony message."
            span = Span(0, len(self._leak))
            events = [Malformed(0, self._leak, "truncated", message, span, dialect=HARMONY)]
        elif not (said.content.strip() or said.calls or said.malformed):
            self._words = Words(markup=False)  # a header that nothing follows is no answer, whatever else fails
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
        """Read a call of the server's."""
        raw = slot.text
        events: list[Event] = []
        for place, outcome in enumerate(read_arguments(slot.name, raw, self._rules, PLACE, ended=ended).found):
            number, call_id = self._place(slot) if place == 0 else self._place(Slot(None))
            sent = slot.live.sent if slot.live is not None and place == 0 else ""
            if sent:
                outcome = self._continued(sent, outcome)  # noqa: PLW2901  the same call, bound to its beginning
            if isinstance(outcome, Call):
                rest = outcome.arguments_json[len(sent) :] if place == 0 else ""
                end = CallEnd(number, replace(outcome, id=call_id), _NOWHERE)
                took: list[Event] = [CallArgs(number, rest, _NOWHERE), end]  # the gate knows whether it went live
            else:
                call = replace(outcome.call, id=call_id) if outcome.call is not None else None
                took = [replace(outcome, index=number, raw=raw, call=call)]
            events += self._take(took, "server", lambda _: raw)
        return events

    def _go_live(self, slot: Slot, text: str) -> list[Event]:
        """Let out what is certain of a call of the server's; one that comes whole is mended whole."""
        if slot.whole and (slot.live is None or not slot.live.began):
            return []
        if slot.live is None:
            least = 0 if self._ask.options.arguments == "live" else SHORT
            slot.live = PartialArguments(self._tools.graph(slot.name), least)
        began = slot.live.began
        said = slot.live.feed(text)
        if not said:
            return []
        number, call_id = self._place(slot)
        start: list[Event] = [] if began else [CallStart(number, call_id, slot.name, _NOWHERE)]
        events = self._take(start, "server", lambda _: "")
        if start and not events:
            slot.live.cancel()
            return []
        return events + self._take([CallArgs(number, said, _NOWHERE)], "server", lambda _: "")

    def _continued(self, sent: str, outcome: Call | Malformed) -> Call | Malformed:
        """Make a call begin with what has gone out of it; where it does not fit, it is what the bare server gives."""
        misfit = isinstance(outcome, Malformed) and outcome.reason == "invalid_arguments"
        call = outcome.call if isinstance(outcome, Malformed) else outcome
        if call is None or not (misfit or call is outcome) or (misfit and self._ask.options.on_malformed == "error"):
            return outcome
        own = call.arguments_json.startswith(sent)
        text = call.arguments_json if own else continued(sent, call.arguments)
        if text is None:
            return broken("invalid_json", "its beginning reads otherwise than the whole", NATIVE, call.name)
        if misfit:
            self._gate.notes.append(
                f"the call of {call.name!r} was handed over although it does not fit: its beginning had been streamed"
            )
        return replace(call, arguments_json=text)

    def _place(self, slot: Slot) -> tuple[int, str]:
        """Give a call its number and an id that no other has."""
        if slot.number is None:
            slot.number, self._count = self._count, self._count + 1
            if not slot.id or slot.id in self._ids:
                slot.id = self._new_id()
            self._ids.add(slot.id)
        assert slot.id is not None
        return slot.number, slot.id

    def _read_answer(self) -> None:
        """Take the calls of an answer that is not in the form that was asked for.

        No event tells of them: the text that they stand in has been told of, and is held until the reply is judged.
        """
        text = "".join(self._content)
        if self._gate.calls or self._gate.malformed or not (text.strip() and len(self._ask.offered)):
            return
        calls, rest = calls_instead(self._ask, text, self._new_parser(json_answer=False), self._finish_reason)
        if calls:
            self._content = [rest]
            self._take(calls, "answer", lambda span: text[span.start : span.end])

    def _rescue(self) -> list[Event]:
        """Look into the thoughts when nothing else came: servers put calls there (vllm#39056, ai-dynamo/dynamo#10366).

        Only calls that the thoughts end with are meant; anything before is a draft. Never a dangerous tool.
        """
        thoughts = "".join(self._reasoning)
        empty = not (self._gate.calls or self._gate.malformed or "".join(self._content).strip())
        if not (empty and thoughts.strip() and len(self._tools) and self._finish_reason in DONE):
            return []
        # the server itself says that the model made a call
        certain = self._finish_reason in _CALLS or self._stop_reason == HARMONY_CALL
        parser = self._new_parser(certain=certain)
        last: list[CallEnd] = []
        for event in [*parser.feed(thoughts), *parser.close(self._finish_reason)]:
            if isinstance(event, CallEnd):
                last.append(event)
            elif isinstance(event, Malformed) or (isinstance(event, Text) and event.text.strip()):
                last = []
        events: list[Event] = []
        for each in last:
            tool = self._tools.get(each.call.name)
            if tool is not None and not tool.dangerous:
                fix = Fix("marker", "the call stood in the reasoning")
                call = replace(each.call, fixes=(*each.call.fixes, fix))
                events += self._take(
                    [replace(each, call=call)], "thoughts", lambda span: thoughts[span.start : span.end]
                )
        return events

    # --- where events go -----------------------------------------------------------------------------------------

    def _take(self, events: list[Event], source: Source, raw_of: Callable[[Span], str]) -> list[Event]:
        """Pass events through the gate and note what comes out."""
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
