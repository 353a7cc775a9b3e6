"""What an actor needs to answer requests as this process would: a server with its key, or an engine, and the limits.

`ActorSettings` are of one of two kinds: `ServerActorSettings`, with a client, or `EngineActorSettings`, with an engine.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from math import inf, prod
from typing import TYPE_CHECKING, Any, Protocol

from promptools.batch.adaptive_limit import AdaptiveLimit, FixedLimit
from promptools.batch.offline.engine_client import QUEUED_SHARE, open_engine
from promptools.batch.offline.engine_settings import EngineSettings
from promptools.batch.request_pool import RequestPool
from promptools.batch.request_servers import RequestServers, answer_timeout
from promptools.errors import UsageError, clip
from promptools.types import ModeName

if TYPE_CHECKING:
    from promptools.client import AsyncOpenAI
    from promptools.profiles import Config


class ActorSettings(Protocol):
    """What is the same of both kinds. They are pickled, and read by actors and by the process that starts them."""

    def resources(self, ray: Any) -> dict[str, float]:
        """Return what Ray sets aside for an actor, as arguments of `Dataset.map_batches`."""
        ...

    def default_actors(self, ray: Any) -> int:
        """Return how many actors the cluster has room for, if nobody says how many there are."""
        ...

    def share(self, actors: int) -> int:
        """Return how many requests one of `actors` actors has under way at most."""
        ...

    def open_pool(self, actors: int) -> AbstractAsyncContextManager[RequestPool]:
        """Make what one of `actors` actors sends requests with."""
        ...


ACTOR_CPUS = 0.25
"""Processors of an actor, which waits most of the time. With less, an actor of a lost node fits on another sooner."""
ENGINE_CPUS = 1
MAX_SEQUENCES = 256
"""Requests that an engine computes at once if its arguments do not say: vLLM's default on most GPUs, and on large ones
no more than are in an actor's chunks."""
PARALLEL = ("tensor_parallel_size", "pipeline_parallel_size", "data_parallel_size")
"""Arguments of an engine by which its GPUs multiply."""


@dataclass(frozen=True, slots=True)
class ServerActorSettings:
    """Settings of the client in an actor, and of its requests. The repr has no address and no key."""

    base_url: str = field(repr=False)
    api_key: str = field(repr=False)
    config: Config = field(repr=False)
    dialects: tuple[Any, ...] = field(repr=False)
    """The tables of dialects that are not in the config."""
    provider: str | None
    detect: bool
    mode: ModeName | None
    model: str | None
    """Replaces the model of each request."""
    default_model: str | None
    """The model of requests that name none."""
    timeout: float
    patience: float
    concurrency: int
    """Maximum number of requests under way in all actors."""

    @classmethod
    def of_client(cls, client: Any, **others: Any) -> ServerActorSettings:
        """Return settings with the server, key, config and provider that a client of promptools has found here."""
        session = client.promptools
        return cls(
            base_url=str(client.base_url),
            api_key=client.api_key,
            config=session.config,
            dialects=session.settings.get("dialects", ()),
            provider=session.provider,
            detect=session.detect,
            **others,
        )

    def resources(self, ray: Any) -> dict[str, float]:
        """Return the processors of an actor."""
        del ray
        return {"num_cpus": ACTOR_CPUS}

    def default_actors(self, ray: Any) -> int:
        """Return one for each node that can have an actor, and no more than requests under way."""
        return min(_count_rooms(ray, "CPU", ACTOR_CPUS, most=1), self.concurrency)

    def share(self, actors: int) -> int:
        """Return an equal share of the requests under way."""
        return max(1, self.concurrency // actors)

    @asynccontextmanager
    async def open_pool(self, actors: int) -> AsyncGenerator[RequestPool, None]:
        """Yield a pool before the client."""
        async with self.make_client() as client:
            servers = RequestServers(client, model=self.model, default_model=self.default_model)
            yield RequestPool(servers.answer, AdaptiveLimit(self.share(actors)), patience=self.patience)

    def make_client(self) -> AsyncOpenAI:
        """Build the client."""
        from promptools.client import AsyncOpenAI

        return AsyncOpenAI(
            base_url=self.base_url,
            api_key=self.api_key,
            config=self.config,
            dialects=self.dialects,
            provider=self.provider,
            detect=self.detect,
            mode=self.mode,
            timeout=answer_timeout(self.timeout),
            max_retries=0,
        )


@dataclass(frozen=True, slots=True)
class EngineActorSettings:
    """Settings of the engine in an actor, of which each has one of its own."""

    engine: EngineSettings
    patience: float
    concurrency: int | None
    """Maximum number of requests under way in all actors; None: what the engines take."""

    @property
    def gpus(self) -> int:
        """The GPUs of an engine, on a cluster that has any."""
        return prod(self._number(name, 1) for name in PARALLEL)

    def resources(self, ray: Any) -> dict[str, float]:
        """Return the GPUs of an engine, or a processor on a cluster without GPUs."""
        return {"num_cpus": ENGINE_CPUS, **({"num_gpus": self.gpus} if _has_gpus(ray) else {})}

    def default_actors(self, ray: Any) -> int:
        """Return as many as the GPUs of all nodes are enough for, or one for each node without GPUs."""
        if _has_gpus(ray):
            return _count_rooms(ray, "GPU", self.gpus)
        return _count_rooms(ray, "CPU", ENGINE_CPUS, most=1)

    def share(self, actors: int) -> int:
        """Return an equal share of the requests under way, or what an engine computes, and some that wait in it."""
        if self.concurrency is not None:
            return max(1, self.concurrency // actors)
        sequences = self._number("max_num_seqs", MAX_SEQUENCES) * self._number("data_parallel_size", 1)
        return round(sequences * (1 + QUEUED_SHARE))

    @asynccontextmanager
    async def open_pool(self, actors: int) -> AsyncGenerator[RequestPool, None]:
        """Load the model, and yield a pool before the engine."""
        async with open_engine(self.engine) as engine:
            limit = engine.concurrency if self.concurrency is None else self.share(actors)
            yield RequestPool(engine.answer, FixedLimit(limit), patience=self.patience)

    def _number(self, name: str, default: int) -> int:
        value = self.engine.arguments.get(name, default)
        if not isinstance(value, int) or value < 1:
            raise UsageError(f"engine argument {name!r} must be a whole number from 1 up, got {clip(repr(value))}")
        return value


def _has_gpus(ray: Any) -> bool:
    return bool(ray.cluster_resources().get("GPU"))


def _count_rooms(ray: Any, resource: str, size: float, *, most: float = inf) -> int:
    """Return how often `size` of a resource fits on the nodes, `most` times on each; 1 if it fits on none."""
    nodes: list[dict[str, Any]] = ray.nodes()
    rooms = (min(most, node["Resources"].get(resource, 0) // size) for node in nodes if node["Alive"])
    return max(1, int(sum(rooms)))
