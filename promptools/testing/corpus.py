"""Load recorded replies for parametrized tests, and check that they are still read in the same way."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from promptools.errors import UsageError
from promptools.recording import RecordedRow, read_rows

if TYPE_CHECKING:
    from _pytest.mark import ParameterSet


def recorded(path: str | os.PathLike[str]) -> list[ParameterSet]:
    """Return the recorded rows of a file or directory as test parameters, for `pytest.mark.parametrize`.

    Raises `UsageError` if no row is found, or if a line is not a valid row, because tests must not pass on a corpus
    that cannot be read.
    """
    import pytest

    parameters: list[ParameterSet] = []
    for row in read_rows(path):
        if not isinstance(row, RecordedRow):
            raise UsageError(f"{row.path}:{row.line}: {row.reason}")
        parameters.append(pytest.param(row, id=row.id))
    if not parameters:
        raise UsageError(f"{os.fspath(path)!r} holds no recorded reply")
    return parameters


def assert_same_reading(row: RecordedRow) -> None:
    """Fail with a diff if a recorded reply is now parsed differently than at the time of the recording."""
    __tracebackhide__ = True
    difference = row.difference()
    if difference:
        raise AssertionError(
            f"{row.path}:{row.line} is read differently (promptools replay --update accepts it):\n{difference}"
        )
