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
_HEAD = re.compile(
    rf'\{{{_SPACE}"(?:{"|".join(NAME_KEYS)})"{_SPACE}:{_SPACE}"([^"\\]*)"{_SPACE},{_SPACE}'
    rf'"(?:{"|".join(ARGUMENT_KEYS)})"{_SPACE}:{_SPACE}(?=\{{)'
)
_MEMBER = re.compile(rf'([{{,]{_SPACE}"([^"\\\x00-\x1f]*)"{_SPACE}:{_SPACE})')
_SCALAR = re.compile(r"(-?(?:0|[1-9]\d{0,15})(?:\.\d{1,15})?|true|false)")
_STRING = re.compile(r'"((?:[^"\\\x00-\x1f]|\\["\\/bfnrt])*)"')
_OPEN = re.compile(r'"(?:[^"\\\x00-\x1f]|\\["\\/bfnrt])*(\\?)\Z')
_INSIDE = re.compile(r'[^"\\]*(?:\\.[^"\\]*)*', re.DOTALL)
_NEXT = re.compile(rf"{_SPACE}([,}}])")
_PLAIN = frozenset(("type", "description", "title", "default", "examples"))
_TYPES: Mapping[str, type | tuple[type, ...]] = {"string": str, "integer": int, "number": (int, float), "boolean": bool}


class LiveArguments:
    """Follow the first object of a block as it comes. O(n): held text is looked at again when a member may end.

    `name`: the tool whose arguments the object is, where the marker before it told; None: the object tells.
    """

    def __init__(self, rules: Rules, name: str | None = None) -> None:
        self._rules = rules
        # what goes live is told from whole calls, so the beginning of one is put around the arguments
        self._held = f'{{"name": {dump(name)}, "arguments": ' if name is not None else ""
        self._pieces: list[str] = []
        self._tool: Tool | None = None
        self._dead = rules.tools is None
        self._in_string = False
        self._escaped = False
        self.started = False
        self.sent = ""

    def feed(self, piece: str) -> list[Started | Fragment]:
        """Take a piece of the object; give what is certain now."""
        if self._dead:
            return []
        self._pieces.append(piece)
        if self._in_string and not self._string_ends(piece):
            return []
        self._held += "".join(self._pieces)
        self._pieces = []
        out: list[Started | Fragment] = []
        if self._tool is None:
            out += self._name()
        if self._tool is not None and (text := self._members()):
            self.sent += text
            out.append(Fragment(text))
        return out

    def _string_ends(self, piece: str) -> bool:
        """Tell whether the open string ends in this piece."""
        found = _INSIDE.match(piece, 1 if self._escaped else 0)
        end = found.end() if found is not None else len(piece)
        self._in_string = end >= len(piece) or piece[end] != '"'
        self._escaped = end < len(piece) and self._in_string
        return not self._in_string

    def _name(self) -> list[Started | Fragment]:
        found = _HEAD.match(self._held)
        if found is None:
            self._dead = len(self._held) > HEAD_LIMIT
            return []
        assert self._rules.tools is not None
        self._tool = self._rules.tools.get(found[1])
        if self._tool is None or self._tool.strict:
            self._tool, self._dead = None, True
            return []
        self._held = self._held[found.end() :]
        self.started = True
        return [Started(self._tool.name)]

    def _members(self) -> str:
        """Give the members at the beginning of what is held that are settled."""
        text, at = self._held, 0
        while (end := self._member(text, at)) is not None:
            at = end
        self._held = text[at:]
        return text[:at]

    def _member(self, text: str, at: int) -> int | None:
        """Give the index just past a settled member; None: it is not whole yet, or nothing more will be settled."""
        assert self._tool is not None
        head = _MEMBER.match(text, at)
        if head is None or head.end() == len(text):
            self._dead = len(text) - at > HEAD_LIMIT or text[at : at + 1] == "}"
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


def settled(schema: Any, value: Any) -> bool:
    """Tell whether this is the plain scalar that the schema names, so that no check can change or refuse it."""
    if not is_object(schema) or not _PLAIN.issuperset(schema):
        return False
    kind = schema.get("type")
    wanted = _TYPES.get(kind) if isinstance(kind, str) else None
    return wanted is not None and isinstance(value, wanted) and (kind == "boolean" or not isinstance(value, bool))


def agree(parts: list[Part], raw: str, rules: Rules, name: str | None = None) -> list[Part]:
    """Make the first call of a block begin with what was, or in pieces would have been, let out of it. O(n).

    A call that was mended keeps the settled beginning as the model wrote it; where that cannot be, it is malformed.
    """
    first = next((part for part in parts if part.call is not None), None)
    if first is None or first.call is None or not first.call.fixes:
        return parts
    live = LiveArguments(rules, name)
    live.feed(raw)
    if not live.sent or first.call.arguments_json.startswith(live.sent):
        return parts
    first.call, first.malformed, first.kind = _with_beginning(first.call, live.sent)
    return parts


def _with_beginning(call: Call, sent: str) -> tuple[Call | None, Any, Any]:
    settled = json.loads(sent + "}")
    rest = "".join(f", {dump(key)}: {dump(value)}" for key, value in call.arguments.items() if key not in settled)
    whole = sent + rest + "}"
    if json.loads(whole) == call.arguments:
        return replace(call, arguments_json=whole), None, "call"
    said = broken("invalid_json", "its beginning reads otherwise than the whole", call.dialect, call.name)
    return None, said, "malformed"


class LiveCall:
    """Lets out the arguments of a call whose name stood before them."""

    def __init__(self, name: str, rules: Rules) -> None:
        self._name = name
        self._rules = rules
        self._live: LiveArguments | None = None

    def feed(self, text: str) -> list[Started | Fragment]:
        """Take a piece of the arguments; give what no later piece can change."""
        if self._live is None:
            self._live = LiveArguments(self._rules, self._name)
        return self._live.feed(text)

    @property
    def sent(self) -> str:
        """What `feed` gave of the arguments."""
        return self._live.sent if self._live is not None else ""

    def settle(self, call: Call, text: str) -> Call | Malformed:
        """Make a call begin with what went out of it, `text` being its arguments; malformed where that cannot be."""
        (part,) = agree([Part("call", "", call=call)], text, self._rules, self._name)
        outcome = part.call or part.malformed
        assert outcome is not None
        return outcome
