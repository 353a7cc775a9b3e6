"""Requests to results on the nodes of a cluster: actors that each hold a client, and the requests under way in it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from math import ceil
from typing import Any

from promptools.batch.adaptive_limit import AdaptiveLimit
from promptools.batch.files.batch_files import is_local
from promptools.batch.files.pending_requests import PendingRequests
from promptools.batch.ray_cluster.actor_settings import ActorSettings
from promptools.batch.ray_cluster.chunk_stream import (
    ChunkOperation,
    ChunkSource,
    decode_chunk,
    encode_chunk,
    path_for_tasks,
    stream_chunks,
)
from promptools.batch.request_answering import BatchAnswer
from promptools.batch.request_pool import RequestPool
from promptools.batch.request_servers import RequestServers
from promptools.errors import PromptoolsError, UpstreamError

ACTOR_CPUS = 0.25
"""Processors of an actor, which waits most of the time. With less, an actor of a lost node fits on another sooner."""
SURPLUS = 3
"""Requests in the chunks of an actor for each that may be under way."""
MAX_CHUNK = 32
"""Maximum number of requests in a chunk: they are sent again if their actor ends before the last has a result."""


class ClusterAnswering:
    """Answers requests with `actors` actors (None: one for each node), which share the settings' concurrency."""

    def __init__(self, ray: Any, settings: ActorSettings, actors: int | None) -> None:
        self._ray = ray
        self.actors = min(actors or _count_nodes(ray), settings.concurrency)
        self._settings = replace(settings, concurrency=settings.concurrency // self.actors)

    def __call__(self, pending: PendingRequests, record: Callable[[BatchAnswer], None]) -> None:
        """Call `record` with the result of each request, more than once if Ray repeats a chunk.

        Raises `UpstreamError` if a server is away for too long or refuses the key.
        """
        size, at_once = chunk_plan(self._settings.concurrency)
        pending = replace(pending, source=path_for_tasks(pending.source))
        source = ChunkSource(pending, size, on_this_node=is_local(pending.source))
        options = {
            "compute": self._ray.data.ActorPoolStrategy(
                size=self.actors, max_tasks_in_flight_per_actor=at_once + 1, max_concurrent_calls_per_actor=at_once
            ),
            "fn_constructor_args": (self._settings,),
            "num_cpus": ACTOR_CPUS,
        }
        for results in stream_chunks(self._ray, source, ChunkOperation(AnsweringActor, options)):
            for result in results:
                if isinstance(result, BatchAnswer):
                    record(result)
                else:
                    raise UpstreamError(result)


def chunk_plan(concurrency: int) -> tuple[int, int]:
    """Return how many requests a chunk has, and how many chunks are under way in an actor.

    The chunks have more requests than `concurrency`: most of a chunk waits for its slowest, while others are sent.
    """
    size = max(1, min(MAX_CHUNK, concurrency // 4))
    return size, ceil(SURPLUS * concurrency / size)


class AnsweringActor:
    """Holds a client and answers chunks of requests, several at a time."""

    def __init__(self, settings: ActorSettings) -> None:
        self._settings = settings
        self._pool: RequestPool | None = None

    async def __call__(self, block: Any) -> Any:
        """Return a block with the answers to the requests of a block; the last may be an error that ends the run."""
        if self._pool is None:  # the client belongs to the loop that runs now
            self._pool = open_pool(self._settings)
        results = await asyncio.gather(*map(self._pool.answer, decode_chunk(block)), return_exceptions=True)
        answers: list[BatchAnswer | str] = [result for result in results if isinstance(result, BatchAnswer)]
        for error in results:
            if isinstance(error, PromptoolsError):
                return encode_chunk([*answers, str(error)])
            if isinstance(error, BaseException):
                raise error
        return encode_chunk(answers)


def open_pool(settings: ActorSettings) -> RequestPool:
    """Build what an actor sends requests with."""
    servers = RequestServers(settings.open_client(), model=settings.model, default_model=settings.default_model)
    return RequestPool(servers.answer, AdaptiveLimit(settings.concurrency), patience=settings.patience)


def _count_nodes(ray: Any) -> int:
    """Return how many nodes can have an actor."""
    nodes: list[dict[str, Any]] = ray.nodes()
    return max(1, sum(1 for node in nodes if node["Alive"] and node["Resources"].get("CPU", 0) >= ACTOR_CPUS))
