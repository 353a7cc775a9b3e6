"""Measure batches: reparsing of logged replies on one core, on all and on Ray; requests to real and fast servers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from benchmarks.batches.replies import reparse_table
from benchmarks.batches.requests import ceiling_table, saturation_table
from benchmarks.table import Table

SIZES = (10_000, 100_000)
"""The numbers of replies in the files that are read."""


def batch(sizes: Sequence[int] = ()) -> Iterator[Table]:
    """Measure reparsing of files with these numbers of replies, and then requests."""
    yield reparse_table(sizes or SIZES)
    yield saturation_table()
    yield ceiling_table()
