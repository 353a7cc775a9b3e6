"""How many workers, replicas and instances of Redis so many streams need, by the figures and the simulation.

The workers are as many as keep the utilisation, the delay of chunks and the memory below the target. Of many workers
some are simulated, with their share of the streams: behind a balancer that chooses at random, each has the same load
and does not depend on the others. Redis gets the calls of all.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from benchmarks.scale.figures import Figures
from benchmarks.scale.simulation import Balancer, Outcome, Workload, redis_delays, simulate

SIMULATED = 4
"""Workers that are simulated at most."""
REDIS_BUSY = 0.6


@dataclass(frozen=True, slots=True)
class Target:
    """What must hold."""

    used: float = 0.6
    """Utilisation of a worker on average."""
    late: float = 0.02
    """Seconds of delay of a chunk, 99th percentile."""
    workers_of_replica: int = 8


@dataclass(frozen=True, slots=True)
class Plan:
    """What so many streams need."""

    streams: int
    kind: str
    requests: float
    """Requests in a second."""
    workers: int
    replicas: int
    used: float
    late_p50: float
    late_p99: float
    request_p99: float
    replica_memory: float
    """Bytes of resident memory of a replica, with the most streams that any simulated worker had."""
    replica_descriptors: float
    most_open: int
    """Streams of a worker, at most."""
    redis_calls: float
    """Calls in a second, of all requests and all idle workers."""
    redis_used: float
    """Utilisation of one Redis; above 1 it cannot serve them."""
    redis_late_p99: float
    """Seconds of a call, 99th percentile, of as many instances as keep each below 60 %."""
    redis_instances: int


def plan(
    figures: Figures,
    kind: str,
    streams: int,
    target: Target,
    *,
    chunks: int,
    gap: float,
    redis_calls: float,
    bounded: bool = False,
    balancer: Balancer = "random",
    seconds: float = 20.0,
) -> Plan:
    """Return what so many streams need, that are open at the same time.

    Each request makes `redis_calls` calls of Redis; of a `bounded` key, its lease is renewed each second, too.
    """
    cost = figures.streams[kind]
    request = cost.request + redis_calls * figures.call_cost
    load = Workload(streams / (chunks * gap), chunks, gap, request, cost.chunk)
    workers = max(1, math.ceil(load.demand / target.used))
    while True:
        outcome = _share(load, workers, balancer, seconds)
        late = float(np.percentile(outcome.chunk_delays, 99))
        if late <= target.late or workers > 4 * load.demand / target.used + 4:
            break
        workers = math.ceil(workers * 1.1)
    calls = load.rate * redis_calls + workers * figures.idle_calls
    redis_used = calls * figures.call + bounded * load.open_streams * figures.lease
    instances = max(1, math.ceil(redis_used / REDIS_BUSY))
    of_replica = min(workers, target.workers_of_replica)
    most = int(outcome.most_open.max())
    return Plan(
        streams, kind, load.rate, workers, math.ceil(workers / target.workers_of_replica),
        used=load.demand / workers,
        late_p50=float(np.percentile(outcome.chunk_delays, 50)),
        late_p99=late,
        request_p99=float(np.percentile(outcome.request_delays, 99)),
        replica_memory=of_replica * (figures.base_memory + most * cost.memory),
        replica_descriptors=of_replica * most * figures.descriptors,
        most_open=most,
        redis_calls=calls,
        redis_used=redis_used,
        redis_late_p99=float(np.percentile(redis_delays(calls / instances, figures.call), 99)),
        redis_instances=instances,
    )  # fmt: skip


def _share(load: Workload, workers: int, balancer: Balancer, seconds: float) -> Outcome:
    """Simulate some of the workers, with their share of the streams."""
    some = min(workers, SIMULATED)
    part = Workload(load.rate * some / workers, load.chunks, load.gap, load.request_cost, load.chunk_cost)
    return simulate(part, some, seconds=seconds, balancer=balancer)
