"""Send the beginning of a call while the model is still writing the call.

Clients that stream want the tool's name, and the text of its arguments, before the call is complete. But text that was
sent cannot be taken back. When a call ends, it is repaired and coerced to the tool's schema, which may change its text.
So only text that no later step can change is sent early:

1. `EarlyCallStart`: the tool is named exactly, and is not declared strict.
2. `EarlyArguments`, one or more: the part of the arguments as JSON that `ArgumentStream` releases.

Everything after that is sent with the complete call. Invariant: the text that was sent is a prefix of the final
`arguments_json`. `reconcile` restores the invariant if a later argument was repaired: the call keeps the sent prefix as
the model wrote it, and becomes malformed if that is impossible.

The arguments come from two sources: `ArgumentStreamer` gets the text of a JSON object, and `MemberStreamer` gets one
argument after the other. The text that is sent does not depend on how the input is split into pieces.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Literal

from promptools.dialects.calls.argument_stream import ArgumentStream, begin_with, scalar_type
from promptools.dialects.calls.envelope import ARGUMENT_KEYS, NAME_KEYS
from promptools.dialects.calls.json_body import call_part
from promptools.dialects.calls.parse_options import ParseOptions
from promptools.dialects.calls.resolve import malformed_call
from promptools.jsontext.text import dump
from promptools.parsing.parts import EarlyArguments, EarlyCallStart, EarlyOutput, Part
from promptools.patterns import lazy_pattern
from promptools.types import Call, Malformed, Tool


class CallStreamer:
    """Sends the beginning of one call: the tool's name, and the part of the arguments that can no longer change."""

    def __init__(self, options: ParseOptions) -> None:
        self._options = options
        self._tool: Tool | None = None
        self._stream = ArgumentStream(None)
        self._stopped = options.tools is None or options.restore is not None  # `restore` changes the arguments

    @property
    def started(self) -> bool:
        """Whether the name was sent."""
        return self._tool is not None

    def _start(self, name: str) -> list[EarlyCallStart | EarlyArguments]:
        """Send the name of the tool; stop if the tool is not offered, or is strict."""
        tool = self._options.tools.get(name) if self._options.tools is not None else None
        if self._options.tools is None or tool is None or tool.strict:
            self._stopped = True
            return []
        self._tool = tool
        self._stream = ArgumentStream(self._options.tools.graph(tool.name), whole_members=True)
        return [EarlyCallStart(tool.name)]

    def _send(self, text: str) -> list[EarlyCallStart | EarlyArguments]:
        """Add a piece of the arguments' JSON text; return the output that may be sent now."""
        ready = self._stream.feed(text)
        return [EarlyArguments(ready)] if ready else []

    def reconcile_parts(self, parts: list[Part]) -> list[Part]:
        """Make the arguments of the first call in `parts` begin with the text that was sent; see `reconcile`."""
        index = next((index for index, part in enumerate(parts) if part.call is not None), None)
        if index is not None and (call := parts[index].call) is not None:
            parts[index] = call_part(self.reconcile(call), parts[index].raw)
        return parts

    def reconcile(self, outcome: Call | Malformed) -> Call | Malformed:
        """Return the call with an `arguments_json` that begins with the text that was sent.

        If the call was repaired, the part that was sent stays as the model wrote it. If that is impossible, a malformed
        call is returned.
        """
        if self._tool is None or not isinstance(outcome, Call):
            return outcome
        if outcome.name == self._tool.name and (call := begin_with(outcome, self._stream.sent)) is not None:
            return call
        why = "its beginning reads differently from the whole"
        return malformed_call("invalid_json", why, outcome.dialect, self._tool.name)


# Stream a call from the text of its JSON object: the name, and each member that is complete and certain.


MAX_OPENING = 400
"""The maximum number of characters before the arguments: ids, the name and the key of the arguments."""

_SPACE = r"[ \t\r\n]*"
_METADATA = rf'"(?:id|tool_call_id|call_id|type|index)"{_SPACE}:{_SPACE}(?:"[^"\\]*"|\d{{1,9}}){_SPACE},{_SPACE}'
_OPENING = (
    rf'\{{{_SPACE}(?:{_METADATA}){{0,3}}"(?:{"|".join(NAME_KEYS)})"{_SPACE}:{_SPACE}"([^"\\]*)"{_SPACE},{_SPACE}'
    rf'"(?:{"|".join(ARGUMENT_KEYS)})"{_SPACE}:{_SPACE}'
)
"""Matches the text before the arguments: the call's id or index, if any, its name, and the key of the arguments."""
_BEFORE_ARGUMENTS = lazy_pattern(rf"{_OPENING}(?=\{{)")
_BEFORE_FIRST_KEY = lazy_pattern(rf'{_OPENING}(?=\{{{_SPACE}(?:\}}|"(?!(?:type|properties)")[^"\\]*"))')
"""Matches the text before arguments, unless their first key is `type` or `properties`, as in a tool's definition."""
_NAME_AS_KEY = lazy_pattern(rf'\{{{_SPACE}"([^"\\]*)"{_SPACE}:{_SPACE}(?=\{{)')
"""Matches the text before the arguments if their key is the tool's name, as in `{"get_weather": {...}}`."""


class ArgumentStreamer(CallStreamer):
    """Streams the arguments of one call from its JSON object.

    `name` is the tool's name if the markup before the object gives it; None if the object itself names the tool.
    `keyed` says that the object's only key is the tool's name, and that this key's value is the arguments.
    """

    def __init__(self, options: ParseOptions, name: str | None = None, *, keyed: bool = False) -> None:
        super().__init__(options)
        self._opening = _NAME_AS_KEY if keyed else _BEFORE_FIRST_KEY if name is None else _BEFORE_ARGUMENTS
        # the patterns match an envelope, so the beginning of an envelope is put before arguments alone
        self._buffer = f'{{"name": {dump(name)}, "arguments": ' if name is not None else ""
        """The text that has arrived but has not been passed to the `ArgumentStream`."""

    def feed(self, piece: str, *, last: bool = False) -> list[EarlyCallStart | EarlyArguments]:
        """Read a piece of the object; return the output that may be sent now. `last` says that no piece follows."""
        if self._stopped:
            return []
        self._buffer += piece
        early = self._match_name() if self._tool is None else []
        # nobody consumes the fragments if the reply is parsed at once, so a complete object is left to `resolve_call`
        if self._tool is not None and not (last and self._options.single_shot):
            early += self._send_buffer()
        return early

    def _match_name(self) -> list[EarlyCallStart | EarlyArguments]:
        head = self._opening.match(self._buffer, 0, MAX_OPENING)
        if head is None:
            self._stopped = len(self._buffer) >= MAX_OPENING
            return []
        self._buffer = self._buffer[head.end() :]
        return self._start(head[1])

    def _send_buffer(self) -> list[EarlyCallStart | EarlyArguments]:
        text, self._buffer = self._buffer, ""
        return self._send(text)

    def reconcile(self, outcome: Call | Malformed) -> Call | Malformed:
        """Return the call with arguments that begin with the text that was sent; see `CallStreamer.reconcile`."""
        if self._tool is not None and isinstance(outcome, Call) and outcome.name == self._tool.name:
            if not outcome.fixes and self._buffer.startswith(outcome.arguments_json):  # nothing was sent
                return outcome
            self._send_buffer()
        return super().reconcile(outcome)


# Stream a call whose arguments come one by one: as values that were read, or as bare text.
#
# A value that was read is sent when it is complete. The bare text of a string is sent as it comes, except for the
# layout around it and the white space at its end: until the next parameter begins, more text may follow. Of parameters
# in bare text, only those of one scalar type are streamed, since a later parameter of the same name can contradict any
# other value.


Trim = Literal["line", "verbatim", "strip"]
"""Which white space around a value does not belong to the value: a line break on each side, none, or all of it."""

LAYOUT: Final = " \t\r\n"


class MemberStreamer(CallStreamer):
    """Streams one call to the tool `name`. The arguments come one after the other. O(n) in characters."""

    def __init__(self, options: ParseOptions, name: str, trim: Trim = "verbatim") -> None:
        super().__init__(options)
        self._name = name
        self._trim: Trim = trim
        self._has_members = False
        self._key: str | None = None
        """The name of the open parameter, to whose value text may still be added; None if no parameter is open."""
        self._is_text = False
        """Whether the value of the open parameter is sent while it arrives."""
        self._at_start = False
        self._held_space: list[str] = []
        self._sent_size = 0
        """Number of characters of the open parameter's value that have been sent."""
        self.pending: list[EarlyOutput] = []
        """The output that may be sent; the caller sends it and clears the list."""

    def start(self) -> None:
        """Send the name, unless it was sent before."""
        if not (self._stopped or self.started):
            self.pending += self._start(self._name)

    def add(self, key: str, value: Any) -> None:
        """Send a complete argument."""
        if self.started and not self._stopped:
            self._write(f"{self._opening(key)}{dump(value)},")

    def _opening(self, key: str) -> str:
        lead, self._has_members = " " if self._has_members else "{", True
        return f"{lead}{dump(key)}: "

    def _write(self, text: str) -> None:
        self.pending += self._send(text)

    # --- bare text ---------------------------------------------------------------------------------------------------

    def begin_parameter(self, key: str, given: Mapping[str, Any], *, verbatim: bool) -> None:
        """Begin a parameter.

        `given` has the arguments before this one. `verbatim` says that the parameter's value is its text, unchanged.
        """
        self.start()
        self._end_parameter(given)
        if self._stopped or self._tool is None:
            return
        kind = scalar_type(self._tool.parameters.get("properties", {}).get(key))
        if kind is None or key in given:
            self._stopped = True
            return
        self._key, self._sent_size, self._held_space = key, 0, []
        self._is_text = verbatim and kind == "string"
        self._at_start = True

    def add_text(self, text: str) -> None:
        """Add text to the value of the open parameter."""
        if self._key is None or not self._is_text:
            return
        bare = text.rstrip(LAYOUT)
        if not bare:
            self._held_space.append(text)
            return
        if self._at_start:
            text = self._strip_leading(text)
            bare = text.rstrip(LAYOUT)
        self._send_text("".join((*self._held_space, bare)))
        self._held_space = [text[len(bare) :]]

    def _strip_leading(self, text: str) -> str:
        """Return the beginning of a value, without the leading white space that does not belong to it (see `Trim`).

        If the value begins with `<`, return "": such a value is sent only when it is complete.
        """
        text = "".join((*self._held_space, text))
        self._held_space = []
        bare = text.lstrip(LAYOUT)
        if bare[0] == "<":
            self._is_text = False
            return ""
        self._at_start = False
        if self._trim == "strip":
            return bare
        if self._trim == "line":
            return text.removeprefix("\r\n") if text.startswith("\r\n") else text.removeprefix("\n")
        return text

    def _send_text(self, text: str) -> None:
        if text and self._key is not None:
            self._stream.whole_members = False
            opening = "" if self._sent_size else f'{self._opening(self._key)}"'
            self._write(opening + dump(text)[1:-1])
            self._sent_size += len(text)

    def _end_parameter(self, given: Mapping[str, Any]) -> None:
        """Send the rest of the open parameter's value, which is complete in `given` and can no longer change."""
        key, self._key = self._key, None
        if key is None or self._stopped:
            return
        value = given.get(key)
        self._stream.whole_members = True
        if not self._sent_size:
            self.add(key, value)
        elif isinstance(value, str):
            self._write(f"{dump(value[self._sent_size :])[1:]},")
        else:
            self._stopped = True
