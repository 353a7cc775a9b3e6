"""Files with dialect tables that were learned from chat templates, so that a machine studies a template only once.

Each table is a separate file in the folder `learned` of the cache folder, which is PROMPTOOLS_CACHE or, if that is not
set, `~/.cache/promptools`. The files may be deleted at any time. If they cannot be written, the tables are kept in
memory.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from promptools.dialects.table_file import read_table
from promptools.errors import UsageError
from promptools.harmony.bpe_vocabulary import CACHE_VARIABLE, cache_folder
from promptools.transport.found_config import home_folder
from promptools.transport.whole_file import write_whole


class LearnedTables:
    """Keeps the text of tables in a folder of files, and in memory."""

    def __init__(self, folder: Path | None) -> None:
        self._folder = folder
        self._texts: dict[str, str] = {}

    def get(self, name: str) -> str | None:
        """Return the text of the table that is kept under a name; None if there is none."""
        text = self._texts.get(name)
        if text is None and self._folder is not None:
            with suppress(UsageError):
                text = self._texts[name] = read_table(self._folder / f"{name}.toml").text
        return text

    def put(self, name: str, text: str) -> None:
        """Keep the text of a table under a name, in memory and, if the folder can be written, in a file."""
        self._texts[name] = text
        if self._folder is not None:
            with suppress(OSError):
                self._folder.mkdir(parents=True, exist_ok=True)
                write_whole(self._folder / f"{name}.toml", text)


def learned_folder() -> Path | None:
    """Return the folder of the learned tables, existing or not; None if no home or cache folder is known."""
    home = home_folder()
    if home is None and not os.environ.get(CACHE_VARIABLE):
        return None
    return cache_folder(os.environ, home or Path()) / "learned"
