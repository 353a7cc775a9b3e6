"""Batches: logged replies read again on one core, on all and on Ray; requests to a real server and to a fast one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from benchmarks.batches.replies import reparse_table
from benchmarks.batches.requests import ceiling_table, saturation_table
from benchmarks.table import Table

SIZES = (10_000, 100_000)
"""Replies in the files that are read."""


def batch(sizes: Sequence[int] = ()) -> Iterator[Table]:
    """Measure files of so many replies, and requests."""
    yield reparse_table(sizes or SIZES)
    yield saturation_table()
    yield ceiling_table()
