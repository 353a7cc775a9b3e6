"""The command `promptools reparse`: parse a file of logged replies again."""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Generator, Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from promptools.cli.shared_arguments import add_dialect_files, add_json, add_ray, at_least
from promptools.cli.terminal_output import print_json, print_styled, show_progress
from promptools.dialects.table_file import read_table
from promptools.errors import UsageError, without_credentials

if TYPE_CHECKING:
    from promptools.batch.reparsing import ReparsedLine


SHOWN_EVERY = 10_000
"""Number of replies between two updates of the progress."""


def add(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument(
        "input", metavar="IN", help="replies, JSON Lines or .parquet: text, and tools if there were any"
    )
    parser.add_argument(
        "output", metavar="OUT", help="file for the results, in the same order; Parquet if it ends in .parquet"
    )
    parser.add_argument(
        "--workers", type=at_least(1, "processes"), metavar="N", help="processes (default: one for each core)"
    )
    add_dialect_files(parser)
    add_ray(parser)
    add_json(parser)


def run(arguments: argparse.Namespace) -> int:
    """Parse the replies and write the results; return 1 if a line cannot be read."""
    from promptools.batch.columns import reparsed_file_schema
    from promptools.batch.files import check_name, identity_of, is_parquet, write_lines, write_rows

    check_name(arguments.input)
    check_name(arguments.output)
    if identity_of(arguments.input) == identity_of(arguments.output):
        raise UsageError(f"{arguments.input!r} is the input; name another file for the results")
    if arguments.ray is not None and arguments.workers:
        raise UsageError("--workers is for this machine; with --ray, each processor of the cluster reads")
    totals = {"replies": 0, "with_calls": 0, "failed": 0}
    with show_progress("replies") as show:

        def counted(results: Iterable[ReparsedLine]) -> Iterator[bytes]:
            for result in results:
                totals["replies"] += 1
                totals["with_calls"] += result.has_calls
                totals["failed"] += result.failed
                if totals["replies"] % SHOWN_EVERY == 0:
                    show("replies", totals["replies"], totals["replies"])
                yield result.text

        as_row = is_parquet(arguments.output)
        with _results(arguments, as_row=as_row) as results:
            if as_row:
                write_rows(arguments.output, map(json.loads, counted(results)), reparsed_file_schema())
            else:
                write_lines(arguments.output, counted(results))
    if arguments.json:
        print_json(totals)
    else:
        print_styled([
            (f"{totals['replies']} replies in {without_credentials(arguments.output)}", "bold"),
            (f"; {totals['with_calls']} with calls, {totals['failed']} that cannot be read", ""),
        ])  # fmt: skip
    return int(bool(totals["failed"]))


@contextmanager
def _results(arguments: argparse.Namespace, *, as_row: bool) -> Generator[Iterator[ReparsedLine], None, None]:
    """Yield the results in the order of the input, from processes on this machine or on a cluster."""
    from promptools.batch.reparsing import read_replies, reparse

    tables = tuple(map(read_table, arguments.dialect_files))
    if arguments.ray is None:
        workers = arguments.workers or getattr(os, "process_cpu_count", os.cpu_count)() or 1
        yield reparse(read_replies(arguments.input), workers, as_row=as_row, dialects=tables)
        return
    from promptools.batch.ray_cluster import ray_session, reparse_on_cluster

    with ray_session(arguments.ray) as ray:
        yield reparse_on_cluster(ray, arguments.input, as_row=as_row, dialects=tables)
