"""The simulation of benchmarks/scale agrees with queueing theory where that has an answer, and loses no stream."""

import numpy as np
import pytest

from benchmarks.scale.simulation import Workload, balance, busy_seconds, departures, most_open, redis_delays, simulate


@pytest.mark.parametrize("used", [0.3, 0.6, 0.8])
def test_the_mean_wait_of_equal_jobs_is_that_of_m_d_1(used):
    """Pollaczek and Khinchine: the mean wait is used / (2 (1 - used)) times the cost of a job."""
    cost = 0.001
    delays = redis_delays(used / cost, cost, calls=400_000)
    assert np.mean(delays) - cost == pytest.approx(cost * used / (2 * (1 - used)), rel=0.05)


@pytest.mark.parametrize("used", [0.3, 0.6])
def test_the_mean_wait_of_jobs_of_random_cost_is_that_of_m_m_1(used):
    """The mean wait is used / (1 - used) times the mean cost."""
    rng = np.random.default_rng(1)
    arrivals, costs = np.cumsum(rng.exponential(1 / used, 400_000)), rng.exponential(1.0, 400_000)
    waits = departures(arrivals, costs) - costs - arrivals
    assert np.mean(waits) == pytest.approx(used / (1 - used), rel=0.05)


def test_departures_are_those_of_the_recursion():
    rng = np.random.default_rng(2)
    arrivals, costs = np.sort(rng.uniform(0, 50, 300)), rng.uniform(0, 0.3, 300)
    end, expected = 0.0, []
    for arrival, cost in zip(arrivals, costs, strict=True):
        end = max(arrival, end) + cost
        expected.append(end)
    assert departures(arrivals, costs) == pytest.approx(np.array(expected))
    assert busy_seconds(departures(arrivals, costs), costs, 0, 1000) == pytest.approx(costs.sum())


@pytest.mark.parametrize("balancer", ["random", "round robin", "fewest streams"])
def test_no_stream_and_no_work_is_lost(balancer):
    load = Workload(rate=40, chunks=25, gap=0.02, request_cost=2e-3, chunk_cost=2e-4)
    outcome = simulate(load, 4, seconds=20, balancer=balancer)
    assert outcome.jobs == outcome.streams * (1 + load.chunks)
    assert outcome.used.sum() == pytest.approx(load.demand, rel=0.1)
    assert load.open_streams / 4 < outcome.most_open.min() <= outcome.most_open.max() < load.open_streams * 3
    assert outcome.request_delays.min() >= load.request_cost - 1e-9
    assert outcome.chunk_delays.min() >= load.chunk_cost - 1e-9


def test_streams_go_to_the_worker_with_the_fewest():
    arrivals = np.arange(6.0)
    ends = np.array([100.0, 2.5, 100.0, 100.0, 4.5, 100.0])
    placed = balance(arrivals, ends, 3, "fewest streams", np.random.default_rng(3))
    assert placed.tolist() == [0, 1, 2, 1, 0, 0]
    assert [most_open(arrivals[placed == worker], ends[placed == worker]) for worker in range(3)] == [2, 1, 1]
    assert most_open(arrivals, ends) == 4
