"""The command `promptools harmony`: find or install the vocabulary of gpt-oss."""

from __future__ import annotations

import argparse
import contextlib
import importlib.util
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Literal, NamedTuple

from promptools.cli.shared_arguments import add_json
from promptools.cli.terminal_output import print_json, print_styled, print_table
from promptools.errors import UsageError, install_command
from promptools.harmony.bpe_vocabulary import (
    CACHE_VARIABLE,
    FILE_NAME,
    FILE_URL,
    FOLDER_VARIABLE,
    INSTALL_COMMAND,
    cached_file,
    check_digest,
    search_paths,
)


class _Location(NamedTuple):
    file: Path
    told_by: str
    holds: Literal["the vocabulary", "nothing", "something else"]


def add(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    about = "Show where promptools looks for the vocabulary, or install it there."
    subcommands = parser.add_subparsers(dest="what", required=True, metavar="WHAT")
    vocab = subcommands.add_parser("vocab", help=about, description=about, allow_abbrev=False)
    vocab.add_argument("--from", dest="file", metavar="FILE", help=f"keep a copy of this file, which is {FILE_URL}")
    add_json(vocab)


def run(arguments: argparse.Namespace) -> int:
    """Install the file that `--from` names, if any; then show where promptools looked for the vocabulary.

    Return 1 if no vocabulary was found.
    """
    if arguments.file is not None:
        _install(Path(arguments.file))
    searched = [
        _Location(path, told_by, _contents(path)) for told_by, path in search_paths(os.environ, Path.home()).items()
    ]
    first = next((location for location in searched if location.holds != "nothing"), None)
    vocabulary = first if first is not None and first.holds == "the vocabulary" else None
    library = importlib.util.find_spec("openai_harmony") is not None
    if arguments.json:
        looked = [{**location._asdict(), "file": str(location.file)} for location in searched]
        print_json({"file": vocabulary and str(vocabulary.file), "library": library, "looked": looked})
    else:
        title = "Where the vocabulary of gpt-oss is looked for, in order"
        print_table(title, ("file", "told by", "holds"), ((str(location.file), *location[1:]) for location in searched))
        print_styled([("\n".join(_advice(first, vocabulary, library=library)), "")])
    return 0 if vocabulary else 1


def _advice(first: _Location | None, vocabulary: _Location | None, *, library: bool) -> Iterator[str]:
    """Yield lines that say what works now, and how to get the rest to work."""
    if vocabulary is not None:
        yield f"promptools uses {vocabulary.file} and tells openai-harmony of it."
        yield f"Other programs that use openai-harmony find it by {FOLDER_VARIABLE}={vocabulary.file.parent}"
    elif first is not None:
        yield (
            f"{first.file} comes first and is not {FILE_NAME} (its sha256 differs): "
            f"replace it, or unset {FOLDER_VARIABLE}."
        )
    else:
        yield f"There is none: get it from {FILE_URL} and run {INSTALL_COMMAND!r}."
    if not library:
        yield f"Token ids need openai-harmony as well: {install_command('harmony')}."


def _install(source: Path) -> None:
    """Check the file, and copy it to the cache folder atomically."""
    try:
        data = source.read_bytes()
    except OSError as error:
        raise UsageError(f"cannot read {str(source)!r}: {error.strerror}; get the file from {FILE_URL}") from error
    check_digest(data, str(source))
    target = cached_file(os.environ, Path.home())
    new = target.with_suffix(f".{os.getpid()}")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        new.write_bytes(data)
        new.replace(target)
    except OSError as error:
        with contextlib.suppress(OSError):
            new.unlink(missing_ok=True)
        raise UsageError(
            f"cannot write {str(target)!r}: {error.strerror}; name another folder with "
            f"{CACHE_VARIABLE}, or put the folder of "
            f"{FILE_NAME} into {FOLDER_VARIABLE}"
        ) from error


def _contents(path: Path) -> Literal["the vocabulary", "nothing", "something else"]:
    if not path.is_file():
        return "nothing"
    try:
        check_digest(path.read_bytes(), str(path))
    except (OSError, UsageError):
        return "something else"
    return "the vocabulary"
