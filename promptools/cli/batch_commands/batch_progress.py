"""The progress of a batch: how many requests and tokens in a second, failures, and the time left."""

from __future__ import annotations

import sys
from collections.abc import Callable
from datetime import timedelta
from time import monotonic
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from promptools.batch.batch_job import BatchTotals

REPORT_SECONDS = 10.0
"""Seconds between lines of progress where stderr is no terminal."""
REDRAW_SECONDS = 0.1


def follow_batch(show: Callable[[str, int, int], None], at_once: Callable[[], str]) -> Callable[[BatchTotals], None]:
    """Return a function that shows the totals now and then, and with how many requests at once."""
    terminal = sys.stderr.isatty()
    started, shown_at = monotonic(), float("-inf")
    earlier_tokens: int | None = None

    def follow(totals: BatchTotals) -> None:
        nonlocal shown_at, earlier_tokens
        now, tokens = monotonic(), totals.prompt_tokens + totals.completion_tokens
        earlier_tokens = tokens if earlier_tokens is None else earlier_tokens
        if now - shown_at < (REDRAW_SECONDS if terminal else REPORT_SECONDS) and totals.done < totals.requests:
            return
        shown_at = now
        seconds = max(now - started, 1e-9)
        rate = (totals.done - totals.earlier) / seconds
        parts = [f"{rate:.1f}/s", f"{(tokens - earlier_tokens) / seconds:.0f} tokens/s"]
        parts += [at_once(), f"{totals.failed} failed"]
        if rate and not terminal:  # the bar has a column for it
            parts.append(f"{timedelta(seconds=int((totals.requests - totals.done) / rate))} left")
        show(", ".join(parts), totals.done, totals.requests)

    return follow
