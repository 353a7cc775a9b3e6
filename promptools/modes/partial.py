"""A call that the server took out of the text itself, let out while its arguments come, as the bare server does.

What has gone out cannot be taken back, so it goes as far as nothing at the end can change it: strict JSON, keys that
the tool declares, values that fit. Of a string whose schema asks for no more than a string each character goes at once,
wherever it stands; what can only be judged whole (a number, an enum) waits for its end. The first thing that is not so
ends it: the rest of the call waits, and is mended like any other. So does the last brace until the call is checked, and
so may a short call.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from promptools.schema.graph import LISTS, MAPS, ONE, ONE_MORE
from promptools.schema.quick import compile_schema
from promptools.wire.shapes import is_list, is_object

if TYPE_CHECKING:
    from promptools.schema.graph import Graph
    from promptools.schema.quick import Predicate

SHORT = 32
"""Characters of arguments that wait for more: a call that has no more is soon whole, and keeps its second try."""
DEEPEST = 64
"""Levels of values in values that go out as they come."""
LONGEST = 400
"""Characters in which a key, or a number, must end."""

_SPACE = re.compile(r"[ \t\r\n]+")
_KEY = re.compile(r'"([^"\\\x00-\x1f]*)"[ \t\r\n]*:')
_SCALAR = re.compile(
    r"(?:-?(?:0|[1-9][0-9]{0,15})(?:\.[0-9]{1,15})?(?:[eE][+-]?[0-9]{1,2})?|true|false|null)(?=[ \t\r\n]*[,}\]])"
)
_INSIDE = re.compile(
    r'(?:[^"\\\x00-\x1f]+|\\["\\/bfnrt]|\\u(?![dD][89a-fA-F])[0-9a-fA-F]{4}'
    r"|\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2})+"
)
_ESCAPE = 12
"""Characters of the longest escape: a surrogate pair."""
_KINDS = {'"': "string", "{": "object", "[": "array"}
_NOTES = frozenset((
    "$comment", "$defs", "$id", "$schema", "default", "definitions", "deprecated", "description", "examples", "format",
    "readOnly", "title", "writeOnly",
))  # fmt: skip
"""Keywords that assert nothing."""
_ALONE: dict[str, frozenset[str]] = {
    "string": frozenset(("type",)),
    "object": frozenset(("type", "properties", "required", "additionalProperties")),
    "array": frozenset(("type", "items")),
}
"""Keywords that can be judged while a value comes."""
_HOLDERS = (*ONE, *ONE_MORE, *LISTS, *(word for word in MAPS if word not in {"$defs", "definitions"}))


@dataclass(slots=True)
class _Frame:
    """An object or an array that is open; `node` is its schema (True: any)."""

    closer: str
    node: Any
    keys: set[str] = field(default_factory=set[str])
    key: str = ""
    begun: bool = False


class PartialArguments:
    """Follow the arguments of one call of a tool as they come. O(n); what goes out is the same however they are cut.

    `graph`: the tool's schema; None: nothing is known of the tool, and nothing goes out. `least`: so many characters
    go out at once at first, or none.
    """

    def __init__(self, graph: Graph | None, least: int = 0) -> None:
        self._graph = graph
        self._least = least
        self._over = graph is None
        self._state = self._open
        self._frames: list[_Frame] = []
        self._unread = ""
        self._read: list[str] = []
        """What has been read and has not gone out."""
        self._held: tuple[int, int, Any] | None = None
        """The value that is judged whole: how many frames are around it, where in `_read` it begins, its schema."""
        self._ready: list[str] = []
        """What may go out."""
        self._sent: list[str] = []
        self._checks: dict[int, Predicate | None] = {}

    @property
    def sent(self) -> str:
        """What has gone out of the arguments."""
        return "".join(self._sent)

    @property
    def began(self) -> bool:
        """Whether anything has gone out."""
        return bool(self._sent)

    def feed(self, piece: str) -> str:
        """Take a piece of the arguments; return what may go out now."""
        if self._over:
            return ""
        text, at = self._unread + piece, 0
        while not self._over and at < len(text):
            space = _SPACE.match(text, at) if self._state != self._string else None
            end = space.end() if space else self._state(text, at)
            if end is None:
                break
            self._read.append(text[at:end])
            at = end
            if self._state == self._string and self._held is None:
                self._release()
        self._unread = text[at:]
        said = "".join(self._ready)
        if len(said) < self._least and not self._sent:
            return ""
        self._ready.clear()
        if said:
            self._sent.append(said)
        return said

    def cancel(self) -> None:
        """Take back what nobody has got yet, and let no more out."""
        self._sent.clear()
        self._stop()

    def _stop(self) -> None:
        self._over = True
        self._read.clear()

    def _release(self) -> None:
        self._ready += self._read
        self._read.clear()

    # --- what may come next: each returns where it ends in the text; None: more is needed, or nothing more goes out ---

    def _open(self, text: str, at: int) -> int | None:
        """Begin with the arguments' own brace."""
        assert self._graph is not None
        node = self._alone(self._graph.root, "object")
        if text[at] != "{" or not is_object(node) or not node.get("properties"):
            self._stop()
            return None
        self._read.clear()  # blanks before it are no part of the arguments
        self._frames.append(_Frame("}", node))
        self._state = self._key
        return at + 1

    def _key(self, text: str, at: int) -> int | None:
        frame = self._frames[-1]
        if text[at] == "}" and not frame.begun:
            return self._close(at)
        found = _KEY.match(text, at, at + LONGEST)
        if found is None:
            if text[at] != '"' or len(text) - at >= LONGEST or '"' in text[at + 1 :].rstrip()[:-1]:
                self._stop()
            return None
        frame.key, frame.begun = found[1], True
        frame.keys.add(found[1])
        self._state = self._value
        return found.end()

    def _value(self, text: str, at: int) -> int | None:
        frame = self._frames[-1]
        if text[at] == "]" and frame.closer == "]" and not frame.begun:
            return self._close(at)
        frame.begun = True
        node = self._member(frame)
        if node is None or len(self._frames) >= DEEPEST:
            self._stop()
            return None
        kind = _KINDS.get(text[at])
        if kind is None:
            return self._scalar(text, at, node)
        alone = self._alone(node, kind)
        if alone is None:
            self._hold(node)
        if kind == "string":
            self._state = self._string
        else:
            self._frames.append(_Frame("}" if kind == "object" else "]", True if alone is None else alone))
            self._state = self._key if kind == "object" else self._value
        return at + 1

    def _scalar(self, text: str, at: int, node: Any) -> int | None:
        found = _SCALAR.match(text, at, at + LONGEST)
        if found is None:
            if len(text) - at >= LONGEST or any(each in text[at:] for each in ',}]"'):
                self._stop()
            return None
        self._hold(node)
        self._state = self._after
        return found.end()

    def _string(self, text: str, at: int) -> int | None:
        if text[at] == '"':
            self._state = self._after
            return at + 1
        found = _INSIDE.match(text, at)
        if found is not None:
            return found.end()
        if text[at] != "\\" or len(text) - at >= _ESCAPE or not _may_be_escape(text[at:]):
            self._stop()
        return None

    def _after(self, text: str, at: int) -> int | None:
        """Go on after a value: only what follows tells that it was one."""
        frame = self._frames[-1]
        if text[at] not in {",", frame.closer} or not self._good():
            self._stop()
            return None
        if self._held is None:
            self._release()
        if text[at] == frame.closer:
            return self._close(at)
        self._state = self._key if frame.closer == "}" else self._value
        return at + 1

    def _close(self, at: int) -> int | None:
        """End an object or an array; the end of the arguments waits until the whole call is known."""
        frame = self._frames.pop()
        required = frame.node.get("required", ()) if is_object(frame.node) else ()
        if not self._frames or not frame.keys.issuperset(required):
            self._stop()
            return None
        self._state = self._after
        return at + 1

    # --- what may be there ---------------------------------------------------------------------------------------

    def _hold(self, node: Any) -> None:
        """Keep a value back until it is whole, if it is not part of one that is kept back."""
        if self._held is None:
            self._held = len(self._frames), len(self._read), node

    def _good(self) -> bool:
        """Whether a value that was judged whole, and ends here, is right; then it is no longer held."""
        if self._held is None or self._held[0] != len(self._frames):
            return True
        _, start, node = self._held
        self._held = None
        check = self._check(node)
        try:
            return check is not None and check(json.loads("".join(self._read[start:])))
        except Exception:  # noqa: BLE001 - whatever a check raises, the value is not known to be right
            return False

    def _check(self, node: Any) -> Predicate | None:
        if not is_object(node):
            return lambda _: node is True
        if id(node) not in self._checks:
            assert self._graph is not None
            nodes = list(self._graph.spread(node, _HOLDERS))
            self._checks[id(node)] = compile_schema(replace(self._graph, root=node, nodes=nodes))
        return self._checks[id(node)]

    def _member(self, frame: _Frame) -> Any:
        """Return the schema of what comes next in a frame; None where there is to be none."""
        node = frame.node
        if node is True:
            return True
        if frame.closer == "]":
            return node.get("items", True)
        declared = node.get("properties", {})
        if frame.key in declared:
            return declared[frame.key]
        if len(self._frames) == 1:  # at the end it may yet turn out to be another name for a declared one
            return None
        others = node.get("additionalProperties", None if declared else True)
        return None if others is False else others

    def _alone(self, node: Any, kind: str) -> Any:
        """Return the schema that a value of this kind is judged by as it comes; None: it can only be judged whole."""
        assert self._graph is not None
        for _ in range(DEEPEST):
            if not is_object(node):
                return True if node is True else None
            words = node.keys() - _NOTES
            if not words:
                return True
            if words == {"$ref"}:
                node = next(iter(self._graph.targets.get(id(node), ())), None)
            elif words in ({"anyOf"}, {"oneOf"}):
                (word,) = words
                likely = [each for each in node[word] if self._may_be(each, kind)]
                node = likely[0] if len(likely) == 1 else None
            else:
                return node if words <= _ALONE[kind] and self._may_be(node, kind) else None
        return None

    def _may_be(self, node: Any, kind: str) -> bool:
        """Whether a schema takes values of a kind, as far as its types say."""
        assert self._graph is not None
        for each in self._graph.spread(node, ()):
            types = each.get("type", kind)
            if kind not in (types if is_list(types) else (types,)):
                return False
        return node is not False


def _may_be_escape(text: str) -> bool:
    """Whether a text that is not whole may become an escape that JSON has."""
    if len(text) == 1:
        return True
    if text[1] != "u":
        return False
    first, second = text[2:6], text[6:]
    digits = all(each in "0123456789abcdefABCDEF" for each in first)
    return digits and (len(first) < 4 or ("\\u".startswith(second[:2]) and _is_half(first)))


def _is_half(digits: str) -> bool:
    return digits[0] in "dD" and digits[1] in "89abAB"
