"""The recipe of an environment, and the steps of making one."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path


class CannotMakeError(Exception):
    """This machine lacks what an environment needs; the message is one line: what it lacks, and what to do."""


@dataclass(frozen=True, slots=True)
class Recipe:
    """A venv with `pins`, and what `finish` adds to it."""

    pins: tuple[str, ...]
    """Requirements, each with a pinned version."""
    overrides: tuple[str, ...] = ()
    """Requirements that replace dependencies of the pins (uv's --override); pip cannot do this."""
    only_binary: tuple[str, ...] = ()
    """Packages that are installed from a wheel only: building them here would take too long."""
    finish: Callable[[Path], None] | None = None
    """Called with the folder once the pins are installed; raises `CannotMakeError`."""
    check: Callable[[], None] | None = None
    """Called before anything else; raises `CannotMakeError` if the machine lacks a tool."""
    gives: str = "bin/python"
    """The path that the environment is made for, relative to its folder."""
    marks: tuple[str, ...] = ()
    """What else identifies the environment: versions and sources that `finish` uses."""
    takes: str = ""
    """How long making the environment takes and how large it gets, if that is much. This is printed before it is
    made."""


def install(folder: Path, recipe: Recipe) -> None:
    """Make the venv in `folder` and install the pins, with uv if it works, else with pip.

    Without pins there is no venv, only the folder.
    """
    if not recipe.pins:
        folder.mkdir(parents=True)
        return
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
    python = folder / "bin" / "python"
    wheels = [argument for package in recipe.only_binary for argument in ("--only-binary", package)]
    fast: list[str | Path] = [sys.executable, "-m", "uv", "pip", "install", "-q", "--python", python, *wheels]
    # pip reads this variable itself
    fast += [argument for links in os.environ.get("PIP_FIND_LINKS", "").split() for argument in ("--find-links", links)]
    if recipe.overrides:
        overrides = folder / "overrides.txt"
        overrides.write_text("\n".join(recipe.overrides) + "\n", encoding="utf-8")
        run([*fast, "--override", overrides, *recipe.pins])
    elif not _tried([*fast, *recipe.pins]):
        run([python, "-m", "ensurepip"])
        run([python, "-m", "pip", "install", "-q", "--disable-pip-version-check", *wheels, *recipe.pins])


def need(program: str, what_to_do: str) -> str:
    """Return the path of `program`; raise `CannotMakeError` if it is not on PATH."""
    path = shutil.which(program)
    if path is None:
        raise CannotMakeError(f"{program} is not installed: {what_to_do}")
    return path


def need_disk(gigabytes: float, what: str) -> None:
    """Raise `CannotMakeError` if the disk of PROMPTOOLS_CACHE has less free space than `what` takes."""
    configured = os.environ.get("PROMPTOOLS_CACHE")
    folder = Path(configured).expanduser() if configured else Path.home()
    while not folder.exists():
        folder = folder.parent
    free = shutil.disk_usage(folder).free / 1e9
    if free < gigabytes:
        raise CannotMakeError(
            f"{folder} has {free:.1f} GB free, {what} takes {gigabytes:.1f}: set PROMPTOOLS_CACHE to a larger disk"
        )


def run(command: Sequence[str | Path], environment: dict[str, str] | None = None) -> None:
    """Run `command`; if it fails, print its output to stderr, and raise `CannotMakeError` with the last line."""
    done = subprocess.run(
        command, check=False, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment
    )
    if done.returncode == 0:
        return
    print(done.stdout, file=sys.stderr, flush=True)
    last = next((line.strip() for line in reversed(done.stdout.splitlines()) if line.strip()), "it said nothing")
    shown = " ".join(str(argument) for argument in command[:4])
    raise CannotMakeError(f"`{shown} ...` ended with status {done.returncode}: {last}")


def _tried(command: Sequence[str | Path]) -> bool:
    """Try the fast installer; return whether it succeeded. If it fails, pip is tried next."""
    return subprocess.run(command, check=False, capture_output=True).returncode == 0
