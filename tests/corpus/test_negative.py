"""Talk, data and code: nothing is called, and every byte comes back."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import pytest
from casebook import SETS, bare, cuts, feed, tiled
from many_rows import every_row

from promptools import parse
from promptools.types import Reply

CUTS = 15
"""Places at which each text is cut in two: six hundred texts at every place of theirs would take minutes."""

TEXTS: list[dict[str, Any]] = [
    {**row, "kind": kind.stem}
    for kind in sorted((Path(__file__).parent / "negative").glob("*.toml"))
    for row in tomllib.loads(kind.read_text("utf-8"))["text"]
]


def nothing_called(reply: Reply, row: dict[str, Any]) -> None:
    assert reply.calls == ()
    assert reply.malformed == ()
    assert reply.reasoning == row.get("reasoning", "")
    assert reply.content == row.get("content", row["text"])
    if not row.get("reasoning"):
        assert reply.discarded == ()


@pytest.mark.parametrize("strictness", ["balanced", "strict"])
@every_row(TEXTS, name=lambda row: row["name"], group=lambda row: row["kind"])
def test_nothing_is_called(row: dict[str, Any], strictness: str) -> None:
    nothing_called(parse(row["text"], SETS["all"], strictness=strictness, **row.get("options", {})), row)


@every_row(TEXTS, name=lambda row: row["name"], group=lambda row: row["kind"])
def test_nothing_is_called_however_it_is_cut(row: dict[str, Any]) -> None:
    options = row.get("options", {})
    whole = bare(parse(row["text"], SETS["all"], **options))
    for way, pieces in cuts(row["text"], places=CUTS):
        events, reply = feed(pieces, SETS["all"], **options)
        assert bare(reply) == whole, way
        tiled(events, row["text"])


@every_row(TEXTS, name=lambda row: row["name"], group=lambda row: row["kind"])
def test_nothing_is_called_whatever_the_server_says(row: dict[str, Any]) -> None:
    for finish_reason in ("stop", "length", "tool_calls"):
        nothing_called(parse(row["text"], SETS["all"], finish_reason=finish_reason, **row.get("options", {})), row)


@every_row(TEXTS, name=lambda row: row["name"], group=lambda row: row["kind"])
def test_nothing_is_called_when_nothing_is_offered(row: dict[str, Any]) -> None:
    reply = parse(row["text"], [], **row.get("options", {}))
    nothing_called(reply, row)


def test_there_are_enough_of_them() -> None:
    assert len(TEXTS) >= 300
    assert len({row["name"] for row in TEXTS}) == len(TEXTS)
