"""Read logged replies again, many at once: calls, content, reasoning and fixes of each."""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from promptools.cli.progress_bar import show_progress
from promptools.cli.shared_arguments import add_json, at_least
from promptools.cli.terminal_output import print_json, print_styled
from promptools.errors import UsageError, without_credentials

if TYPE_CHECKING:
    from promptools.batch.reparsing import ReparsedLine

NAME = "reparse"
SHOWN_EVERY = 10_000
"""Replies between two displays of the progress."""


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
    add_json(parser)


def run(arguments: argparse.Namespace) -> int:
    """Read the replies; return 1 if a line cannot be read."""
    from promptools.batch.columns.input_columns import REPLY_COLUMNS
    from promptools.batch.columns.result_schemas import reparsed_file_schema
    from promptools.batch.files.batch_files import check_name, identity_of, is_parquet, write_lines
    from promptools.batch.files.parquet_files import read_input, write_rows
    from promptools.batch.reparsing import reparse

    check_name(arguments.input)
    check_name(arguments.output)
    if identity_of(arguments.input) == identity_of(arguments.output):
        raise UsageError(f"{arguments.input!r} is the input; name another file for the results")
    workers = arguments.workers or getattr(os, "process_cpu_count", os.cpu_count)() or 1
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
        results = counted(reparse(read_input(arguments.input, REPLY_COLUMNS), workers, as_row=as_row))
        if as_row:
            write_rows(arguments.output, map(json.loads, results), reparsed_file_schema())
        else:
            write_lines(arguments.output, results)
    if arguments.json:
        print_json(totals)
    else:
        print_styled([
            (f"{totals['replies']} replies in {without_credentials(arguments.output)}", "bold"),
            (f"; {totals['with_calls']} with calls, {totals['failed']} that cannot be read", ""),
        ])  # fmt: skip
    return int(bool(totals["failed"]))
