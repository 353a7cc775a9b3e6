"""Coerce values to the types that a schema wants, guided by the validator's own errors.

Models write `"5"` for 5, `"[1, 2]"` for a list, `True` for true and null for a parameter that they do not use. Whether
that is a mistake depends on the schema alone, so the validator runs first and only what it reports is edited:

1. `_plan` turns each error into edits, `(path, new value)`; the first edit of a path wins. For `anyOf` and `oneOf` they
   are those of the first alternative all of whose errors can be fixed.
2. The edits are applied to a deep copy, which is validated again. A string may hold a list whose items are strings
   again, so this repeats up to `ROUNDS` times.
3. If nulls remain that the schema refuses, and the value is valid without them, they are left out.

Invariants: what is valid never changes, and the caller's object is never modified; a string is never read as another
type where the schema takes strings; each change is one `Fix`.
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
"""Rounds of validation and edits: a string may hold a list whose items are strings again, and each layer takes one."""
ORDER = ("null", "integer", "number", "boolean", "object", "array", "string")
"""Order in which the wanted types are tried."""
DIGITS = 4300
"""Characters of the longest number that is read from a string (the limit of Python's own int)."""

_INTEGER = re.compile(r"[+-]?[0-9]+(?:\.0*)?")
_NUMBER = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
_LITERAL = re.compile(
    r"""'(?:[^'\\]|\\.)*'|(?P<other>"(?:[^"\\]|\\.)*"|\\.)|(?P<word>\b(?:True|False|None)\b)""", re.DOTALL
)
_PYTHON_ESCAPE = re.compile(r"""\\(?:x([0-9a-fA-F]{2})|(.))|(")""", re.DOTALL)
_WORDS = {"True": "true", "False": "false", "None": "null"}
NOTHING: Any = object()
"""Sentinel: the text cannot be read as the wanted type (None is a value)."""

HOPELESS = 1000
"""Number of errors that cannot be fixed after which no more are collected."""

Path: TypeAlias = "tuple[str | int, ...]"
Texts: TypeAlias = Callable[[Path], str | None]
"""Returns the number at a path as the model spelled it, or None where that is not known."""


@dataclass(frozen=True, slots=True)
class Edit:
    """Replacement of the value at a path; `wrapped` marks a single value that became a list."""

    path: Path
    value: Any
    wrapped: bool = False


def mend(value: Any, errors_of: Callable[[Any], Iterable[Any]], texts: Texts) -> tuple[Any, tuple[Fix, ...], list[Any]]:
    """Return a coerced copy of a value, the fixes, and the errors that remain (not all, where there are many)."""
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
    """Yield the paths of members that are null and may not be: models write null for an unused parameter."""
    for error in errors:
        if error.instance is None and error.absolute_path and isinstance(error.absolute_path[-1], str):
            yield tuple(error.absolute_path)


def _plan(errors: Iterable[Any], texts: Texts) -> tuple[dict[Path, Edit], list[Any]]:
    """Collect the errors and the edits that fix them; no edits where more than `HOPELESS` errors cannot be fixed."""
    edits: dict[Path, Edit] = {}
    seen: list[Any] = []
    hopeless = 0
    mender = _Mender(texts)
    for error in errors:
        seen.append(error)
        edit_list = mender.edits(error, ())
        hopeless += edit_list is None
        if hopeless > HOPELESS:
            return {}, seen
        for edit in edit_list or ():
            edits.setdefault(edit.path, edit)
    return edits, seen


def _put(root: Any, edit: Edit) -> Any:
    holder = _holder(root, edit.path)
    old = holder[edit.path[-1]]
    holder[edit.path[-1]] = edit.value
    return old


def _holder(root: Any, path: Path) -> Any:
    """Return the object or array that holds the value at a path."""
    for step in path[:-1]:
        root = root[step]
    return root


class _Mender:
    """Turns errors into edits; the errors inside alternatives, which several errors may share, are handled once."""

    def __init__(self, texts: Texts) -> None:
        self.texts = texts
        self.known: dict[int, list[Edit] | None] = {}

    def edits(self, error: Any, base: Path) -> list[Edit] | None:
        """Return the edits that fix one error below a path; None when it cannot be fixed."""
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
                member = _member(error.instance, members)
                return None if member is NOTHING else [Edit(path, member)]
            case _:
                return None

    def alternative(self, error: Any, path: Path) -> list[Edit] | None:
        """Return the edits for the first alternative that can be met; None for a string where one takes strings."""
        branches: dict[Any, list[Any]] = {}
        for inner in error.context:
            branches.setdefault(inner.schema_path[0], []).append(inner)
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
        """Return the edits that fix every error of one alternative; None if any cannot be fixed."""
        edits: list[Edit] = []
        for error in errors:
            fixing = self.edits(error, path)
            if fixing is None:
                return None
            edits += fixing
        return edits


def _takes_strings(errors: list[Any]) -> bool:
    """Return whether an alternative that refused a string refused only this text, and takes strings as such."""
    for error in errors:
        if error.validator in {"type", "enum", "const", None}:
            return False
        if error.context and not any(_takes_strings([inner]) for inner in error.context):
            return False
    return True


def _member(value: Any, members: list[Any]) -> Any:
    """Return the only enum member that a value can mean, by case and outer space or by its JSON; else `NOTHING`."""
    if isinstance(value, str):
        folded = value.strip().casefold()
        same = [member for member in members if isinstance(member, str) and member.strip().casefold() == folded]
        if same:
            return same[0] if len(same) == 1 else NOTHING
        same = [member for member in members if not isinstance(member, str) and _spells(value.strip(), member)]
    else:
        same = [member for member in members if isinstance(member, str) and type(value) is int and member == str(value)]
    return same[0] if len(same) == 1 else NOTHING


def _spells(text: str, member: Any) -> bool:
    kind = "null" if member is None else "boolean" if isinstance(member, bool) else "number"
    return isinstance(member, int | float | None) and _FROM_TEXT[kind](text) == member


def _typed(path: Path, value: Any, wanted: set[str], texts: Texts) -> list[Edit] | None:
    for kind in ORDER:
        if kind not in wanted:
            continue
        if kind == "string":
            coerced = _to_string(path, value, texts) if wanted <= {"string", "null"} else NOTHING
        elif isinstance(value, str):
            coerced = _FROM_TEXT[kind](value.strip())
        elif kind == "integer" and isinstance(value, float) and value.is_integer():
            coerced = int(value)
        else:
            coerced = NOTHING
        if coerced is not NOTHING:
            return [Edit(path, coerced)]
    if "array" in wanted and value is not None and not (isinstance(value, str) and value.lstrip()[:1] in {"[", "{"}):
        return [Edit(path, [value], wrapped=True)]
    return None


def _to_string(path: Path, value: Any, texts: Texts) -> Any:
    """Return a number as the model spelled it: parsing `1.10` loses its zero, so a float needs the text."""
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
    """Decode a string as JSON or as a Python literal of the same shape, perhaps encoded more than once."""
    for _ in range(ROUNDS):
        decoded = _read(text)
        if isinstance(decoded, kind):
            return decoded
        if not isinstance(decoded, str):
            return NOTHING
        text = decoded.strip()
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
        return found["other"]  # an escape outside a string: matched as a unit, so that its quote opens none
    return f'"{_PYTHON_ESCAPE.sub(_escape, found[0][1:-1])}"'


def _escape(found: re.Match[str]) -> str:
    """Translate one escape of a Python literal, or a bare double quote, to JSON."""
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
    """Parse text without surrounding space as a value of one JSON type; `NOTHING` when it is none. O(n)."""
    return _FROM_TEXT[kind](text)


class _Spelled(str):
    """The source text of a number in the arguments."""

    __slots__ = ()


def spelled(text: str | None) -> Texts:
    """Return a lookup of numbers in the JSON text of the arguments, which is parsed once and only when needed."""
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
