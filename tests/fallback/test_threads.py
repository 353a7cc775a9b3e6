"""The memories that all requests share, under threads that are switched at every step."""

import sys
import threading

import pytest

from promptools.exchange import DetectionCache
from promptools.fallback import Breaker, BreakerKey, ContextSizes
from promptools.types import ServerInfo

pytestmark = pytest.mark.exhaustive

THREADS = 8


@pytest.fixture(autouse=True)
def _restless():
    was = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(was)


def together(work):
    """Run `work(number)` in all threads at once, and give what they returned, and raised."""
    start = threading.Barrier(THREADS)
    done, errors = [], []

    def run(number):
        try:
            start.wait()
            done.append(work(number))
        except Exception as error:  # noqa: BLE001 - that it raises is what is looked for
            errors.append(error)

    threads = [threading.Thread(target=run, args=(number,)) for number in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return done, errors


def test_a_breaker_that_forgets_and_learns_in_threads_never_raises():
    breaker = Breaker(limit=3, cool_down=1)

    def work(number):
        for at in range(2_000):
            key = BreakerKey("p", f"m{(at + number) % 7}", "native")
            breaker.record_failure(key, at, lasting=True)
            breaker.allows(key, at + 1)
            breaker.states(at)
            breaker.why(key)
            if at % 3 == 0:
                breaker.record_success(key)

    assert together(work)[1] == []
    assert len(breaker.states(0)) <= 3


def test_one_of_many_threads_takes_the_probe():
    key = BreakerKey("p", "m", "native")
    for cool_down in range(1, 300):
        breaker = Breaker(cool_down=cool_down)
        breaker.record_failure(key, 0, lasting=True)
        for probe in (1, 2):
            admitted, errors = together(lambda _, at=probe * cool_down, own=breaker: own.allows(key, at))
            assert errors == []
            assert admitted.count(True) == 1


def test_failures_in_threads_all_count():
    key = BreakerKey("p", "m", "native")
    for _ in range(300):
        breaker = Breaker(threshold=THREADS)
        assert together(lambda number, own=breaker: own.record_failure(key, number))[1] == []
        assert breaker.state(key, THREADS) == "open"


def test_contexts_and_looks_in_threads_never_raise():
    windows, sights = ContextSizes(limit=3, idle=5), DetectionCache(limit=3)

    def work(number):
        for at in range(2_000):
            place = ("p", f"m{(at + number) % 7}")
            windows.put(place, 8192, at)
            windows.get(place, at + number)
            sights.put(*place, ServerInfo("ollama"))
            sights.get(*place)
            if at % 5 == 0:
                sights.evict("p")

    assert together(work)[1] == []
    assert len(windows._sizes) <= 3 + THREADS  # a window that is used while it is dropped stays
    assert len(sights._entries) <= 3
