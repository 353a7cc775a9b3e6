"""Write a command's log: log records of promptools go to stderr."""

from __future__ import annotations

import logging
from collections.abc import Generator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from promptools.log import log

if TYPE_CHECKING:
    import argparse

    from promptools.types import Call, Reply


def log_level(arguments: argparse.Namespace) -> int:
    """Return the lowest level of records to show. `--quiet` shows only errors, and `--verbose` also shows repairs."""
    if arguments.quiet:
        return logging.ERROR
    return logging.INFO if arguments.verbose else int(getattr(arguments, "log_level", logging.WARNING))


@contextmanager
def show_log(level: int) -> Generator[None]:
    """Write log records of `level` and above to stderr inside the block."""
    root, before = logging.getLogger(), log.level
    handler = logging.StreamHandler()
    handler.setLevel(level)
    handler.setFormatter(logging.Formatter("%(name)s: %(message)s"))
    root.addHandler(handler)
    log.setLevel(level)
    try:
        yield
    finally:
        log.setLevel(before)
        root.removeHandler(handler)


def log_if_healed(reply: Reply) -> None:
    """Log how a reply was repaired, or that no attempt succeeded. The record contains none of the model's text."""
    from promptools.exchange.salvage import RECOVERED_NOTE

    failed = [
        f"{attempt.mode} failed ({attempt.outcome})"
        for attempt in reply.trace.attempts
        if attempt.outcome != "answered"
    ]
    native = reply.trace.mode == "native"
    calls = [_describe_healed(call) for call in reply.calls if call.fixes or (native and call.dialect != "native")]
    if not (failed or calls):
        return
    last = reply.trace.attempts[-1].outcome if reply.trace.attempts else "answered"
    if last != "answered" and RECOVERED_NOTE not in reply.trace.notes:
        log.info("failed: %s", "; ".join(failed))
        return
    log.info("healed: %s", "; ".join([*failed, f"answered in {reply.trace.mode} mode", *calls]))


def _describe_healed(call: Call) -> str:
    fixes = ", ".join(sorted({fix.kind for fix in call.fixes}))
    return f"{call.name} read as {call.dialect}" + (f" with fixes: {fixes}" if fixes else "")
