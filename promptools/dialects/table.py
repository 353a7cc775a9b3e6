"""Read a dialect from a TOML table: a format of calls without code, one of the package or an app's own.

    kind = "json"                           # or "named", "tags", "key_value", "python"
    name = "acme"
    models = "Acme 7B"
    tier = "S"                              # "S": prose cannot hold the markers; "A": readable; "B": ordinary text

    [openers]
    "<|acme_call|>" = "<|/acme_call|>"      # "": nothing closes it

The keys of every kind are in `promptools.dialects.table_kinds`, and in docs/tasks/add-a-dialect.md.
"""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from promptools.dialects.table_file import DialectTable, read_table
from promptools.dialects.table_kinds import COMMON_KEYS, KINDS
from promptools.errors import UsageError, clip
from promptools.json_values import is_array, is_object

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Mapping

    from promptools.dialects.declared import DeclaredDialect

DEFAULT_KIND: Final = "json"
MAX_ENTRIES: Final = 64
"""Maximum number of entries of a key; those that ship have up to 6."""
MAX_TEXT: Final = 2048
"""Maximum number of characters of a text that is part of the format; those that ship have up to 249."""
PACKAGE: Final = Path(__file__).parent
"""The folder of the tables that ship."""


def read_family(name: str, make: Callable[..., DeclaredDialect] | None = None) -> DeclaredDialect:
    """Read the table of a family in the package; `make` is its class, derived from the kind's, if it has code too."""
    return read_dialect(PACKAGE / "families" / f"{name}.toml", make)


def read_dialect(path: str | os.PathLike[str], make: Callable[..., DeclaredDialect] | None = None) -> DeclaredDialect:
    """Read a dialect from a TOML file. Raises UsageError for an unreadable file or an invalid key."""
    return parse_table(read_table(path), make)


def parse_table(table: DialectTable, make: Callable[..., DeclaredDialect] | None = None) -> DeclaredDialect:
    """Make a dialect of a table that was read. Raises UsageError for text that is no TOML, and an invalid key."""
    try:
        values = tomllib.loads(table.text)
    except (ValueError, RecursionError) as error:
        raise UsageError(f"The dialect {table.file!r} is not valid TOML: {error}.") from error
    return make_dialect(values, table.file, make)


def make_dialect(
    table: Mapping[str, Any], origin: str, make: Callable[..., DeclaredDialect] | None = None
) -> DeclaredDialect:
    """Make a dialect of a table; `origin` is the file that it is from. Raises UsageError for an invalid key."""
    values = dict(table)
    kind_name = values.pop("kind", DEFAULT_KIND)
    if not COMMON_KEYS["kind"].is_valid(kind_name):
        raise _wrong_value(origin, "kind", kind_name, COMMON_KEYS["kind"].expected)
    kind = KINDS[kind_name]
    keys = {**COMMON_KEYS, **kind.keys}
    for key in ("name", *kind.required):
        if key not in values:
            raise UsageError(f"The dialect {origin!r} has no {key!r}; expected {keys[key].expected}.")
    for key, value in values.items():
        if key not in keys:
            raise UsageError(
                f"The dialect {origin!r} has a key {key!r}; the keys are {', '.join(keys)}, for the kind {kind_name!r}."
            )
        if not keys[key].is_valid(value):
            raise _wrong_value(origin, key, value, keys[key].expected)
        too_large = _too_large(value, is_format=key in kind.keys)
        if too_large:
            raise UsageError(f"The dialect {origin!r}: {key!r} has {too_large}.")
    problem = kind.problem(values)
    if problem:
        raise UsageError(f"The dialect {origin!r}: {problem}.")
    return (make or kind.make)(**{key: tuple(value) if is_array(value) else value for key, value in values.items()})


def _too_large(value: Any, *, is_format: bool) -> str:
    """Return by what a value is too large, empty if it is not; a text of the format, and not of the prompt, has a size.

    Patterns are made of the format: of each prefix with each tag, and some take the square of a text's length.
    """
    if (is_array(value) or is_object(value)) and len(value) > MAX_ENTRIES:
        return f"{len(value)} entries; {MAX_ENTRIES} are the most"
    texts = value if is_array(value) else (value,)
    longest = max((len(text) for text in texts if isinstance(text, str)), default=0)
    return f"{longest} characters; {MAX_TEXT} are the most" if is_format and longest > MAX_TEXT else ""


def _wrong_value(origin: str, key: str, value: object, expected: str) -> UsageError:
    return UsageError(f"The dialect {origin!r}: {key!r} is {clip(repr(value))}; expected {expected}.")
