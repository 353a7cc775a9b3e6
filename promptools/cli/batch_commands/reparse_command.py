"""Read logged replies again, many at once: calls, content, reasoning and fixes of each, as JSON Lines."""

from __future__ import annotations

import argparse
import os
from collections.abc import Generator, Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from promptools.cli.progress_bar import show_progress
from promptools.cli.shared_arguments import add_json, add_ray, at_least
from promptools.cli.terminal_output import print_json, print_styled
from promptools.errors import UsageError, without_credentials

if TYPE_CHECKING:
    from promptools.batch.reparsing import ReparsedLine

NAME = "reparse"
SHOWN_EVERY = 10_000
"""Replies between two displays of the progress."""


def add(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument("input", metavar="IN", help="replies, JSON Lines: text, and tools if there were any, in each")
    parser.add_argument("output", metavar="OUT", help="file for the results, a line for each reply, in the same order")
    parser.add_argument(
        "--workers", type=at_least(1, "processes"), metavar="N", help="processes (default: one for each core)"
    )
    add_ray(parser)
    add_json(parser)


def run(arguments: argparse.Namespace) -> int:
    """Read the replies; return 1 if a line cannot be read."""
    from promptools.batch.files.batch_files import check_name, write_lines

    check_name(arguments.input)
    check_name(arguments.output)
    if arguments.input == arguments.output:
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

        with _results(arguments) as results:
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
def _results(arguments: argparse.Namespace) -> Generator[Iterator[ReparsedLine], None, None]:
    """Yield the results in the order of the input, of processes here or on a cluster."""
    from promptools.batch.files.batch_files import read_lines
    from promptools.batch.reparsing import reparse

    if arguments.ray is None:
        workers = arguments.workers or getattr(os, "process_cpu_count", os.cpu_count)() or 1
        yield reparse(read_lines(arguments.input), workers)
        return
    from promptools.batch.ray_cluster.cluster_reparsing import reparse_on_cluster
    from promptools.batch.ray_cluster.ray_session import ray_session

    with ray_session(arguments.ray) as ray:
        yield reparse_on_cluster(ray, arguments.input)
