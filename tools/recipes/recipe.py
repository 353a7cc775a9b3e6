"""How an environment is made, and why it cannot be."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path


class CannotMakeError(Exception):
    """What an environment needs is not to be had on this machine; the message is one line: what, and what to do."""


@dataclass(frozen=True, slots=True)
class Recipe:
    """A venv with `pins`, and what `finish` puts beside it."""

    pins: tuple[str, ...]
    """Requirements, each with its version."""
    overrides: tuple[str, ...] = ()
    """Requirements that replace what the pins themselves ask for (uv's --override); pip cannot do it."""
    only_binary: tuple[str, ...] = ()
    """Packages that are taken as a wheel or not at all: building them here would take too long."""
    finish: Callable[[Path], None] | None = None
    """Called with the folder once the pins are installed; raises `CannotMakeError`."""
    check: Callable[[], None] | None = None
    """Called before anything is made: raises `CannotMakeError` when the machine lacks a tool."""
    gives: str = "bin/python"
    """What the environment is made for, relative to its folder."""
    marks: tuple[str, ...] = ()
    """What else makes it another environment when it changes: versions and sources that `finish` uses."""
    takes: str = ""
    """How long it takes and how large it gets, where that is much: told before it begins."""


def install(folder: Path, recipe: Recipe) -> None:
    """Make the venv in `folder` and install the pins, with uv where it works and with pip where it does not.

    Without pins there is no venv, just the folder.
    """
    if not recipe.pins:
        folder.mkdir(parents=True)
        return
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
    python = folder / "bin" / "python"
    wheels = [word for package in recipe.only_binary for word in ("--only-binary", package)]
    fast: list[str | Path] = [sys.executable, "-m", "uv", "pip", "install", "-q", "--python", python, *wheels]
    # pip reads this setting by itself
    fast += [word for links in os.environ.get("PIP_FIND_LINKS", "").split() for word in ("--find-links", links)]
    if recipe.overrides:
        overrides = folder / "overrides.txt"
        overrides.write_text("\n".join(recipe.overrides) + "\n", encoding="utf-8")
        run([*fast, "--override", overrides, *recipe.pins])
    elif not _tried([*fast, *recipe.pins]):
        run([python, "-m", "ensurepip"])
        run([python, "-m", "pip", "install", "-q", "--disable-pip-version-check", *wheels, *recipe.pins])


def need(program: str, what_to_do: str) -> str:
    """Give the path of `program`; raises `CannotMakeError` when it is not on PATH."""
    found = shutil.which(program)
    if found is None:
        raise CannotMakeError(f"{program} is not installed: {what_to_do}")
    return found


def need_disk(gigabytes: float, what: str) -> None:
    """Raise `CannotMakeError` where the disk of PROMPTOOLS_CACHE has less free than `what` takes."""
    told = os.environ.get("PROMPTOOLS_CACHE")
    folder = Path(told).expanduser() if told else Path.home()
    while not folder.exists():
        folder = folder.parent
    free = shutil.disk_usage(folder).free / 1e9
    if free < gigabytes:
        raise CannotMakeError(
            f"{folder} has {free:.1f} GB free, {what} takes {gigabytes:.1f}: set PROMPTOOLS_CACHE to a larger disk"
        )


def run(command: Sequence[str | Path], environment: dict[str, str] | None = None) -> None:
    """Run `command`; when it fails, all that it said goes to stderr and its last line into the `CannotMakeError`."""
    done = subprocess.run(
        command, check=False, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment
    )
    if done.returncode == 0:
        return
    print(done.stdout, file=sys.stderr, flush=True)
    last = next((line.strip() for line in reversed(done.stdout.splitlines()) if line.strip()), "it said nothing")
    told = " ".join(str(each) for each in command[:4])
    raise CannotMakeError(f"`{told} ...` ended with status {done.returncode}: {last}")


def _tried(command: Sequence[str | Path]) -> bool:
    """Try the fast installer; its absence or failure is no error, pip is asked next."""
    return subprocess.run(command, check=False, capture_output=True).returncode == 0
