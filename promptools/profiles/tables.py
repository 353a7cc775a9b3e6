"""Validate plain data (TOML, JSON, overrides in a request) with pydantic; errors name the file and the key.

The only values that are converted are arrays, which become tuples or frozensets. Neither a bool nor a string is
accepted as a number.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Annotated, Any, TypeAlias, TypeVar, Union, get_args, get_origin

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Discriminator,
    Field,
    Tag,
    ValidationError,
    model_validator,
)
from pydantic_core import ErrorDetails, PydanticCustomError

from promptools.errors import UsageError, clip, suggest
from promptools.patterns import lazy_pattern

_T = TypeVar("_T", bound=BaseModel)


@dataclass(frozen=True, slots=True)
class Location:
    """The location of a value: the file (or other source) and the path of keys in it."""

    file: str
    path: tuple[str, ...] = ()

    def __truediv__(self, key: object) -> Location:
        """Return the location of `key` in the table at this location."""
        return replace(self, path=(*self.path, str(key)))

    def __str__(self) -> str:
        """Return `file: a.b."c.d"`, with keys quoted as in TOML."""
        keys = ".".join(key if key.replace("-", "_").isidentifier() else f'"{key}"' for key in self.path)
        return f"{self.file}: {keys}" if keys else self.file

    def error(self, problem: str) -> UsageError:
        """Return an error whose message is the location and the problem."""
        return UsageError(f"{self}: {problem}")


def is_table(value: Any) -> bool:
    """Return whether a value is a table, which is any mapping."""
    return isinstance(value, Mapping)


def is_array(value: Any) -> bool:
    """Return whether a value is an array: a list, tuple, set or frozenset."""
    return isinstance(value, (list, tuple, set, frozenset))


class Table(BaseModel):
    """Base class of tables in a file; an undeclared key is an error."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    @model_validator(mode="before")
    @classmethod
    def _known_keys(cls, data: Any) -> Any:
        for key in data if is_table(data) else ():
            if key not in cls.model_fields:
                raise PydanticCustomError("unknown_key", "", {"key": str(key), "known": tuple(cls.model_fields)})
        return data


class OpenTable(BaseModel):
    """Base class of tables in a file that other programs read too; undeclared keys are kept in `model_extra`."""

    model_config = ConfigDict(extra="allow", strict=True, frozen=True)


def unknown_keys(value: Any, location: Location) -> Iterator[Location]:
    """Yield the locations of undeclared keys in `OpenTable`s, at any depth."""
    if isinstance(value, OpenTable):
        yield from (location / key for key in value.model_extra or ())
        value = set_fields(value)
    if is_table(value):
        for key, member in value.items():
            yield from unknown_keys(member, location / key)


def set_fields(table: BaseModel) -> dict[str, Any]:
    """Return the declared keys that are set in a table, with their values; keys left at their default are omitted."""
    return {name: getattr(table, name) for name in type(table).model_fields if name in table.model_fields_set}


def _reject_duplicates(value: Any) -> Any:
    """Return a value unchanged; reject an array with duplicates."""
    entries = list(map(repr, value)) if is_array(value) else []
    if len(set(entries)) < len(entries):
        raise PydanticCustomError("entry_twice", "")
    return value


def accepting_arrays(kind: Any) -> Any:
    """Return a type annotation in which tuples and frozensets, even in a union, accept an array of any kind."""
    if get_origin(kind) in {tuple, frozenset}:
        return Annotated[kind, Field(strict=False), BeforeValidator(_reject_duplicates)]
    args = [accepting_arrays(arg) for arg in get_args(kind)]
    return kind if args == [*get_args(kind)] else Union[tuple(args)]  # noqa: UP007 - the arguments are known only at runtime


Strings = Annotated[tuple[str, ...], Field(strict=False), BeforeValidator(_reject_duplicates)]


def _as_array(value: Any) -> Any:
    """Return an array unchanged, and a string as an array with one entry; reject anything else."""
    if isinstance(value, str):
        return (value,)
    if not is_array(value):
        raise PydanticCustomError("string_type", "")
    return value


OneOrMore = Annotated[Strings, BeforeValidator(_as_array)]
"""Type of a value that is a string or an array of strings; it becomes a tuple of strings."""


def validate_table(kind: type[_T], value: Any, location: Location) -> _T:
    """Validate a value as a table of class `kind`, and return the table; raise `UsageError` for the first error."""
    try:
        return kind.model_validate(value)
    except ValidationError as error:
        raise _usage_error(error.errors(include_url=False), location) from None


_WANTED = {
    "bool": "true or false",
    "int": "a whole number",
    "string": "a string",
    "literal": "a string",
    "dict": "a table",
    "model": "a table",
    "tuple": "an array",
    "frozen": "an array",
    "set": "an array",
}
"""Maps the first word of pydantic's error type to the expected kind of value, in words for error messages."""


def _usage_error(errors: list[ErrorDetails], location: Location) -> UsageError:
    """Return the first validation error as a `UsageError`.

    For a union of types, return the error for the branch that has the value's type.
    """
    first = errors[0]
    if len(errors) > 1 and isinstance(first["input"], int) and errors[1]["type"].startswith("int"):
        first = errors[1]
    value, kind, more = clip(repr(first["input"]), 80), first["type"], first.get("ctx", {})
    for part in first["loc"]:
        if not (_UNION_BRANCH.fullmatch(str(part)) or (part == "int" and kind == "int_type")):
            location = location / str(part)
    if kind == "unknown_key":
        key = str(more["key"])
        return (location / key).error(f"unknown key; {suggest(key, more['known'])}")
    if kind == "entry_twice":
        return location.error(f"an entry occurs twice in {value}")
    if kind == "literal_error" and isinstance(first["input"], str):
        words = re.findall(r"'([^']*)'", more["expected"])
        return location.error(f"{value} is not valid here; {suggest(first['input'], words)}")
    wanted = _WANTED.get(kind.partition("_")[0])
    return location.error(f"expected {wanted}, not {value}" if wanted else f"{value} is not valid here: {first['msg']}")


_UNION_BRANCH = lazy_pattern(r"literal\[.*|\[(?:array|table)\]")
"""Matches the part of an error's path that pydantic inserts for the branch of a union."""


def _array_or_table(value: Any) -> str:
    """Return the discriminator tag that says whether a value is an array or a table."""
    return "[array]" if is_array(value) else "[table]"


NamedTables: TypeAlias = Annotated[
    Annotated[Strings, Tag("[array]")] | Annotated[dict[str, _T], Tag("[table]")], Discriminator(_array_or_table)
]
"""Type of a value that is either a table that maps names to tables, or only an array of names."""


def named_tables(value: Mapping[str, _T] | Strings, kind: type[_T]) -> dict[str, _T]:
    """Return the tables by name; a name without a table gets an empty one."""
    return {name: kind() for name in value} if isinstance(value, tuple) else dict(value)
