"""Decide which part of a call's arguments may be sent while the model is still writing them as JSON.

Text that was sent cannot be taken back. So only text that no later input can change is sent: strict JSON, keys that the
tool declares, and values that conform to the tool's schema. The first violation stops the stream. The rest of the call
then waits until the call is complete, and is repaired like any other call.

Arguments come from two sources. The arguments of a server's structured call are a JSON document that ends where the
server says. The arguments of a call in text are what a dialect's reader has found so far. There, a later closing marker
or quote may show that a string ends at another place, so only whole members are sent (`whole_members`). An exception is
text without quotes between tags, which is sent while it arrives.

A state is a method that reads one token and returns where it ends:

    _open     the opening brace of the arguments
    _key      a key and its colon, or the end of an empty object
    _value    the start of a value; also the end of an empty array
    _string   the inside of a string
    _after    what follows a value: a comma or the closing bracket

`_frames` is the stack of open objects and arrays with their schemas. `_read` holds text that has been read but not
released, `_ready` text that may be sent. A string is released character by character, at any depth, if its schema
checks at most its type. Some values can only be checked when they are complete, such as numbers, enums, strings with a
pattern and, with `whole_members`, every value of the arguments. Such a value is held: nothing is released until it ends
and passes its check. The last brace of the arguments is never sent from here, since the whole call is checked first.
Nothing is sent before `least` characters are ready, so that a short call can still be retried.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from promptools.json_values import is_array, is_object
from promptools.jsontext.text import dump
from promptools.patterns import lazy_pattern
from promptools.schema.documents import SCHEMA_LISTS, SCHEMA_MAPS, SINGLE_SCHEMA, SINGLE_SCHEMA_RARE
from promptools.types import Call

if TYPE_CHECKING:
    from promptools.schema.graph import SchemaGraph
    from promptools.schema.predicates import Predicate


MIN_STREAMED = 32
"""Number of characters of arguments that are held back at first, so that a short call can still be retried."""
MAX_DEPTH = 64
"""Maximum depth of nested objects and arrays in arguments that are streamed. Deeper nesting stops the stream."""
MAX_TOKEN = 400
"""The maximum length of a key or a number."""

_SPACE = lazy_pattern(r"[ \t\r\n]+")
_KEY = lazy_pattern(r'"([^"\\\x00-\x1f]*)"[ \t\r\n]*:')
_SCALAR = lazy_pattern(
    r"(?:-?(?:0|[1-9][0-9]{0,15})(?:\.[0-9]{1,15})?(?:[eE][+-]?[0-9]{1,2})?|true|false|null)(?=[ \t\r\n]*[,}\]])"
)
_STRING_TEXT = lazy_pattern(
    r'(?:[^"\\\x00-\x1f]+|\\["\\/bfnrt]|\\u(?![dD][89a-fA-F])[0-9a-fA-F]{4}'
    r"|\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2})+"
)
_MAX_ESCAPE = 12
"""The length of the longest escape in a JSON string: a surrogate pair, such as `\\ud83d\\ude00`."""
_KINDS = {'"': "string", "{": "object", "[": "array"}
_ANNOTATIONS = frozenset((
    "$comment", "$defs", "$id", "$schema", "default", "definitions", "deprecated", "description", "examples", "format",
    "readOnly", "title", "writeOnly",
))  # fmt: skip
"""Schema keywords that do not restrict the value, such as `description`."""
_INCREMENTAL_KEYWORDS: dict[str, frozenset[str]] = {
    "string": frozenset(("type",)),
    "object": frozenset(("type", "properties", "required", "additionalProperties")),
    "array": frozenset(("type", "items")),
}
"""Maps a JSON type to the schema keywords that can be checked while a value of this type arrives."""
_UNCONSTRAINED = frozenset(("type", "description", "title", "default", "examples"))
_SCALAR_TYPES: Mapping[str, type | tuple[type, ...]] = {
    "string": str, "integer": int, "number": (int, float), "boolean": bool,
}  # fmt: skip
_SUBSCHEMA_KEYWORDS = (
    *SINGLE_SCHEMA,
    *SINGLE_SCHEMA_RARE,
    *SCHEMA_LISTS,
    *(word for word in SCHEMA_MAPS if word not in {"$defs", "definitions"}),
)


@dataclass(slots=True)
class _Frame:
    """An object or array that is not closed yet. `node` is its schema; True allows any value."""

    closer: str
    node: Any
    keys: set[str] = field(default_factory=set[str])
    key: str = ""
    begun: bool = False


class ArgumentStream:
    """Streams the arguments of one call in O(n). How the input is split into pieces does not change what is sent.

    `graph` is the tool's schema. If it is None, because the tool is unknown, nothing is sent. Sending starts once
    `least` characters are ready.
    """

    def __init__(self, graph: SchemaGraph | None, least: int = 0, *, whole_members: bool = False) -> None:
        self._graph = graph
        self._least = least
        self.whole_members = whole_members
        """Whether the next member of the arguments is held back until its value is complete."""
        self._stopped = graph is None
        self._state: Callable[[ArgumentStream, str, int], int | None] = ArgumentStream._open
        """The current state: a function, because a bound method would make a reference cycle with this object."""
        self._frames: list[_Frame] = []
        self._unread = ""
        self._read: list[str] = []
        """The text that has been read but may not be sent yet."""
        self._held: tuple[int, int, Any] | None = None
        """Describes the value that is held back; None if no value is.

        A tuple of the number of open brackets around the value, its index in `_read`, and its schema.
        """
        self._ready: list[str] = []
        """The text that may be sent."""
        self._sent: list[str] = []
        self._checks: dict[int, Predicate | None] = {}

    @property
    def sent(self) -> str:
        """The part of the arguments that has been sent."""
        return "".join(self._sent)

    @property
    def started(self) -> bool:
        """Whether anything has been sent."""
        return bool(self._sent)

    def feed(self, piece: str) -> str:
        """Add a fragment of the arguments; return the text that may be sent now."""
        if self._stopped:
            return ""
        text, at = self._unread + piece, 0
        while not self._stopped and at < len(text):
            space = _SPACE.match(text, at) if self._state is not ArgumentStream._string else None
            end = space.end() if space else self._state(self, text, at)
            if end is None:
                break
            self._read.append(text[at:end])
            at = end
            if self._state is ArgumentStream._string and self._held is None:
                self._release()
        self._unread = text[at:]
        ready = "".join(self._ready)
        if len(ready) < self._least and not self._sent:
            return ""
        self._ready.clear()
        if ready:
            self._sent.append(ready)
        return ready

    def cancel(self) -> None:
        """Stop, and forget everything that `feed` returned, because the client never received it."""
        self._sent.clear()
        self._stop()

    def _stop(self) -> None:
        self._stopped = True
        self._read.clear()

    def _release(self) -> None:
        self._ready += self._read
        self._read.clear()

    # --- states: each returns where its token ends; None: more input is needed, or the stream has stopped -------------

    def _open(self, text: str, at: int) -> int | None:
        """Read the opening brace of the arguments."""
        assert self._graph is not None
        node = self._incremental_schema(self._graph.root, "object")
        if text[at] != "{" or not is_object(node) or not node.get("properties"):
            self._stop()
            return None
        self._read.clear()  # white space before the brace is not part of the arguments
        self._frames.append(_Frame("}", node))
        self._state = ArgumentStream._key
        return at + 1

    def _key(self, text: str, at: int) -> int | None:
        frame = self._frames[-1]
        if text[at] == "}" and not frame.begun:
            return self._close(at)
        match = _KEY.match(text, at, at + MAX_TOKEN)
        if match is None:
            if text[at] != '"' or len(text) - at >= MAX_TOKEN or '"' in text[at + 1 :].rstrip()[:-1]:
                self._stop()
            return None
        frame.key, frame.begun = match[1], True
        frame.keys.add(match[1])
        self._state = ArgumentStream._value
        return match.end()

    def _value(self, text: str, at: int) -> int | None:
        frame = self._frames[-1]
        if text[at] == "]" and frame.closer == "]" and not frame.begun:
            return self._close(at)
        frame.begun = True
        node = self._member_schema(frame)
        if node is None or len(self._frames) >= MAX_DEPTH:
            self._stop()
            return None
        kind = _KINDS.get(text[at])
        if kind is None:
            return self._scalar(text, at, node)
        alone = None if self.whole_members else self._incremental_schema(node, kind)
        if alone is None:
            self._hold(node)
        if kind == "string":
            self._state = ArgumentStream._string
        else:
            self._frames.append(_Frame("}" if kind == "object" else "]", True if alone is None else alone))
            self._state = ArgumentStream._key if kind == "object" else ArgumentStream._value
        return at + 1

    def _scalar(self, text: str, at: int, node: Any) -> int | None:
        match = _SCALAR.match(text, at, at + MAX_TOKEN)
        if match is None:
            if len(text) - at >= MAX_TOKEN or any(end in text[at:] for end in ',}]"'):
                self._stop()
            return None
        self._hold(node)
        self._state = ArgumentStream._after
        return match.end()

    def _string(self, text: str, at: int) -> int | None:
        if text[at] == '"':
            self._state = ArgumentStream._after
            return at + 1
        match = _STRING_TEXT.match(text, at)
        if match is not None:
            return match.end()
        if text[at] != "\\" or len(text) - at >= _MAX_ESCAPE or not _is_escape_prefix(text[at:]):
            self._stop()
        return None

    def _after(self, text: str, at: int) -> int | None:
        """Read the comma or bracket after a value, which shows that the value is complete."""
        frame = self._frames[-1]
        if text[at] not in {",", frame.closer} or not self._passes_check():
            self._stop()
            return None
        if self._held is None:
            self._release()
        if text[at] == frame.closer:
            return self._close(at)
        self._state = ArgumentStream._key if frame.closer == "}" else ArgumentStream._value
        return at + 1

    def _close(self, at: int) -> int | None:
        """Close an object or array; the closing brace of the arguments waits until the whole call is checked."""
        frame = self._frames.pop()
        required = frame.node.get("required", ()) if is_object(frame.node) else ()
        if not self._frames or not frame.keys.issuperset(required):
            self._stop()
            return None
        self._state = ArgumentStream._after
        return at + 1

    # --- schemas -------------------------------------------------------------------------------------------------

    def _hold(self, node: Any) -> None:
        """Hold a value back until it is complete, unless a value around it is held back already."""
        if self._held is None:
            self._held = len(self._frames), len(self._read), node

    def _passes_check(self) -> bool:
        """Return False if the held value has just ended and fails its check; True in all other cases.

        After the check, the value is no longer held.
        """
        if self._held is None or self._held[0] != len(self._frames):
            return True
        _, start, node = self._held
        self._held = None
        try:
            value = json.loads("".join(self._read[start:]))
            if is_final(node, value):
                return True
            check = self._compiled_check(node)
            return check is not None and check(value)
        except Exception:  # noqa: BLE001 - whatever a check raises, the value is not known to be valid
            return False

    def _compiled_check(self, node: Any) -> Predicate | None:
        if not is_object(node):
            return lambda _: node is True
        if id(node) not in self._checks:
            assert self._graph is not None
            from promptools.schema.predicates import compile_predicate  # seldom needed

            nodes = list(self._graph.applied_nodes(node, _SUBSCHEMA_KEYWORDS))
            self._checks[id(node)] = compile_predicate(replace(self._graph, root=node, nodes=nodes))
        return self._checks[id(node)]

    def _member_schema(self, frame: _Frame) -> Any:
        """Return the schema for the next value in an open object or array; None if no value may be streamed there."""
        node = frame.node
        if node is True:
            return True
        if frame.closer == "]":
            return node.get("items", True)
        declared = node.get("properties", {})
        if frame.key in declared:
            return declared[frame.key]
        if len(self._frames) == 1:  # the complete call may show that the key is an alias of a declared key
            return None
        others = node.get("additionalProperties", None if declared else True)
        return None if others is False else others

    def _incremental_schema(self, node: Any, kind: str) -> Any:
        """Return a schema that can check a value while it arrives; None if only a complete value can be checked.

        `kind` is the JSON type of the value.
        """
        assert self._graph is not None
        for _ in range(MAX_DEPTH):
            if not is_object(node):
                return True if node is True else None
            keywords = node.keys() - _ANNOTATIONS
            if not keywords:
                return True
            if keywords == {"$ref"}:
                node = next(iter(self._graph.targets.get(id(node), ())), None)
            elif keywords in ({"anyOf"}, {"oneOf"}):
                (keyword,) = keywords
                likely = [branch for branch in node[keyword] if self._allows_kind(branch, kind)]
                node = likely[0] if len(likely) == 1 else None
            else:
                return node if keywords <= _INCREMENTAL_KEYWORDS[kind] and self._allows_kind(node, kind) else None
        return None

    def _allows_kind(self, node: Any, kind: str) -> bool:
        """Return whether the types in a schema allow values of the JSON type `kind`."""
        assert self._graph is not None
        for schema in self._graph.applied_nodes(node, ()):
            types = schema.get("type", kind)
            if kind not in (types if is_array(types) else (types,)):
                return False
        return node is not False


def scalar_type(schema: Any) -> str | None:
    """Return the type of a schema that only asks for a string, integer, number or boolean; None for other schemas."""
    if not is_object(schema) or not _UNCONSTRAINED.issuperset(schema):
        return None
    kind = schema.get("type")
    return kind if isinstance(kind, str) and kind in _SCALAR_TYPES else None


def is_final(schema: Any, value: Any) -> bool:
    """Return whether a schema only asks for the scalar type of `value`. If so, no check can change or reject it."""
    kind = scalar_type(schema)
    return (
        kind is not None
        and isinstance(value, _SCALAR_TYPES[kind])
        and (kind == "boolean" or not isinstance(value, bool))
    )


def _is_escape_prefix(text: str) -> bool:
    """Return whether a text is a proper prefix of a valid JSON escape."""
    if len(text) == 1:
        return True
    if text[1] != "u":
        return False
    first, second = text[2:6], text[6:]
    digits = all(digit in "0123456789abcdefABCDEF" for digit in first)
    return digits and (len(first) < 4 or ("\\u".startswith(second[:2]) and _is_high_surrogate(first)))


def _is_high_surrogate(digits: str) -> bool:
    return digits[0] in "dD" and digits[1] in "89abAB"


# Complete arguments whose beginning has been sent: the rest is written after the text that was sent.
#
# The sent text cannot change, not even its white space. It is tokenized again to find the open objects and arrays and
# what each of them contains so far. Then the rest of `arguments` is written, innermost container first. The result is
# accepted only if it parses to `arguments`, so if a repair contradicts the sent text, the result is None.


_TOKEN = lazy_pattern(r'[ \t\r\n]*(?:([{}\[\],:])|("(?:[^"\\]|\\.)*")|("(?:[^"\\]|\\.)*\Z)|([^\s{}\[\],:"]+))')


def begin_with(call: Call, sent: str) -> Call | None:
    """Return the call with its arguments rewritten to begin with `sent`; None if that is impossible."""
    if call.arguments_json.startswith(sent):
        return call
    text = complete_arguments(sent, call.arguments)
    return None if text is None else replace(call, arguments_json=text)


def complete_arguments(sent: str, arguments: dict[str, Any]) -> str | None:
    """Return `arguments` as JSON that begins with the text `sent`; None if that is impossible."""
    try:
        whole = sent + _missing_text(sent, arguments)
        return whole if json.loads(whole) == arguments else None
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
        return None


def _missing_text(sent: str, arguments: dict[str, Any]) -> str:
    """Return the text that completes `sent`: the end of an open string, then the rest of each open object and array."""
    frames: list[tuple[Any, list[str]]] = []
    value: Any = arguments
    out: list[str] = []
    keyed = False
    for bracket, string, open_string, scalar in _TOKEN.findall(sent):
        if string and is_object(frames[-1][0]) and not keyed:
            frames[-1][1].append(json.loads(string))
            value = frames[-1][0][frames[-1][1][-1]]
            keyed = True
        elif bracket and bracket in "{[":
            value = _next_value(frames, value)
            frames.append((value, []))
            keyed = False
        elif bracket and bracket in "}]":
            frames.pop()
            keyed = False
        elif bracket == ",":
            keyed = False
        elif string or scalar or open_string:
            value = _next_value(frames, value)
            keyed = False
        if open_string:
            prefix = json.loads(f'{open_string}"')
            if not value.startswith(prefix):
                raise ValueError(prefix)
            out.append(dump(value[len(prefix) :])[1:])
    for value, done in reversed(frames):
        rest = (
            [f"{dump(key)}: {dump(item)}" for key, item in value.items() if key not in done]
            if is_object(value)
            else [dump(item) for item in value[len(done) :]]
        )
        out += [f"{', ' if done or number else ''}{item}" for number, item in enumerate(rest)]
        out.append("}" if is_object(value) else "]")
    return "".join(out)


def _next_value(frames: list[tuple[Any, list[str]]], value: Any) -> Any:
    """Return the value that begins with the token that `_missing_text` is reading.

    Inside an array, this is the array's next item. Elsewhere, it is `value`: the arguments, or the value of the last
    key.
    """
    if not frames or is_object(frames[-1][0]):
        return value
    items, done = frames[-1]
    done.append("")
    return items[len(done) - 1]
