"""Streams through workers behind a balancer, as queues: how busy they are, and how late requests and chunks come.

A worker is one event loop on one core: it does one thing at a time, in the order in which things arrive. So it is a
queue with one server and first come, first served. The time at which a job is done follows from those before it
(Lindley's recursion), which is one pass of numpy over all jobs of a worker. A simulation of events, as with SimPy,
would compute the same times one by one. Redis is one more such queue.

Streams arrive at random (Poisson), independent of how the workers are doing, and the server writes their chunks at its
own pace. What is not in it: the network, the server, the garbage collector, other work on the machine, a client that
reads slowly, failures. A stream's chunks begin at its arrival: that its request was late does not move them.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

Times: TypeAlias = NDArray[np.float64]
Balancer = Literal["random", "round robin", "fewest streams"]
JITTER = 0.5
"""Relative half-width of the uniform distribution of the time between two chunks."""


@dataclass(frozen=True, slots=True)
class Workload:
    """Streams that arrive at `rate` in a second, each with `chunks` chunks, `gap` seconds apart on average."""

    rate: float
    chunks: int
    gap: float
    request_cost: float
    """Seconds of a worker's processor time."""
    chunk_cost: float

    @property
    def demand(self) -> float:
        """Cores that are busy on average, all workers together."""
        return self.rate * (self.request_cost + self.chunks * self.chunk_cost)

    @property
    def open_streams(self) -> float:
        """Streams that are open on average."""
        return self.rate * self.chunks * self.gap


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of a simulation."""

    streams: int
    """Streams that arrived, of all workers."""
    jobs: int
    """Requests and chunks that were done."""
    used: Times
    """Utilisation of each worker, in the window."""
    most_open: NDArray[np.int64]
    """Maximum number of open streams of each worker."""
    request_delays: Times
    """Seconds from each request's arrival until the worker has done it, in the window."""
    chunk_delays: Times


def simulate(load: Workload, workers: int, *, seconds: float, balancer: Balancer = "random", seed: int = 0) -> Outcome:
    """Simulate so many seconds after as many streams are open as there are on average."""
    rng = np.random.default_rng(seed)
    warm = load.chunks * load.gap * (1 + JITTER)
    until = warm + seconds
    arrivals = np.sort(rng.uniform(0.0, until, rng.poisson(load.rate * until)))
    gaps = rng.uniform(1 - JITTER, 1 + JITTER, (len(arrivals), load.chunks)) * load.gap
    written = arrivals[:, None] + np.cumsum(gaps, axis=1)
    ends = written[:, -1] if load.chunks else arrivals
    placed = balance(arrivals, ends, workers, balancer, rng)
    used, most = np.zeros(workers), np.zeros(workers, dtype=np.int64)
    requests, chunks, jobs = list[Times](), list[Times](), 0
    for worker in range(workers):
        mine = placed == worker
        most[worker] = most_open(arrivals[mine], ends[mine])
        at = np.concatenate([arrivals[mine], written[mine].ravel()])
        is_request = np.arange(len(at)) < np.count_nonzero(mine)
        order = np.argsort(at, kind="stable")
        at, is_request = at[order], is_request[order]
        costs = np.where(is_request, load.request_cost, load.chunk_cost)
        done = departures(at, costs)
        jobs += len(done)
        used[worker] = busy_seconds(done, costs, warm, until) / seconds
        counted = (at >= warm) & (at < until)
        requests.append((done - at)[counted & is_request])
        chunks.append((done - at)[counted & ~is_request])
    return Outcome(len(arrivals), jobs, used, most, np.concatenate(requests), np.concatenate(chunks))


def departures(arrivals: Times, costs: Times) -> Times:
    """Return when each job of one queue is done: max(its arrival, the end of the one before) + its cost."""
    total = np.cumsum(costs)
    done: Times = total + np.maximum.accumulate(arrivals - (total - costs))
    return done


def busy_seconds(done: Times, costs: Times, begin: float, end: float) -> float:
    """Return for how long the queue's server is busy between two times."""
    return float(np.sum(np.clip(np.minimum(done, end) - np.maximum(done - costs, begin), 0.0, None)))


def most_open(begins: Times, ends: Times) -> int:
    """Return the maximum number of intervals that overlap."""
    at = np.concatenate([begins, ends])
    steps = np.concatenate([np.ones(len(begins), dtype=np.int64), -np.ones(len(ends), dtype=np.int64)])
    return int(np.max(np.cumsum(steps[np.argsort(at, kind="stable")]), initial=0))


def balance(
    arrivals: Times, ends: Times, workers: int, balancer: Balancer, rng: np.random.Generator
) -> NDArray[np.int64]:
    """Return the worker of each stream."""
    if balancer == "random":
        return rng.integers(0, workers, len(arrivals))
    if balancer == "round robin":
        return np.arange(len(arrivals)) % workers
    placed = np.zeros(len(arrivals), dtype=np.int64)
    counts = [0] * workers
    free = [(0, worker) for worker in range(workers)]
    running: list[tuple[float, int]] = []
    for number, (begin, end) in enumerate(zip(arrivals.tolist(), ends.tolist(), strict=True)):
        while running and running[0][0] <= begin:
            worker = heapq.heappop(running)[1]
            counts[worker] -= 1
            heapq.heappush(free, (counts[worker], worker))
        while free[0][0] != counts[free[0][1]]:  # what was true of that worker before
            heapq.heappop(free)
        worker = free[0][1]
        counts[worker] += 1
        heapq.heapreplace(free, (counts[worker], worker))
        heapq.heappush(running, (end, worker))
        placed[number] = worker
    return placed


def redis_delays(rate: float, cost: float, *, calls: int = 200_000, seed: int = 0) -> Times:
    """Return how long calls take that arrive at Redis at random, so many in a second."""
    rng = np.random.default_rng(seed)
    arrivals = np.cumsum(rng.exponential(1 / rate, calls))
    delays: Times = departures(arrivals, np.full(calls, cost)) - arrivals
    return delays
