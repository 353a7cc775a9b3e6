"""How much one check of a value may cost: steps and slow patterns, counted, so that no schema takes it long."""

from __future__ import annotations

from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

from promptools.schema.copies import size
from promptools.schema.shapes import is_array, is_object

STEPS = 50_000
"""Keywords that one run of jsonschema may look at, for any value ..."""
STEPS_A_VALUE = 64
"""... and for each value inside it."""
STEPS_A_REFERENCE = 3
"""Steps that it costs to follow a reference."""
SLOW = 20
"""Searches of a pattern that may be slow."""
CHARACTERS = 32
"""Characters of an error that cost a step: an error quotes the value that it is about."""


class UncheckedError(Exception):
    """The check of a value was given up: it is neither valid nor invalid."""


@dataclass(slots=True)
class Run:
    """One run over a value: what is left of its budget, and what it need not do twice."""

    value: Any
    left: int = STEPS
    slow: int = SLOW
    counted: bool = False
    refusals: dict[tuple[int, int], list[Any]] = field(default_factory=dict[tuple[int, int], list[Any]])
    """What alternatives had against a value, by the ids of both."""
    members: dict[int, frozenset[Any]] = field(default_factory=dict[int, frozenset[Any]])
    """The members of an enumeration, by its id."""

    def spend(self, steps: int) -> None:
        """Take steps from the budget; raises UncheckedError when there are none left."""
        self.left -= steps
        if self.left < 0 and not self.counted:
            self.counted = True
            self.left += STEPS_A_VALUE * size(self.value)
        if self.left < 0:
            raise UncheckedError("its schema is too costly to check")


_RUN: ContextVar[Run | None] = ContextVar("the run that is on", default=None)


def current() -> Run:
    """Return the run that is on; outside of one a run of its own."""
    return _RUN.get() or Run(None)


def begin(value: Any) -> None:
    """Begin a run over a value."""
    _RUN.set(Run(value))


def end() -> None:
    """End the run, and let go of its values."""
    _RUN.set(None)


def frozen(value: Any) -> Any:
    """Return what is equal for values that are equal as JSON: `1` and `1.0`, but not `1` and `true`. O(n)."""
    if is_object(value):
        return frozenset((key, frozen(each)) for key, each in value.items())
    if is_array(value):
        return tuple(map(frozen, value))
    return isinstance(value, bool), value
