"""The token counts of docs/benchmarks.md are those that the benchmark counts."""

import re
from pathlib import Path

import oracle
import pytest

pytestmark = pytest.mark.oracle

ROOT = Path(__file__).parents[1]


@pytest.fixture
def counted(monkeypatch):
    oracle.library()
    monkeypatch.syspath_prepend(ROOT)
    from benchmarks import tool_tokens

    return tool_tokens


def rows(heading):
    """Return the cells of the first table below a line of the page."""
    text = (ROOT / "docs/benchmarks.md").read_text("utf-8").partition(heading)[2]
    table = re.search(r"(?:^\|.*\n)+", text, re.MULTILINE)
    assert table is not None
    return [[cell.strip() for cell in line.strip("|\n").split("|")] for line in table[0].splitlines()[2:]]


def test_the_cost_of_declaring(counted):
    assert [int(row[1]) for row in rows("Declaring the six tools once:")] == list(counted.declared().values())


def test_the_conversation(counted):
    turns = counted.turns()
    told = [[int(cell.replace(",", "")) for cell in row] for row in rows("The conversation with them:")]
    assert [row[0] for row in told] == list(counted.SHOWN)
    for at, *cells in told:
        assert cells == [*turns[at], at * (turns[at].once - turns[at].conversation)]


def test_the_figure(counted):
    assert counted.figure() == (ROOT / "docs/img/tool-tokens.svg").read_text("utf-8")
