"""The budget of one validation: steps and slow pattern searches are counted, so that no schema makes one take long.

A budget is opened with a value (`begin`), spent by each keyword that is applied (`Run.spend`), and closed (`end`). It
has a fixed part and a part for the size of the value; the value is only counted once the fixed part is used up. What
exceeds it raises `UncheckedError`, and the caller reports the arguments as not validated.
"""

from __future__ import annotations

from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

from promptools.schema.copies import size
from promptools.schema.shapes import is_array, is_object

STEPS = 50_000
"""Keywords that one validation may apply, whatever the value ..."""
STEPS_A_VALUE = 64
"""... and for each value inside it."""
STEPS_A_REFERENCE = 3
"""Steps that following a reference costs."""
SLOW = 20
"""Pattern searches that may be slow."""
CHARACTERS = 32
"""Characters of an error message that cost one step: a message quotes the value that it is about."""


class UncheckedError(Exception):
    """Validation was abandoned: the value is known neither as valid nor as invalid."""


@dataclass(slots=True)
class Run:
    """One validation of a value: what is left of its budget, and results that it need not compute twice."""

    value: Any
    left: int = STEPS
    slow: int = SLOW
    counted: bool = False
    refusals: dict[tuple[int, int], list[Any]] = field(default_factory=dict[tuple[int, int], list[Any]])
    """Errors of the alternatives of an `anyOf` or `oneOf`, by the ids of the list of alternatives and of the value."""
    members: dict[int, frozenset[Any]] = field(default_factory=dict[int, frozenset[Any]])
    """The members of an `enum`, by the id of its list."""

    def spend(self, steps: int) -> None:
        """Take steps from the budget; raise UncheckedError when none are left."""
        self.left -= steps
        if self.left < 0 and not self.counted:
            self.counted = True
            self.left += STEPS_A_VALUE * size(self.value)
        if self.left < 0:
            raise UncheckedError("its schema is too costly to check")


_RUN: ContextVar[Run | None] = ContextVar("the run that is on", default=None)


def current() -> Run:
    """Return the current run, or a new one where none has begun."""
    return _RUN.get() or Run(None)


def begin(value: Any) -> None:
    """Begin a run for a value."""
    _RUN.set(Run(value))


def end() -> None:
    """End the current run and release its values."""
    _RUN.set(None)


def frozen(value: Any) -> Any:
    """Return a hashable form, equal for values that are equal as JSON: `1` and `1.0`, not `1` and `true`. O(n)."""
    if is_object(value):
        return frozenset((key, frozen(member)) for key, member in value.items())
    if is_array(value):
        return tuple(map(frozen, value))
    return isinstance(value, bool), value
