"""Threads that work on several items at the same time. Each result is recorded as soon as it is available.

Runs of tasks, verifications and discoveries use these threads. Other parts of promptools do concurrent work in other
ways. An agent's tools run in the context of the run and return their results in order (`harness/agent/drivers.py`).
Replies are reparsed in processes (`batch/reparsing.py`). A batch sends its requests from tasks of an event loop, and
may adapt the number of concurrent requests to the server (`batch/request_pool.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from itertools import islice
from typing import TypeVar

ItemT = TypeVar("ItemT")
ResultT = TypeVar("ResultT")


def run_workers(
    work: Callable[[ItemT], ResultT],
    items: Iterable[ItemT],
    record: Callable[[ResultT], object],
    *,
    workers: int,
    show: Callable[[ResultT], object] | None = None,
) -> None:
    """Call `work` with each item, in `workers` threads. As each result arrives, pass it to `record`, then to `show`.

    The next item is taken from `items` only when a thread is free, so a generator of items can end the run early. After
    an interrupt or another exception, no further item is started, but the results of work in progress are still
    recorded.
    """
    waiting = iter(items)
    running: set[Future[ResultT]] = set()
    with ThreadPoolExecutor(workers, "promptools-worker") as pool:
        try:
            while True:
                for item in islice(waiting, workers - len(running)):
                    running.add(pool.submit(work, item))
                if not running:
                    return
                for done in wait(running, return_when=FIRST_COMPLETED).done:
                    result = done.result()
                    record(result)
                    running.remove(done)  # only now: if recording is interrupted, the result is recorded again
                    if show is not None:
                        show(result)
        except BaseException:
            for done in wait(running).done:
                if done.exception() is None:
                    record(done.result())
            raise
