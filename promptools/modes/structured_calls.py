"""Read the calls of a choice that the server itself parsed: stream them while they arrive, check them when complete.

`ToolCallAssembler` joins the deltas of calls. `CollectedChoice` joins the deltas of a whole choice, for callers that
need the server's reply unchecked. `StructuredCalls` checks the calls by the same rules as calls in text. The arguments
of a call may be streamed before the call is complete; the finished call must then begin with what was sent.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Protocol

from promptools.dialects.calls.argument_stream import MIN_STREAMED, ArgumentStream, begin_with
from promptools.dialects.calls.json_body import read_arguments
from promptools.dialects.calls.parse_options import Evidence, ParseOptions
from promptools.dialects.calls.resolve import malformed_call
from promptools.jsontext.brackets import BracketScanner
from promptools.parsing.events import CallArgs, CallEnd, CallStart, Event
from promptools.types import Call, Malformed, Span

if TYPE_CHECKING:
    from collections.abc import Iterable

    from promptools.modes.tool_request import ToolRequest
    from promptools.schema import Tools
    from promptools.types import NewId
    from promptools.wire.chat_decoder import Delta, ToolDelta


# Assemble a server's structured calls from the deltas of a stream.
#
# Deltas should carry an index, and the id and name once. Seen in practice: every parallel call at index 0
# (ollama#15457), no index at all (ollama#7881), ids repeated on each delta (lmdeploy#3412), the name in every chunk
# (vllm#13078), two objects glued into one call's arguments (litellm#33678).
#
# So a delta continues the last call with its index or, if it has no index, the last call. There are two exceptions. A
# delta with another id continues the call with that id, or begins a call. A delta with a name begins a call if the
# last call's arguments are complete. It also begins a call if its name is a different one, and either the last call's
# arguments have begun or an offered tool has that name. A call is ready when its brackets are closed and another call
# follows; the remaining calls are ready at the end of the reply.


NATIVE = "native"
"""The value of `Call.dialect` for calls that the server itself parsed from the model's text."""
NATIVE_EVIDENCE = Evidence(NATIVE, wrapped=True, expected=True)


@dataclass(slots=True)
class PendingCall:
    """A call that the server parsed, and whose deltas are still arriving."""

    index: int | None
    id: str | None = None
    name: str = ""
    pieces: list[str] = field(default_factory=list[str])
    complete: bool = False
    """Whether the brackets of the arguments are closed."""
    number: int | None = None
    """The call's position among the reply's structured calls; None until it is assigned."""
    streamer: ArgumentStream | None = None
    """Streams the call's arguments; None if they are not streamed."""
    is_thought: bool = False
    """Whether the server extracted the call from the content while reasoning was open in the content."""
    _extent: BracketScanner | None = None

    def add_arguments(self, text: str) -> None:
        """Add a fragment of the arguments. O(n) in its length."""
        self.pieces.append(text)
        if self.complete:
            return
        start = 0
        if self._extent is None:
            start = len(text) - len(text.lstrip())
            if start == len(text) or text[start] not in "{[":
                return
            self._extent = BracketScanner()
        self.complete = self._extent.feed(text, start) is not None

    @property
    def arguments(self) -> str:
        """The arguments so far."""
        return "".join(self.pieces)


class ToolCallAssembler:
    """Joins deltas into calls. `is_offered` returns whether a tool with the given name is offered."""

    def __init__(self, is_offered: Callable[[str], bool] = lambda _: False) -> None:
        self._is_offered = is_offered
        self._taken = 0
        self.calls: list[PendingCall] = []

    def add(self, delta: ToolDelta) -> PendingCall:
        """Add `delta` to the call that it continues, or to a new one, and return that call."""
        slot = self._continued_call(delta)
        if slot is None:
            slot = PendingCall(delta.index)
            self.calls.append(slot)
        if delta.id and slot.id is None:
            slot.id = delta.id
        if delta.name and delta.name != slot.name and not slot.pieces:
            slot.name += delta.name
        if delta.arguments:
            slot.add_arguments(delta.arguments)
        return slot

    def _continued_call(self, delta: ToolDelta) -> PendingCall | None:
        """Return the call that a delta continues; None if the delta begins a new call."""
        candidates = (slot for slot in reversed(self.calls) if delta.index is None or slot.index == delta.index)
        last = next(candidates, None)
        if last is None or (delta.id and delta.id == last.id):
            return last
        if delta.id and last.id:
            return next((slot for slot in candidates if slot.id == delta.id), None)
        return None if delta.name and self._begins_call(delta.name, last) else last

    def _begins_call(self, name: str, last: PendingCall) -> bool:
        """Return whether a delta with a name but without a new id begins a new call.

        If not, the name repeats or continues the name of the last call.
        """
        if last.complete:
            return True
        if name == last.name or not last.name:
            return False
        return bool(last.pieces) or self._is_offered(name)

    def take_complete(self) -> list[PendingCall]:
        """Return, in order and each only once, the calls that are known to be complete because another call follows."""
        start = self._taken
        while self._taken < len(self.calls) - 1 and self.calls[self._taken].complete:
            self._taken += 1
        return self.calls[start : self._taken]

    def take_rest(self) -> list[PendingCall]:
        """Return the remaining calls at the end of the reply."""
        start, self._taken = self._taken, len(self.calls)
        return self.calls[start:]


@dataclass(slots=True)
class CollectedChoice:
    """A choice of a reply, assembled from the server's deltas without any checks."""

    content: str = ""
    """The text, including the text of a refusal."""
    reasoning: str = ""
    calls: list[PendingCall] = field(default_factory=list[PendingCall])
    finish_reason: str | None = None
    _assembler: ToolCallAssembler = field(default_factory=ToolCallAssembler)

    def __post_init__(self) -> None:
        self._assembler.calls = self.calls

    def add(self, delta: Delta) -> None:
        """Add a delta of this choice."""
        self.content += delta.content + delta.refusal
        self.reasoning += delta.reasoning
        self.finish_reason = delta.finish_reason or self.finish_reason
        for call in delta.tool_calls:
            self._assembler.add(call)


# The calls as events.


_NO_SPAN = Span(0, 0)
"""The span of structured calls, which are not in the text."""


class EventFilter(Protocol):
    """Passes the events of a call through the call filter, and returns the events that the filter emits."""

    def __call__(self, events: list[Event], raw: str) -> list[Event]:
        """Return the events that the filter emits for `events`; `raw` is the call's text."""
        ...


class StructuredCalls:
    """Reads the structured calls of one choice. `notes` collects notes on the calls for the trace.

    The methods take `emit`, the filter for the events, as an argument. If this object stored the filter, which is a
    method of its owner, the two objects would refer to each other, and would not be freed at the end of a request.
    """

    def __init__(self, request: ToolRequest, options: ParseOptions, new_id: NewId, notes: list[str]) -> None:
        assert options.tools is not None
        self._request = request
        self._tools: Tools = options.tools
        self._options = options
        self._new_id = new_id
        self._notes = notes
        tools = options.tools
        live = request.options.arguments == "live"
        self._assembler = ToolCallAssembler(lambda name: tools.get(name) is not None)
        self._streams_arguments = (
            request.stream
            and request.options.arguments != "whole"
            # vLLM's parser `hermes` ends a streamed call at `</tool_call>`, even inside a string.
            and (live or not request.profile.cuts_streams)
            and request.choice.kind != "none"
            and options.restore is None
        )
        self.has_thoughts = False
        """Whether a call was left out because it was inside the model's reasoning."""
        self._count = 0
        self._ids: set[str] = set()

    @property
    def pending(self) -> list[PendingCall]:
        """All calls so far."""
        return self._assembler.calls

    def feed(self, deltas: Iterable[ToolDelta], emit: EventFilter, *, in_thought: bool = False) -> list[Event]:
        """Add fragments of calls; return the events that later fragments can no longer change.

        `in_thought` says that these fragments arrive while reasoning is open in the content. A server that does not
        separate reasoning from content also parses calls in the reasoning (vLLM's parser `hermes`).
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
        """Check the remaining calls at the end of the reply; `complete` says that the last call was not cut off."""
        rest = self._assembler.take_rest()
        return [
            event for pending in rest for event in self._check(pending, emit, ended=complete or pending is not rest[-1])
        ]

    def _check(self, pending: PendingCall, emit: EventFilter, *, ended: bool) -> list[Event]:
        """Parse and check a structured call, which may contain several concatenated calls."""
        raw = pending.arguments
        events: list[Event] = []
        if pending.is_thought:
            self.has_thoughts = True
            self._notes.append(f"the call of {pending.name!r} was left out, as a part of a thought: {raw}")
            return events
        for position, outcome in enumerate(
            read_arguments(pending.name, raw, self._options, NATIVE_EVIDENCE, ended=ended).calls
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
        """Stream the part of a structured call's arguments that can no longer change.

        A call that is complete before any of its arguments were streamed is not streamed.
        """
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
        """Rewrite a call so that its arguments begin with the text that was already streamed.

        A call that does not match its schema is passed on too, unless `on_malformed` is `error`.
        """
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
            return malformed_call("invalid_json", "its beginning reads differently from the whole", NATIVE, call.name)
        if misfit:
            self._notes.append(
                f"the call of {call.name!r} was handed over although it does not fit: its beginning had been streamed"
            )
        return begun

    def _assign_id(self, pending: PendingCall) -> tuple[int, str]:
        """Return the number and the unique id of a call; assign them if the call has none."""
        if pending.number is None:
            pending.number, self._count = self._count, self._count + 1
            # Ollama sends no ids before 0.12.10, lmdeploy the same one for each call (lmdeploy#3412).
            if not pending.id or pending.id in self._ids:
                pending.id = self._new_id()
            self._ids.add(pending.id)
        assert pending.id is not None
        return pending.number, pending.id
