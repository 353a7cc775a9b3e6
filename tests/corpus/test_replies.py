"""The regression corpus: what models really write, what was read in it, and every liberty taken.

Each reply says by hand which tools it calls (`want`) and why it fails (`malformed`), some also what is `content` and
which kinds of `fixes` were taken; the snapshot holds all the rest.
"""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import pytest
from casebook import bare, cuts, feed, tiled, tools_of
from many_rows import every_row
from syrupy.assertion import SnapshotAssertion

from promptools import parse
from promptools.types import Call, Reply

FOLDER = Path(__file__).parent / "replies"


def _replies() -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    for path in sorted(FOLDER.glob("*.toml")):
        book = tomllib.loads(path.read_text("utf-8"))
        for raw in book["reply"]:
            merged = {"options": {}, "malformed": [], **book["defaults"], **raw}
            found.append({**merged, "id": f"{path.stem}: {raw['name']}"})
    return found


REPLIES = _replies()


def read(row: dict[str, Any]) -> Reply:
    return parse(row["text"], tools_of(row["tools"]), **row["options"])


def _call(call: Call) -> list[str]:
    said = [f"call     {call.name} {call.arguments_json}", *(["    flag unknown tool"] if call.unknown_tool else [])]
    return said + [f"    fix  {fix.kind}{' ' + fix.path if fix.path else ''}: {fix.detail}" for fix in call.fixes]


def page(row: dict[str, Any], reply: Reply) -> str:
    """Write a reply down for a reader of the snapshot."""
    lines = [*(f"| {line}" for line in row["text"].split("\n")), ""]
    for call in reply.calls:
        lines += _call(call)
    for failed in reply.malformed:
        lines += [f"broken   {failed.reason}: {failed.message}"]
    lines += [f"thought  {reply.reasoning!r}"] if reply.reasoning else []
    lines += [f"content  {reply.content!r}"] if reply.content else []
    lines += [f"dropped  {piece.why}: {piece.raw!r}" for piece in reply.discarded]
    return "\n".join(line.encode("utf-8", "backslashreplace").decode("utf-8") for line in lines)


@pytest.mark.parametrize("row", REPLIES, ids=lambda row: row["id"])
def test_reply(row: dict[str, Any], snapshot: SnapshotAssertion) -> None:
    reply = read(row)
    assert [call.name for call in reply.calls] == row["want"]
    assert [failed.reason for failed in reply.malformed] == row["malformed"]
    if "content" in row:
        assert reply.content == row["content"]
    if "fixes" in row:
        assert [fix.kind for call in reply.calls for fix in call.fixes] == row["fixes"]
    assert page(row, reply) == snapshot


@every_row(REPLIES, name=lambda row: row["id"], group=lambda row: row["id"].partition(":")[0])
def test_reply_is_the_same_however_it_is_cut(row: dict[str, Any]) -> None:
    whole = bare(read(row))
    options = dict(row["options"])
    finish_reason = options.pop("finish_reason", None)
    for way, pieces in cuts(row["text"], places=16):
        events, reply = feed(pieces, tools_of(row["tools"]), finish_reason, **options)
        assert bare(reply) == whole, way
        tiled(events, row["text"])


def test_there_are_enough_of_them() -> None:
    assert len(REPLIES) >= 400
    assert len({row["id"] for row in REPLIES}) == len(REPLIES)
