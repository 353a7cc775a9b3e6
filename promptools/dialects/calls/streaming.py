"""Stream a call's arguments while the model is still writing them.

Clients that stream want the tool's name, and the text of its arguments, before the call is complete. But what was sent
cannot be taken back, and at its end a call is repaired and coerced to the tool's schema, which may change its text. So
only what no later step can change is sent early:

1. `EarlyCallStart`: the tool is named exactly, before its arguments, and is not declared strict.
2. `EarlyArguments`, one or more: each member of the arguments that is complete, strict JSON, declared by the schema,
   and a scalar of exactly its type.

At the first member that is anything else, streaming stops (`_stopped`), and the rest is sent with the complete call.
Invariant: what was sent is a prefix of the final `arguments_json`. `reconcile` restores it where a later member was
repaired: it keeps the sent prefix as the model wrote it, and makes the call malformed if that is impossible.

What is sent does not depend on how the text is split into pieces. Held text is searched again only when a member may
end, so long strings cost O(n).
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from promptools.dialects.calls.envelope import ARGUMENT_KEYS, NAME_KEYS
from promptools.dialects.calls.json_body import call_part
from promptools.dialects.calls.resolve import ParseOptions, dump, malformed_call
from promptools.parsing.parts import EarlyArguments, EarlyCallStart, Part
from promptools.schema.documents.json_guards import is_object
from promptools.types import Call, Malformed, Tool

MAX_OPENING = 400
"""Characters within which the name and the arguments' key must occur."""

MAX_SCALAR = 64
"""Characters within which a number or a literal must end."""

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
_MEMBER = re.compile(rf'([{{,]{_SPACE}"([^"\\\x00-\x1f]*)"{_SPACE}:{_SPACE})')
_SCALAR = re.compile(r"(-?(?:0|[1-9]\d{0,15})(?:\.\d{1,15})?|true|false)")
_STRING = re.compile(r'"((?:[^"\\\x00-\x1f]|\\["\\/bfnrt])*)"')
_OPEN_STRING = re.compile(r'"(?:[^"\\\x00-\x1f]|\\["\\/bfnrt])*(\\?)\Z')
_STRING_CONTENT = re.compile(r'[^"\\]*(?:\\.[^"\\]*)*', re.DOTALL)
_NEXT = re.compile(rf"{_SPACE}([,}}])")
_UNCONSTRAINED = frozenset(("type", "description", "title", "default", "examples"))
_TYPES: Mapping[str, type | tuple[type, ...]] = {"string": str, "integer": int, "number": (int, float), "boolean": bool}


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
        self._pieces: list[str] = []
        self._tool: Tool | None = None
        self._stopped = rules.tools is None
        self._in_string = False
        self._escaped = False
        self._sent: list[str] = []

    @property
    def sent(self) -> str:
        """The text of the arguments that was sent. Joins the fragments, so use it only at the end."""
        return "".join(self._sent)

    @property
    def started(self) -> bool:
        """Whether the name was sent."""
        return self._tool is not None

    def feed(self, piece: str, *, last: bool = False) -> list[EarlyCallStart | EarlyArguments]:
        """Read a piece of the object; return what can be sent now. `last`: the object ends with this piece."""
        if self._stopped:
            return []
        last = (
            last and self._rules.single_shot
        )  # nobody consumes the fragments, so a complete object is left to `resolve_call`
        self._pieces.append(piece)
        if self._in_string and not (last or self._string_ends(piece)):
            return []
        out = self._match_name() if self._tool is None else []
        if self._tool is not None and not last and (text := self._take_members()):
            self._sent.append(text)
            out.append(EarlyArguments(text))
        return out

    def _join(self) -> str:
        """Return the held text."""
        self._buffer += "".join(self._pieces)
        self._pieces = []
        return self._buffer

    def _string_ends(self, piece: str) -> bool:
        """Whether the open string ends in this piece."""
        match = _STRING_CONTENT.match(piece, 1 if self._escaped else 0)
        end = match.end() if match is not None else len(piece)
        self._in_string = end >= len(piece) or piece[end] != '"'
        self._escaped = end < len(piece) and self._in_string
        return not self._in_string

    def _match_name(self) -> list[EarlyCallStart | EarlyArguments]:
        head = self._opening.match(self._join(), 0, MAX_OPENING)
        if head is None:
            self._stopped = len(self._buffer) >= MAX_OPENING
            return []
        assert self._rules.tools is not None
        tool = self._rules.tools.get(head[1])
        if tool is None or tool.strict:
            self._stopped = True
            return []
        self._tool = tool
        self._buffer = self._buffer[head.end() :]
        return [EarlyCallStart(tool.name)]

    def _take_members(self) -> str:
        """Remove the settled members at the beginning of the held text, and return their text."""
        text, at = self._join(), 0
        while (end := self._member_end(text, at)) is not None:
            at = end
        self._buffer = text[at:]
        return text[:at]

    def _member_end(self, text: str, at: int) -> int | None:
        """Return the index just past a settled member; None if it is incomplete, or streaming has stopped."""
        assert self._tool is not None
        head = _MEMBER.match(text, at, at + MAX_OPENING)
        if head is None or head.end() == len(text):
            self._stopped = len(text) - at >= MAX_OPENING or text[at : at + 1] == "}"
            return None
        quoted = text[head.end()] == '"'
        value = (_STRING if quoted else _SCALAR).match(text, head.end())
        if value is None:
            tail = _OPEN_STRING.match(text, head.end()) if quoted else None
            self._in_string = tail is not None
            self._escaped = tail is not None and tail[1] != ""
            self._stopped = tail is None and (quoted or len(text) - head.end() > MAX_SCALAR)
            return None
        after = _NEXT.match(text, value.end())
        if after is None:  # the delimiter is still to come, or something else follows
            self._stopped = bool(text[value.end() :].strip()) and (quoted or len(text) - head.end() > MAX_SCALAR)
            return None
        schema = self._tool.parameters.get("properties", {}).get(head[2])
        if not is_final(schema, json.loads(value[0])):
            self._stopped = True
            return None
        return value.end()

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
            unchanged = not outcome.fixes and not self._stopped
            if unchanged and (self.sent + self._join()).startswith(outcome.arguments_json):
                return outcome
            if not self._stopped:
                self._sent.append(self._take_members())
            sent = self.sent
            if outcome.arguments_json.startswith(sent):
                return outcome
            written = json.loads(sent + "}")
            rest = (f", {dump(key)}: {dump(value)}" for key, value in outcome.arguments.items() if key not in written)
            text = f"{sent}{''.join(rest)}}}"
            if json.loads(text) == outcome.arguments:
                return replace(outcome, arguments_json=text)
        why = "its beginning reads otherwise than the whole"
        return malformed_call("invalid_json", why, outcome.dialect, self._tool.name)


def scalar_type(schema: Any) -> str | None:
    """Return the scalar type of a schema that has no other constraints; None for any other schema."""
    if not is_object(schema) or not _UNCONSTRAINED.issuperset(schema):
        return None
    kind = schema.get("type")
    return kind if isinstance(kind, str) and kind in _TYPES else None


def is_final(schema: Any, value: Any) -> bool:
    """Whether `value` is of the schema's unconstrained scalar type, so that no check can change or refuse it."""
    kind = scalar_type(schema)
    return kind is not None and isinstance(value, _TYPES[kind]) and (kind == "boolean" or not isinstance(value, bool))
