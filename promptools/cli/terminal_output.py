"""The output of commands: JSON, tables, styled text and progress. Without Rich, everything is printed plainly."""

from __future__ import annotations

import importlib.util
import json
import shutil
import sys
from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Console


PLAIN_WIDTH = 140
"""Number of columns of the output if it does not go to a terminal."""


def print_json(value: Any) -> None:
    """Print a value as JSON."""
    print(json.dumps(value, ensure_ascii=False, indent=2, default=str))


def print_table(title: str, columns: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Print a table, unless it has no rows."""
    rows = [list(row) for row in rows]
    if not rows:
        return
    console = _console()
    if console is None:
        _print_columns(title, columns, rows)
        return
    from rich import box
    from rich.table import Table
    from rich.text import Text

    table = Table(
        title=Text(title), box=box.ROUNDED, title_justify="left", show_lines=any("\n" in "".join(r) for r in rows)
    )
    for column in columns:
        table.add_column(column, overflow="fold")
    for row in rows:
        table.add_row(*(Text(cell) for cell in row))  # Text, so that brackets in a cell are not parsed as markup
    console.print(table)


def printable(text: str) -> str:
    r"""Return text with control characters escaped, such as `\x1b`, so that a terminal cannot interpret them."""
    return "".join(char if char in "\n\t" or char.isprintable() else ascii(char)[1:-1] for char in text)


def print_styled(pieces: Iterable[tuple[str, str]], console: Console | None = None) -> None:
    """Print `(text, style)` pieces one after the other. Without Rich, the styles are ignored.

    `console` must be given if a status line is shown, so that this line stays below the printed text.
    """
    console = console or _console()
    if console is None:
        print("".join(text for text, _ in pieces))
        return
    from rich.text import Text

    console.print(Text.assemble(*pieces), soft_wrap=True)


class _Progress:
    hidden = False


@contextmanager
def hide_progress(*, hidden: bool) -> Generator[None]:
    """Print no progress inside the block if `hidden` is true (`--quiet`)."""
    before, _Progress.hidden = _Progress.hidden, hidden
    try:
        yield
    finally:
        _Progress.hidden = before


def shows_progress() -> bool:
    """Return whether progress is printed."""
    return not _Progress.hidden


def print_progress(text: str) -> None:
    """Print a message about progress to stderr, so that stdout has only results."""
    if not _Progress.hidden:
        print(text, file=sys.stderr, flush=True)


def _console() -> Console | None:
    if importlib.util.find_spec("rich") is None:
        return None
    from rich.console import Console

    return Console(width=None if sys.stdout.isatty() else PLAIN_WIDTH, highlight=False)


def _print_columns(title: str, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    flat = [[cell.replace("\n", " / ") for cell in row] for row in (columns, *rows)]
    widths = [max(map(len, column)) for column in zip(*flat, strict=True)]
    print(f"\n{title}")
    for index, row in enumerate(flat):
        print("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())
        if index == 0:
            print("-" * min(sum(widths) + 2 * len(widths), shutil.get_terminal_size().columns))


# The progress of a command on stderr: a bar if stderr is a terminal and Rich is installed, else a line for each step.


@contextmanager
def show_progress(title: str) -> Generator[Callable[[str, int, int], None], None, None]:
    """Yield a function that shows progress. Its arguments are a text, the number of items done, and the total."""
    if not shows_progress() or not sys.stderr.isatty() or importlib.util.find_spec("rich") is None:
        yield lambda text, done, total: print_progress(f"{done}/{total} {text}")
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True)) as progress:
        bar = progress.add_task(title, total=None)

        def show(text: str, done: int, total: int) -> None:
            progress.update(bar, description=text.replace("[", "\\["), completed=done, total=total)

        yield show
