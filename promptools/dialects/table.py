"""Read a dialect from a TOML table: an app's own markers around JSON, without code.

    name = "acme"
    models = "Acme 7B"
    tier = "S"                              # "S": prose cannot hold the markers; "A": readable; "B": ordinary text
    shape = "list"                          # or "object", or "lines" of objects
    name_key = "name"                       # "": the tool's name is the only key
    arguments_key = "arguments"

    [openers]
    "<|acme_call|>" = "<|/acme_call|>"      # "": nothing closes it

`also`, `space`, `tools`, `result` and `stop` are as `promptools.dialects.readers.json_block.marked_json.MarkedJson`
says.
"""

from __future__ import annotations

import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, NamedTuple

from promptools.dialects.readers.json_block.marked_json import MarkedJson
from promptools.errors import UsageError, clip
from promptools.schema.documents.json_guards import is_array, is_object

MAX_MARKER: Final = 128
"""Characters of a marker: no more than this is ever held back."""
MIN_MARKER: Final = 2


class TableKey(NamedTuple):
    """One key of the table: what its value must be, as text, and the predicate that checks it."""

    expected: str
    is_valid: Callable[[Any], bool]


def _text(value: Any) -> bool:
    return isinstance(value, str)


def _name(value: Any) -> bool:
    return isinstance(value, str) and value.isidentifier()


def _nonempty_text(value: Any) -> bool:
    return isinstance(value, str) and bool(value)


def _white_space(value: Any) -> bool:
    return isinstance(value, str) and not value.strip()


def _template(value: Any) -> bool:
    return isinstance(value, str) and ("{content}" in value or "{json}" in value)


def _texts(value: Any) -> bool:
    return is_array(value) and all(isinstance(item, str) for item in value)


def _two_texts(value: Any) -> bool:
    return is_array(value) and _texts(value) and len(value) == 2


def _marker(value: Any) -> bool:
    return isinstance(value, str) and MIN_MARKER <= len(value) <= MAX_MARKER and value == value.strip()


def _openers(value: Any) -> bool:
    if not is_object(value) or not value:
        return False
    return all(_marker(opener) and (closer == "" or _marker(closer)) for opener, closer in value.items())


def _one_of(*words: str) -> TableKey:
    def fits(value: Any) -> bool:
        return value in words

    *others, last = map(repr, words)
    return TableKey(f"{', '.join(others)} or {last}", fits)


KEYS: Final[dict[str, TableKey]] = {
    "name": TableKey("a name of letters, digits and _", _name),
    "models": TableKey("a text", _text),
    "tier": _one_of("S", "A", "B"),
    "shape": _one_of("object", "list", "lines"),
    "name_key": TableKey("a text; empty: the name is the only key", _text),
    "arguments_key": TableKey("a text that is not empty", _nonempty_text),
    "openers": TableKey(
        f"a table of openers and their closers, each {MIN_MARKER} to {MAX_MARKER} characters "
        "without white space around",
        _openers,
    ),
    "also": TableKey("a list of texts", _texts),
    "space": TableKey("a text of white space", _white_space),
    "tools": TableKey("a list of two texts", _two_texts),
    "result": TableKey("a text with {content} or {json} in it", _template),
    "stop": TableKey("a list of texts", _texts),
}
REQUIRED: Final = ("name", "openers")


def read_dialect(path: str | Path) -> MarkedJson:
    """Read a dialect from a TOML file. Raises UsageError for an unreadable file or an invalid key."""
    try:
        table = tomllib.loads(Path(path).read_text("utf-8"))
    except OSError as error:
        raise UsageError(f"The dialect {str(path)!r} cannot be read: {error.strerror or error}.") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UsageError(f"The dialect {str(path)!r} is no TOML: {error}.") from error
    for key in REQUIRED:
        if key not in table:
            raise UsageError(f"The dialect {str(path)!r} has no {key!r}; wanted is {KEYS[key].expected}.")
    for key, value in table.items():
        if key not in KEYS:
            raise UsageError(f"The dialect {str(path)!r} has a key {key!r}; the keys are {', '.join(KEYS)}.")
        if not KEYS[key].is_valid(value):
            raise UsageError(
                f"The dialect {str(path)!r}: {key!r} is {clip(repr(value))}; wanted is {KEYS[key].expected}."
            )
    if "tools" in table:
        table["tools"] = tuple(table["tools"])
    return MarkedJson(table.pop("name"), table.pop("openers"), **table)
