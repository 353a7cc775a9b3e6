"""The requests of a batch that have no result yet."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TypeAlias

from promptools.batch.files.input_survey import read_requests
from promptools.batch.request_answering import BatchAnswer
from promptools.batch.request_line import BatchRequest, LineProblem


@dataclass(frozen=True, slots=True)
class PendingRequests:
    """Requests of the file `source`, read anew at each iteration; invalid ones with a `custom_id`, too."""

    source: str
    done: bytes = field(repr=False)
    """A byte for each line, the first for line 0: whether it has a result. Further lines have none."""

    def __iter__(self) -> Iterator[BatchRequest | LineProblem]:
        """Yield the requests in the order of the file."""
        for request in read_requests(self.source):
            done = request.line < len(self.done) and self.done[request.line]
            if request.custom_id is not None and not done:
                yield request


AnswerRequests: TypeAlias = Callable[[PendingRequests, Callable[[BatchAnswer], None]], None]
"""Answers all requests, wherever that is, and calls the function with each result as soon as it is there."""
