"""Items through Ray Data: one task reads them, an operation runs on chunks of them on any node, results stream back.

A chunk is one row of the dataset, and each row is a block, so that a chunk is what is moved, run and run again. Ray
Data holds back the reading while chunks wait, and runs the chunks of a process or a node that ended again: what an
operation returns for a chunk is kept whole or not at all.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

from promptools.batch.files.batch_files import is_local

CELL = "chunk"
"""The only column."""
MAX_CHUNK_BYTES = 4 * 2**20
"""A chunk is closed when it has as many bytes; a larger item is a chunk of its own."""
MAX_FAILED_STARTS = 8
"""Actors in a row that may end before they have started."""
READ_AHEAD = 1
"""Chunks of results that are fetched before they are used."""


@dataclass(frozen=True, slots=True)
class ChunkSource:
    """Items that are read anew at each iteration, in chunks of at most `size` of them."""

    items: Iterable[Any]
    size: int
    on_this_node: bool
    """Whether they can be read on the node of this process only, which is where a local file is."""


@dataclass(frozen=True, slots=True)
class ChunkOperation:
    """What is done with each chunk: a function, or a class of which each actor makes an instance."""

    call: Any
    """Takes a block with the items of a chunk, and returns one with their results."""
    options: dict[str, Any]
    """Arguments of `Dataset.map_batches`: the processes and their resources."""
    in_order: bool = False


def stream_chunks(ray: Any, source: ChunkSource, operation: ChunkOperation) -> Iterator[list[Any]]:
    """Yield the results of each chunk, as they come or in the order of the items."""
    dataset = ray.data.from_items([0], override_num_blocks=1)
    context = dataset.context
    context.enable_progress_bars = False
    context.print_on_execution_start = False
    context.target_max_block_size = 1  # a block is closed once it has more bytes: after each row
    # a node may end while it starts actors
    context.max_consecutive_actor_init_deaths = MAX_FAILED_STARTS
    context.execution_options.preserve_order = operation.in_order
    # The reading takes no processor of its own, so that it can go on beside the operation on a node with one.
    dataset = dataset.map_batches(
        _read_chunks,
        fn_args=(source.items, source.size),
        num_cpus=0,
        batch_size=None,
        batch_format="pyarrow",
        **_placement(ray, source),
    )
    # a row is a block, but with GPUs Ray Data wants a number of rows
    dataset = dataset.map_batches(operation.call, batch_size=1, batch_format="pyarrow", **operation.options)
    for block in dataset.iter_batches(batch_size=None, batch_format="pyarrow", prefetch_batches=READ_AHEAD):
        for cell in block.column(CELL):
            yield _decode(cell)


def path_for_tasks(path: str) -> str:
    """Return the absolute path of a local file: tasks of Ray have a current folder of their own."""
    return str(Path(path).absolute()) if is_local(path) else path


def decode_chunk(block: Any) -> list[Any]:
    """Return what is in the chunk of a block."""
    (cell,) = block.column(CELL)
    return _decode(cell)


def encode_chunk(values: list[Any]) -> Any:
    """Return a block with one chunk."""
    pyarrow = import_module("pyarrow")
    return pyarrow.table({CELL: pyarrow.array([pickle.dumps(values)], pyarrow.large_binary())})


def _decode(cell: Any) -> list[Any]:
    # the cells come from processes of this run, to which Ray itself sends functions in pickle
    values: list[Any] = pickle.loads(cell.as_buffer())  # noqa: S301
    return values


def _placement(ray: Any, source: ChunkSource) -> dict[str, Any]:
    if not source.on_this_node:
        return {}
    return {"label_selector": {"ray.io/node-id": ray.get_runtime_context().get_node_id()}}


def _read_chunks(_: Any, items: Iterable[Any], size: int) -> Iterator[Any]:
    chunk: list[Any] = []
    weight = 0
    for item in items:
        chunk.append(item)
        weight += len(pickle.dumps(item))
        if len(chunk) >= size or weight >= MAX_CHUNK_BYTES:
            yield encode_chunk(chunk)
            chunk, weight = [], 0
    if chunk:
        yield encode_chunk(chunk)
