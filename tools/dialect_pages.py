"""Write docs/reference/dialects/ from the tables of tests/cases: `make dialects`.

    python tools/dialect_pages.py

Each page says who speaks a dialect, how sure its markers are, how it writes calls, tools and results, and what each row
of its tables is read as, with its options: intact calls, tolerated slips, calls that are refused, and what is no call.
All of it comes from the code and from rows that the tests run, so a page cannot say what is not so; a test compares the
pages on disk.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "docs" / "reference" / "dialects"
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]

from casebook import HERE, Row, rows, tools_of  # noqa: E402  it is beside the tests

from promptools import dialects, parse, render  # noqa: E402
from promptools.dialects.base import Dialect  # noqa: E402
from promptools.dialects.sample import CONVERSATION, TOOL, tiers  # noqa: E402
from promptools.types import Reply  # noqa: E402

MADE = "<!-- made by `make dialects` from the code and from tests/cases -->"
CLIP = 240
"""Characters of a text that a table shows."""
NO_TOOLS = {"none": "tools=None", "empty": "tools=[]"}
"""Sets of tools that hold none, as the caller would write them."""
TIERS = {
    "S": "sentinels that prose does not hold",
    "A": "readable tags: a declared tool and a whole body are needed",
    "B": "what prose may hold too: position and the tool's schema decide",
    "C": "labels: both of them, at the beginning of lines, and a declared tool",
}


class Read(NamedTuple):
    """A row and what it is read as."""

    row: Row
    reply: Reply

    @property
    def fixes(self) -> str:
        """The liberties that were taken."""
        said = [fix.detail for call in self.reply.calls for fix in call.fixes]
        return "; ".join(dict.fromkeys([*said, *(fix.detail for fix in self.reply.fixes)]))


def pages() -> dict[str, str]:
    """Give each page by the name of its file."""
    all_of_them = [dialects.get(name) for name in dialects.BUILT_IN]
    made = {f"{each.name}.md": _page(each) for each in all_of_them}
    return {"index.md": _index(all_of_them), **made}


def _index(all_of_them: list[Dialect]) -> str:
    lines = [
        "# Dialects",
        "",
        MADE,
        "",
        "All of these are looked for in every reply, in this order, unless `dialect=` pins one. `promptools dialects`",
        "prints the same with an example each. What the tiers mean: [tiers](../../why/tiers.md). Your own:",
        "[add a dialect](../../tasks/add-a-dialect.md).",
        "",
        "| dialect | tiers | spoken by |",
        "| --- | --- | --- |",
        *(f"| [`{each.name}`]({each.name}.md) | {' '.join(tiers(each))} | {each.models} |" for each in all_of_them),
    ]
    return "\n".join(lines) + "\n"


def _page(dialect: Dialect) -> str:
    lines = [f"# `{dialect.name}`", "", MADE, "", f"Spoken by: {dialect.models}.", ""]
    lines += [f"- tier {tier}: {TIERS[tier]}" for tier in tiers(dialect)]
    if dialect.stop:
        lines.append(f"- generation may stop at {', '.join(map(_code, dialect.stop))}")
    declared, called, answered = (each["content"] for each in render(CONVERSATION, [TOOL], dialect=dialect.name))
    lines += ["", "## A call", "", *_block(called)]
    lines += ["## Tools, as prompt mode declares them", "", *_block(declared)]
    lines += ["## Results", "", *_block(answered)]
    if (HERE / "cases" / dialect.name).is_dir():
        lines += _tables([Read(row, _reply(row)) for row in rows(f"cases/{dialect.name}")])
    return "\n".join(lines).rstrip() + "\n"


def _reply(row: Row) -> Reply:
    return parse(row.text, tools_of(row.tools), **row.options)


def _tables(read: list[Read]) -> Iterator[str]:
    flagged = [each for each in read if each.row.unknown]
    called = [each for each in read if each.reply.calls and not each.reply.malformed and not each.row.unknown]
    failed = [each for each in read if each.reply.malformed]
    plain = [each for each in read if not each.reply.calls and not each.reply.malformed]
    yield from _table("Read as it stands", "why", ((each, each.row.why) for each in called if not each.fixes))
    yield from _table("Tolerated, and noted as fixes", "fixes", ((each, each.fixes) for each in called if each.fixes))
    yield from _table("Flagged: a tool that nobody offers", "why", ((each, each.row.why) for each in flagged))
    yield from _table("Reported as malformed, never run", "why", ((each, each.row.why) for each in failed))
    yield from _table("No call", "why", ((each, each.row.why) for each in plain))


def _table(title: str, last: str, read: Iterable[tuple[Read, str]]) -> Iterator[str]:
    lines = [f"| {_said(each.row)} | {_outcome(each)} | {_cell(said)} |" for each, said in read]
    if lines:
        yield from (f"## {title}", "", f"| the model says | read as | {last} |", "| --- | --- | --- |", *lines, "")


def _said(row: Row) -> str:
    """Write what the model said, and with which options it is read, where there are any but the defaults."""
    options = sorted(row.options.items() - {("strictness", "balanced")})
    given = [f"{key}={value!r}" for key, value in options]
    given += [NO_TOOLS[row.tools]] if row.tools in NO_TOOLS else []
    return "<br>".join([_code(row.text), *([f"with {', '.join(map(_code, given))}"] if given else [])])


def _outcome(each: Read) -> str:
    said = [_code(f"{call.name}({call.arguments_json})") for call in each.reply.calls]
    said += [f"{failed.reason}: {_code(failed.name or '?')}" for failed in each.reply.malformed]
    return "<br>".join(said) or "text"


def _cell(text: str) -> str:
    return text.replace("\n", " ").replace("|", "\\|").replace("<", "&lt;")


def _code(text: str) -> str:
    """Write a text as inline code in one line of a table."""
    shown = text if len(text) <= CLIP else f"{text[: CLIP // 2]} … {text[-CLIP // 2 :]}"
    shown = "".join(_visible(char) for char in shown).replace("|", "\\|")
    ticks = "`" * (max(map(len, _runs(shown)), default=0) + 1)
    pad = " " if shown[:1] in ("`", " ") or shown[-1:] in ("`", " ") or not shown else ""
    return f"{ticks}{pad}{shown}{pad}{ticks}"


def _visible(char: str) -> str:
    if char == "\n":
        return "⏎"
    return char if char.isprintable() else char.encode("unicode_escape", "surrogatepass").decode("ascii")


def _runs(text: str) -> list[str]:
    """Give the runs of backticks in a text."""
    return [run for run in "".join(each if each == "`" else " " for each in text).split(" ") if run]


def _block(text: str) -> list[str]:
    fence = "`" * max(3, max(map(len, _runs(text)), default=0) + 1)
    return [f"{fence}text", text, fence, ""]


def main() -> None:
    """Write the pages, and take out those of dialects that are no more."""
    FOLDER.mkdir(exist_ok=True)
    made = pages()
    for stale in set(FOLDER.glob("*.md")) - {FOLDER / name for name in made}:
        stale.unlink()
    for name, text in made.items():
        (FOLDER / name).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
