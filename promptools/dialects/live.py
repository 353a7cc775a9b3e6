"""Let a call out while it is being written: its name, then each argument that nothing can change any more.

Only what is certain goes out: the tool is named exactly, before its arguments; an argument is declared, whole, strict
JSON, and a scalar of the very type that its schema names. At the first one that is not, the rest waits for the end.
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
"""Characters in which the name and the arguments' key must come."""

SCALAR_LIMIT = 64
"""Characters in which a number or a literal must end."""

_SPACE = r"[ \t\r\n]*"
_ASIDE = rf'"(?:id|tool_call_id|call_id|type|index)"{_SPACE}:{_SPACE}(?:"[^"\\]*"|\d{{1,9}}){_SPACE},{_SPACE}'
_UPTO = (
    rf'\{{{_SPACE}(?:{_ASIDE}){{0,3}}"(?:{"|".join(NAME_KEYS)})"{_SPACE}:{_SPACE}"([^"\\]*)"{_SPACE},{_SPACE}'
    rf'"(?:{"|".join(ARGUMENT_KEYS)})"{_SPACE}:{_SPACE}'
)
"""Up to the arguments: the name stands before them, perhaps behind a number of the call."""
_TOLD = re.compile(rf"{_UPTO}(?=\{{)")
_HEAD = re.compile(rf'{_UPTO}(?=\{{{_SPACE}(?:\}}|"(?!(?:type|properties)")[^"\\]*"))')
"""The same, and their first key: what begins with a schema's keys is a tool's definition, and no call of it."""
_KEYED = re.compile(rf'\{{{_SPACE}"([^"\\]*)"{_SPACE}:{_SPACE}(?=\{{)')
"""The same where the name is the key of the arguments."""
_MEMBER = re.compile(rf'([{{,]{_SPACE}"([^"\\\x00-\x1f]*)"{_SPACE}:{_SPACE})')
_SCALAR = re.compile(r"(-?(?:0|[1-9]\d{0,15})(?:\.\d{1,15})?|true|false)")
_STRING = re.compile(r'"((?:[^"\\\x00-\x1f]|\\["\\/bfnrt])*)"')
_OPEN = re.compile(r'"(?:[^"\\\x00-\x1f]|\\["\\/bfnrt])*(\\?)\Z')
_INSIDE = re.compile(r'[^"\\]*(?:\\.[^"\\]*)*', re.DOTALL)
_NEXT = re.compile(rf"{_SPACE}([,}}])")
_PLAIN = frozenset(("type", "description", "title", "default", "examples"))
_TYPES: Mapping[str, type | tuple[type, ...]] = {"string": str, "integer": int, "number": (int, float), "boolean": bool}


class LiveArguments:
    """Follow one call's object as it comes. O(n): held text is looked at again when a member may end.

    What goes out is the same however the text is cut. `name`: the tool whose arguments the object is, where what stands
    before it told; None: the object tells. `keyed`: the name is the object's only key, its value the arguments.
    """

    def __init__(self, rules: Rules, name: str | None = None, *, keyed: bool = False) -> None:
        self._rules = rules
        self._head = _KEYED if keyed else _HEAD if name is None else _TOLD
        # what goes live is told from whole calls, so the beginning of one is put around the arguments
        self._held = f'{{"name": {dump(name)}, "arguments": ' if name is not None else ""
        self._pieces: list[str] = []
        self._tool: Tool | None = None
        self._dead = rules.tools is None
        self._in_string = False
        self._escaped = False
        self._sent: list[str] = []

    @property
    def sent(self) -> str:
        """What has gone out of the arguments: for the end, since it puts the pieces together."""
        return "".join(self._sent)

    @property
    def started(self) -> bool:
        """Tell whether the name has gone out."""
        return self._tool is not None

    def feed(self, piece: str, *, last: bool = False) -> list[Started | Fragment]:
        """Take a piece of the object; give what is certain now. `last`: it ends here."""
        if self._dead:
            return []
        last = last and self._rules.whole  # nobody takes the pieces: what has ended is looked at only if it is odd
        self._pieces.append(piece)
        if self._in_string and not (last or self._string_ends(piece)):
            return []
        out = self._name() if self._tool is None else []
        if self._tool is not None and not last and (text := self._members()):
            self._sent.append(text)
            out.append(Fragment(text))
        return out

    def _join(self) -> str:
        """Give what is held."""
        self._held += "".join(self._pieces)
        self._pieces = []
        return self._held

    def _string_ends(self, piece: str) -> bool:
        """Tell whether the open string ends in this piece."""
        found = _INSIDE.match(piece, 1 if self._escaped else 0)
        end = found.end() if found is not None else len(piece)
        self._in_string = end >= len(piece) or piece[end] != '"'
        self._escaped = end < len(piece) and self._in_string
        return not self._in_string

    def _name(self) -> list[Started | Fragment]:
        found = self._head.match(self._join(), 0, HEAD_LIMIT)
        if found is None:
            self._dead = len(self._held) >= HEAD_LIMIT
            return []
        assert self._rules.tools is not None
        tool = self._rules.tools.get(found[1])
        if tool is None or tool.strict:
            self._dead = True
            return []
        self._tool = tool
        self._held = self._held[found.end() :]
        return [Started(tool.name)]

    def _members(self) -> str:
        """Give the members at the beginning of what is held that are settled."""
        text, at = self._join(), 0
        while (end := self._member(text, at)) is not None:
            at = end
        self._held = text[at:]
        return text[:at]

    def _member(self, text: str, at: int) -> int | None:
        """Give the index just past a settled member; None: it is not whole yet, or nothing more will be settled."""
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
        if after is None:  # what follows is still to come, or is nothing that may follow
            self._dead = bool(text[value.end() :].strip()) and (quoted or len(text) - head.end() > SCALAR_LIMIT)
            return None
        schema = self._tool.parameters.get("properties", {}).get(head[2])
        if not settled(schema, json.loads(value[0])):
            self._dead = True
            return None
        return value.end()

    def begun(self, parts: list[Part]) -> list[Part]:
        """Make the call that was read of the object begin with what went out of it."""
        at = next((at for at, part in enumerate(parts) if part.call is not None), None)
        if at is not None and (call := parts[at].call) is not None:
            parts[at] = part_of(self.settle(call), parts[at].raw)
        return parts

    def settle(self, outcome: Call | Malformed) -> Call | Malformed:
        """Make a call begin with what went out of it; malformed where that cannot be.

        A call that was mended keeps the settled beginning as the model wrote it.
        """
        if self._tool is None or not isinstance(outcome, Call):
            return outcome
        if outcome.name == self._tool.name:
            own = not outcome.fixes and not self._dead
            if own and (self.sent + self._join()).startswith(outcome.arguments_json):
                return outcome
            if not self._dead:
                self._sent.append(self._members())
            sent = self.sent
            if outcome.arguments_json.startswith(sent):
                return outcome
            settled = json.loads(sent + "}")
            rest = (f", {dump(key)}: {dump(value)}" for key, value in outcome.arguments.items() if key not in settled)
            whole = f"{sent}{''.join(rest)}}}"
            if json.loads(whole) == outcome.arguments:
                return replace(outcome, arguments_json=whole)
        why = "its beginning reads otherwise than the whole"
        return broken("invalid_json", why, outcome.dialect, self._tool.name)


def plain(schema: Any) -> str | None:
    """Give the type of the plain scalar that a schema names and says no more of; None: it does not."""
    if not is_object(schema) or not _PLAIN.issuperset(schema):
        return None
    kind = schema.get("type")
    return kind if isinstance(kind, str) and kind in _TYPES else None


def settled(schema: Any, value: Any) -> bool:
    """Tell whether this is the plain scalar that the schema names, so that no check can change or refuse it."""
    kind = plain(schema)
    return kind is not None and isinstance(value, _TYPES[kind]) and (kind == "boolean" or not isinstance(value, bool))
