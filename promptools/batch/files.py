"""Read and write the files of a batch: lines, or rows of Parquet. With fsspec, files may be compressed or remote."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from importlib import import_module
from itertools import islice
from pathlib import Path
from typing import IO, Any

from promptools.batch.columns import InputColumns, RowReader, arrow
from promptools.errors import PromptoolsError, UsageError, install_command, without_credentials

# Where a file is, and its lines.


MAX_LINE = 64 * 2**20
"""Maximum number of bytes of a line."""
COMPRESSED = (".gz", ".bz2", ".xz", ".zst", ".lz4")
"""File name endings of compressed files; fsspec is needed to read and write them."""
PARQUET = ".parquet"
ENDINGS = (".jsonl", ".ndjson", ".json", PARQUET)
"""Endings of an output's name that `errors_path` replaces with `.errors.jsonl`."""


def check_name(path: str) -> None:
    """Raise `UsageError` if a file cannot be used because of its name, or because a package is missing."""
    if is_parquet(path):
        arrow("pyarrow.parquet")
    if any(path.endswith(f"{PARQUET}{end}") for end in COMPRESSED):
        raise UsageError(
            f"{without_credentials(path)!r}: Parquet is compressed inside; name a file that ends in {PARQUET}"
        )
    if _needs_fsspec(path):
        _fsspec(path)


def is_local(path: str) -> bool:
    """Return whether a path is in this machine's file system, and not a URL."""
    return "://" not in path


def is_parquet(path: str) -> bool:
    """Return whether a file is in Parquet format, according to its name."""
    return path.endswith(PARQUET)


def identity_of(path: str) -> str:
    """Return a string that identifies a file: the resolved path of a local file, or the URL as it is given.

    The string is the same for all names of a local file.
    """
    return str(Path(path).resolve()) if is_local(path) else path


def errors_path(path: str) -> str:
    """Return the path for an output's errors: `out.errors.jsonl` for `out.jsonl`, with the same compression.

    Errors are always JSON Lines.
    """
    compression = next((end for end in COMPRESSED if path.endswith(end)), "")
    root = path.removesuffix(compression)
    ending = next((end for end in ENDINGS if root.endswith(end)), "")
    return f"{root.removesuffix(ending)}.errors.jsonl{compression}"


def exists(path: str) -> bool:
    """Return whether the file exists."""
    if is_local(path):
        return Path(path).exists()
    with file_errors(path, "read"):
        filesystem, inner = _fsspec(path).core.url_to_fs(path)
        return bool(filesystem.exists(inner))


def read_lines(path: str) -> Iterator[tuple[int, bytes]]:
    """Yield the number and the text of each line that is not blank. Numbers begin at 1; line ends are removed.

    A line longer than `MAX_LINE` is cut off. Raises `UsageError` if the file cannot be read.
    """
    if is_parquet(path):
        raise UsageError(f"{without_credentials(path)!r} has rows and no lines")
    number = 0
    with file_errors(path, "read"), closing(open_input(path)) as file:
        while line := file.readline(MAX_LINE):
            number += 1
            rest = line
            while len(rest) == MAX_LINE and not rest.endswith(b"\n"):
                rest = file.readline(MAX_LINE)
            if line.strip():
                yield number, line.rstrip(b"\r\n")


def write_lines(path: str, lines: Iterable[bytes]) -> None:
    """Write a file under a temporary name, and rename it when it is complete.

    Raises `PromptoolsError` if the file cannot be written, for example because the disk is full.
    """
    write_file(path, lambda file: file.writelines(lines))


def write_file(path: str, write: Callable[[IO[bytes]], None]) -> None:
    """Call `write` with a file under a temporary name; then rename the file to `path`, or remove it on failure."""
    temporary = f"{path}.tmp"
    if is_local(path) and Path(path).is_dir():
        raise UsageError(f"{path!r} is a folder; name a file in it")
    with file_errors(path, "write"):
        try:
            with closing(_open_output(path, temporary)) as file:
                write(file)
            if is_local(path):
                with Path(temporary).open("rb") as written:
                    os.fsync(written.fileno())
                Path(temporary).replace(path)
            else:
                filesystem, inner = _fsspec(path).core.url_to_fs(path)
                filesystem.mv(f"{inner}.tmp", inner)
        except BaseException:
            with suppress(Exception):  # the first error is the one to raise
                remove(temporary)
            raise


def remove(path: str) -> None:
    """Remove a file if it exists."""
    if is_local(path):
        Path(path).unlink(missing_ok=True)
    elif exists(path):
        with file_errors(path, "write"):
            filesystem, inner = _fsspec(path).core.url_to_fs(path)
            filesystem.rm(inner)


def open_input(path: str) -> IO[bytes]:
    """Open a file for reading, decompressed according to its suffix; raise `UsageError` for a folder or a pipe."""
    if is_local(path):
        if Path(path).exists() and not Path(path).is_file():
            raise UsageError(f"{path!r} is not a regular file: name one, since it is read more than once")
        if not _needs_fsspec(path):
            return Path(path).open("rb")
    opened: IO[bytes] = _fsspec(path).open(path, "rb", compression="infer").open()
    return opened


def _open_output(path: str, temporary: str) -> IO[bytes]:
    """Open the file `temporary` for writing, compressed according to the suffix of `path`, its final name."""
    if not _needs_fsspec(path):
        return Path(temporary).open("wb")
    fsspec = _fsspec(path)
    opened: IO[bytes] = fsspec.open(temporary, "wb", compression=fsspec.utils.infer_compression(path)).open()
    return opened


def _needs_fsspec(path: str) -> bool:
    return not is_local(path) or path.endswith(COMPRESSED)


def _fsspec(path: str) -> Any:
    try:
        return import_module("fsspec")
    except ImportError:
        raise UsageError(f"{without_credentials(path)!r} needs fsspec: {install_command('batch')}") from None


@contextmanager
def file_errors(path: str, action: str) -> Generator[None, None, None]:
    """Convert errors in the block to a `PromptoolsError` that names the file. `action` is `read` or `write`.

    The error is a `UsageError` if the file does not exist or cannot be read. The conversion is needed because each of
    fsspec's file systems raises its own exceptions.
    """
    try:
        yield
    except PromptoolsError:
        raise
    except FileNotFoundError:
        raise UsageError(f"cannot {action} {without_credentials(path)!r}: no such file or folder") from None
    except Exception as error:
        reason = (isinstance(error, OSError) and error.strerror) or f"{type(error).__name__}: {error}"
        kind = UsageError if action == "read" else PromptoolsError
        raise kind(f"cannot {action} {without_credentials(path)!r}: {without_credentials(reason)}") from error


# Read and write rows of Parquet files, a part of a row group at a time.


READ_BYTES = 4 * 2**20
"""Number of bytes of rows to decode at a time, estimated from the average size of the rows in a row group."""
MAX_ROWS = 4096
"""Maximum number of rows to decode at a time."""
BUFFER_BYTES = 2**20
"""Number of bytes to read from the file at a time, for each column."""
GROUP_BYTES = 16 * 2**20
"""Number of bytes of rows after which a row group is written."""
CONVERTED_ROWS = 256
"""Number of rows to convert to Arrow at a time for writing, because rows are far larger as Python objects."""


def read_input(path: str, columns: InputColumns) -> Iterator[tuple[int, bytes]]:
    """Yield the non-blank lines of an input, or the rows of a Parquet file as JSON, with numbers from 1.

    Raises `UsageError` if the file cannot be read, lacks a column, or has a column of a wrong type.
    """
    return _read_rows(path, columns) if is_parquet(path) else read_lines(path)


def read_column(path: str, name: str) -> Iterator[Any]:
    """Yield the values of one column of a Parquet file."""
    with file_errors(path, "read"), closing(open_input(path)) as file:
        parquet = _open(file)
        if name not in parquet.schema_arrow.names:
            raise UsageError(f"cannot read {without_credentials(path)!r}: there is no column {name!r}")
        for batch in parquet.iter_batches(MAX_ROWS, columns=[name]):
            yield from batch.column(0).to_pylist()


def write_rows(path: str, rows: Iterable[Mapping[str, Any]], schema: Any) -> None:
    """Write a Parquet file under a temporary name, and rename it when it is complete.

    Raises `PromptoolsError` if the file cannot be written.
    """

    def write(file: IO[bytes]) -> None:
        with arrow("pyarrow.parquet").ParquetWriter(file, schema, compression="zstd") as writer:
            for group in _row_groups(rows, schema):
                writer.write_table(group)

    check_name(path)
    write_file(path, write)


def _read_rows(path: str, columns: InputColumns) -> Iterator[tuple[int, bytes]]:
    number = 0
    with file_errors(path, "read"), closing(open_input(path)) as file:
        parquet = _open(file)
        try:
            reader = RowReader(parquet.schema_arrow, columns)
        except UsageError as error:
            raise UsageError(f"cannot read {without_credentials(path)!r}: {error}") from None
        for group in range(parquet.num_row_groups):
            size = _batch_size(parquet.metadata.row_group(group))
            for batch in parquet.iter_batches(size, row_groups=[group], columns=reader.names, use_threads=False):
                for row in reader.read(batch):
                    number += 1
                    yield number, json.dumps(row).encode()


def _open(file: IO[bytes]) -> Any:
    arrow_error = arrow().ArrowInvalid
    try:
        # buffered: without it, whole chunks of columns are read at once, however large their row groups are
        return arrow("pyarrow.parquet").ParquetFile(file, buffer_size=BUFFER_BYTES, pre_buffer=False)
    except arrow_error as error:
        raise ValueError(f"not a Parquet file, or a damaged one: {error}") from error


def _batch_size(group: Any) -> int:
    """Return how many rows of a row group to decode at a time."""
    average = group.total_byte_size / max(1, group.num_rows)
    return max(1, min(MAX_ROWS, int(READ_BYTES / max(1.0, average))))


def _row_groups(rows: Iterable[Mapping[str, Any]], schema: Any) -> Iterator[Any]:
    """Yield a table for each row group: at least `GROUP_BYTES` in size, except for the last one."""
    pa = arrow()
    rest = iter(rows)
    ready: list[Any] = []
    size = 0
    while part := list(islice(rest, CONVERTED_ROWS)):
        batch = pa.RecordBatch.from_pylist(part, schema)
        ready.append(batch)
        size += batch.nbytes
        if size >= GROUP_BYTES:
            yield pa.Table.from_batches(ready, schema)
            ready, size = [], 0
    if ready:
        yield pa.Table.from_batches(ready, schema)
