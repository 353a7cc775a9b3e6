"""Keep the vocabulary of gpt-oss, which token ids and exact counts need, where promptools finds it."""

from __future__ import annotations

import argparse
import contextlib
import importlib.util
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Literal, NamedTuple

from promptools.cli.arguments import add_json
from promptools.cli.screen import print_json, print_styled, print_table
from promptools.errors import UsageError
from promptools.harmony.vocabulary import CACHE, FILE, FOLDER, KEEP, SOURCE, check, own_file, places

NAME = "harmony"


class _Place(NamedTuple):
    file: Path
    told_by: str
    holds: Literal["the vocabulary", "nothing", "something else"]


def add(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    about = "Show where the vocabulary is looked for, or put it where it is found."
    subcommands = parser.add_subparsers(dest="what", required=True, metavar="WHAT")
    vocab = subcommands.add_parser("vocab", help=about, description=about, allow_abbrev=False)
    vocab.add_argument("--from", dest="file", metavar="FILE", help=f"keep a copy of this file, which is {SOURCE}")
    add_json(vocab)


def run(arguments: argparse.Namespace) -> int:
    """Install the file if there is one, then show which file is where; return 1 if no vocabulary is found."""
    if arguments.file is not None:
        _keep(Path(arguments.file))
    searched = [_Place(path, told_by, _held(path)) for told_by, path in places(os.environ, Path.home()).items()]
    first = next((place for place in searched if place.holds != "nothing"), None)
    found = first if first is not None and first.holds == "the vocabulary" else None
    library = importlib.util.find_spec("openai_harmony") is not None
    if arguments.json:
        places_seen = [{**place._asdict(), "file": str(place.file)} for place in searched]
        print_json({"file": found and str(found.file), "library": library, "looked": places_seen})
    else:
        title = "Where the vocabulary of gpt-oss is looked for, in order"
        print_table(title, ("file", "told by", "holds"), ((str(place.file), *place[1:]) for place in searched))
        print_styled([("\n".join(_advice(first, found, library=library)), "")])
    return 0 if found else 1


def _advice(first: _Place | None, found: _Place | None, *, library: bool) -> Iterator[str]:
    """Yield what works now, or what to do about it."""
    if found is not None:
        yield f"promptools uses {found.file} and tells openai-harmony of it."
        yield f"Other programs that use openai-harmony are told by {FOLDER}={found.file.parent}"
    elif first is not None:
        yield f"{first.file} stands first and is not {FILE} (its sha256 is another): replace it, or unset {FOLDER}."
    else:
        yield f"There is none: get it from {SOURCE} and run {KEEP!r}."
    if not library:
        yield "Token ids need openai-harmony as well: pip install 'promptools-compat[harmony]'."


def _keep(given: Path) -> None:
    """Check the file and copy it to the cache folder, atomically."""
    try:
        data = given.read_bytes()
    except OSError as error:
        raise UsageError(f"cannot read {str(given)!r}: {error.strerror}; get the file from {SOURCE}") from error
    check(data, str(given))
    target = own_file(os.environ, Path.home())
    new = target.with_suffix(f".{os.getpid()}")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        new.write_bytes(data)
        new.replace(target)
    except OSError as error:
        with contextlib.suppress(OSError):
            new.unlink(missing_ok=True)
        raise UsageError(
            f"cannot write {str(target)!r}: {error.strerror}; name another folder with {CACHE}, or put the folder of "
            f"{FILE} into {FOLDER}"
        ) from error


def _held(path: Path) -> Literal["the vocabulary", "nothing", "something else"]:
    if not path.is_file():
        return "nothing"
    try:
        check(path.read_bytes(), str(path))
    except (OSError, UsageError):
        return "something else"
    return "the vocabulary"
