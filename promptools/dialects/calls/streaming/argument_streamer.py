"""Stream a call out of the text of its JSON object: the name, and each member that is complete and certain."""

from __future__ import annotations

from promptools.dialects.calls.envelope import ARGUMENT_KEYS, NAME_KEYS
from promptools.dialects.calls.parse_options import ParseOptions
from promptools.dialects.calls.streaming.call_streamer import CallStreamer
from promptools.jsontext.text import dump
from promptools.parsing.parts import EarlyArguments, EarlyCallStart
from promptools.patterns import lazy_pattern
from promptools.types import Call, Malformed

MAX_OPENING = 400
"""Characters within which the name and the arguments' key must occur."""

_SPACE = r"[ \t\r\n]*"
_METADATA = rf'"(?:id|tool_call_id|call_id|type|index)"{_SPACE}:{_SPACE}(?:"[^"\\]*"|\d{{1,9}}){_SPACE},{_SPACE}'
_OPENING = (
    rf'\{{{_SPACE}(?:{_METADATA}){{0,3}}"(?:{"|".join(NAME_KEYS)})"{_SPACE}:{_SPACE}"([^"\\]*)"{_SPACE},{_SPACE}'
    rf'"(?:{"|".join(ARGUMENT_KEYS)})"{_SPACE}:{_SPACE}'
)
"""Everything up to the arguments: the name precedes them, perhaps after an id or index of the call."""
_BEFORE_ARGUMENTS = lazy_pattern(rf"{_OPENING}(?=\{{)")
_BEFORE_FIRST_KEY = lazy_pattern(rf'{_OPENING}(?=\{{{_SPACE}(?:\}}|"(?!(?:type|properties)")[^"\\]*"))')
"""The same, and their first key: an object that begins with a schema's keys is a tool's definition, not a call."""
_NAME_AS_KEY = lazy_pattern(rf'\{{{_SPACE}"([^"\\]*)"{_SPACE}:{_SPACE}(?=\{{)')
"""The same where the tool's name is the key of the arguments."""


class ArgumentStreamer(CallStreamer):
    """Streams the arguments of one call from its JSON object.

    `name`: the tool whose arguments the object is, if the markup before it names the tool; None: the object does.
    `keyed`: the name is the object's only key, and its value the arguments.
    """

    def __init__(self, rules: ParseOptions, name: str | None = None, *, keyed: bool = False) -> None:
        super().__init__(rules)
        self._opening = _NAME_AS_KEY if keyed else _BEFORE_FIRST_KEY if name is None else _BEFORE_ARGUMENTS
        # the patterns match a whole envelope, so arguments alone get the beginning of one
        self._buffer = f'{{"name": {dump(name)}, "arguments": ' if name is not None else ""
        """The text that has not been passed on."""

    def feed(self, piece: str, *, last: bool = False) -> list[EarlyCallStart | EarlyArguments]:
        """Read a piece of the object; return what can be sent now. `last`: the object ends with this piece."""
        if self._stopped:
            return []
        self._buffer += piece
        early = self._match_name() if self._tool is None else []
        # nobody consumes the fragments of a single shot, so a complete object is left to `resolve_call`
        if self._tool is not None and not (last and self._rules.single_shot):
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
        """Make a call begin with what was sent of it; see `CallStreamer`."""
        if self._tool is not None and isinstance(outcome, Call) and outcome.name == self._tool.name:
            if not outcome.fixes and self._buffer.startswith(outcome.arguments_json):  # none of it was sent
                return outcome
            self._send_buffer()
        return super().reconcile(outcome)
