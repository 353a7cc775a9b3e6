"""The last word on each call before anyone sees it: what the request allows goes out, the rest is told of.

Parsers say what the model called; the gate says whether it may. Calls come from two sources, text and the server's own
structure; here they get one numbering, the client's names, and ids that the server will take back.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Literal

from promptools.dialects.settle import unknown_message
from promptools.modes.history import nine
from promptools.parsing.events import CallArgs, CallEnd, CallStart, Event, Text
from promptools.types import Call, Discarded, Malformed, Span

if TYPE_CHECKING:
    from collections.abc import Callable

    from promptools.modes.ask import Ask
    from promptools.modes.mode import Upstream

Source = Literal["text", "server", "thoughts", "answer"]

FORBIDDEN = ("tool_choice is none: ", "no tool was offered: ")
"""How the note on a call begins that was left out since no call may be made."""


@dataclass(slots=True)
class Gate:
    """Passes events on, changed where the request demands it."""

    ask: Ask
    upstream: Upstream
    calls: list[Call] = field(default_factory=list[Call])
    malformed: list[Malformed] = field(default_factory=list[Malformed])
    notes: list[str] = field(default_factory=list[str])
    _numbers: dict[tuple[Source, int], int] = field(default_factory=dict[tuple[Source, int], int])
    _sources: dict[tuple[str, str], Source] = field(default_factory=dict[tuple[str, str], Source])
    _live: set[int] = field(default_factory=set[int])

    def started(self, event: CallStart, source: Source) -> list[Event]:
        """Let the head of a live call out, if it may be one."""
        name = self._name(event.name)
        if not self._may_go_live(name, source):
            return []
        index = self._number(source, event.index)
        self._live.add(index)
        return [replace(event, index=index, id=self._id(event.id), name=name, early=True)]

    def _may_go_live(self, name: str, source: Source) -> bool:
        """Whether a call may go out before its end is known: never of a strict tool, whose arguments must fit first."""
        ask, tool = self.ask, self.ask.offered.get(name)
        if not ask.stream or ask.legacy or ask.options.hold == "all" or tool is None or tool.strict:
            return False
        if ask.options.arguments != "live":  # what is in the text may yet be none, or come from the server as well
            again = "text" in self._sources.values()
            if ask.options.arguments == "whole" or source != "server" or again:
                return False
        # what is restored is known only of the whole
        return self.upstream.restore is None and self._room() and ask.choice.name in {None, name}

    def more(self, event: CallArgs, source: Source) -> list[Event]:
        """Let a piece of a live call's arguments out."""
        index = self._numbers.get((source, event.index))
        return [replace(event, index=index)] if index is not None and index in self._live else []

    def ended(self, event: CallEnd, source: Source, raw_of: Callable[[Span], str]) -> list[Event]:
        """Pass a call on whole, or say what became of it; `raw_of` gives the model's own text of it."""
        call = replace(event.call, id=self._id(event.call.id), name=self._name(event.call.name))
        index = self._number(source, event.index)
        live = index in self._live
        if self._no_calls(call.dialect):
            return self._forbidden(call.name, source, raw_of(event.span), event.span, call.dialect)
        if self._is_example(event.call):
            return self._copied(call, index, raw_of(event.span), event.span)
        if self.ask.offered.get(call.name) is None:
            return self._not_offered(call, index, raw_of(event.span), event.span)
        key = (call.name, call.arguments_json)
        if not live and self._sources.get(key, source) != source:
            self.notes.append(f"the call of {call.name!r} came in the text and from the server: once is meant")
            return [Discarded(raw_of(event.span), "repeat", event.span)]
        if not live and not self._room():
            self.notes.append(f"parallel_tool_calls is false: a further call of {call.name!r} was left out")
            return [Discarded(raw_of(event.span), "repeat", event.span)]
        self._live.discard(index)
        self._sources[key] = source
        self.calls.append(call)
        end = CallEnd(index, call, event.span)
        if live:
            return [end]
        place = Span(event.span.start, event.span.start)
        return [CallStart(index, call.id, call.name, place), CallArgs(index, call.arguments_json, place), end]

    def failed(self, event: Malformed, source: Source) -> list[Event]:
        """Pass on that a call failed."""
        if self._no_calls(event.dialect):
            return self._forbidden(event.name or "", source, event.raw, event.span, event.dialect)
        call = event.call
        if call is not None:
            call = replace(call, id=self._id(call.id), name=self._name(call.name))
        name = self._name(event.name) if event.name else event.name
        return self._fail(replace(event, index=self._number(source, event.index), call=call, name=name))

    def _fail(self, event: Malformed) -> list[Event]:
        self._live.discard(event.index)
        self.malformed.append(event)
        return [event]

    def _no_calls(self, dialect: str) -> bool:
        """Tell whether no call may be made; gpt-oss calls tools of which it was told nothing (openai/harmony#60)."""
        ask = self.ask
        return ask.choice.kind == "none" or (dialect == "harmony" and not (len(ask.tools) or ask.others))

    def _forbidden(self, name: str, source: Source, raw: str, span: Span, dialect: str) -> list[Event]:
        """Under tool_choice none text is text; a call that the server made all the same is left out.

        So is one in Harmony, where nothing but a call looks like one, and the rest of it is no text for anyone.
        """
        if source == "text" and dialect != "harmony":
            return [Text(raw, span)]
        why = FORBIDDEN[0 if self.ask.choice.kind == "none" else 1]
        self.notes.append(f"{why}the call of {name!r} was left out")
        return [Discarded(raw, "markup", span)]

    def _is_example(self, call: Call) -> bool:
        """Whether a call, named as the model knows it, is a copy of an example of the prompt."""
        return any((call.name, call.arguments) == (each.name, each.arguments) for each in self.upstream.examples)

    def _copied(self, call: Call, index: int, raw: str, span: Span) -> list[Event]:
        """Fail a copy of an example: its placeholders are no values."""
        message = (
            f"The call of {call.name!r} is the example of the instructions, so nothing was done: write values of the"
            " request in place of its placeholders, or answer in words."
        )
        return self._fail(Malformed(index, raw, "invalid_arguments", message, span, call.name, call.dialect))

    def _not_offered(self, call: Call, index: int, raw: str, span: Span) -> list[Event]:
        """Fail a call of a tool that the request does not have, or does not want called now."""
        if call.unknown_tool:
            message = unknown_message(call.name, self.ask.tools)
        else:
            names = ", ".join(self.ask.offered.names)
            message = f"The call of {call.name!r} was not run: only {names} may be called now."
        failed = Malformed(index, raw, "unknown_tool", message, span, call.name, call.dialect, call)
        return self._fail(failed)

    def _room(self) -> bool:
        """Tell whether one more call may go out."""
        return self.ask.parallel or not (self.calls or self._live)

    def _number(self, source: Source, index: int) -> int:
        return self._numbers.setdefault((source, index), len(self._numbers))

    def _name(self, said: str) -> str:
        return self.upstream.names.get(said, said)

    def _id(self, said: str) -> str:
        return nine(said) if self.ask.profile.tool_ids == "alnum9" else said
