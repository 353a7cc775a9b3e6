"""The bound of requests at once: when it grows, when it is halved, and how long it pauses."""

import asyncio

import pytest

from promptools.batch import request_pool
from promptools.batch.request_pool import ROUND, START, AdaptiveLimit, FixedLimit


class Clock:
    def __init__(self):
        self.now = 100.0

    def __call__(self):
        return self.now

    async def sleep(self, seconds):
        self.now += seconds


@pytest.fixture
def clock(monkeypatch):
    clock = Clock()
    monkeypatch.setattr(request_pool.asyncio, "sleep", clock.sleep)
    return clock


def answer(limit, clock, *, seconds=1.0, tokens=10, times=1):
    """Count answers while as many requests are under way as may be."""
    for _ in range(times):
        limit.in_flight = int(limit.bound)
        sent_at = clock.now
        clock.now += seconds
        limit.succeeded(sent_at, tokens)


def test_it_grows_by_one_for_each_answer_and_no_further_than_allowed(clock):
    limit = AdaptiveLimit(6, clock)
    assert limit.bound == START == 4
    answer(limit, clock)
    assert limit.bound == 5
    answer(limit, clock, times=10)
    assert limit.bound == 6
    assert AdaptiveLimit(2, clock).bound == 2


def test_it_does_not_grow_while_it_is_not_used(clock):
    limit = AdaptiveLimit(64, clock)
    limit.in_flight = 1
    limit.succeeded(clock.now, 10)
    assert limit.bound == START


def test_it_is_halved_once_by_all_that_was_sent_before(clock):
    limit = AdaptiveLimit(64, clock)
    limit.bound = 32.0
    before = clock.now
    clock.now += 1
    limit.pushed_back(before)
    limit.pushed_back(before)
    assert limit.bound == 16
    clock.now += 1
    limit.pushed_back(clock.now)
    assert limit.bound == 8
    for _ in range(20):
        clock.now += 1
        limit.pushed_back(clock.now)
    assert limit.bound == 1


def test_after_that_it_grows_by_one_for_each_round(clock):
    limit = AdaptiveLimit(64, clock)
    limit.bound = 16.0
    limit.pushed_back(clock.now)
    answer(limit, clock, times=9)
    assert 8.9 < limit.bound < 9.2


def test_answers_that_take_far_longer_halve_it(clock):
    limit = AdaptiveLimit(8, clock)
    answer(limit, clock, times=3 * ROUND)
    assert limit.bound == 8
    answer(limit, clock, times=ROUND, seconds=2.5)
    assert limit.bound == 8
    answer(limit, clock, times=ROUND, seconds=8.0)
    assert limit.bound == 4


def test_longer_answers_that_take_longer_do_not(clock):
    limit = AdaptiveLimit(8, clock)
    answer(limit, clock, times=3 * ROUND)
    answer(limit, clock, times=3 * ROUND, seconds=20.0, tokens=200)
    assert limit.bound == 8


def test_retry_after_pauses_all(clock):
    async def run():
        limit = AdaptiveLimit(8, clock)
        limit.pushed_back(clock.now, 30.0)
        async with limit.slot() as sent_at:
            return sent_at

    assert asyncio.run(run()) == 130.0


def test_no_more_are_under_way_than_the_bound_and_all_get_their_turn():
    async def run():
        limit = AdaptiveLimit(3)
        most = done = 0

        async def one():
            nonlocal most, done
            async with limit.slot() as sent_at:
                most = max(most, limit.in_flight)
                for _ in range(3):
                    await asyncio.sleep(0)
                if done % 7 == 0:
                    limit.pushed_back(sent_at)
                else:
                    limit.succeeded(sent_at, 1)
                done += 1

        async with asyncio.timeout(300):
            await asyncio.gather(*(one() for _ in range(500)))
        return most, done, limit.in_flight

    assert asyncio.run(run()) == (3, 500, 0)


def test_a_fixed_limit_stays_and_pauses_all_the_same(clock):
    limit = FixedLimit(64, clock)
    answer(limit, clock, times=ROUND)
    answer(limit, clock, seconds=100.0, times=64)
    limit.pushed_back(clock.now, 5.0)
    assert (limit.bound, limit.most) == (64, 64)

    async def send():
        async with limit.slot() as sent_at:
            return sent_at

    now = clock.now
    limit.in_flight = 0
    assert asyncio.run(send()) == now + 5.0
