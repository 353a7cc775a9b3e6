"""`promptools batch` without the start of its process: what runs once everything is imported and the client is made.

`python -m benchmarks.batches.batch_client FILE OUT URL CONCURRENCY` writes OUT, and prints the seconds.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time

from promptools.batch.adaptive_limit import AdaptiveLimit
from promptools.batch.batch_job import BatchJob
from promptools.batch.files.input_survey import read_requests, survey_input
from promptools.batch.request_answering import RequestAnswerer
from promptools.batch.request_line import BatchRequest
from promptools.batch.request_pool import RequestPool
from promptools.client import AsyncOpenAI
from promptools.profiles import Config


async def run(source: str, output: str, url: str, concurrency: int) -> float:
    """Send all requests of a file; return the seconds."""
    job = BatchJob(source, output, survey_input(source, None), model=None, log=None)
    options = {"base_url": url, "api_key": "none", "max_retries": 0, "detect": False, "config": Config()}
    async with AsyncOpenAI(**options) as client:
        answerer = RequestAnswerer(client)
        first = next(read_requests(source))
        assert isinstance(first, BatchRequest)
        await answerer.answer(first)  # imports what is imported at the first request
        pool = RequestPool(answerer.answer, AdaptiveLimit(concurrency), patience=60)
        began = time.perf_counter()
        await job.run(pool, lambda _: None)
        return time.perf_counter() - began


if __name__ == "__main__":
    _, file, out, base_url, at_once = sys.argv
    took = asyncio.run(run(file, out, base_url, int(at_once)))
    print(json.dumps({"seconds": took}))
