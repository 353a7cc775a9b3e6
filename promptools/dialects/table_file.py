"""Read the file of a dialect's table once, as text that can be sent to other processes."""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass
from typing import Final

from promptools.errors import UsageError

MAX_TABLE: Final = 2**16
"""Maximum number of bytes of a table. The largest in the package has some 4,000, but a config may name any file."""


@dataclass(frozen=True, slots=True)
class DialectTable:
    """The table of a dialect: the name of its file, and its text as it was read."""

    file: str
    text: str


def read_table(path: str | os.PathLike[str]) -> DialectTable:
    """Read the file of a table. Raises UsageError if it cannot be read, is not text, or is too large."""
    file = os.fspath(path)
    try:
        handle = os.open(file, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0))  # a pipe would wait for its writer
        with os.fdopen(handle, "rb") as opened:
            is_file = stat.S_ISREG(os.fstat(handle).st_mode)
            data = opened.read(MAX_TABLE + 1) if is_file else b""
    except (OSError, ValueError) as error:  # ValueError: a null character in the path
        why = getattr(error, "strerror", None) or error
        raise UsageError(f"The dialect {file!r} cannot be read: {why}.") from error
    if not is_file:
        raise UsageError(f"The dialect {file!r} cannot be read: it is not a file.")
    if len(data) > MAX_TABLE:
        raise UsageError(f"The dialect {file!r} has more than {MAX_TABLE} bytes: no table needs as many.")
    try:
        return DialectTable(file, data.decode("utf-8-sig"))
    except UnicodeDecodeError as error:
        raise UsageError(f"The dialect {file!r} is not UTF-8: {error}.") from error
