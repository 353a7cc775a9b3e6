"""The progress of a command on stderr: a bar in terminals if Rich is installed, else a line for each step."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager

from promptools.cli.terminal_output import print_progress, shows_progress


@contextmanager
def show_progress(title: str) -> Generator[Callable[[str, int, int], None], None, None]:
    """Yield a function that shows a text, how much is done, and of how much."""
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
