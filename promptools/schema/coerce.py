"""Turn values into the types that a schema wants, led by the validator's own errors.

Only what the validator complains about is touched, so a value that is valid can never change. A string is never read
as anything else where the schema takes strings. Each change is one `Fix`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

from promptools.errors import clip
from promptools.schema import budget
from promptools.schema.graph import pointer
from promptools.types import Fix

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

ROUNDS = 4
"""A string may hold a list whose items are strings again: each layer is one round."""
ORDER = ("null", "integer", "number", "boolean", "object", "array", "string")
"""Which wanted type is tried first."""
DIGITS = 4300
"""Longest number that is read out of a string (the limit of Python's own int)."""

_INTEGER = re.compile(r"[+-]?[0-9]+(?:\.0*)?")
_NUMBER = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
_LITERAL = re.compile(
    r"""'(?:[^'\\]|\\.)*'|(?P<other>"(?:[^"\\]|\\.)*"|\\.)|(?P<word>\b(?:True|False|None)\b)""", re.DOTALL
)
_PYTHON_ESCAPE = re.compile(r"""\\(?:x([0-9a-fA-F]{2})|(.))|(")""", re.DOTALL)
_WORDS = {"True": "true", "False": "false", "None": "null"}
NOTHING: Any = object()
"""What a text is read as that cannot be read as what is wanted."""

HOPELESS = 1000
"""Errors that cannot be mended, after which no more are looked for."""

Path: TypeAlias = "tuple[str | int, ...]"
Texts: TypeAlias = Callable[[Path], str | None]
"""Gives the number at a path as the model spelled it, where that is known."""


@dataclass(frozen=True, slots=True)
class Edit:
    """One value to put in another's place; `wrapped` marks a single value that became a list."""

    path: Path
    value: Any
    wrapped: bool = False


def mend(value: Any, errors_of: Callable[[Any], Iterable[Any]], texts: Texts) -> tuple[Any, tuple[Fix, ...], list[Any]]:
    """Give the coerced copy of a value, the fixes, and the errors that remain (not all, where they are many)."""
    edits, errors = _plan(errors_of(value), texts)
    fixes: list[Fix] = []
    for _ in range(ROUNDS):
        if not edits:
            break
        if not fixes:
            value = deepcopy(value)
        for edit in edits.values():
            old = _put(value, edit)
            fixes.append(Fix("coerce", f"{clip(repr(old), 60)} to {clip(repr(edit.value), 60)}", pointer(edit.path)))
        edits, errors = _plan(errors_of(value), texts)
    nulls = list(dict.fromkeys(_nulls(errors)))
    if nulls:
        without = deepcopy(value)
        for path in nulls:
            del _holder(without, path)[path[-1]]
        if not any(errors_of(without)):
            left_out = (Fix("coerce", "null left out", pointer(path)) for path in nulls)
            return without, (*fixes, *left_out), []
    return value, tuple(fixes), errors


def _nulls(errors: Iterable[Any]) -> Iterator[Path]:
    """Give the places of members that are null and may not be: so models write a parameter that they do not use."""
    for error in errors:
        if error.instance is None and error.absolute_path and isinstance(error.absolute_path[-1], str):
            yield tuple(error.absolute_path)


def _plan(errors: Iterable[Any], texts: Texts) -> tuple[dict[Path, Edit], list[Any]]:
    """Gather the edits that errors ask for, and the errors; stop where too many cannot be mended."""
    edits: dict[Path, Edit] = {}
    read: list[Any] = []
    hopeless = 0
    mender = _Mender(texts)
    for error in errors:
        read.append(error)
        found = mender.edits(error, ())
        hopeless += found is None
        if hopeless > HOPELESS:
            return {}, read
        for edit in found or ():
            edits.setdefault(edit.path, edit)
    return edits, read


def _put(root: Any, edit: Edit) -> Any:
    holder = _holder(root, edit.path)
    old = holder[edit.path[-1]]
    holder[edit.path[-1]] = edit.value
    return old


def _holder(root: Any, path: Path) -> Any:
    """Give what holds the value at a path."""
    for step in path[:-1]:
        root = root[step]
    return root


class _Mender:
    """Says how to mend errors; what lies inside alternatives is looked at once, though many may share it."""

    def __init__(self, texts: Texts) -> None:
        self.texts = texts
        self.known: dict[int, list[Edit] | None] = {}

    def edits(self, error: Any, base: Path) -> list[Edit] | None:
        """Say how to mend one error below a path; None when it cannot be mended."""
        path = (*base, *error.relative_path)
        if error.validator in {"anyOf", "oneOf"} and error.context:
            inside = id(error.context[0])
            if inside not in self.known:
                self.known[inside] = self.alternative(error, path)
            return self.known[inside]
        if not path:
            return None  # the arguments themselves are an object and stay one
        match error.validator:
            case "type":
                wanted = error.validator_value
                return _typed(path, error.instance, {wanted} if isinstance(wanted, str) else set(wanted), self.texts)
            case "enum" | "const":
                members = error.validator_value if error.validator == "enum" else [error.validator_value]
                budget.current().spend(len(members) // 4)
                found = _member(error.instance, members)
                return None if found is NOTHING else [Edit(path, found)]
            case _:
                return None

    def alternative(self, error: Any, path: Path) -> list[Edit] | None:
        """Mend towards the first alternative in reach; where one takes strings, a string stays as it is."""
        branches: dict[Any, list[Any]] = {}
        for each in error.context:
            branches.setdefault(each.schema_path[0], []).append(each)
        if isinstance(error.instance, str) and any(_takes_strings(errors) for errors in branches.values()):
            return None
        best: list[Edit] | None = None
        for errors in branches.values():
            edits = self.all(errors, path)
            if edits is not None and not any(edit.wrapped for edit in edits):
                return edits
            best = best or edits
        return best

    def all(self, errors: list[Any], path: Path) -> list[Edit] | None:
        """Mend every error of one alternative, or none."""
        edits: list[Edit] = []
        for each in errors:
            found = self.edits(each, path)
            if found is None:
                return None
            edits += found
        return edits


def _takes_strings(errors: list[Any]) -> bool:
    """Say whether an alternative that refused a string refused this text only, not strings as such."""
    for each in errors:
        if each.validator in {"type", "enum", "const", None}:
            return False
        if each.context and not any(_takes_strings([inner]) for inner in each.context):
            return False
    return True


def _member(value: Any, members: list[Any]) -> Any:
    """Find the one member that a value means: by case and outer space, or by its JSON."""
    if isinstance(value, str):
        folded = value.strip().casefold()
        same = [each for each in members if isinstance(each, str) and each.strip().casefold() == folded]
        if same:
            return same[0] if len(same) == 1 else NOTHING
        same = [each for each in members if not isinstance(each, str) and _spells(value.strip(), each)]
    else:
        same = [each for each in members if isinstance(each, str) and type(value) is int and each == str(value)]
    return same[0] if len(same) == 1 else NOTHING


def _spells(text: str, member: Any) -> bool:
    kind = "null" if member is None else "boolean" if isinstance(member, bool) else "number"
    return isinstance(member, int | float | None) and _FROM_TEXT[kind](text) == member


def _typed(path: Path, value: Any, wanted: set[str], texts: Texts) -> list[Edit] | None:
    for kind in ORDER:
        if kind not in wanted:
            continue
        if kind == "string":
            found = _to_string(path, value, texts) if wanted <= {"string", "null"} else NOTHING
        elif isinstance(value, str):
            found = _FROM_TEXT[kind](value.strip())
        elif kind == "integer" and isinstance(value, float) and value.is_integer():
            found = int(value)
        else:
            found = NOTHING
        if found is not NOTHING:
            return [Edit(path, found)]
    if "array" in wanted and value is not None and not (isinstance(value, str) and value.lstrip()[:1] in {"[", "{"}):
        return [Edit(path, [value], wrapped=True)]
    return None


def _to_string(path: Path, value: Any, texts: Texts) -> Any:
    """Spell a number as the model did: `1.10` read as a number has lost its zero, so it needs the text."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return NOTHING
    text = texts(path)
    if text is None and isinstance(value, int):
        return str(value)
    return NOTHING if text is None else text


def _null(text: str) -> Any:
    return None if text in {"null", "None"} else NOTHING


def _integer(text: str) -> Any:
    if len(text) > DIGITS or not _INTEGER.fullmatch(text):
        return NOTHING
    return int(text.partition(".")[0])


def _number(text: str) -> Any:
    whole = _integer(text)
    if whole is not NOTHING and "." not in text:
        return whole
    if len(text) > DIGITS or not _NUMBER.fullmatch(text):
        return NOTHING
    number = float(text)
    return number if number - number == 0 else NOTHING


def _boolean(text: str) -> Any:
    return {"true": True, "false": False}.get(text.lower(), NOTHING)


def _object(text: str) -> Any:
    return _structure(text, dict)


def _array(text: str) -> Any:
    return _structure(text, list)


def _structure(text: str, kind: type) -> Any:
    """Read JSON, or a Python literal of the same shape, out of a string, perhaps encoded more than once."""
    for _ in range(ROUNDS):
        found = _read(text)
        if isinstance(found, kind):
            return found
        if not isinstance(found, str):
            return NOTHING
        text = found.strip()
    return NOTHING


def _read(text: str) -> Any:
    if text[:1] not in {"{", "[", '"', "'"}:
        return NOTHING
    for spelling in (text, _LITERAL.sub(_to_json, text)):
        try:
            return json.loads(spelling, parse_constant=_refuse)
        except (ValueError, RecursionError):
            continue
    return NOTHING


def _refuse(name: str) -> Any:
    raise ValueError(name)


def _to_json(found: re.Match[str]) -> str:
    if found["word"]:
        return _WORDS[found["word"]]
    if found["other"] and found["other"][0] == "\\":
        return found["other"]  # outside a string: taken as one, so that its quote opens none
    return f'"{_PYTHON_ESCAPE.sub(_escape, found[0][1:-1])}"'


def _escape(found: re.Match[str]) -> str:
    """Spell one escape of a Python literal, or a bare double quote, in JSON."""
    if found[1]:
        return f"\\u00{found[1]}"
    if found[3]:
        return '\\"'
    return "'" if found[2] == "'" else f"\\{found[2]}"


_FROM_TEXT: dict[str, Callable[[str], Any]] = {
    "null": _null,
    "integer": _integer,
    "number": _number,
    "boolean": _boolean,
    "object": _object,
    "array": _array,
}


def from_text(kind: str, text: str) -> Any:
    """Read a text without space around it as a value of one JSON type; `NOTHING` when it is none. O(n)."""
    return _FROM_TEXT[kind](text)


class _Spelled(str):
    """A number in the text of the arguments, as it was spelled."""

    __slots__ = ()


def spelled(text: str | None) -> Texts:
    """Look numbers up in the JSON text that the arguments came from; parsed once, and only when asked."""
    parsed: list[Any] = []

    def look(path: Path) -> str | None:
        if text is None:
            return None
        if not parsed:
            try:
                parsed.append(json.loads(text, parse_int=_Spelled, parse_float=_Spelled, parse_constant=_refuse))
            except (ValueError, RecursionError):
                parsed.append(None)
        node: Any = parsed[0]
        for step in path:
            try:
                node = node[step]
            except (LookupError, TypeError):
                return None
        return str(node) if isinstance(node, _Spelled) else None

    return look
