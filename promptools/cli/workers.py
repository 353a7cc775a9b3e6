"""Worker processes that serve one proxy together: they share a listening socket, and a worker that dies is replaced.

The parent process only watches. Each worker is a new interpreter, because a process with threads must not be forked.
Each worker builds its own proxy from the command's arguments. The arguments reach the worker through a pipe, so that no
other user can read the keys in them. uvicorn's own supervisor is not used: it restarts the workers on SIGHUP, and does
not end them immediately at the second signal.

The parent passes SIGTERM, SIGINT and SIGHUP on to the workers. At the first SIGTERM or SIGINT, a worker finishes its
requests and ends; at the second, it ends immediately. Each worker has its own session, so that an interrupt from the
keyboard reaches it only once. If the parent process ends, the workers finish their requests and end.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
import time
from contextlib import contextmanager, suppress
from multiprocessing import resource_tracker
from multiprocessing.connection import wait
from typing import TYPE_CHECKING, Any

from promptools.log import log

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable, Generator
    from multiprocessing.context import SpawnProcess


_RESTART_SECONDS = 1.0
"""Minimum seconds between two starts of a worker, which prevents a tight loop if a worker cannot start."""
_FORWARDED = tuple(getattr(signal, name) for name in ("SIGTERM", "SIGINT", "SIGHUP") if hasattr(signal, name))
_HELD_BACK = {getattr(signal, name) for name in ("SIGINT", "SIGHUP") if hasattr(signal, name)}
_ENDING = {signal.SIGTERM, signal.SIGINT}


class Supervisor:
    """Runs `serve(arguments, listener)` in `count` processes until a signal ends them."""

    def __init__(
        self, serve: Callable[[Any, socket.socket], None], arguments: Any, listener: socket.socket, count: int
    ) -> None:
        self._serve = serve
        self._arguments = arguments
        self._listener = listener
        self._context = multiprocessing.get_context("spawn")
        self._started: dict[SpawnProcess, float] = {}
        self._count = count
        self._ended_by: int | None = None

    def run(self) -> int | None:
        """Run until a signal has ended the workers; return the number of that signal."""
        handlers = {number: signal.signal(number, self._forward) for number in _FORWARDED}
        try:
            self._watch()
        finally:
            for number, handler in handlers.items():
                signal.signal(number, handler)
        return self._ended_by

    def _watch(self) -> None:
        for _ in range(self._count):
            self._start()
        while self._started:
            # a signal is handled during a wait, or at the latest before the next
            ended = set(wait([process.sentinel for process in self._started], timeout=0.5))
            for process in [process for process in self._started if process.sentinel in ended]:
                process.join()
                started = self._started.pop(process)
                if self._ended_by is None:
                    log.warning("worker %s ended (%s); it is replaced", process.pid, process.exitcode)
                    time.sleep(max(0.0, started + _RESTART_SECONDS - time.monotonic()))
                    self._start()

    def _start(self) -> None:
        process = self._context.Process(target=_work, args=(self._serve, self._arguments, self._listener))
        with _holding_signals():  # a signal would end a new process, which does not handle it yet
            process.start()
        self._started[process] = time.monotonic()
        if self._ended_by is not None:  # a signal came while the process was started
            process.terminate()

    def _forward(self, number: int, _frame: object) -> None:
        if number in _ENDING:
            self._ended_by = number
            self._listener.close()
        for process in tuple(self._started):
            if process.pid is not None and process.is_alive():
                os.kill(process.pid, number)


def _work(serve: Callable[[Any, socket.socket], None], arguments: Any, listener: socket.socket) -> None:
    """Serve in a worker process."""
    if hasattr(os, "setsid"):
        os.setsid()
    if hasattr(signal, "SIGHUP"):
        signal.signal(signal.SIGHUP, signal.SIG_IGN)  # a hangup now needs no action: the config is read after this
    with suppress(KeyboardInterrupt):
        signal.signal(signal.SIGINT, _interrupt_once)
        if hasattr(signal, "pthread_sigmask"):
            signal.pthread_sigmask(signal.SIG_UNBLOCK, _HELD_BACK)
        threading.Thread(target=_end_with_parent, daemon=True).start()
        serve(arguments, listener)


def _interrupt_once(number: int, _frame: object) -> None:
    """Interrupt the worker, and ignore further interrupts.

    A second interrupt, while the interpreter ends, would only print a traceback.
    """
    signal.signal(number, signal.SIG_IGN)
    raise KeyboardInterrupt


@contextmanager
def _holding_signals() -> Generator[None]:
    """Hold back SIGINT and SIGHUP from this process inside the `with` block.

    Processes that are started inside it must unblock the signals.
    """
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    resource_tracker.ensure_running()  # otherwise the first process would start the tracker, which unblocks SIGINT
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _HELD_BACK)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    assert parent is not None, "a worker has a parent"
    wait([parent.sentinel])
    os.kill(os.getpid(), signal.SIGTERM)
