"""Tests of thousands of rows: each group of rows is one test, for a test of its own costs more than most rows do.

All rows of a group are gone through; those that fail are named, and each is shown. `--rows PART` runs those alone whose
name has `PART` in it, and `--sample` takes its share of the rows, not of the groups.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import wraps
from typing import Any
from zlib import crc32

import pytest


def in_sample(nodeid: str, one_in: int) -> bool:
    """Whether one of many forms is run: by its name alone, so that a failure is there again the next time."""
    return crc32(nodeid.encode()) % one_in == 0


@dataclass(frozen=True, slots=True)
class Rows:
    """The rows of a group by their names."""

    named: tuple[tuple[str, Any], ...]

    def chosen(self, test: str, one_in: int, part: str) -> Rows:
        """Return those that are run of the test with this id: of a sample, and with `part` in their names."""
        return Rows(
            tuple((name, row) for name, row in self.named if part in name and in_sample(f"{test}[{name}]", one_in))
        )


def every_row(
    rows: Iterable[Any], *, name: Callable[[Any], str], group: Callable[[Any], str]
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Run a test for every row, which is its argument `row`: as one test for each group, told by a row's name."""
    groups: dict[str, list[tuple[str, Any]]] = {}
    for row in rows:
        groups.setdefault(group(row), []).append((name(row), row))

    def decorate(test: Callable[..., None]) -> Callable[..., None]:
        signature = inspect.signature(test)

        @wraps(test)
        def run(*, rows: Rows, **others: Any) -> None:
            if not rows.named:
                pytest.skip("no row of it is chosen")
            failed: dict[str, BaseException] = {}
            for each, row in rows.named:
                try:
                    test(row=row, **others)
                except (Exception, pytest.fail.Exception) as error:  # noqa: BLE001 - each failure is shown
                    error.add_note(f"row: {each}")
                    failed[each] = error
            if failed:
                raise BaseExceptionGroup(f"of {len(rows.named)} rows: {', '.join(failed)}", list(failed.values()))

        parameters = [
            each.replace(name="rows" if each.name == "row" else each.name, kind=inspect.Parameter.KEYWORD_ONLY)
            for each in signature.parameters.values()
        ]
        vars(run)["__signature__"] = signature.replace(parameters=parameters)
        made = [pytest.param(Rows(tuple(named)), id=each) for each, named in groups.items()]
        return pytest.mark.parametrize("rows", made)(run)

    return decorate
