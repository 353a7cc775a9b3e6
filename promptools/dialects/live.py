"""Stream a call's arguments while the model is still writing them.

Clients that stream want the tool's name, and the text of its arguments, before the call is complete. But what was sent
cannot be taken back, and at its end a call is repaired and coerced to the tool's schema, which may change its text. So
only what no later step can change is sent early:

1. `Started`: the tool is named exactly, before its arguments, and is not declared strict.
2. `Fragment`, one or more: each member of the arguments that is complete, strict JSON, declared by the schema, and a
   scalar of exactly its type.

At the first member that is anything else, streaming stops (`_dead`), and the rest is sent with the complete call.
Invariant: what was sent is a prefix of the final `arguments_json`. `settle` restores it where a later member was
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

from promptools.dialects.body import part_of
from promptools.dialects.envelope import ARGUMENT_KEYS, NAME_KEYS
from promptools.dialects.settle import Rules, broken, dump
from promptools.parsing.parts import Fragment, Part, Started
from promptools.schema.graph import is_object
from promptools.types import Call, Malformed, Tool

HEAD_LIMIT = 400
"""Characters within which the name and the arguments' key must occur."""

SCALAR_LIMIT = 64
"""Characters within which a number or a literal must end."""

_SPACE = r"[ \t\r\n]*"
_ASIDE = rf'"(?:id|tool_call_id|call_id|type|index)"{_SPACE}:{_SPACE}(?:"[^"\\]*"|\d{{1,9}}){_SPACE},{_SPACE}'
_UPTO = (
    rf'\{{{_SPACE}(?:{_ASIDE}){{0,3}}"(?:{"|".join(NAME_KEYS)})"{_SPACE}:{_SPACE}"([^"\\]*)"{_SPACE},{_SPACE}'
    rf'"(?:{"|".join(ARGUMENT_KEYS)})"{_SPACE}:{_SPACE}'
)
"""Everything up to the arguments: the name precedes them, perhaps after an id or index of the call."""
_TOLD = re.compile(rf"{_UPTO}(?=\{{)")
_HEAD = re.compile(rf'{_UPTO}(?=\{{{_SPACE}(?:\}}|"(?!(?:type|properties)")[^"\\]*"))')
"""The same, and their first key: an object that begins with a schema's keys is a tool's definition, not a call."""
_KEYED = re.compile(rf'\{{{_SPACE}"([^"\\]*)"{_SPACE}:{_SPACE}(?=\{{)')
"""The same where the tool's name is the key of the arguments."""
_MEMBER = re.compile(rf'([{{,]{_SPACE}"([^"\\\x00-\x1f]*)"{_SPACE}:{_SPACE})')
_SCALAR = re.compile(r"(-?(?:0|[1-9]\d{0,15})(?:\.\d{1,15})?|true|false)")
_STRING = re.compile(r'"((?:[^"\\\x00-\x1f]|\\["\\/bfnrt])*)"')
_OPEN = re.compile(r'"(?:[^"\\\x00-\x1f]|\\["\\/bfnrt])*(\\?)\Z')
_INSIDE = re.compile(r'[^"\\]*(?:\\.[^"\\]*)*', re.DOTALL)
_NEXT = re.compile(rf"{_SPACE}([,}}])")
_PLAIN = frozenset(("type", "description", "title", "default", "examples"))
_TYPES: Mapping[str, type | tuple[type, ...]] = {"string": str, "integer": int, "number": (int, float), "boolean": bool}


class LiveArguments:
    """Streams the arguments of one call from its JSON object.

    `name`: the tool whose arguments the object is, if the markup before it names the tool; None: the object does.
    `keyed`: the name is the object's only key, and its value the arguments.
    """

    def __init__(self, rules: Rules, name: str | None = None, *, keyed: bool = False) -> None:
        self._rules = rules
        self._head = _KEYED if keyed else _HEAD if name is None else _TOLD
        # the patterns match a whole envelope, so arguments alone get the beginning of one
        self._held = f'{{"name": {dump(name)}, "arguments": ' if name is not None else ""
        self._pieces: list[str] = []
        self._tool: Tool | None = None
        self._dead = rules.tools is None
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

    def feed(self, piece: str, *, last: bool = False) -> list[Started | Fragment]:
        """Read a piece of the object; return what can be sent now. `last`: the object ends with this piece."""
        if self._dead:
            return []
        last = last and self._rules.whole  # nobody consumes the fragments, so a complete object is left to `settle`
        self._pieces.append(piece)
        if self._in_string and not (last or self._string_ends(piece)):
            return []
        out = self._name() if self._tool is None else []
        if self._tool is not None and not last and (text := self._members()):
            self._sent.append(text)
            out.append(Fragment(text))
        return out

    def _join(self) -> str:
        """Return the held text."""
        self._held += "".join(self._pieces)
        self._pieces = []
        return self._held

    def _string_ends(self, piece: str) -> bool:
        """Whether the open string ends in this piece."""
        match = _INSIDE.match(piece, 1 if self._escaped else 0)
        end = match.end() if match is not None else len(piece)
        self._in_string = end >= len(piece) or piece[end] != '"'
        self._escaped = end < len(piece) and self._in_string
        return not self._in_string

    def _name(self) -> list[Started | Fragment]:
        head = self._head.match(self._join(), 0, HEAD_LIMIT)
        if head is None:
            self._dead = len(self._held) >= HEAD_LIMIT
            return []
        assert self._rules.tools is not None
        tool = self._rules.tools.get(head[1])
        if tool is None or tool.strict:
            self._dead = True
            return []
        self._tool = tool
        self._held = self._held[head.end() :]
        return [Started(tool.name)]

    def _members(self) -> str:
        """Remove the settled members at the beginning of the held text, and return their text."""
        text, at = self._join(), 0
        while (end := self._member(text, at)) is not None:
            at = end
        self._held = text[at:]
        return text[:at]

    def _member(self, text: str, at: int) -> int | None:
        """Return the index just past a settled member; None if it is incomplete, or streaming has stopped."""
        assert self._tool is not None
        head = _MEMBER.match(text, at, at + HEAD_LIMIT)
        if head is None or head.end() == len(text):
            self._dead = len(text) - at >= HEAD_LIMIT or text[at : at + 1] == "}"
            return None
        quoted = text[head.end()] == '"'
        value = (_STRING if quoted else _SCALAR).match(text, head.end())
        if value is None:
            tail = _OPEN.match(text, head.end()) if quoted else None
            self._in_string = tail is not None
            self._escaped = tail is not None and tail[1] != ""
            self._dead = tail is None and (quoted or len(text) - head.end() > SCALAR_LIMIT)
            return None
        after = _NEXT.match(text, value.end())
        if after is None:  # the delimiter is still to come, or something else follows
            self._dead = bool(text[value.end() :].strip()) and (quoted or len(text) - head.end() > SCALAR_LIMIT)
            return None
        schema = self._tool.parameters.get("properties", {}).get(head[2])
        if not settled(schema, json.loads(value[0])):
            self._dead = True
            return None
        return value.end()

    def begun(self, parts: list[Part]) -> list[Part]:
        """Make the call among `parts` begin with what was sent of it; see `settle`."""
        index = next((index for index, part in enumerate(parts) if part.call is not None), None)
        if index is not None and (call := parts[index].call) is not None:
            parts[index] = part_of(self.settle(call), parts[index].raw)
        return parts

    def settle(self, outcome: Call | Malformed) -> Call | Malformed:
        """Make a call's `arguments_json` begin with what was sent of it; malformed if that is impossible.

        A call that was repaired keeps the sent prefix as the model wrote it.
        """
        if self._tool is None or not isinstance(outcome, Call):
            return outcome
        if outcome.name == self._tool.name:
            unchanged = not outcome.fixes and not self._dead
            if unchanged and (self.sent + self._join()).startswith(outcome.arguments_json):
                return outcome
            if not self._dead:
                self._sent.append(self._members())
            sent = self.sent
            if outcome.arguments_json.startswith(sent):
                return outcome
            written = json.loads(sent + "}")
            rest = (f", {dump(key)}: {dump(value)}" for key, value in outcome.arguments.items() if key not in written)
            text = f"{sent}{''.join(rest)}}}"
            if json.loads(text) == outcome.arguments:
                return replace(outcome, arguments_json=text)
        why = "its beginning reads otherwise than the whole"
        return broken("invalid_json", why, outcome.dialect, self._tool.name)


def plain(schema: Any) -> str | None:
    """Return the scalar type of a schema that has no other constraints; None for any other schema."""
    if not is_object(schema) or not _PLAIN.issuperset(schema):
        return None
    kind = schema.get("type")
    return kind if isinstance(kind, str) and kind in _TYPES else None


def settled(schema: Any, value: Any) -> bool:
    """Whether `value` is of the schema's unconstrained scalar type, so that no check can change or refuse it."""
    kind = plain(schema)
    return kind is not None and isinstance(value, _TYPES[kind]) and (kind == "boolean" or not isinstance(value, bool))
