"""How many workers, replicas and instances of Redis so many streams need, computed from the figures of one worker.

Workers do not depend on each other, and a balancer that chooses at random gives each the same load. So the cores are
the processor time of all requests and chunks, and the workers as many as keep their utilization at the target. How long
a chunk waits is not said: that is decided by the event loop, the garbage collector and the scheduler, which the figures
know nothing of.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from benchmarks.scale.figures import Figures, StreamCost

REDIS_BUSY = 0.6
DEVIATIONS = 3
"""Standard deviations by which a worker may have more streams than on average. Streams that arrive at random are spread
over the workers like a Poisson distribution, whose variance is its mean."""


@dataclass(frozen=True, slots=True)
class Workload:
    """Streams that arrive at `rate` in a second, each with `chunks` chunks, `gap` seconds apart on average."""

    rate: float
    chunks: int
    gap: float
    cost: StreamCost

    @property
    def stream_cost(self) -> float:
        """Seconds of processor time of a stream."""
        return self.cost.request + self.chunks * self.cost.chunk

    @property
    def demand(self) -> float:
        """Cores that are busy on average, all workers together."""
        return self.rate * self.stream_cost

    @property
    def open_streams(self) -> float:
        """Streams that are open on average."""
        return self.rate * self.chunks * self.gap


@dataclass(frozen=True, slots=True)
class Plan:
    """What so many streams need."""

    streams: int
    requests: float
    """Requests in a second."""
    workers: int
    replicas: int
    used: float
    """Utilization of a worker on average."""
    replica_memory: float
    """Bytes of resident memory of a replica, with the most streams."""
    replica_descriptors: float
    most_open: int
    """Streams of a worker, at most."""
    redis_calls: float
    """Calls in a second, of all requests and all idle workers."""
    redis_used: float
    """Utilization of one Redis; above 1 it cannot serve them."""
    redis_instances: int
    """As many as keep each below 60 %."""


def most_open(mean: float) -> int:
    """Return how many streams a worker has at most that has `mean` on average."""
    return math.ceil(mean + DEVIATIONS * math.sqrt(mean))


def plan(
    figures: Figures,
    kind: str,
    streams: int,
    *,
    chunks: int,
    gap: float,
    used: float = 0.6,
    workers_of_replica: int = 8,
    redis_calls: float = 0.0,
    bounded: bool = False,
) -> Plan:
    """Return what so many streams need, that are open at the same time; `used` is the utilization of a worker.

    Each request makes `redis_calls` calls of Redis; of a `bounded` key, its lease is renewed each second, too.
    """
    cost = figures.streams[kind]
    with_redis = StreamCost(cost.request + redis_calls * figures.call_cost, cost.chunk, cost.memory)
    load = Workload(streams / (chunks * gap), chunks, gap, with_redis)
    workers = max(1, math.ceil(load.demand / used))
    calls = load.rate * redis_calls + workers * figures.idle_calls
    redis_used = calls * figures.call + bounded * load.open_streams * figures.lease
    of_replica = min(workers, workers_of_replica)
    most = most_open(load.open_streams / workers)
    return Plan(
        streams,
        load.rate,
        workers,
        replicas=math.ceil(workers / workers_of_replica),
        used=load.demand / workers,
        replica_memory=of_replica * (figures.base_memory + most * cost.memory),
        replica_descriptors=of_replica * most * figures.descriptors,
        most_open=most,
        redis_calls=calls,
        redis_used=redis_used,
        redis_instances=max(1, math.ceil(redis_used / REDIS_BUSY)),
    )
