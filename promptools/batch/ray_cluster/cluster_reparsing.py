"""Logged replies to calls, content and reasoning, on the nodes of a cluster."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from promptools.batch.files.batch_files import is_local
from promptools.batch.ray_cluster.chunk_stream import (
    ChunkOperation,
    ChunkSource,
    decode_chunk,
    encode_chunk,
    path_for_tasks,
    stream_chunks,
)
from promptools.batch.reparsing import CHUNK, ReparsedLine, read_replies, reparse_lines
from promptools.dialects.table_file import DialectTable


@dataclass(frozen=True, slots=True)
class LogLines:
    """The lines or rows of a file and their numbers, read anew at each iteration."""

    path: str

    def __iter__(self) -> Iterator[tuple[int, bytes]]:
        """Yield the lines."""
        return read_replies(self.path)


def reparse_on_cluster(
    ray: Any, path: str, *, as_row: bool = False, dialects: Sequence[DialectTable] = ()
) -> Iterator[ReparsedLine]:
    """Yield the result of each line of the file, in order; each task takes one processor of the cluster.

    A local file is read on the node of this process. `dialects` are those of the app's own.
    """
    source = ChunkSource(LogLines(path_for_tasks(path)), CHUNK, on_this_node=is_local(path))
    operation = ChunkOperation(_reparse_block, {"num_cpus": 1, "fn_args": (as_row, dialects)}, in_order=True)
    for results in stream_chunks(ray, source, operation):
        yield from results


def _reparse_block(block: Any, as_row: bool, dialects: Sequence[DialectTable]) -> Any:
    return encode_chunk(list(reparse_lines(decode_chunk(block), as_row=as_row, dialects=dialects)))
