"""Write docs/reference/dialects/ from the tables of tests/cases and the shared cases: `make dialects`.

    python tools/dialect_pages.py

Each page shows which models use a dialect, how distinctive its markers are, how it writes calls, tools and results, and
how each row of its tables is parsed, with its options: intact calls, tolerated errors, calls that are rejected, and
text that is not a call. All of it comes from the code and from rows that the tests run, so a page cannot be wrong; a
test compares the pages on disk.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "docs" / "reference" / "dialects"
sys.path[:0] = [str(ROOT), str(ROOT / "tests" / "helpers")]

from casebook import HERE, Row, rows, tools_of  # noqa: E402  they are beside the tests
from shared_cases import built_in_cases  # noqa: E402

from promptools import dialects, parse, render  # noqa: E402
from promptools.dialects.contract import Dialect  # noqa: E402
from promptools.dialects.sample import CONVERSATION, TOOL, tiers  # noqa: E402
from promptools.types import Reply  # noqa: E402

MADE = "<!-- made by `make dialects` from the code and from tests/cases -->"
CLIP = 240
"""Maximum number of characters of a text in a table."""
NO_TOOLS = {"none": "tools=None", "empty": "tools=[]"}
"""The sets of tools that have no tools, as a caller would write them."""
TIERS = {
    "S": "sentinels that prose does not hold",
    "A": "readable tags: a declared tool and a whole body are needed",
    "B": "what prose may hold too: position and the tool's schema decide",
    "C": "labels: both of them, at the beginning of lines, and a declared tool",
}

SHOWN = {
    "plain",
    "two calls",
    "words after",
    "end of turn token",
    "no closer",
    "half a closer",
    "a wrong closer",
    "cut in a string",
    "cut in a number",
    "cut after the name",
    "cut in the second of two",
    "a tool that nobody offers",
    "a required parameter is missing",
    "no number where one must be",
    "a number in a string",
    "a trailing comma",
    "single quotes",
    "its own markers in a string",
    "in a fence, with words after",
    "in inline code",
    "the opener in a sentence",
    "a draft in the thoughts",
}
"""The shared cases that a page shows; the tests run more of them."""


class Read(NamedTuple):
    """A row and the reply that it is parsed to."""

    row: Row
    reply: Reply

    @property
    def fixes(self) -> str:
        """The fixes that were made, as text."""
        details = [fix.detail for call in self.reply.calls for fix in call.fixes]
        return "; ".join(dict.fromkeys([*details, *(fix.detail for fix in self.reply.fixes)]))


def pages() -> dict[str, str]:
    """Return the text of each page by its file name."""
    all_of_them = [dialects.get(name) for name in dialects.BUILT_IN]
    written = {f"{dialect.name}.md": _page(dialect) for dialect in all_of_them}
    return {"index.md": _index(all_of_them), **written}


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
        *(
            f"| [`{dialect.name}`]({dialect.name}.md) | {' '.join(tiers(dialect))} | {dialect.models} |"
            for dialect in all_of_them
        ),
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
    lines += _tables([Read(row, _reply(row)) for row in cases_of(dialect.name)])
    return "\n".join(lines).rstrip() + "\n"


def cases_of(name: str) -> list[Row]:
    """Return the rows of a dialect's own tables, and then the shared cases that are shown."""
    own = rows(f"cases/{name}") if (HERE / "cases" / name).is_dir() else []
    texts = {(row.text, row.tools) for row in own}
    shared = (row for row in built_in_cases(name) if row.name in SHOWN and row.table == f"shared/{name}")
    return [*own, *(row for row in shared if (row.text, row.tools) not in texts)]


def _reply(row: Row) -> Reply:
    return parse(row.text, tools_of(row.tools), **row.options)


def _tables(read: list[Read]) -> Iterator[str]:
    flagged = [entry for entry in read if entry.row.unknown]
    called = [entry for entry in read if entry.reply.calls and not entry.reply.malformed and not entry.row.unknown]
    failed = [entry for entry in read if entry.reply.malformed]
    plain = [entry for entry in read if not entry.reply.calls and not entry.reply.malformed]
    yield from _table("Read as it stands", "why", ((entry, entry.row.why) for entry in called if not entry.fixes))
    yield from _table(
        "Tolerated, and noted as fixes", "fixes", ((entry, entry.fixes) for entry in called if entry.fixes)
    )
    yield from _table("Flagged: a tool that nobody offers", "why", ((entry, entry.row.why) for entry in flagged))
    yield from _table("Reported as malformed, never run", "why", ((entry, entry.row.why) for entry in failed))
    yield from _table("No call", "why", ((entry, entry.row.why) for entry in plain))


def _table(title: str, last: str, read: Iterable[tuple[Read, str]]) -> Iterator[str]:
    lines = [f"| {_model_cell(entry.row)} | {_outcome(entry)} | {_cell(cell)} |" for entry, cell in read]
    if lines:
        yield from (f"## {title}", "", f"| the model says | read as | {last} |", "| --- | --- | --- |", *lines, "")


def _model_cell(row: Row) -> str:
    """Return the model's text as a cell, followed by the options that differ from the defaults."""
    options = sorted(row.options.items() - {("strictness", "balanced")})
    shown = [f"{key}={value!r}" for key, value in options]
    shown += [NO_TOOLS[row.tools]] if row.tools in NO_TOOLS else []
    return "<br>".join([_code(row.text), *([f"with {', '.join(map(_code, shown))}"] if shown else [])])


def _outcome(each: Read) -> str:
    parts = [_code(f"{call.name}({call.arguments_json})") for call in each.reply.calls]
    parts += [f"{failed.reason}: {_code(failed.name or '?')}" for failed in each.reply.malformed]
    return "<br>".join(parts) or "text"


def _cell(text: str) -> str:
    return text.replace("\n", " ").replace("|", "\\|").replace("<", "&lt;")


def _code(text: str) -> str:
    """Return a text as inline code for a table cell."""
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
    """Return the runs of backticks in a text."""
    return [run for run in "".join(char if char == "`" else " " for char in text).split(" ") if run]


def _block(text: str) -> list[str]:
    fence = "`" * max(3, max(map(len, _runs(text)), default=0) + 1)
    return [f"{fence}text", text, fence, ""]


def main() -> None:
    """Write the pages, and delete those of dialects that do not exist any more."""
    FOLDER.mkdir(exist_ok=True)
    written = pages()
    for stale in set(FOLDER.glob("*.md")) - {FOLDER / name for name in written}:
        stale.unlink()
    for name, text in written.items():
        (FOLDER / name).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
