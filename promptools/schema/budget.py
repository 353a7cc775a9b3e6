"""The budget of one validation: steps and slow pattern searches are limited, so that no schema makes validation slow.

A budget is opened for a value (`begin_run`). Each keyword that is applied spends steps of it (`ValidationRun.spend`).
At the end the budget is closed (`end_run`). A budget has a fixed part, and a part that grows with the size of the
value. The size is determined only if the fixed part is used up. When nothing is left, `UncheckedError` is raised, and
the caller reports the arguments as not validated.
"""

from __future__ import annotations

from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

from promptools.json_values import count_values, is_array, is_object

STEPS = 50_000
"""Number of steps in the fixed part of the budget; each keyword that is applied costs at least one step."""
STEPS_PER_VALUE = 64
"""Number of steps that each value inside the validated value adds to the budget."""
STEPS_PER_REFERENCE = 3
"""Number of steps that following a reference takes from the budget."""
MAX_SLOW_SEARCHES = 20
"""Maximum number of pattern searches in one validation that may exceed the short time limit of the first attempt."""
CHARACTERS_PER_STEP = 32
"""Number of characters of an error message that cost one step.

Long messages cost more steps, because a message may quote a large value.
"""


class UncheckedError(Exception):
    """Raised if validation is abandoned. It is then unknown whether the value is valid."""


@dataclass(slots=True)
class ValidationRun:
    """The state of one validation of a value: the rest of the budget, and cached results."""

    value: Any
    steps_left: int = STEPS
    slow_searches_left: int = MAX_SLOW_SEARCHES
    size_counted: bool = False
    branch_errors: dict[tuple[int, int], list[Any]] = field(default_factory=dict[tuple[int, int], list[Any]])
    """Maps `(id of the list, id of the value)` to the errors of the alternatives in an `anyOf` or `oneOf` list."""
    enum_members: dict[int, frozenset[Any]] = field(default_factory=dict[int, frozenset[Any]])
    """Maps the id of an `enum` list to the list's members, in the form that `hashable_json` returns."""

    def spend(self, steps: int) -> None:
        """Subtract steps from the budget; raise UncheckedError if too few are left."""
        self.steps_left -= steps
        if self.steps_left < 0 and not self.size_counted:
            self.size_counted = True
            self.steps_left += STEPS_PER_VALUE * count_values(self.value)
        if self.steps_left < 0:
            raise UncheckedError("its schema is too costly to check")


_RUN: ContextVar[ValidationRun | None] = ContextVar("the run that is on", default=None)


def current_run() -> ValidationRun:
    """Return the state of the validation in progress, or a new state if there is none."""
    return _RUN.get() or ValidationRun(None)


def begin_run(value: Any) -> None:
    """Begin the validation of a value, with a new budget."""
    _RUN.set(ValidationRun(value))


def end_run() -> None:
    """End the validation in progress, and release its values."""
    _RUN.set(None)


def hashable_json(value: Any) -> Any:
    """Return a hashable form of a JSON value, in O(n). Equal values have equal forms: `1` and `1.0`, but not `true`."""
    if is_object(value):
        return frozenset((key, hashable_json(member)) for key, member in value.items())
    if is_array(value):
        return tuple(map(hashable_json, value))
    return isinstance(value, bool), value
