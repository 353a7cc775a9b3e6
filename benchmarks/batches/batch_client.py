"""`promptools batch` without the start of its process: what runs once everything is imported and the client is made.

`python -m benchmarks.batches.batch_client FILE OUT URL CONCURRENCY` writes OUT, and prints the seconds.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import Callable

from promptools.batch.answering import BatchAnswer, BatchRequest, RequestAnswerer
from promptools.batch.batch_job import BatchJob
from promptools.batch.input_survey import PendingRequests, survey_input
from promptools.batch.request_pool import AdaptiveLimit, RequestPool
from promptools.client import AsyncOpenAI
from promptools.profiles import Config


def run(source: str, output: str, url: str, concurrency: int) -> float:
    """Send all requests of a file; return the seconds until the last result is recorded."""
    job = BatchJob(source, output, survey_input(source, None), model=None, log=None)
    options = {"base_url": url, "api_key": "none", "max_retries": 0, "detect": False, "config": Config()}
    seconds = 0.0

    async def answer(pending: PendingRequests, record: Callable[[BatchAnswer], None]) -> None:
        nonlocal seconds
        async with AsyncOpenAI(**options) as client:
            answerer = RequestAnswerer(client)
            first = next(iter(pending))
            assert isinstance(first, BatchRequest)
            await answerer.answer(first)  # imports what is imported at the first request
            pool = RequestPool(answerer.answer, AdaptiveLimit(concurrency), patience=60)
            began = time.perf_counter()
            await pool.run(iter(pending), record)
            seconds = time.perf_counter() - began

    job.run(lambda pending, record: asyncio.run(answer(pending, record)), lambda _: None)
    return seconds


if __name__ == "__main__":
    _, file, out, base_url, at_once = sys.argv
    took = run(file, out, base_url, int(at_once))
    print(json.dumps({"seconds": took}))
