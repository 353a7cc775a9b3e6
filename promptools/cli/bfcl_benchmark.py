"""The Berkeley Function Calling Leaderboard, run with the generator and checker of the package bfcl-eval."""

from __future__ import annotations

import argparse
import os
from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

from promptools.cli.benchmark_run import add_overflow_retries, json_object, print_report
from promptools.cli.command_client import choose_model, connect
from promptools.cli.shared_arguments import add_endpoint, add_json, at_least, read_config
from promptools.cli.terminal_output import show_progress
from promptools.errors import UsageError, without_credentials
from promptools.types import ModeName

if TYPE_CHECKING:
    from promptools.harness.evaluation.bfcl import BfclProcess, BfclRunLog


NAME = "bfcl"
_DRAIN_SECONDS = 2.0


def add(parser: argparse.ArgumentParser) -> None:
    """Add the benchmark's arguments."""
    add_endpoint(parser)
    parser.add_argument(
        "--output", required=True, metavar="DIR", help="folder of the run; an interrupted run is resumed"
    )
    parser.add_argument("--report", metavar="FILE", help="write a report of the run, in Markdown")
    parser.add_argument(
        "--categories",
        nargs="+",
        default=["single_turn", "multi_turn"],
        metavar="NAME",
        help="categories or collections of bfcl-eval (single_turn multi_turn)",
    )
    parser.add_argument(
        "--limit", type=at_least(1, "questions"), default=0, metavar="N", help="questions of each category (all)"
    )
    parser.add_argument(
        "--seed", type=at_least(0, "seeds"), default=0, metavar="N", help="which questions --limit takes (0)"
    )
    parser.add_argument(
        "--threads", type=at_least(1, "threads"), default=8, metavar="N", help="questions at the same time (8)"
    )
    parser.add_argument(
        "--request",
        type=json_object,
        default={},
        metavar="JSON",
        help="additional keys for each request, such as {'temperature': 1}",
    )
    add_overflow_retries(parser)
    parser.add_argument("--mode", choices=get_args(ModeName), help="request tools in this mode only")
    parser.add_argument(
        "--direct",
        action="store_true",
        help="start no proxy: to use one that is already running, or to compare with the bare server",
    )
    parser.add_argument(
        "--bfcl-python", metavar="PATH", help="the Python in which bfcl-eval is installed (default: this one, if it is)"
    )
    add_json(parser)


def run(arguments: argparse.Namespace) -> int:
    """Ask the questions that have no answer yet, and print the report; return 1 if some questions failed."""
    from promptools.harness.evaluation.bfcl import BfclProcess, BfclRunLog, find_python, read_answers
    from promptools.harness.evaluation.bfcl_worker import OVERFLOW

    _check(arguments)
    python, folder = find_python(arguments.bfcl_python), Path(arguments.output)
    with connect(arguments) as client:
        model, server, key = choose_model(arguments, client), str(client.base_url), client.api_key
    work = {name: getattr(arguments, name) for name in ("categories", "limit", "seed", "threads", "request")}
    start = partial(BfclProcess, python, folder, {**work, "model": model})
    with ExitStack() as stack:
        process = stack.enter_context(start())
        settings = {
            "benchmark": NAME,
            "bfcl-eval": process.version,
            "model": model,
            "seed": arguments.seed,
            "request": arguments.request,
            "mode": arguments.mode or "",
            "direct": arguments.direct,
        }
        log = stack.enter_context(BfclRunLog(folder, settings))
        base_url = stack.enter_context(_serve(arguments, server, log))
        _ask(process, folder, base_url, key)
        while log.overflow_retries < arguments.overflow_retries and any(
            answer.mistake == OVERFLOW for answer in read_answers(folder)
        ):
            log.record_overflow_retry()
            with start() as again:  # a new process, since the package keeps the state of conversations in its process
                _ask(again, folder, base_url, key, overflows=True)
    shown = {"limit": arguments.limit or "all", "overflow_retries": arguments.overflow_retries}
    return _report(arguments, log, {**settings, "server": without_credentials(server), **shown})


def _ask(process: BfclProcess, folder: Path, base_url: str, key: str, *, overflows: bool = False) -> None:
    """Ask the questions that have no result yet, show the progress, and wait until all answers are checked.

    If `overflows` is true, the questions whose context overflowed are asked again too.
    """
    from promptools.harness.evaluation.bfcl import remove_failures

    kept = remove_failures(folder, overflows=overflows)
    chosen = process.start(base_url, key)
    with show_progress(str(process.settings["model"])) as show:
        for done, (name, error) in enumerate(process.answers(), len(kept.intersection(chosen)) + 1):
            show(f"{name}: {without_credentials(error) or 'answered'}", done, len(chosen))


def _check(arguments: argparse.Namespace) -> None:
    from promptools.harness.evaluation.bfcl import check_folder
    from promptools.harness.evaluation.intervals import require_numpy
    from promptools.proxy.access import API_KEY_VARIABLE

    require_numpy()
    check_folder(Path(arguments.output))
    if arguments.direct and arguments.mode:
        raise UsageError("--mode is for the proxy, which --direct leaves out")
    if API_KEY_VARIABLE in os.environ and not arguments.direct:
        raise UsageError(f"{API_KEY_VARIABLE} is set, which is for `promptools serve`; unset it, or add --direct")


@contextmanager
def _serve(arguments: argparse.Namespace, server: str, log: BfclRunLog) -> Generator[str, None, None]:
    """Yield the base URL of a proxy that logs how each reply was obtained.

    With `--direct`, yield the base URL of the server instead.
    """
    if arguments.direct:
        yield server
        return
    from promptools.cli.serve_command import serve_in_thread
    from promptools.profiles import ProxyOptions
    from promptools.proxy import Proxy
    from promptools.transport.session import environment_address

    config = read_config(arguments.config)
    proxy = Proxy(
        base_url=arguments.base_url or environment_address(config, arguments.provider),
        provider=arguments.provider,
        # the keys and limits of the config are meant for the clients of `promptools serve`
        config=replace(config, proxy=ProxyOptions(models=config.proxy.models)),
        dialects=arguments.dialect_files,
        detect=arguments.detect,
        mode=arguments.mode,
        on_reply=log.record,
    )
    with serve_in_thread(proxy, drain_seconds=_DRAIN_SECONDS) as address:
        yield f"{address}/v1"


def _report(arguments: argparse.Namespace, log: BfclRunLog, settings: dict[str, Any]) -> int:
    from promptools.harness.evaluation.bfcl import read_answers, render_bfcl_report, summarize_answers

    summary = summarize_answers(read_answers(Path(arguments.output)))
    page = render_bfcl_report(f"BFCL: {settings['model']}", summary, settings, log.replies)
    print_report(arguments, page, {**summary.to_dict(), "replies": dict(log.replies)})
    return 1 if summary.failed else 0
