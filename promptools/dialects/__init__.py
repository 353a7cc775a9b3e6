"""The dialects, in the order in which they are looked for."""

from __future__ import annotations

from typing import Final

from promptools.dialects.base import Dialect
from promptools.dialects.harmony import Harmony
from promptools.dialects.hermes import Hermes
from promptools.dialects.json import Json
from promptools.errors import UsageError

REGISTRY: Final[dict[str, Dialect]] = {dialect.name: dialect for dialect in (Harmony(), Hermes(), Json())}


def names() -> tuple[str, ...]:
    """Give the names of all dialects."""
    return tuple(REGISTRY)


def get(name: str) -> Dialect:
    """Give a dialect by name. Raises UsageError for a name that is none."""
    try:
        return REGISTRY[name]
    except (KeyError, TypeError):
        raise UsageError(f"There is no dialect {name!r}; the dialects are {', '.join(REGISTRY)}.") from None


__all__ = ["REGISTRY", "Dialect", "get", "names"]
