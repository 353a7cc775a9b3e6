"""What benchmarks/scale computes for many streams, by hand for round figures."""

import pytest

from benchmarks.scale.figures import Figures, RedisUse, StreamCost
from benchmarks.scale.planning import most_open, plan

FIGURES = Figures(
    machine="none",
    streams={"chat": StreamCost(request=0.002, chunk=0.00005, memory=40_000.0)},
    base_memory=70e6,
    descriptors=2.0,
    redis={"chat": RedisUse(0.0, 0.0)},
    idle_calls=1.0,
    call=0.00005,
    call_cost=0.0001,
    lease=0.000002,
    stored=1800.0,
)


def test_workers_carry_the_processor_time_of_all_streams():
    """10,000 streams of 20 s are 500 requests a second of 22 ms each: 11 cores, and 22 workers at a half."""
    made = plan(FIGURES, "chat", 10_000, chunks=400, gap=0.05, used=0.5)
    assert (made.requests, made.workers, made.replicas) == (500, 22, 3)
    assert made.used == pytest.approx(0.5)
    assert made.most_open == most_open(10_000 / 22) == 519
    assert made.replica_memory == pytest.approx(8 * (70e6 + 519 * 40_000))
    assert made.replica_descriptors == 8 * 519 * 2
    assert made.redis_calls == 22  # of idle workers


def test_redis_is_used_by_calls_and_by_leases():
    """Two calls of 500 requests a second, and those of idle workers; 10,000 leases a second are renewed."""
    made = plan(FIGURES, "chat", 10_000, chunks=400, gap=0.05, used=0.5, redis_calls=2, bounded=True)
    assert made.workers == 23  # 0.2 ms more for each request
    assert made.redis_calls == 1000 + 23
    assert made.redis_used == pytest.approx(1023 * 0.00005 + 10_000 * 0.000002)
    assert made.redis_instances == 1
    assert plan(FIGURES, "chat", 1_000_000, chunks=400, gap=0.05, redis_calls=2, bounded=True).redis_instances == 12
