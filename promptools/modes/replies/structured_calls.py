"""The calls of one choice that the server has parsed itself: streamed while they arrive, checked when complete.

They are put together of deltas by the assembler, and checked by the same rules as calls in text. The arguments of a
call may be streamed before it is complete; what was sent then fixes how the finished call is written.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Protocol

from promptools.dialects.calls.argument_stream import MIN_STREAMED, ArgumentStream, begin_with
from promptools.dialects.calls.json_body import read_arguments
from promptools.dialects.calls.parse_options import ParseOptions
from promptools.dialects.calls.resolve import malformed_call
from promptools.modes.replies.tool_deltas import NATIVE, NATIVE_EVIDENCE, PendingCall, ToolCallAssembler
from promptools.parsing.events import CallArgs, CallEnd, CallStart, Event
from promptools.types import Call, Malformed, Span

if TYPE_CHECKING:
    from collections.abc import Iterable

    from promptools.modes.requests.tool_request import ToolRequest
    from promptools.schema import Tools
    from promptools.types import NewId
    from promptools.wire.chat_decoder import ToolDelta

_NO_SPAN = Span(0, 0)
"""The span of structured calls, which are not in the text."""


class EventFilter(Protocol):
    """Passes events of a call through the call filter, and returns what it lets out."""

    def __call__(self, events: list[Event], raw: str) -> list[Event]:
        """Return what goes out of `events`; `raw` is the call's text."""
        ...


class StructuredCalls:
    """Reads the structured calls of one choice. `notes` gets what the trace should say of them.

    What `emit` lets out goes on. It is passed each time: this object and its owner do not refer to each other, so that
    both are freed at the end of a request.
    """

    def __init__(self, request: ToolRequest, rules: ParseOptions, new_id: NewId, notes: list[str]) -> None:
        assert rules.tools is not None
        self._request = request
        self._tools: Tools = rules.tools
        self._rules = rules
        self._new_id = new_id
        self._notes = notes
        tools = rules.tools
        live = request.options.arguments == "live"
        self._assembler = ToolCallAssembler(lambda name: tools.get(name) is not None)
        self._streams_arguments = (
            request.stream
            and request.options.arguments != "whole"
            and (live or not request.profile.cuts_streams)
            and request.choice.kind != "none"
            and rules.restore is None
        )
        self.has_thoughts = False
        """Whether a call was left out because it is part of a thought."""
        self._count = 0
        self._ids: set[str] = set()

    @property
    def pending(self) -> list[PendingCall]:
        """All calls so far."""
        return self._assembler.calls

    def feed(self, deltas: Iterable[ToolDelta], emit: EventFilter, *, in_thought: bool = False) -> list[Event]:
        """Add fragments of calls, and return the events that are certain. `in_thought`: a thought is open before them.

        A server that does not separate reasoning takes calls out of thoughts too (vLLM's parser `hermes`).
        """
        events: list[Event] = []
        for delta in deltas:
            known = len(self.pending)
            pending = self._assembler.add(delta)
            if len(self.pending) > known:
                pending.is_thought = in_thought
            if self._streams_arguments and delta.arguments:
                events += self._stream_arguments(pending, delta.arguments, emit)
        for pending in self._assembler.take_complete():
            events += self._check(pending, emit, ended=True)
        return events

    def close(self, emit: EventFilter, *, complete: bool) -> list[Event]:
        """Check the remaining calls at the end of the reply; `complete`: the last one was not cut off."""
        rest = self._assembler.take_rest()
        return [
            event for pending in rest for event in self._check(pending, emit, ended=complete or pending is not rest[-1])
        ]

    def _check(self, pending: PendingCall, emit: EventFilter, *, ended: bool) -> list[Event]:
        """Parse and check a structured call, which may hold several glued together."""
        raw = pending.arguments
        events: list[Event] = []
        if pending.is_thought:
            self.has_thoughts = True
            self._notes.append(f"the call of {pending.name!r} was left out, as a part of a thought: {raw}")
            return events
        for position, outcome in enumerate(
            read_arguments(pending.name, raw, self._rules, NATIVE_EVIDENCE, ended=ended).calls
        ):
            number, call_id = self._assign_id(pending) if position == 0 else self._assign_id(PendingCall(None))
            sent = pending.streamer.sent if pending.streamer is not None and position == 0 else ""
            if sent:
                outcome = self._match_sent(sent, outcome)  # noqa: PLW2901  the same call, bound to its beginning
            if isinstance(outcome, Call):
                rest = outcome.arguments_json[len(sent) :] if position == 0 else ""
                end = CallEnd(number, replace(outcome, id=call_id), _NO_SPAN)
                emitted: list[Event] = [CallArgs(number, rest, _NO_SPAN), end]  # the filter knows if it was streamed
            else:
                call = replace(outcome.call, id=call_id) if outcome.call is not None else None
                emitted = [replace(outcome, index=number, raw=raw, call=call)]
            events += emit(emitted, raw)
        return events

    def _stream_arguments(self, pending: PendingCall, text: str, emit: EventFilter) -> list[Event]:
        """Stream what is certain of a structured call's arguments; a call that comes complete is repaired whole."""
        if pending.is_thought or (pending.complete and (pending.streamer is None or not pending.streamer.started)):
            return []
        if pending.streamer is None:
            least = 0 if self._request.options.arguments == "live" else MIN_STREAMED
            whole_members = self._request.profile.cuts_streams
            pending.streamer = ArgumentStream(self._tools.graph(pending.name), least, whole_members=whole_members)
        began = pending.streamer.started
        fragment = pending.streamer.feed(text)
        if not fragment:
            return []
        number, call_id = self._assign_id(pending)
        tool = self._tools.get(pending.name)
        name = pending.name if tool is None else tool.name
        start: list[Event] = [] if began else [CallStart(number, call_id, name, _NO_SPAN)]
        events = emit(start, "")
        if start and not events:
            pending.streamer.cancel()
            return []
        return events + emit([CallArgs(number, fragment, _NO_SPAN)], "")

    def _match_sent(self, sent: str, outcome: Call | Malformed) -> Call | Malformed:
        """Rewrite a call so that its arguments begin with what was sent; one that fails its schema is passed on."""
        misfit = isinstance(outcome, Malformed) and outcome.reason == "invalid_arguments"
        call = outcome.call if isinstance(outcome, Malformed) else outcome
        if (
            call is None
            or not (misfit or call is outcome)
            or (misfit and self._request.options.on_malformed == "error")
        ):
            return outcome
        begun = begin_with(call, sent)
        if begun is None:
            return malformed_call("invalid_json", "its beginning reads otherwise than the whole", NATIVE, call.name)
        if misfit:
            self._notes.append(
                f"the call of {call.name!r} was handed over although it does not fit: its beginning had been streamed"
            )
        return begun

    def _assign_id(self, pending: PendingCall) -> tuple[int, str]:
        """Assign a call its number and a unique id, once, and return them."""
        if pending.number is None:
            pending.number, self._count = self._count, self._count + 1
            if not pending.id or pending.id in self._ids:
                pending.id = self._new_id()
            self._ids.add(pending.id)
        assert pending.id is not None
        return pending.number, pending.id
