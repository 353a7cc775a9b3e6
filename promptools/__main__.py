"""The entry point of the command `promptools` and of `python -m promptools`. Ctrl+C ends it without a traceback.

This module and the package's `__init__` import as little as possible before the handler for Ctrl+C is installed.
"""

from __future__ import annotations

import _thread
import atexit
import os
import sys

INTERRUPTED = 130
_dropped: list[None] = []
"""One entry for each Ctrl+C that Python discarded and no thread has repeated yet.

`main` checks this list before it returns.
"""
TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

try:
    import signal  # loads `enum`, `functools` and `collections`
except KeyboardInterrupt:
    os._exit(INTERRUPTED)

# Registered first, so it runs last: Python then restores the default action, and an interrupt would kill the process.
atexit.register(signal.signal, signal.SIGINT, signal.SIG_IGN)


def main() -> int:
    """Run the command line and return its exit status, which is 130 after an interrupt."""
    default = signal.getsignal(signal.SIGINT)
    if default is not signal.default_int_handler:  # interrupts are ignored, as in a job in the background
        from promptools.cli import main as run

        return run()
    sys.excepthook, sys.unraisablehook = _hide_interrupt, _repeat_interrupt
    signal.signal(signal.SIGINT, _leave)
    from promptools.cli import main as run

    try:
        signal.signal(signal.SIGINT, default)
        return run()
    except KeyboardInterrupt:
        return INTERRUPTED
    finally:
        signal.signal(signal.SIGINT, _leave)
        if _dropped:
            _leave()


def _leave(*_: object) -> None:
    """Exit immediately with status 130, without waiting for threads. Called only while no work is running."""
    try:
        sys.stdout.flush()
    finally:
        os._exit(INTERRUPTED)


def _hide_interrupt(kind: type[BaseException], error: BaseException, trace: Any) -> None:
    if not issubclass(kind, KeyboardInterrupt):
        sys.__excepthook__(kind, error, trace)


def _repeat_interrupt(unraisable: Any) -> None:
    """Repeat an interrupt that was raised in a finalizer or a lock's callback, because Python only prints it there."""
    if issubclass(unraisable.exc_type, KeyboardInterrupt):
        _dropped.append(None)
        _thread.start_new_thread(_interrupt, ())  # in this thread, the interrupt would be an error of this hook
    else:
        sys.__unraisablehook__(unraisable)


def _interrupt() -> None:
    os.kill(os.getpid(), signal.SIGINT)
    _dropped.clear()


if __name__ == "__main__":
    sys.exit(main())
