"""Write the keys of dialects' tables into docs/tasks/add-a-dialect.md: `make dialects`.

    python tools/dialect_keys.py

The tables between two comments of that page are made from the keys that the loader checks. A test compares them.
"""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from promptools.dialects.declared import DeclaredDialect
from promptools.dialects.table import COMMON_KEYS, KINDS, TableKey

PAGE = Path(__file__).parents[1] / "docs" / "tasks" / "add-a-dialect.md"
KEYS = re.compile(r"(?<=<!-- keys, made by `make dialects` -->\n).*(?=<!-- end of keys -->)", re.DOTALL)


def with_keys(page: str) -> str:
    """Return the page with the keys of all kinds, as the loader checks them."""
    tables = [_table("Keys of every kind", COMMON_KEYS, DeclaredDialect, ("name",))]
    tables += [
        _table(f"Keys of the kind `{name}`", kind.keys, kind.make, kind.required) for name, kind in KINDS.items()
    ]
    return KEYS.sub(lambda _: "\n" + "\n".join(tables) + "\n", page)


def _table(title: str, keys: Mapping[str, TableKey], make: Callable[..., object], required: Iterable[str]) -> str:
    """Return the table of some keys; the defaults are those of the constructor."""
    parameters = inspect.signature(make).parameters
    rows = (
        f"| `{name}`{' (required)' if name in required else ''} | {_cell(key.meaning)} | {_cell(key.expected)} |"
        f" {_default(parameters[name].default) if name in parameters else ''} |"
        for name, key in keys.items()
    )
    return "\n".join(
        (f"### {title}", "", "| key | what it is | its value | default |", "| --- | --- | --- | --- |", *rows, "")
    )


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("<", "&lt;") if "`" not in text else text.replace("|", "\\|")


def _default(value: object) -> str:
    if value in (inspect.Parameter.empty, "", None, False, ()):
        return ""
    return f"`{json.dumps(value, ensure_ascii=False)}`".replace("|", "\\|")


if __name__ == "__main__":
    PAGE.write_text(with_keys(PAGE.read_text("utf-8")), encoding="utf-8")
