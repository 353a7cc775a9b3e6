"""The threads of evaluations, verifications and discoveries: how many there are, and what is recorded."""

import threading
from contextlib import suppress

import pytest

from promptools.harness.evaluation.worker_pool import run_workers


def test_as_many_at_once_as_there_are_workers():
    together = threading.Barrier(3)  # each waits for two others, so there are three at once
    running, most, lock = 0, 0, threading.Lock()

    def work(item):
        nonlocal running, most
        with lock:
            running += 1
            most = max(most, running)
        together.wait(300)
        with lock:
            running -= 1
        return item * item

    recorded = []
    run_workers(work, range(9), recorded.append, workers=3)
    assert sorted(recorded) == [item * item for item in range(9)]
    assert most == 3


def test_an_item_is_taken_when_a_thread_is_free_for_it():
    """So what was recorded decides whether there is another item."""
    recorded, shown = [], []

    def items():
        while sum(recorded) < 10:
            yield 4

    run_workers(lambda item: item, items(), recorded.append, workers=1, show=shown.append)
    assert recorded == shown == [4, 4, 4]


def test_work_that_fails_ends_the_run():
    started, recorded = [], []

    def work(item):
        started.append(item)
        return 4 // item

    with pytest.raises(ZeroDivisionError):
        run_workers(work, [2, 1, 0, 4], recorded.append, workers=1)
    assert started == [2, 1, 0]
    assert recorded == [2, 4]


@pytest.mark.parametrize("place", ["record", "show"])
def test_after_an_interrupt_nothing_is_started_and_what_is_in_progress_is_recorded(place):
    interrupted = threading.Event()
    started, recorded, shown = [], [], []

    def interrupt_in(where):
        if where == place and not interrupted.is_set():
            interrupted.set()
            raise KeyboardInterrupt

    def work(item):
        started.append(item)
        assert item == 0 or interrupted.wait(300)
        return 2 // (2 - item)

    def record(item):
        interrupt_in("record")
        recorded.append(item)

    def show(item):
        interrupt_in("show")
        shown.append(item)

    with pytest.raises(KeyboardInterrupt):
        run_workers(work, range(9), record, workers=3, show=show)
    assert sorted(started) == [0, 1, 2]
    assert sorted(recorded) == [1, 2]  # the work on 2 failed, and the interrupt is raised nevertheless
    assert shown == []


def test_results_that_come_together_are_all_recorded_once():
    recorded = []

    def show(item):
        raise KeyboardInterrupt

    both = threading.Barrier(2)
    with suppress(KeyboardInterrupt):
        run_workers(lambda item: (both.wait(300), item)[1], range(8), recorded.append, workers=2, show=show)
    assert sorted(recorded) == [0, 1]
