"""Coerce values to the types that a schema requires, guided by the validator's own errors.

Models write `"5"` for 5, `"[1, 2]"` for a list, `True` for true and null for a parameter that they do not use. Only the
schema shows whether such a value is a mistake. So the validator runs first, and only the values that it reports are
edited:

1. `_plan_edits` turns each error into edits, `(path, new value)`; the first edit of a path wins. An error of `anyOf` or
   `oneOf` becomes the edits of the first alternative all of whose errors can be fixed.
2. The edits are applied to a deep copy, which is validated again. A string may hold a list whose items are strings that
   hold lists, so this repeats up to `MAX_ROUNDS` times.
3. If nulls remain that the schema refuses, and the value is valid without them, they are left out.

Invariants: a valid value never changes. The caller's object is never modified. A string is never read as another type
where the schema takes strings. Each change is one `Fix`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

from promptools.errors import clip
from promptools.json_values import parse_finite_float, reject_constant, try_json
from promptools.patterns import lazy_pattern
from promptools.schema import budget
from promptools.schema.documents import pointer
from promptools.types import Fix

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator


MAX_ROUNDS = 4
"""Maximum number of rounds of validation and edits; each level of JSON inside a JSON string takes one round."""
TYPE_ORDER = ("null", "integer", "number", "boolean", "object", "array", "string")
"""The order in which types are tried, if the schema accepts several."""
MAX_NUMBER_LENGTH = 4300
"""Maximum number of characters of a number that is read from a string; Python's `int` has this limit."""

_INTEGER = lazy_pattern(r"[+-]?[0-9]+(?:\.0*)?")
_NUMBER = lazy_pattern(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
_LITERAL = lazy_pattern(
    r"""'(?:[^'\\]|\\.)*'|(?P<other>"(?:[^"\\]|\\.)*"|\\.)|(?P<word>\b(?:True|False|None)\b)""", re.DOTALL
)
_PYTHON_ESCAPE = lazy_pattern(r"""\\(?:x([0-9a-fA-F]{2})|(.))|(")""", re.DOTALL)
_PYTHON_CONSTANTS = {"True": "true", "False": "false", "None": "null"}
UNREADABLE: Any = object()
"""Returned if a text cannot be read as the required type; None would be ambiguous, since it is the value of null."""

MAX_UNFIXABLE = 1000
"""Maximum number of errors that cannot be fixed; if there are more, no value is edited."""

Path: TypeAlias = "tuple[str | int, ...]"
NumberTexts: TypeAlias = Callable[[Path], str | None]
"""A function that returns the number at a path as the model spelled it, or None if the spelling is not known."""


@dataclass(frozen=True, slots=True)
class Edit:
    """Replaces the value at a path; `wrapped` means that the new value is a list with only the old value."""

    path: Path
    value: Any
    wrapped: bool = False


def coerce_value(
    value: Any, errors_of: Callable[[Any], Iterable[Any]], number_texts: NumberTexts
) -> tuple[Any, tuple[Fix, ...], list[Any]]:
    """Coerce the invalid parts of a value; return the result, a fix for each change, and the errors that remain.

    The value itself is not modified. If many errors remain, only some of them are returned.
    """
    edits, errors = _plan_edits(errors_of(value), number_texts)
    fixes: list[Fix] = []
    for _ in range(MAX_ROUNDS):
        if not edits:
            break
        if not fixes:
            value = deepcopy(value)
        for edit in edits.values():
            old = _apply_edit(value, edit)
            fixes.append(Fix("coerce", f"{clip(repr(old), 60)} to {clip(repr(edit.value), 60)}", pointer(edit.path)))
        edits, errors = _plan_edits(errors_of(value), number_texts)
    nulls = list(dict.fromkeys(_refused_nulls(errors)))
    if nulls:
        without = deepcopy(value)
        for path in nulls:
            del _container_at(without, path)[path[-1]]
        if not any(errors_of(without)):
            left_out = (Fix("coerce", "null left out", pointer(path)) for path in nulls)
            return without, (*fixes, *left_out), []
    return value, tuple(fixes), errors


def _refused_nulls(errors: Iterable[Any]) -> Iterator[Path]:
    """Yield the paths of members that are null although the schema does not allow null.

    Models write null for an unused parameter.
    """
    for error in errors:
        if error.instance is None and error.absolute_path and isinstance(error.absolute_path[-1], str):
            yield tuple(error.absolute_path)


def _plan_edits(errors: Iterable[Any], number_texts: NumberTexts) -> tuple[dict[Path, Edit], list[Any]]:
    """Collect the errors and the edits that fix them; no edits if more than `MAX_UNFIXABLE` errors cannot be fixed."""
    edits: dict[Path, Edit] = {}
    seen: list[Any] = []
    hopeless = 0
    planner = _EditPlanner(number_texts)
    for error in errors:
        seen.append(error)
        edit_list = planner.edits_for(error, ())
        hopeless += edit_list is None
        if hopeless > MAX_UNFIXABLE:
            return {}, seen
        for edit in edit_list or ():
            edits.setdefault(edit.path, edit)
    return edits, seen


def _apply_edit(root: Any, edit: Edit) -> Any:
    holder = _container_at(root, edit.path)
    old = holder[edit.path[-1]]
    holder[edit.path[-1]] = edit.value
    return old


def _container_at(root: Any, path: Path) -> Any:
    for step in path[:-1]:
        root = root[step]
    return root


class _EditPlanner:
    """Turns errors into edits.

    Several errors may share the same list of errors inside alternatives. Such a list is handled only once.
    """

    def __init__(self, number_texts: NumberTexts) -> None:
        self.number_texts = number_texts
        self.by_context: dict[int, list[Edit] | None] = {}

    def edits_for(self, error: Any, base: Path) -> list[Edit] | None:
        """Return the edits that fix one error; None if the error cannot be fixed.

        The error's relative path is appended to `base`.
        """
        path = (*base, *error.relative_path)
        if error.validator in {"anyOf", "oneOf"} and error.context:
            inside = id(error.context[0])
            if inside not in self.by_context:
                self.by_context[inside] = self.edits_for_alternatives(error, path)
            return self.by_context[inside]
        if not path:
            return None  # the arguments themselves are an object and stay an object
        match error.validator:
            case "type":
                wanted = error.validator_value
                return _edit_for_type(
                    path, error.instance, {wanted} if isinstance(wanted, str) else set(wanted), self.number_texts
                )
            case "enum" | "const":
                members = error.validator_value if error.validator == "enum" else [error.validator_value]
                budget.current_run().spend(len(members) // 4)
                member = _match_member(error.instance, members)
                return None if member is UNREADABLE else [Edit(path, member)]
            case _:
                return None

    def edits_for_alternatives(self, error: Any, path: Path) -> list[Edit] | None:
        """Return the edits that make a value fit the first alternative that it can fit; None if there is none.

        An alternative that requires wrapping a single value in a list is used only if no other alternative can be met.
        None is also returned for a string if an alternative accepts strings in general.
        """
        branches: dict[Any, list[Any]] = {}
        for inner in error.context:
            branches.setdefault(inner.schema_path[0], []).append(inner)
        # JSON is text to a parameter that takes strings (livekit/agents#5409).
        if isinstance(error.instance, str) and any(_accepts_strings(errors) for errors in branches.values()):
            return None
        # vLLM's parsers return `"5"` where the schema has `anyOf` with null (vllm#37831).
        best: list[Edit] | None = None
        for errors in branches.values():
            edits = self.edits_for_all(errors, path)
            if edits is not None and not any(edit.wrapped for edit in edits):
                return edits
            best = best or edits
        return best

    def edits_for_all(self, errors: list[Any], path: Path) -> list[Edit] | None:
        """Return the edits that fix all errors of one alternative; None if one of the errors cannot be fixed."""
        edits: list[Edit] = []
        for error in errors:
            fixing = self.edits_for(error, path)
            if fixing is None:
                return None
            edits += fixing
        return edits


def _accepts_strings(errors: list[Any]) -> bool:
    """Return whether an alternative accepts strings in general.

    `errors` are the alternative's errors for one string. The alternative accepts strings in general if every error
    concerns only the text of this string, such as its length.
    """
    for error in errors:
        if error.validator in {"type", "enum", "const", None}:
            return False
        if error.context and not any(_accepts_strings([inner]) for inner in error.context):
            return False
    return True


def _match_member(value: Any, members: list[Any]) -> Any:
    """Return the only enum member that a value can mean; `UNREADABLE` if it can mean none or several.

    A string can mean a member that is a string and differs only in case and surrounding space. If there is none, the
    string can mean a member with this JSON text. An integer can mean the string of its digits.
    """
    if isinstance(value, str):
        folded = value.strip().casefold()
        same = [member for member in members if isinstance(member, str) and member.strip().casefold() == folded]
        if same:
            return same[0] if len(same) == 1 else UNREADABLE
        same = [member for member in members if not isinstance(member, str) and _denotes(value.strip(), member)]
    else:
        same = [member for member in members if isinstance(member, str) and type(value) is int and member == str(value)]
    return same[0] if len(same) == 1 else UNREADABLE


def _denotes(text: str, member: Any) -> bool:
    kind = "null" if member is None else "boolean" if isinstance(member, bool) else "number"
    return isinstance(member, int | float | None) and _PARSERS[kind](text) == member


def _edit_for_type(path: Path, value: Any, wanted: set[str], number_texts: NumberTexts) -> list[Edit] | None:
    for kind in TYPE_ORDER:
        if kind not in wanted:
            continue
        if kind == "string":
            coerced = _number_as_string(path, value, number_texts) if wanted <= {"string", "null"} else UNREADABLE
        # Lists and objects come as JSON in a string (quarkus-langchain4j#2642).
        elif isinstance(value, str):
            coerced = _PARSERS[kind](value.strip())
        elif kind == "integer" and isinstance(value, float) and value.is_integer():
            coerced = int(value)
        else:
            coerced = UNREADABLE
        if coerced is not UNREADABLE:
            return [Edit(path, coerced)]
    if "array" in wanted and value is not None and not (isinstance(value, str) and value.lstrip()[:1] in {"[", "{"}):
        return [Edit(path, [value], wrapped=True)]
    return None


def _number_as_string(path: Path, value: Any, number_texts: NumberTexts) -> Any:
    """Return a number as a string, spelled as the model wrote it.

    A float needs the source text, since parsing `1.10` loses the zero.
    """
    if isinstance(value, bool) or not isinstance(value, int | float):
        return UNREADABLE
    text = number_texts(path)
    if text is None and isinstance(value, int):
        return str(value)
    return UNREADABLE if text is None else text


def _parse_integer(text: str) -> Any:
    if len(text) > MAX_NUMBER_LENGTH or not _INTEGER.fullmatch(text):
        return UNREADABLE
    return int(text.partition(".")[0])


def _parse_number(text: str) -> Any:
    whole = _parse_integer(text)
    if whole is not UNREADABLE and "." not in text:
        return whole
    if len(text) > MAX_NUMBER_LENGTH or not _NUMBER.fullmatch(text):
        return UNREADABLE
    number = float(text)
    return number if number - number == 0 else UNREADABLE


def _parse_structure(text: str, kind: type) -> Any:
    """Decode a string that is JSON or a Python literal of the type `kind`.

    The string may have been encoded several times.
    """
    for _ in range(MAX_ROUNDS):
        decoded = _parse_json(text)
        if isinstance(decoded, kind):
            return decoded
        if not isinstance(decoded, str):
            return UNREADABLE
        text = decoded.strip()
    return UNREADABLE


def _parse_json(text: str) -> Any:
    if text[:1] not in {"{", "[", '"', "'"}:
        return UNREADABLE
    # The templates of Qwen3-Coder and Seed-OSS print lists as Python does, and so do the models.
    for spelling in (text, _LITERAL.sub(_to_json, text)):
        try:
            return json.loads(spelling, parse_constant=reject_constant, parse_float=parse_finite_float)
        except (ValueError, RecursionError):
            continue
    return UNREADABLE


def _to_json(match: re.Match[str]) -> str:
    if match["word"]:
        return _PYTHON_CONSTANTS[match["word"]]
    if match["other"] and match["other"][0] == "\\":
        return match["other"]  # an escape outside a string: matched as a unit, so that a quote in it opens no string
    return f'"{_PYTHON_ESCAPE.sub(_json_escape, match[0][1:-1])}"'


def _json_escape(match: re.Match[str]) -> str:
    """Translate one escape of a Python literal, or a bare double quote, to JSON."""
    if match[1]:
        return f"\\u00{match[1]}"
    if match[3]:
        return '\\"'
    return "'" if match[2] == "'" else f"\\{match[2]}"


_PARSERS: dict[str, Callable[[str], Any]] = {
    "null": lambda text: None if text in {"null", "None"} else UNREADABLE,
    "integer": _parse_integer,
    "number": _parse_number,
    "boolean": lambda text: {"true": True, "false": False}.get(text.lower(), UNREADABLE),
    "object": lambda text: _parse_structure(text, dict),
    "array": lambda text: _parse_structure(text, list),
}


def parse_text(kind: str, text: str) -> Any:
    """Parse text without surrounding space as a value of a JSON type, in O(n); `UNREADABLE` if that is impossible."""
    return _PARSERS[kind](text)


class _NumberText(str):
    """The text of a number in the JSON of the arguments."""

    __slots__ = ()


def number_lookup(text: str | None) -> NumberTexts:
    """Return a function that looks up the number at a path, as it is spelled in `text`, the JSON of the arguments.

    The text is parsed once, on demand.
    """
    parsed: list[Any] = []

    def look(path: Path) -> str | None:
        if text is None:
            return None
        if not parsed:
            hooks = {"parse_int": _NumberText, "parse_float": _NumberText, "parse_constant": reject_constant}
            parsed.append(try_json(text, **hooks))
        node: Any = parsed[0]
        for step in path:
            try:
                node = node[step]
            except (LookupError, TypeError):
                return None
        return str(node) if isinstance(node, _NumberText) else None

    return look
