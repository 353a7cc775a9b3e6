"""Send the requests of a file, in OpenAI's batch format, many at once, and write their results into another."""

from __future__ import annotations

import argparse
import asyncio
import logging
from collections.abc import Callable, Generator
from contextlib import contextmanager
from time import monotonic
from typing import TYPE_CHECKING, Any, get_args

from promptools.cli.batch_commands.batch_progress import follow_batch
from promptools.cli.progress_bar import show_progress
from promptools.cli.server_commands.chat_command import connect, connect_async, default_model
from promptools.cli.shared_arguments import add_endpoint, add_json, add_ray, at_least, seconds
from promptools.cli.terminal_output import print_json, print_progress, print_styled, print_table
from promptools.errors import PromptoolsError, UpstreamError, UsageError, without_credentials
from promptools.types import ModeName

if TYPE_CHECKING:
    from promptools.batch.batch_job import BatchJob
    from promptools.batch.files.pending_requests import PendingRequests
    from promptools.batch.prompt_size import PromptSize
    from promptools.batch.request_answering import BatchAnswer
NAME = "batch"
MAX_SHOWN_MODELS = 5


def add(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument("input", metavar="IN", help="requests, JSON Lines or .parquet: custom_id, method, url and body")
    parser.add_argument("output", metavar="OUT", help="file for the results; failures are in OUT's .errors.jsonl, too")
    add_endpoint(parser, about_model="model to ask, in place of those in the requests")
    parser.add_argument("--mode", choices=get_args(ModeName), help="ask for tools in this mode only")
    parser.add_argument(
        "--concurrency", type=at_least(1, "requests"), metavar="N", default=32, help="requests at once at most (32)"
    )
    parser.add_argument(
        "--timeout", type=seconds, metavar="S", default=600.0, help="seconds that an answer may take (600)"
    )
    parser.add_argument(
        "--patience", type=seconds, metavar="S", default=600.0, help="seconds to wait for a server that is away (600)"
    )
    parser.add_argument(
        "--log", metavar="FILE", help="local file for the results until all are there (default: OUT.part)"
    )
    parser.add_argument(
        "--dry-run", action="store_true", help="count the requests and their text, say what would be sent, send nothing"
    )
    add_ray(parser)
    parser.add_argument(
        "--actors", type=at_least(1, "actors"), metavar="N", help="with --ray: processes that send (one for each node)"
    )
    add_json(parser)


def run(arguments: argparse.Namespace) -> int:
    """Run the batch, or count it; return 1 if a request failed or a line is invalid."""
    from promptools.batch.batch_job import BatchJob, check_paths
    from promptools.batch.files.batch_files import exists
    from promptools.batch.files.input_survey import survey_input
    from promptools.batch.prompt_size import PromptSize
    from promptools.batch.request_pool import require_tenacity

    require_tenacity()
    _check_ray(arguments)
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
        with _quiet_log():
            _run(arguments, job)
    except KeyboardInterrupt:
        print_progress(f"interrupted; {job.totals.done} results are in {job.log}: the same command goes on")
        raise
    except PromptoolsError:
        if job.totals.done:
            print_progress(f"{job.totals.done} results are in {job.log}: the same command goes on")
        raise
    _report(arguments, job, monotonic() - started)
    return int(bool(job.totals.failed or job.totals.unnamed))


def _run(arguments: argparse.Namespace, job: BatchJob) -> None:
    default = _default_model(arguments, job) if job.survey.without_model and not arguments.model else None
    if arguments.ray is None:
        _run_here(arguments, job, default)
    else:
        _run_on_cluster(arguments, job, default)


def _default_model(arguments: argparse.Namespace, job: BatchJob) -> str:
    import openai

    try:
        with connect(arguments) as client:
            return default_model(client)
    except openai.APIError as error:
        raise UpstreamError(f"cannot find out the model of {job.survey.without_model} requests: {error}") from error


def _run_here(arguments: argparse.Namespace, job: BatchJob, default: str | None) -> None:
    from promptools.batch.adaptive_limit import AdaptiveLimit
    from promptools.batch.request_pool import RequestPool
    from promptools.batch.request_servers import RequestServers, answer_timeout

    limit = AdaptiveLimit(arguments.concurrency)
    timeout = answer_timeout(arguments.timeout)

    async def answer(pending: PendingRequests, record: Callable[[BatchAnswer], None]) -> None:
        async with connect_async(arguments, timeout=timeout, max_retries=0, mode=arguments.mode) as client:
            servers = RequestServers(client, model=arguments.model, default_model=default)
            await RequestPool(servers.answer, limit, patience=arguments.patience).run(iter(pending), record)

    with show_progress(arguments.model or "requests") as show:
        follow = follow_batch(show, lambda: f"{limit.in_flight} at once")
        job.run(lambda pending, record: asyncio.run(answer(pending, record)), follow)


def _run_on_cluster(arguments: argparse.Namespace, job: BatchJob, default: str | None) -> None:
    from promptools.batch.ray_cluster.actor_settings import ActorSettings
    from promptools.batch.ray_cluster.cluster_answering import ClusterAnswering
    from promptools.batch.ray_cluster.ray_session import ray_session

    with connect(arguments) as client:
        settings = ActorSettings.of_client(
            client,
            mode=arguments.mode,
            model=arguments.model,
            default_model=default,
            timeout=arguments.timeout,
            patience=arguments.patience,
            concurrency=arguments.concurrency,
        )
    with ray_session(arguments.ray) as ray, show_progress(arguments.model or "requests") as show:
        answering = ClusterAnswering(ray, settings, arguments.actors)
        job.run(answering, follow_batch(show, lambda: f"{answering.actors} actors"))


def _check_ray(arguments: argparse.Namespace) -> None:
    """Raise `UsageError` if the run cannot be on a cluster as the arguments say."""
    if arguments.ray is None:
        if arguments.actors:
            raise UsageError("--actors is for --ray; use --concurrency alone, or add --ray")
        return
    if arguments.api_key or (arguments.base_url and without_credentials(arguments.base_url) != arguments.base_url):
        raise UsageError(
            "Ray shows the command line of a run to all users of the cluster: set the key in OPENAI_API_KEY or the"
            " provider's api_key_env, in place of --api-key or a user in --base-url"
        )


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


@contextmanager
def _quiet_log() -> Generator[None, None, None]:
    """Hold back the warnings of single requests: the file of errors has what came of each."""
    log = logging.getLogger("promptools")
    level = log.level
    log.setLevel(logging.ERROR)
    try:
        yield
    finally:
        log.setLevel(level)
