"""The command `promptools batch`."""

from __future__ import annotations

import argparse
from time import monotonic
from typing import TYPE_CHECKING, Any, get_args

from promptools.cli.batch_commands.batch_run import CONCURRENCY, TIMEOUT, check_ray, run_job
from promptools.cli.batch_commands.engine_arguments import add_engine, read_settings
from promptools.cli.server_commands.chat_command import connect
from promptools.cli.shared_arguments import add_endpoint, add_json, add_ray, at_least, seconds
from promptools.cli.terminal_output import print_json, print_progress, print_styled, print_table
from promptools.errors import PromptoolsError, without_credentials
from promptools.types import ModeName

if TYPE_CHECKING:
    from promptools.batch.batch_job import BatchJob
    from promptools.batch.input_survey import PromptSize

MAX_SHOWN_MODELS = 5


def add(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument("input", metavar="IN", help="requests, JSON Lines or .parquet: custom_id, method, url and body")
    parser.add_argument("output", metavar="OUT", help="file for the results; failures are in OUT's .errors.jsonl, too")
    add_endpoint(parser, about_model="model to ask, in place of those in the requests")
    add_engine(parser)
    parser.add_argument("--mode", choices=get_args(ModeName), help="ask for tools in this mode only")
    parser.add_argument(
        "--concurrency",
        type=at_least(1, "requests"),
        metavar="N",
        help=f"requests at once at most ({CONCURRENCY}; what an engine takes)",
    )
    parser.add_argument(
        "--timeout",
        type=seconds,
        metavar="S",
        help=f"seconds that an answer may take ({TIMEOUT:g}; of an engine any number)",
    )
    parser.add_argument(
        "--patience", type=seconds, metavar="S", default=600.0, help="seconds to wait for an unreachable server (600)"
    )
    parser.add_argument(
        "--log", metavar="FILE", help="local file for the results until the run is complete (default: OUT.part)"
    )
    parser.add_argument(
        "--dry-run", action="store_true", help="count the requests and their text, say what would be sent, send nothing"
    )
    add_ray(parser)
    parser.add_argument(
        "--actors",
        type=at_least(1, "actors"),
        metavar="N",
        help="with --ray: sending processes (default: one for each node)",
    )
    add_json(parser)


def run(arguments: argparse.Namespace) -> int:
    """Run the batch, or count it; return 1 if a request failed or a line is invalid."""
    from promptools.batch.batch_job import BatchJob, check_paths
    from promptools.batch.files import exists
    from promptools.batch.input_survey import PromptSize, survey_input
    from promptools.batch.request_pool import require_tenacity

    require_tenacity()
    check_ray(arguments)
    engine = read_settings(arguments)
    check_paths(arguments.input, arguments.output, arguments.log)
    size = PromptSize() if arguments.dry_run else None
    survey = survey_input(arguments.input, size.add if size else None)
    job = BatchJob(arguments.input, arguments.output, survey, model=arguments.model, log=arguments.log)
    if size is not None:
        return _describe(arguments, job, size)
    if job.is_complete():
        print_progress(f"{without_credentials(arguments.output)} has all results already")
        return int(exists(job.errors))
    started = monotonic()
    try:
        run_job(arguments, job, engine)
    except KeyboardInterrupt:
        print_progress(f"interrupted; {job.totals.done} results are in {job.log}: the same command goes on")
        raise
    except PromptoolsError:
        if job.totals.done:
            print_progress(f"{job.totals.done} results are in {job.log}: the same command goes on")
        raise
    _report(arguments, job, monotonic() - started)
    return int(bool(job.totals.failed or job.totals.unnamed))


def _report(arguments: argparse.Namespace, job: BatchJob, seconds: float) -> None:
    totals = job.totals
    failures = totals.failed + totals.unnamed
    if arguments.json:
        print_json(
            {
                "requests": totals.requests,
                "earlier": totals.earlier,
                "failed": failures,
                "prompt_tokens": totals.prompt_tokens,
                "completion_tokens": totals.completion_tokens,
                "seconds": round(seconds, 3),
                "output": without_credentials(job.output),
                "errors": without_credentials(job.errors) if failures else None,
            }
        )
        return
    print_styled([
        (f"{totals.requests} results in {without_credentials(job.output)}", "bold"),
        (f" ({totals.earlier} of earlier runs)" if totals.earlier else "", ""),
        (f"; {totals.prompt_tokens} tokens of prompts, {totals.completion_tokens} generated; {seconds:.1f} s", "dim"),
    ])  # fmt: skip
    if failures:
        print_styled([(f"{failures} failed: see {without_credentials(job.errors)}", "red")])


def _describe(arguments: argparse.Namespace, job: BatchJob, size: PromptSize) -> int:
    """Print what would be sent; return 1 if a line is invalid."""
    survey = job.survey
    if arguments.engine:
        server = f"none: {arguments.engine} {'in this process' if arguments.ray is None else 'on Ray'}"
    else:
        with connect(arguments) as client:
            server = without_credentials(str(client.base_url))
    described: dict[str, Any] = {
        "server": server,
        "requests": survey.urls.total(),
        "urls": dict(survey.urls),
        "models": [arguments.model] if arguments.model else sorted(survey.models),
        "without_model": 0 if arguments.model else survey.without_model,
        "invalid": survey.invalid,
        "earlier": job.count_earlier(),
        "text": {
            "unit": size.unit, "total": size.total, "largest": size.largest, "largest_line": size.largest_line,
        },
    }  # fmt: skip
    if arguments.json:
        print_json(described)
        return int(bool(survey.invalid))
    models = described["models"][:MAX_SHOWN_MODELS] + (["..."] if len(described["models"]) > MAX_SHOWN_MODELS else [])
    rows = [
        ("server", server),
        ("requests", ", ".join(f"{count} to {url}" for url, count in survey.urls.items()) or "0"),
        ("models", ", ".join(models) or "the provider's"),
        ("with a result already", str(described["earlier"])),
        ("invalid lines", str(survey.invalid)),
        ("text of all", f"{size.total} {size.unit}"),
        ("largest", f"{size.largest} {size.unit}, in line {size.largest_line}" if size.largest else "none"),
    ]
    print_table("Nothing was sent", ("what", "value"), rows)
    return int(bool(survey.invalid))
