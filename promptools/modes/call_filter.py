"""Filter calls by what the request allows: a call is passed on, dropped with a note, or turned into an error.

Parsers report which calls the model made; the filter decides which of them are allowed. Calls come from several
sources: text, the server's structured calls, reasoning, and a JSON answer. The filter numbers the calls of all sources
in one sequence. It gives them the client's tool names, and ids that the server will accept in later requests.

A call whose start is sent before its end is known can no longer be dropped: its end or its failure is always passed on.
So a call is started early only if nothing later could forbid it: its tool is offered and not strict,
`parallel_tool_calls` allows it, and no other source can still contain the same call.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Literal

from promptools.dialects.calls.resolve import unknown_tool_message
from promptools.dialects.prompt import placeholder_in
from promptools.modes.history import alnum9_id, quotable_texts
from promptools.modes.structured_calls import NATIVE
from promptools.parsing.events import CallArgs, CallEnd, CallStart, Event, Text
from promptools.patterns import lazy_pattern
from promptools.types import Call, Discarded, Malformed, Span

if TYPE_CHECKING:
    from collections.abc import Callable

    from promptools.modes.prepared_request import PreparedRequest
    from promptools.modes.tool_request import ToolRequest


CallSource = Literal["text", "server", "thoughts", "answer"]

HEADER_NAMES = frozenset(("code", "json", "assistant", "analysis", "commentary", "final"))
"""Parts of a Harmony header that vLLM reports as tool names if the header is malformed (seen in vLLM 0.28 and 0.32)."""
_MARKUP = lazy_pattern(r"[<>{}]")
"""Matches characters that no real tool name contains.

A name from the server can contain them if the server misread it: vLLM 0.28 treats everything after `to=` as the name,
even the arguments.
"""
FORBIDDEN_PREFIXES = ("tool_choice is none: ", "no tool was offered: ")
"""The prefixes of trace notes about calls that the request forbids."""
_HARMONY = "harmony"


def is_header_part(name: str) -> bool:
    """Return whether a call's name is part of a Harmony header that the server mistook for a tool name."""
    return name in HEADER_NAMES or _MARKUP.search(name) is not None


@dataclass(slots=True)
class CallFilter:
    """Passes on the events of calls that the request allows; drops others, or turns them into text or errors."""

    request: ToolRequest
    prepared: PreparedRequest
    calls: list[Call] = field(default_factory=list[Call])
    malformed: list[Malformed] = field(default_factory=list[Malformed])
    notes: list[str] = field(default_factory=list[str])
    discarded: list[Discarded] = field(default_factory=list[Discarded])
    """Calls that were dropped because they contain a placeholder; recorded here, because no parser records them."""
    left_out: list[str] = field(default_factory=list[str])
    """The arguments of calls that the server parsed and that were dropped because `tool_choice` is `none`."""
    _numbers: dict[tuple[CallSource, int], int] = field(default_factory=dict[tuple[CallSource, int], int])
    _sources: dict[tuple[str, str], CallSource] = field(default_factory=dict[tuple[str, str], CallSource])
    _early: set[int] = field(default_factory=set[int])

    def on_start(self, event: CallStart, source: CallSource) -> list[Event]:
        """Pass on the start of a call although the call's end is not known, if that is allowed."""
        name = self._client_name(event.name)
        if not self._may_start_early(name, source):
            return []
        index = self._index_of(source, event.index)
        self._early.add(index)
        return [replace(event, index=index, id=self._client_id(event.id), name=name, early=True)]

    def _may_start_early(self, name: str, source: CallSource) -> bool:
        """Return whether the start of a call may be sent before the call's end is known.

        A call to a strict tool may not be started early, because the arguments must be checked first.
        """
        ask, tool = self.request, self.request.offered.get(name)
        if not ask.stream or ask.legacy or ask.options.hold == "all" or tool is None or tool.strict:
            return False
        if ask.options.arguments != "live":  # text may turn out not to be a call, or the server may send the same call
            text_called = "text" in self._sources.values()
            if ask.options.arguments == "whole" or source != "server" or text_called:
                return False
        # unescaping needs the complete arguments
        return self.prepared.restore is None and self._allows_another() and ask.choice.name in {None, name}

    def on_arguments(self, event: CallArgs, source: CallSource) -> list[Event]:
        """Pass on a fragment of the arguments of a call that was started early."""
        index = self._numbers.get((source, event.index))
        return [replace(event, index=index)] if index is not None and index in self._early else []

    def on_end(self, event: CallEnd, source: CallSource, raw_of: Callable[[Span], str]) -> list[Event]:
        """Pass on a complete call if the request allows it; if not, return an error or text in its place, or drop it.

        `raw_of` returns the text that the model wrote for a span.
        """
        call = replace(event.call, id=self._client_id(event.call.id), name=self._client_name(event.call.name))
        index = self._index_of(source, event.index)
        live = index in self._early
        if self._forbids_calls(source):
            return self._drop_forbidden(call.name, source, raw_of(event.span), event.span, call.dialect)
        if self._is_example(event.call):
            return self._fail_example(call, index, raw_of(event.span), event.span)
        if not live and (placeholder := self._placeholder_in(call)):
            return self._fail_unfilled(call, index, placeholder, raw_of(event.span), event.span)
        if self._may_be_undeclared(call):
            self.notes.append(f"the call of {call.name!r} was handed over: the tool is not declared")
        elif self.request.offered.get(call.name) is None:
            return self._fail_not_offered(call, index, raw_of(event.span), event.span)
        key = (call.name, call.arguments_json)
        if not live and self._sources.get(key, source) != source:
            self.notes.append(f"the call of {call.name!r} came in the text and from the server: once is meant")
            return [Discarded(raw_of(event.span), "repeat", event.span)]
        if not live and not self._allows_another():
            self.notes.append(f"parallel_tool_calls is false: a further call of {call.name!r} was left out")
            return [Discarded(raw_of(event.span), "repeat", event.span)]
        self._early.discard(index)
        self._sources[key] = source
        self.calls.append(call)
        end = CallEnd(index, call, event.span)
        if live:
            return [end]
        start = Span(event.span.start, event.span.start)
        return [CallStart(index, call.id, call.name, start), CallArgs(index, call.arguments_json, start), end]

    def on_malformed(self, event: Malformed, source: CallSource) -> list[Event]:
        """Pass on a malformed call, unless the request forbids calls."""
        if self._forbids_calls(source):
            return self._drop_forbidden(event.name or "", source, event.raw, event.span, event.dialect)
        call = event.call
        if call is not None:
            call = replace(call, id=self._client_id(call.id), name=self._client_name(call.name))
        name = self._client_name(event.name) if event.name else event.name
        return self._fail(replace(event, index=self._index_of(source, event.index), call=call, name=name))

    def _fail(self, event: Malformed) -> list[Event]:
        self._early.discard(event.index)
        self.malformed.append(event)
        return [event]

    def _forbids_calls(self, source: CallSource) -> bool:
        """Return whether the request forbids calls from this source.

        Without tools, a call in text is forbidden, because gpt-oss calls tools that were never offered
        (openai/harmony#60). A structured call that the server returns is passed on even without tools, as it would be
        in a forwarded reply.
        """
        return self.request.choice.kind == "none" or (source == "text" and not self.request.takes_calls)

    def _may_be_undeclared(self, call: Call) -> bool:
        """Return whether a call may be passed on although the request does not declare its tool."""
        misread = call.dialect == NATIVE and is_header_part(call.name)
        named = self.request.choice.kind == "named"
        return call.unknown_tool and self.request.options.takes_undeclared and not (named or misread)

    def _drop_forbidden(self, name: str, source: CallSource, raw: str, span: Span, dialect: str) -> list[Event]:
        """Turn a forbidden call in text back into text; drop a forbidden call that the server parsed.

        If `tool_choice` is `none`, a call in Harmony is dropped too, since text in Harmony cannot look like a call. If
        no tool is offered, the arguments of a Harmony call become text, since they may be all that the model wrote
        (agents offer no tools in their last turn). A header without arguments is dropped, because it is markup and not
        text for a user.
        """
        unoffered = self.request.choice.kind != "none"
        if source == "text" and dialect != _HARMONY:
            return [Text(raw, span)]
        reason = FORBIDDEN_PREFIXES[1 if unoffered else 0]
        if source == "text" and unoffered and not raw.startswith("<|"):
            self.notes.append(f"{reason}the call of {name!r} is text")
            return [Text(raw, span)]
        self.notes.append(f"{reason}the call of {name!r} was left out")
        if source == "server":
            self.left_out.append(raw)
        return [Discarded(raw, "markup", span)]

    def _is_example(self, call: Call) -> bool:
        """Return whether a call copies an example in the prompt; `call` has the tool name that the model knows."""
        return any(
            (call.name, call.arguments) == (example.name, example.arguments) for example in self.prepared.examples
        )

    def _fail_example(self, call: Call, index: int, raw: str, span: Span) -> list[Event]:
        """Reject a copy of an example as malformed, since its arguments are placeholders."""
        message = (
            f"The call of {call.name!r} is the example of the instructions, so nothing was done: write values of the"
            " request in place of its placeholders, or answer in plain text."
        )
        return self._fail(Malformed(index, raw, "invalid_arguments", message, span, call.name, call.dialect))

    def _placeholder_in(self, call: Call) -> str:
        """Return the placeholder that a call has in place of a value, as the prompt's examples do; empty if none.

        Models write such calls when a value is the result of another call that they make at the same time. For example,
        Qwen2.5-Coder-1.5B calls `add_to_playlist` with `<song_id>` right after `find_song`. A text that occurs in the
        conversation is a value, not a placeholder.
        """
        placeholder = placeholder_in(call.arguments) if self.prepared.examples else ""
        said = placeholder and any(placeholder in text for text in quotable_texts(self.request.messages))
        return "" if said else placeholder

    def _fail_unfilled(self, call: Call, index: int, placeholder: str, raw: str, span: Span) -> list[Event]:
        """Drop a call with a placeholder if earlier calls may provide the value; if not, reject it as malformed."""
        if self.calls:
            self.notes.append(f"the call of {call.name!r} was left out: {placeholder} stands in place of a value")
            self.discarded.append(Discarded(raw, "markup", span))
            return [self.discarded[-1]]
        message = (
            f"The call of {call.name!r} was not run: write a value in place of {placeholder}. Call first the tool that"
            " tells it, or ask the user."
        )
        return self._fail(Malformed(index, raw, "invalid_arguments", message, span, call.name, call.dialect))

    def _fail_not_offered(self, call: Call, index: int, raw: str, span: Span) -> list[Event]:
        """Reject a call to a tool that the request does not offer, or does not allow at this point."""
        if call.unknown_tool:
            message = unknown_tool_message(call.name, self.request.tools)
        else:
            names = ", ".join(self.request.offered.names)
            message = f"The call of {call.name!r} was not run: only {names} may be called now."
        failed = Malformed(index, raw, "unknown_tool", message, span, call.name, call.dialect, call)
        return self._fail(failed)

    def _allows_another(self) -> bool:
        """Return whether one more call may be passed on."""
        return self.request.parallel_calls or not (self.calls or self._early)

    def _index_of(self, source: CallSource, index: int) -> int:
        return self._numbers.setdefault((source, index), len(self._numbers))

    def _client_name(self, sent_name: str) -> str:
        return self.prepared.client_names.get(sent_name, sent_name)

    def _client_id(self, call_id: str) -> str:
        return alnum9_id(call_id) if self.request.profile.tool_ids == "alnum9" else call_id
