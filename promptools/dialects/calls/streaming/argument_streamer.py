"""Stream a call's arguments while the model is still writing them, out of the text of its JSON object.

Clients that stream want the tool's name, and the text of its arguments, before the call is complete. But what was sent
cannot be taken back, and at its end a call is repaired and coerced to the tool's schema, which may change its text. So
only what no later step can change is sent early:

1. `EarlyCallStart`: the tool is named exactly, before its arguments, and is not declared strict.
2. `EarlyArguments`, one or more: each member of the arguments that is complete and certain, as `ArgumentStream` has it.

From the first member that is anything else, the rest is sent with the complete call. Invariant: what was sent is a
prefix of the final `arguments_json`. `reconcile` restores it where a later member was repaired: it keeps the sent
prefix as the model wrote it, and makes the call malformed if that is impossible.

What is sent does not depend on how the text is split into pieces.
"""

from __future__ import annotations

import re

from promptools.dialects.calls.envelope import ARGUMENT_KEYS, NAME_KEYS
from promptools.dialects.calls.json_body import call_part
from promptools.dialects.calls.parse_options import ParseOptions
from promptools.dialects.calls.resolve import malformed_call
from promptools.dialects.calls.streaming.argument_completion import begin_with
from promptools.dialects.calls.streaming.argument_stream import ArgumentStream
from promptools.jsontext.value import dump
from promptools.parsing.parts import EarlyArguments, EarlyCallStart, Part
from promptools.types import Call, Malformed, Tool

MAX_OPENING = 400
"""Characters within which the name and the arguments' key must occur."""

_SPACE = r"[ \t\r\n]*"
_METADATA = rf'"(?:id|tool_call_id|call_id|type|index)"{_SPACE}:{_SPACE}(?:"[^"\\]*"|\d{{1,9}}){_SPACE},{_SPACE}'
_OPENING = (
    rf'\{{{_SPACE}(?:{_METADATA}){{0,3}}"(?:{"|".join(NAME_KEYS)})"{_SPACE}:{_SPACE}"([^"\\]*)"{_SPACE},{_SPACE}'
    rf'"(?:{"|".join(ARGUMENT_KEYS)})"{_SPACE}:{_SPACE}'
)
"""Everything up to the arguments: the name precedes them, perhaps after an id or index of the call."""
_BEFORE_ARGUMENTS = re.compile(rf"{_OPENING}(?=\{{)")
_BEFORE_FIRST_KEY = re.compile(rf'{_OPENING}(?=\{{{_SPACE}(?:\}}|"(?!(?:type|properties)")[^"\\]*"))')
"""The same, and their first key: an object that begins with a schema's keys is a tool's definition, not a call."""
_NAME_AS_KEY = re.compile(rf'\{{{_SPACE}"([^"\\]*)"{_SPACE}:{_SPACE}(?=\{{)')
"""The same where the tool's name is the key of the arguments."""


class ArgumentStreamer:
    """Streams the arguments of one call from its JSON object.

    `name`: the tool whose arguments the object is, if the markup before it names the tool; None: the object does.
    `keyed`: the name is the object's only key, and its value the arguments.
    """

    def __init__(self, rules: ParseOptions, name: str | None = None, *, keyed: bool = False) -> None:
        self._rules = rules
        self._opening = _NAME_AS_KEY if keyed else _BEFORE_FIRST_KEY if name is None else _BEFORE_ARGUMENTS
        # the patterns match a whole envelope, so arguments alone get the beginning of one
        self._buffer = f'{{"name": {dump(name)}, "arguments": ' if name is not None else ""
        """The text that has not been given to `_stream`."""
        self._tool: Tool | None = None
        self._stream = ArgumentStream(None)
        self._stopped = rules.tools is None or rules.restore is not None  # `restore` changes the arguments

    @property
    def sent(self) -> str:
        """The text of the arguments that was sent. Joins the fragments, so use it only at the end."""
        return self._stream.sent

    @property
    def started(self) -> bool:
        """Whether the name was sent."""
        return self._tool is not None

    def feed(self, piece: str, *, last: bool = False) -> list[EarlyCallStart | EarlyArguments]:
        """Read a piece of the object; return what can be sent now. `last`: the object ends with this piece."""
        if self._stopped:
            return []
        self._buffer += piece
        out = self._match_name() if self._tool is None else []
        # nobody consumes the fragments of a single shot, so a complete object is left to `resolve_call`
        if self._tool is not None and not (last and self._rules.single_shot) and (text := self._take_members()):
            out.append(EarlyArguments(text))
        return out

    def _match_name(self) -> list[EarlyCallStart | EarlyArguments]:
        head = self._opening.match(self._buffer, 0, MAX_OPENING)
        if head is None:
            self._stopped = len(self._buffer) >= MAX_OPENING
            return []
        assert self._rules.tools is not None
        tool = self._rules.tools.get(head[1])
        if tool is None or tool.strict:
            self._stopped = True
            return []
        self._tool = tool
        self._stream = ArgumentStream(self._rules.tools.graph(tool.name), whole_members=True)
        self._buffer = self._buffer[head.end() :]
        return [EarlyCallStart(tool.name)]

    def _take_members(self) -> str:
        """Pass the held text to the stream; return the members that are certain."""
        text, self._buffer = self._buffer, ""
        return self._stream.feed(text)

    def reconcile_parts(self, parts: list[Part]) -> list[Part]:
        """Make the call among `parts` begin with what was sent of it; see `reconcile`."""
        index = next((index for index, part in enumerate(parts) if part.call is not None), None)
        if index is not None and (call := parts[index].call) is not None:
            parts[index] = call_part(self.reconcile(call), parts[index].raw)
        return parts

    def reconcile(self, outcome: Call | Malformed) -> Call | Malformed:
        """Make a call's `arguments_json` begin with what was sent of it; malformed if that is impossible.

        A call that was repaired keeps the sent prefix as the model wrote it.
        """
        if self._tool is None or not isinstance(outcome, Call):
            return outcome
        if outcome.name == self._tool.name:
            if not outcome.fixes and self._buffer.startswith(outcome.arguments_json):  # none of it was sent
                return outcome
            self._take_members()
            if (call := begin_with(outcome, self.sent)) is not None:
                return call
        why = "its beginning reads otherwise than the whole"
        return malformed_call("invalid_json", why, outcome.dialect, self._tool.name)
