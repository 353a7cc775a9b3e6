"""Read plain data (TOML, JSON, a request's override) as typed values, with errors that name the file and the key.

Types understood: `bool`, `int`, `str`, `Literal`, `X | None`, `Literal | int`, `tuple[X, ...]`, `frozenset[X]` and
`Mapping[str, X]`.
A bool is no number. `None` is never written: leave the key out.
"""

from __future__ import annotations

import types
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal, Union, get_args, get_origin

from promptools.errors import UsageError, clip

WANTED: dict[Any, str] = {bool: "true or false", int: "a whole number", str: "a string"}


@dataclass(frozen=True, slots=True)
class Place:
    """Where a value stands: the file (or what else holds it) and the path of keys in it."""

    file: str
    path: tuple[str, ...] = ()

    def __truediv__(self, key: object) -> Place:
        """Go one key deeper."""
        return replace(self, path=(*self.path, str(key)))

    def __str__(self) -> str:
        """Write `file: a.b."c.d"`, with keys quoted as TOML quotes them."""
        keys = ".".join(key if key.replace("-", "_").isidentifier() else f'"{key}"' for key in self.path)
        return f"{self.file}: {keys}" if keys else self.file

    def error(self, problem: str) -> UsageError:
        """Make the error for this place."""
        return UsageError(f"{self}: {problem}")


def near(word: str, known: Collection[str]) -> str:
    """Say which known word was probably meant, and which ones there are."""
    from difflib import get_close_matches  # only errors need it

    close = get_close_matches(word, known, n=1)
    meant = f"did you mean {close[0]!r}? " if close else ""
    return f"{meant}known: {', '.join(sorted(known)) or 'none'}"


def is_table(value: Any) -> bool:
    """Tell whether plain data is a table."""
    return isinstance(value, Mapping)


def is_array(value: Any) -> bool:
    """Tell whether plain data is an array."""
    return isinstance(value, (list, tuple, set, frozenset))


def table(value: Any, place: Place, known: Collection[str] | None = None) -> dict[str, Any]:
    """Take a table; with `known`, a key outside it is an error."""
    if not is_table(value):
        raise place.error(f"a table is wanted, not {clip(repr(value), 80)}")
    items: dict[str, Any] = {str(key): each for key, each in value.items()}
    for key in items if known is not None else ():
        if known is not None and key not in known:
            raise (place / key).error(f"unknown key; {near(key, known)}")
    return items


def read(kind: Any, value: Any, place: Place) -> Any:
    """Take `value` as the annotated type `kind`; arrays become tuples and frozensets."""
    origin, args = get_origin(kind), get_args(kind)
    if origin in (Union, types.UnionType):
        return read(_way(args, value), value, place)
    if origin is Literal:
        return _literal(args, value, place)
    if origin in (tuple, frozenset):
        return _array(origin, args[0], value, place)
    if origin is not None:
        return {key: read(args[1], each, place / key) for key, each in table(value, place).items()}
    if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
        raise place.error(f"{WANTED[kind]} is wanted, not {clip(repr(value), 80)}")
    return value


def _way(args: tuple[Any, ...], value: Any) -> Any:
    """Choose how to read a value that may be of several kinds: a number as a number, else by the first kind."""
    if int in args and isinstance(value, int):
        return int
    return next(arg for arg in args if arg is not type(None))


def _literal(words: tuple[str, ...], value: Any, place: Place) -> str:
    """Take one of a closed set of words."""
    if not isinstance(value, str):
        raise place.error(f"a string is wanted, not {clip(repr(value), 80)}")
    if value not in words:
        raise place.error(f"{clip(repr(value), 80)} is not possible here; {near(value, words)}")
    return value


def _array(origin: Any, kind: Any, value: Any, place: Place) -> Any:
    """Take an array; nothing may stand in it twice."""
    if not is_array(value):
        raise place.error(f"an array is wanted, not {clip(repr(value), 80)}")
    items = [read(kind, each, place / index) for index, each in enumerate(value)]
    if len(set(items)) < len(items):
        raise place.error(f"an entry stands twice in {clip(repr(value), 80)}")
    return origin(items)


@dataclass(frozen=True, slots=True)
class Section:
    """One table of a file, read key by key."""

    data: Mapping[str, Any]
    place: Place

    def get(self, kind: Any, key: str, default: Any = None) -> Any:
        """Read one key as the type `kind`; the default where it is not there."""
        return read(kind, self.data[key], self.place / key) if key in self.data else default

    def text(self, key: str) -> str | None:
        """Read a string; None where it is not there or empty."""
        return self.get(str, key) or None

    def table(self, key: str) -> dict[str, Any]:
        """Read a table of anything; empty where it is not there."""
        return table(self.data.get(key, {}), self.place / key)

    def sections(self, key: str, known: Collection[str]) -> Iterator[tuple[str, Section]]:
        """Read a table of tables that hold known keys only."""
        for name, each in self.table(key).items():
            place = self.place / key / name
            yield name, Section(table(each, place, known), place)
