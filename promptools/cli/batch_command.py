"""The command `promptools batch`: run a file of requests, and show the progress.

The requests are answered by a server, by an engine in this process, or by actors on a cluster. The actors use a server,
or each actor has its own engine.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from datetime import timedelta
from time import monotonic
from typing import TYPE_CHECKING, Any, get_args

from promptools.cli.command_client import connect, connect_async, default_model
from promptools.cli.server_errors import require_server
from promptools.cli.shared_arguments import add_endpoint, add_json, add_ray, at_least, read_config, seconds
from promptools.cli.terminal_output import print_json, print_progress, print_styled, print_table, show_progress
from promptools.dialects.table_file import read_table
from promptools.errors import PromptoolsError, UpstreamError, UsageError, without_credentials
from promptools.types import ModeName

if TYPE_CHECKING:
    from promptools.batch.answering import BatchAnswer
    from promptools.batch.batch_job import BatchJob, BatchTotals
    from promptools.batch.input_survey import PendingRequests, PromptSize
    from promptools.batch.offline import EngineSettings, OfflineEngine


# The progress of a batch: requests and tokens per second, failures, and the time left.


REPORT_SECONDS = 10.0
"""Minimum number of seconds between two lines of progress if stderr is not a terminal."""
REDRAW_SECONDS = 0.1


def follow_batch(show: Callable[[str, int, int], None], at_once: Callable[[], str]) -> Callable[[BatchTotals], None]:
    """Return a function that shows the progress of a batch. It may be called with the totals after every result.

    The function shows the totals at most every `REPORT_SECONDS` (in a terminal: `REDRAW_SECONDS`), and at the end.
    `at_once` returns a string that describes the concurrency, such as `4 at once`.
    """
    terminal = sys.stderr.isatty()
    started, shown_at = monotonic(), float("-inf")
    earlier_tokens: int | None = None

    def follow(totals: BatchTotals) -> None:
        nonlocal shown_at, earlier_tokens
        now, tokens = monotonic(), totals.prompt_tokens + totals.completion_tokens
        earlier_tokens = tokens if earlier_tokens is None else earlier_tokens
        if now - shown_at < (REDRAW_SECONDS if terminal else REPORT_SECONDS) and totals.done < totals.requests:
            return
        shown_at = now
        seconds = max(now - started, 1e-9)
        rate = (totals.done - totals.earlier) / seconds
        parts = [f"{rate:.1f}/s", f"{(tokens - earlier_tokens) / seconds:.0f} tokens/s"]
        parts += [at_once(), f"{totals.failed} failed"]
        if rate and not terminal:  # in a terminal, the bar has a column for the time left
            parts.append(f"{timedelta(seconds=int((totals.requests - totals.done) / rate))} left")
        show(", ".join(parts), totals.done, totals.requests)

    return follow


# `promptools batch --engine`: its arguments, and the engine that they describe.


ENGINES = ("vllm",)


def add_engine(parser: argparse.ArgumentParser) -> None:
    """Add `--engine` and `--engine-args`."""
    parser.add_argument(
        "--engine", choices=ENGINES, help="run the model in this process, or in the actors of --ray, without a server"
    )
    parser.add_argument(
        "--engine-args",
        nargs="+",
        action="extend",
        metavar="KEY=VALUE",
        help="arguments of the engine, as `vllm serve` has them: tensor_parallel_size=2, or a JSON object",
    )


def read_settings(arguments: argparse.Namespace) -> EngineSettings | None:
    """Return the settings of the engine, or None without `--engine`.

    Raises `UsageError` if the arguments contradict each other.
    """
    from promptools.batch.offline import EngineSettings, read_engine_arguments

    if arguments.engine is None:
        if arguments.engine_args:
            raise UsageError("--engine-args is for an engine in this process; add --engine vllm, or leave it out")
        return None
    if not arguments.model:
        raise UsageError("--engine needs --model: the name of a model on the Hugging Face hub, or its folder")
    for name in ("provider", "base_url", "api_key", "api_key_env"):
        if getattr(arguments, name):
            raise UsageError(
                f"--{name.replace('_', '-')} names a server, and --engine needs none; leave one of them out"
            )
    options: dict[str, Any] = {
        "config": read_config(arguments.config),
        "dialects": tuple(map(read_table, arguments.dialect_files)),  # an actor of Ray has other files
        "mode": arguments.mode,
    }
    if arguments.timeout:
        options["attempt_timeout"] = arguments.timeout
    return EngineSettings(arguments.model, read_engine_arguments(arguments.engine_args or ()), options)


@asynccontextmanager
async def start_engine(settings: EngineSettings) -> AsyncGenerator[OfflineEngine, None]:
    """Start an engine and print the progress while it loads; end the engine at the end of the block."""
    from promptools.batch.offline import open_engine

    print_progress(f"vLLM loads {settings.model}")
    started = monotonic()
    async with open_engine(settings) as engine:
        modes = ", ".join(engine.target.profile.modes)
        print_progress(f"loaded in {monotonic() - started:.0f} s; modes for tools: {modes}")
        yield engine


# The run: the requests are answered by a server, an engine, or actors on a cluster.


CONCURRENCY = 32
TIMEOUT = 600.0
"""Default for the maximum number of seconds that a server's answer may take."""


def run_job(arguments: argparse.Namespace, job: BatchJob, engine: EngineSettings | None) -> None:
    """Answer the requests that have no result yet, and write the output."""
    if arguments.ray is not None:
        _run_on_cluster(arguments, job, engine)
    elif engine is not None:
        _run_on_engine(arguments, job, engine)
    else:
        _run_here(arguments, job)


def check_ray(arguments: argparse.Namespace) -> None:
    """Raise `UsageError` if the cluster arguments contradict each other, or would expose an API key to other users."""
    if arguments.ray is None:
        if arguments.actors:
            raise UsageError("--actors is for --ray; use --concurrency alone, or add --ray")
        return
    if arguments.actors and arguments.concurrency and arguments.actors > arguments.concurrency:
        raise UsageError(
            f"--actors {arguments.actors} share --concurrency {arguments.concurrency}: name at most as many actors"
        )
    if arguments.api_key or (arguments.base_url and without_credentials(arguments.base_url) != arguments.base_url):
        raise UsageError(
            "Ray shows the command line of a run to all users of the cluster: set the key in OPENAI_API_KEY, the"
            " variable of --api-key-env or the provider's api_key_env, in place of --api-key or a user in --base-url"
        )


def _run_here(arguments: argparse.Namespace, job: BatchJob) -> None:
    from promptools.batch.answering import RequestServers, answer_timeout
    from promptools.batch.request_pool import AdaptiveLimit, RequestPool

    default = _default_model(arguments, job)
    limit = AdaptiveLimit(arguments.concurrency or CONCURRENCY)
    timeout = answer_timeout(arguments.timeout or TIMEOUT)

    async def answer(pending: PendingRequests, record: Callable[[BatchAnswer], None]) -> None:
        async with connect_async(arguments, timeout=timeout, max_retries=0, mode=arguments.mode) as client:
            _report_absence(str(client.base_url), arguments.patience)
            servers = RequestServers(client, model=arguments.model, default_model=default)
            await RequestPool(servers.answer, limit, patience=arguments.patience).run(iter(pending), record)

    with show_progress(arguments.model or "requests") as show:
        follow = follow_batch(show, lambda: f"{limit.in_flight} at once")
        job.run(lambda pending, record: asyncio.run(answer(pending, record)), follow)


def _report_absence(base_url: str, patience: float) -> None:
    """Report immediately if the server cannot be reached.

    The run still waits, because the server may be loading its model.
    """
    try:
        require_server(base_url)
    except UpstreamError as error:
        print_progress(f"{error}; waiting for it, {patience:g} s at most (--patience)")


def _run_on_engine(arguments: argparse.Namespace, job: BatchJob, settings: EngineSettings) -> None:
    from promptools.batch.request_pool import FixedLimit, RequestPool

    followers: list[Callable[[BatchTotals], None]] = []

    async def answer(pending: PendingRequests, record: Callable[[BatchAnswer], None]) -> None:
        async with start_engine(settings) as engine:
            limit = FixedLimit(arguments.concurrency or engine.concurrency)
            pool = RequestPool(engine.answer, limit, patience=arguments.patience)
            with show_progress(settings.model) as show:  # not before: an engine writes its own lines while it loads
                followers.append(follow_batch(show, lambda: f"{limit.in_flight} at once"))
                await pool.run(iter(pending), record)

    def follow(totals: BatchTotals) -> None:
        for follower in followers:
            follower(totals)

    job.run(lambda pending, record: asyncio.run(answer(pending, record)), follow)


def _run_on_cluster(arguments: argparse.Namespace, job: BatchJob, engine: EngineSettings | None) -> None:
    from promptools.batch.ray_cluster import ClusterAnswering, ray_session

    settings = _actor_settings(arguments, job, engine)
    with ray_session(arguments.ray) as ray, show_progress(arguments.model or "requests") as show:
        answering = ClusterAnswering(ray, settings, arguments.actors)
        job.run(answering, follow_batch(show, lambda: f"{answering.actors} actors"))


def _actor_settings(arguments: argparse.Namespace, job: BatchJob, engine: EngineSettings | None) -> Any:
    from promptools.batch.ray_cluster import EngineActorSettings, ServerActorSettings

    if engine is not None:
        return EngineActorSettings(engine, arguments.patience, arguments.concurrency)
    default = _default_model(arguments, job)
    with connect(arguments) as client:
        return ServerActorSettings.of_client(
            client,
            mode=arguments.mode,
            model=arguments.model,
            default_model=default,
            timeout=arguments.timeout or TIMEOUT,
            patience=arguments.patience,
            concurrency=arguments.concurrency or CONCURRENCY,
        )


def _default_model(arguments: argparse.Namespace, job: BatchJob) -> str | None:
    """Return the model for requests that name no model; None if it is not needed, or if there is no default model.

    If there is no default model, for example because the server has several models, requests without a model fail.
    """
    if arguments.model or not job.survey.without_model:
        return None
    with connect(arguments) as client:
        try:
            return default_model(client)
        except UsageError as error:
            print_progress(f"requests without a model are not sent: {error}")
            return None


# The command.


MAX_SHOWN_MODELS = 5


def add(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument("input", metavar="IN", help="requests, JSON Lines or .parquet: custom_id, method, url and body")
    parser.add_argument("output", metavar="OUT", help="file for the results; failures are in OUT's .errors.jsonl, too")
    add_endpoint(parser, about_model="model to ask, in place of those in the requests")
    add_engine(parser)
    parser.add_argument("--mode", choices=get_args(ModeName), help="request tools in this mode only")
    parser.add_argument(
        "--concurrency",
        type=at_least(1, "requests"),
        metavar="N",
        help=f"maximum number of concurrent requests ({CONCURRENCY}; as many as an engine takes)",
    )
    parser.add_argument(
        "--timeout",
        type=seconds,
        metavar="S",
        help=f"maximum seconds for an answer ({TIMEOUT:g}; no limit for an engine)",
    )
    parser.add_argument(
        "--patience", type=seconds, metavar="S", default=600.0, help="seconds to wait for an unreachable server (600)"
    )
    parser.add_argument(
        "--log", metavar="FILE", help="local file for the results until the run is complete (default: OUT.part)"
    )
    parser.add_argument(
        "--dry-run", action="store_true", help="send nothing; show the number of requests and the size of their text"
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
    """Run the batch, or with `--dry-run` count its requests; return 1 if a request failed or a line is invalid."""
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
        print_progress(f"interrupted; {job.totals.done} results are in {job.log}: run the same command to continue")
        raise
    except PromptoolsError:
        if job.totals.done:
            print_progress(f"{job.totals.done} results are in {job.log}: run the same command to continue")
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
