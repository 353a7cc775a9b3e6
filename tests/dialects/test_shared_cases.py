"""Every dialect that can be written passes the shared cases."""

from __future__ import annotations

from pathlib import Path
from textwrap import dedent

import pytest
from casebook import Row
from many_rows import every_row
from shared_cases import DIFFERENCES, NOT_WRITTEN, SHARED, UNMARKED, built_in_cases, check, shared_cases

from promptools import dialects

ROWS = [row for name in dialects.BUILT_IN for row in built_in_cases(name)]


@every_row(ROWS, name=lambda row: row.id, group=lambda row: row.table)
def test_shared_case(row: Row) -> None:
    check(row)


def test_differences_are_of_cases_and_dialects_that_there_are() -> None:
    assert set(DIFFERENCES) <= set(SHARED)
    written = {*dialects.BUILT_IN} - NOT_WRITTEN
    assert {name for differences in DIFFERENCES.values() for name in differences} <= {*written, UNMARKED}


DECLARED = {
    "two_lines": r"""
        name = "two_lines"
        tier = "S"
        [openers]
        "<|turn|>\n\ncall<|role|>" = ""
        """,
    "acme": """
        name = "acme"
        tier = "S"
        [openers]
        "<|acme|>" = "<|/acme|>"
        """,
    "brackets": """
        name = "brackets"
        tier = "A"
        shape = "list"
        arguments_key = "with"
        space = "\\n"
        [openers]
        "[[calls]]" = "[[/calls]]"
        """,
    "open_ended": """
        name = "open_ended"
        tier = "A"
        name_key = ""
        [openers]
        "CALL>>" = ""
        """,
}


@pytest.mark.parametrize("name", DECLARED)
def test_a_declared_dialect_passes_them_too(name: str, tmp_path: Path) -> None:
    table = tmp_path / f"{name}.toml"
    table.write_text(dedent(DECLARED[name]), "utf-8")
    dialect = dialects.load(table)
    try:
        cases = shared_cases(dialect)
        assert len(cases) > 30
        for row in cases:
            check(row)
    finally:
        dialects.unregister(name)
