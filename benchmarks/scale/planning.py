"""Compute how many workers, replicas and instances of Redis streams need, from the figures of one worker.

Workers do not depend on each other, and a balancer that chooses at random gives each the same load. So the number of
busy cores is the processor time of all requests and chunks in a second, and there are as many workers as keep the
utilization of each at the target. How long a chunk waits is not computed: it depends on the event loop, the garbage
collector and the scheduler, which the figures do not describe.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from benchmarks.scale.figures import Figures, StreamCost

REDIS_BUSY = 0.6
DEVIATIONS = 3
"""How many standard deviations above the average the number of a worker's streams may be. Streams that arrive at random
are spread over the workers like a Poisson distribution, whose variance is its mean."""


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
    """What a number of streams needs."""

    streams: int
    requests: float
    """Requests in a second."""
    workers: int
    replicas: int
    used: float
    """Utilization of a worker on average."""
    replica_memory: float
    """Bytes of resident memory of a replica when it has the most streams."""
    replica_descriptors: float
    most_open: int
    """Maximum number of streams of a worker."""
    redis_calls: float
    """Calls in a second, of all requests and all idle workers."""
    redis_used: float
    """Utilization of one Redis. Above 1, one Redis cannot serve all calls."""
    redis_instances: int
    """The number of instances that keeps the utilization of each below 60 %."""


def most_open(mean: float) -> int:
    """Return the most streams that a worker may have if it has `mean` streams on average."""
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
    """Return what this many open streams need; `used` is the target for the utilization of a worker.

    Each request makes `redis_calls` calls of Redis. With `bounded`, its lease is also renewed each second.
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
