"""Filter calls by what the request allows: each one is passed on, dropped with a note, or turned into an error.

Parsers report what the model called; the filter decides whether it may. Calls come from several sources (text, the
server's structured calls, reasoning, a JSON answer); here they get one numbering, the client's tool names, and ids that
the server will accept back.

A call is early once its start went out before its end is known: then it can no longer be dropped, and its end or its
failure is always passed on. So a call is let out early only if nothing that comes later could forbid it: its tool is
offered and not strict, it is within `parallel_tool_calls`, and the other source cannot hold the same call.
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
"""The prefixes of notes on calls that were dropped because no call may be made."""


@dataclass(slots=True)
class Gate:
    """Pass events on, changed where the request requires it."""

    ask: Ask
    upstream: Upstream
    calls: list[Call] = field(default_factory=list[Call])
    malformed: list[Malformed] = field(default_factory=list[Malformed])
    notes: list[str] = field(default_factory=list[str])
    _numbers: dict[tuple[Source, int], int] = field(default_factory=dict[tuple[Source, int], int])
    _sources: dict[tuple[str, str], Source] = field(default_factory=dict[tuple[str, str], Source])
    _live: set[int] = field(default_factory=set[int])

    def started(self, event: CallStart, source: Source) -> list[Event]:
        """Pass on the start of a call early, if that is allowed."""
        name = self._name(event.name)
        if not self._may_go_live(name, source):
            return []
        index = self._number(source, event.index)
        self._live.add(index)
        return [replace(event, index=index, id=self._id(event.id), name=name, early=True)]

    def _may_go_live(self, name: str, source: Source) -> bool:
        """Whether a call may go out before its end is known; never for a strict tool, which needs valid arguments."""
        ask, tool = self.ask, self.ask.offered.get(name)
        if not ask.stream or ask.legacy or ask.options.hold == "all" or tool is None or tool.strict:
            return False
        if ask.options.arguments != "live":  # text may yet prove not to be a call, or the server may send the same one
            text_called = "text" in self._sources.values()
            if ask.options.arguments == "whole" or source != "server" or text_called:
                return False
        # unescaping needs the complete arguments
        return self.upstream.restore is None and self._room() and ask.choice.name in {None, name}

    def more(self, event: CallArgs, source: Source) -> list[Event]:
        """Pass on a fragment of an early call's arguments."""
        index = self._numbers.get((source, event.index))
        return [replace(event, index=index)] if index is not None and index in self._live else []

    def ended(self, event: CallEnd, source: Source, raw_of: Callable[[Span], str]) -> list[Event]:
        """Pass on a complete call, or what it became; `raw_of` returns the model's text of a span."""
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
        start = Span(event.span.start, event.span.start)
        return [CallStart(index, call.id, call.name, start), CallArgs(index, call.arguments_json, start), end]

    def failed(self, event: Malformed, source: Source) -> list[Event]:
        """Pass on a malformed call."""
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
        """Return whether no call may be made; gpt-oss calls tools that were never offered (openai/harmony#60)."""
        ask = self.ask
        return ask.choice.kind == "none" or (dialect == "harmony" and not (len(ask.tools) or ask.others))

    def _forbidden(self, name: str, source: Source, raw: str, span: Span, dialect: str) -> list[Event]:
        """Turn a forbidden call in text back into text; drop one that the server parsed.

        One in Harmony is dropped too: nothing but a call looks like one there, and its markup is not text for a user.
        """
        if source == "text" and dialect != "harmony":
            return [Text(raw, span)]
        reason = FORBIDDEN[0 if self.ask.choice.kind == "none" else 1]
        self.notes.append(f"{reason}the call of {name!r} was left out")
        return [Discarded(raw, "markup", span)]

    def _is_example(self, call: Call) -> bool:
        """Whether a call, under the name that the model knows, is a copy of an example in the prompt."""
        return any(
            (call.name, call.arguments) == (example.name, example.arguments) for example in self.upstream.examples
        )

    def _copied(self, call: Call, index: int, raw: str, span: Span) -> list[Event]:
        """Fail a copy of an example, whose arguments are placeholders."""
        message = (
            f"The call of {call.name!r} is the example of the instructions, so nothing was done: write values of the"
            " request in place of its placeholders, or answer in words."
        )
        return self._fail(Malformed(index, raw, "invalid_arguments", message, span, call.name, call.dialect))

    def _not_offered(self, call: Call, index: int, raw: str, span: Span) -> list[Event]:
        """Fail a call of a tool that the request does not offer, or does not allow now."""
        if call.unknown_tool:
            message = unknown_message(call.name, self.ask.tools)
        else:
            names = ", ".join(self.ask.offered.names)
            message = f"The call of {call.name!r} was not run: only {names} may be called now."
        failed = Malformed(index, raw, "unknown_tool", message, span, call.name, call.dialect, call)
        return self._fail(failed)

    def _room(self) -> bool:
        """Return whether one more call may go out."""
        return self.ask.parallel or not (self.calls or self._live)

    def _number(self, source: Source, index: int) -> int:
        return self._numbers.setdefault((source, index), len(self._numbers))

    def _name(self, said: str) -> str:
        return self.upstream.names.get(said, said)

    def _id(self, said: str) -> str:
        return nine(said) if self.ask.profile.tool_ids == "alnum9" else said
