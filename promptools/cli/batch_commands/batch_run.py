"""Where the requests of a batch are answered: by a server, an engine in this process, or actors with one of them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from promptools.cli.batch_commands.batch_progress import follow_batch
from promptools.cli.batch_commands.engine_arguments import start_engine
from promptools.cli.progress_bar import show_progress
from promptools.cli.server_commands.chat_command import connect, connect_async, default_model
from promptools.cli.server_errors import require_server
from promptools.cli.terminal_output import print_progress
from promptools.errors import UpstreamError, UsageError, without_credentials

if TYPE_CHECKING:
    import argparse

    from promptools.batch.answering import BatchAnswer
    from promptools.batch.batch_job import BatchJob, BatchTotals
    from promptools.batch.input_survey import PendingRequests
    from promptools.batch.offline import EngineSettings

CONCURRENCY = 32
TIMEOUT = 600.0
"""Maximum number of seconds that a server's answer may take."""


def run_job(arguments: argparse.Namespace, job: BatchJob, engine: EngineSettings | None) -> None:
    """Answer the requests that have no result yet, and write the output."""
    if arguments.ray is not None:
        _run_on_cluster(arguments, job, engine)
    elif engine is not None:
        _run_on_engine(arguments, job, engine)
    else:
        _run_here(arguments, job)


def check_ray(arguments: argparse.Namespace) -> None:
    """Raise `UsageError` if the run cannot be on a cluster as the arguments say."""
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
    """Say at once that the server is away: it is waited for, and may be loading its model."""
    try:
        require_server(base_url)
    except UpstreamError as error:
        print_progress(f"{error}; it is waited for, {patience:g} s at most (--patience)")


def _run_on_engine(arguments: argparse.Namespace, job: BatchJob, settings: EngineSettings) -> None:
    from promptools.batch.request_pool import FixedLimit, RequestPool

    followers: list[Callable[[BatchTotals], None]] = []

    async def answer(pending: PendingRequests, record: Callable[[BatchAnswer], None]) -> None:
        async with start_engine(settings) as engine:
            limit = FixedLimit(arguments.concurrency or engine.concurrency)
            pool = RequestPool(engine.answer, limit, patience=arguments.patience)
            with show_progress(settings.model) as show:  # not before: an engine that loads writes lines of its own
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
    """Return the server's model, if a request names none."""
    if arguments.model or not job.survey.without_model:
        return None
    with connect(arguments) as client:
        return default_model(client)
