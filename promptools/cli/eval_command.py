"""The command `promptools eval`: run a benchmark."""

from __future__ import annotations

import argparse
from typing import Any

from promptools.cli import aime_benchmark, bfcl_benchmark, mcp_benchmark, swe_benchmark

BENCHMARKS = (aime_benchmark, bfcl_benchmark, mcp_benchmark, swe_benchmark)


def add(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    benchmarks: Any = parser.add_subparsers(
        dest="benchmark", required=True, metavar="BENCHMARK", parser_class=type(parser)
    )
    for benchmark in BENCHMARKS:
        about = (benchmark.__doc__ or "").splitlines()[0]
        subparser = benchmarks.add_parser(benchmark.NAME, help=about, description=about, allow_abbrev=False)
        benchmark.add(subparser)
        subparser.set_defaults(run_benchmark=benchmark.run)


def run(arguments: argparse.Namespace) -> int:
    """Run the benchmark."""
    return int(arguments.run_benchmark(arguments))
