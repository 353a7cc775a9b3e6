"""Requests to results on the nodes of a cluster: actors that each hold a client, and the requests under way in it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from math import ceil
from typing import Any

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
from promptools.errors import PromptoolsError, UpstreamError

SURPLUS = 3
"""Requests in the chunks of an actor for each that may be under way."""
MAX_CHUNK = 32
"""Maximum number of requests in a chunk: they are sent again if their actor ends before the last has a result."""


class ClusterAnswering:
    """Answers requests with `actors` actors (None: as many as the settings say) that share their concurrency."""

    def __init__(self, ray: Any, settings: ActorSettings, actors: int | None) -> None:
        self._ray = ray
        self._settings = settings
        self.actors = actors or settings.default_actors(ray)

    def __call__(self, pending: PendingRequests, record: Callable[[BatchAnswer], None]) -> None:
        """Call `record` with the result of each request, more than once if Ray repeats a chunk.

        Raises `UpstreamError` if a server is away for too long or refuses the key, or an engine does not start.
        """
        size, at_once = chunk_plan(self._settings.share(self.actors))
        pending = replace(pending, source=path_for_tasks(pending.source))
        source = ChunkSource(pending, size, on_this_node=is_local(pending.source))
        options = {
            "compute": self._ray.data.ActorPoolStrategy(
                size=self.actors, max_tasks_in_flight_per_actor=at_once + 1, max_concurrent_calls_per_actor=at_once
            ),
            "fn_constructor_args": (self._settings, self.actors),
            **self._settings.resources(self._ray),
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
    """Holds a client or an engine, and answers chunks of requests, several at a time."""

    def __init__(self, settings: ActorSettings, actors: int) -> None:
        self._opening = settings.open_pool(actors)
        self._lock = asyncio.Lock()
        self._pool: RequestPool | PromptoolsError | None = None

    async def __call__(self, block: Any) -> Any:
        """Return a block with the answers to the requests of a block; the last may be an error that ends the run."""
        try:
            pool = await self._open()
        except PromptoolsError as error:
            return encode_chunk([str(error)])
        results = await asyncio.gather(*map(pool.answer, decode_chunk(block)), return_exceptions=True)
        answers: list[BatchAnswer | str] = [result for result in results if isinstance(result, BatchAnswer)]
        for failure in results:
            if isinstance(failure, PromptoolsError):
                return encode_chunk([*answers, str(failure)])
            if isinstance(failure, BaseException):
                raise failure
        return encode_chunk(answers)

    async def _open(self) -> RequestPool:
        """Open the pool for the first chunk; it belongs to the loop that runs now, and ends with the process.

        If it cannot be opened, all chunks raise the same error.
        """
        async with self._lock:
            if self._pool is None:
                try:
                    self._pool = await self._opening.__aenter__()
                except PromptoolsError as error:
                    self._pool = error
        if isinstance(self._pool, PromptoolsError):
            raise self._pool
        return self._pool
