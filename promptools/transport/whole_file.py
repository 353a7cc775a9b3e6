"""Write files atomically, since another process may read a file at any time."""

from __future__ import annotations

import os
import tempfile
from contextlib import suppress
from pathlib import Path


def write_whole(path: Path, text: str) -> None:
    """Write a file so that other processes never see it incomplete; only its owner may read it (0600).

    The text is written to a temporary file in the same folder, which must exist. Then the file is renamed.
    """
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.stem}-")
    unfinished = Path(temporary)
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
        unfinished.replace(path)
    except BaseException:
        with suppress(OSError):
            unfinished.unlink()
        raise
