"""An app's own dialects, known to one client, proxy or command: their tables, and the dialects made from the tables.

A table is kept as text, so that it can be sent to other processes that parse replies: the workers of a batch, and the
actors and tasks of a Ray cluster.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from functools import lru_cache
from itertools import count
from typing import TYPE_CHECKING, Any, TypeAlias, cast

from promptools.dialects import BUILT_IN
from promptools.dialects.table_file import DialectTable, read_table
from promptools.errors import UsageError, clip

if TYPE_CHECKING:
    from collections.abc import Mapping

    from promptools.dialects.contract import Dialect

_numbers = count(1)


GivenDialect: TypeAlias = "str | os.PathLike[str] | DialectTable | Dialect"
"""What an app may pass for a dialect: the path of its table, the table, or the dialect itself."""


class OwnDialects:
    """A set of an app's own dialects. Raises UsageError if two have the same name, or one has a built-in name."""

    def __init__(self, given: tuple[DialectTable | Dialect, ...]) -> None:
        self.given = given
        """The tables and dialects that the set was made from; they can be pickled if all are tables."""
        self.number = next(_numbers)
        """A number that no other set has, for use as a cache key."""
        self.by_name: Mapping[str, Dialect] = _index(given)


def read_own(given: Iterable[GivenDialect] | GivenDialect) -> OwnDialects:
    """Return an app's own dialects, reading the tables at the given paths. Raises UsageError for an invalid dialect."""
    if isinstance(given, (str, os.PathLike, DialectTable)) or _is_dialect(given):
        return _join((_read(given),))
    if not isinstance(given, Iterable):
        raise _not_a_dialect(given)
    items: Iterable[Any] = given
    return _join(tuple(map(_read, items)))


@lru_cache(maxsize=64)
def together(outer: OwnDialects, own: OwnDialects) -> OwnDialects:
    """Join two sets of dialects, `own` first. If both have a dialect with the same name, the one in `own` is kept."""
    others = zip(outer.given, outer.by_name, strict=True)
    return _join((*own.given, *(item for item, name in others if name not in own.by_name)))


def _join(given: tuple[DialectTable | Dialect, ...]) -> OwnDialects:
    """Combine dialects into one set. If all are tables, the set is cached, so that its patterns are compiled once."""
    distinct = tuple(item for at, item in enumerate(given) if not any(_is_same(item, one) for one in given[:at]))
    if all(isinstance(item, DialectTable) for item in distinct):
        return _of_tables(distinct)
    return OwnDialects(distinct)


@lru_cache(maxsize=64)
def _of_tables(tables: tuple[DialectTable, ...]) -> OwnDialects:
    return OwnDialects(tables)


def _is_same(one: DialectTable | Dialect, other: DialectTable | Dialect) -> bool:
    if isinstance(one, DialectTable) and isinstance(other, DialectTable):
        return one.text == other.text  # one file may be named by several paths
    return one is other


def _is_dialect(item: Any) -> bool:
    return isinstance(getattr(item, "name", None), str) and hasattr(item, "candidate")


def _read(item: Any) -> DialectTable | Dialect:
    if isinstance(item, (str, os.PathLike)):
        return read_table(cast("str | os.PathLike[str]", item))
    if isinstance(item, DialectTable):
        return item
    if not _is_dialect(item):
        raise _not_a_dialect(item)
    dialect: Dialect = item
    return dialect


def _index(given: tuple[DialectTable | Dialect, ...]) -> dict[str, Dialect]:
    if not given:
        return {}
    from promptools.dialects.table import parse_table  # imports all kinds of readers

    by_name: dict[str, Dialect] = {}
    for item in given:
        dialect: Dialect = parse_table(item) if isinstance(item, DialectTable) else item
        if dialect.name in BUILT_IN or dialect.name in by_name:
            of = f" of {item.file!r}" if isinstance(item, DialectTable) else ""
            raise UsageError(f"There is a dialect {dialect.name!r} already; give the one{of} another name.")
        by_name[dialect.name] = dialect
    return by_name


def _not_a_dialect(value: Any) -> UsageError:
    return UsageError(
        f"dialects: {clip(repr(value))} is not a dialect; give the path of its table, or the dialect itself."
    )
