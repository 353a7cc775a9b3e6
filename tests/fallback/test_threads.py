"""The memories that all requests share, under threads that are switched at every step."""

import sys
import threading

import pytest

from promptools.exchange import Sights
from promptools.fallback import Breaker, Key, Windows
from promptools.types import Seen

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
            key = Key("p", f"m{(at + number) % 7}", "native")
            breaker.failed(key, at, lasting=True)
            breaker.admits(key, at + 1)
            breaker.lines(at)
            breaker.why(key)
            if at % 3 == 0:
                breaker.worked(key)

    assert together(work)[1] == []
    assert len(breaker.lines(0)) <= 3


def test_one_of_many_threads_takes_the_probe():
    key = Key("p", "m", "native")
    for cool_down in range(1, 300):
        breaker = Breaker(cool_down=cool_down)
        breaker.failed(key, 0, lasting=True)
        for probe in (1, 2):
            admitted, errors = together(lambda _, at=probe * cool_down, own=breaker: own.admits(key, at))
            assert errors == []
            assert admitted.count(True) == 1


def test_failures_in_threads_all_count():
    key = Key("p", "m", "native")
    for _ in range(300):
        breaker = Breaker(threshold=THREADS)
        assert together(lambda number, own=breaker: own.failed(key, number))[1] == []
        assert breaker.state(key, THREADS) == "open"


def test_contexts_and_looks_in_threads_never_raise():
    windows, sights = Windows(limit=3, idle=5), Sights(limit=3)

    def work(number):
        for at in range(2_000):
            place = ("p", f"m{(at + number) % 7}")
            windows.raised(place, 8192, at)
            windows.size(place, at + number)
            sights.put(*place, Seen("ollama"))
            sights.get(*place)
            if at % 5 == 0:
                sights.forget("p")

    assert together(work)[1] == []
    assert len(windows._windows) <= 3 + THREADS  # a window that is used while it is dropped stays
    assert len(sights._seen) <= 3
