"""The command-line parser: it suggests corrections in its errors, and accepts a server's URL as the first argument."""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterator, Sequence
from importlib import import_module
from typing import Any, NamedTuple, NoReturn

from promptools.errors import clip, did_you_mean, suggest

USAGE_ERROR = 2
_MAX_LISTED = 30
"""Maximum number of values that an error lists; some arguments have more, such as the names of some sixty dialects."""
SUBCOMMANDS = frozenset({"action", "benchmark", "command", "what"})
"""The attributes of argparse's namespace that contain the name of a subcommand."""
_SERVER = "--base-url"
_URL = re.compile(r"https?://|(?:localhost|[0-9]+(?:\.[0-9]+){3}):[0-9]+(?:/\S*)?$", re.IGNORECASE)
"""Matches a word that is treated as a URL even if the command has other positional arguments.

A local address without a scheme is included, so that the error says what is wrong with it.
"""
_NUMBER = re.compile(r"-\d+|-\d*\.\d+")


class Command(NamedTuple):
    """A command, with its line in the program's help. The module with the command's arguments is imported on demand."""

    name: str
    about: str
    """What the command does, in one line."""

    def load(self) -> Any:
        """Return the command's module."""
        return import_module(f"promptools.cli.{self.name.replace('-', '_')}_command")


class CommandParser(argparse.ArgumentParser):
    """Parses the arguments of a command.

    A command that has `--base-url` also accepts the server's URL as its first positional argument.
    """

    def __init__(self, *args: Any, command: Command | None = None, **options: Any) -> None:
        super().__init__(*args, **{"allow_abbrev": False, **options})
        self._command = command
        self.passed_on = ""
        """Name of the namespace attribute for the words after `--`, which are not parsed; empty if none are allowed."""
        # these have no default: the parser of a subcommand would overwrite a value that was given before the subcommand
        output = self.add_argument_group("output").add_mutually_exclusive_group()
        output.add_argument("--quiet", action="store_true", default=argparse.SUPPRESS, help="only results and errors")
        output.add_argument(
            "--verbose", action="store_true", default=argparse.SUPPRESS, help="also report repairs on stderr"
        )

    def load(self) -> None:
        """Import the command's module and add its arguments, unless this was done before."""
        command, self._command = self._command, None
        if command is not None:
            module = command.load()
            module.add(self)
            self.set_defaults(run=module.run)

    def error(self, message: str) -> NoReturn:
        """End the process with an error on one line, like all errors of the command line."""
        self.exit(USAGE_ERROR, f"{self.prog}: {message} (try {self.prog} --help)\n")

    def parse_known_args(  # type: ignore[override]  # pyright: ignore[reportIncompatibleMethodOverride] - any namespace
        self, args: Sequence[str] | None = None, namespace: Any = None
    ) -> tuple[argparse.Namespace, list[str]]:
        """Parse the arguments, including those of subcommands; end with an error if any argument is unknown.

        An unknown option is reported before anything else, since it may be a required option that is misspelled.
        """
        self.load()
        given = list(args or ())
        passed_on: list[str] = []
        if self.passed_on and "--" in given:
            at = given.index("--")
            given, passed_on = given[:at], given[at + 1 :]
        positional = [*self._positional(given)]
        if positional and self._takes_url(given, positional):
            given.insert(positional[0], _SERVER)
        found, others = super().parse_known_args(given, namespace)
        if others:
            self.error(f"unexpected argument {clip(others[0])!r}")
        if self.passed_on:
            setattr(found, self.passed_on, passed_on)
        return found, others

    def format_help(self) -> str:
        """Return the help text. It mentions the server's URL if the command has `--base-url`."""
        return self._with_url(super().format_help())

    def format_usage(self) -> str:
        """Return the usage line. It mentions the server's URL if the command has `--base-url`."""
        return self._with_url(super().format_usage())

    def _with_url(self, text: str) -> str:
        return text.replace("[-h]", "[-h] [URL]", 1) if _SERVER in self._option_string_actions else text

    def _takes_url(self, given: Sequence[str], positional: Sequence[int]) -> bool:
        """Return whether the first positional argument is the server's URL, and not an argument of the command."""
        named = any(word.partition("=")[0] == _SERVER for word in given)
        if named or _SERVER not in self._option_string_actions or "--" in given[: positional[0]]:
            return False
        others = [action for action in self._actions if not action.option_strings]
        needed = sum(action.nargs not in {"?", "*"} for action in others)
        is_url = not others or _URL.match(given[positional[0]]) is not None
        return is_url and len(positional) > needed

    def _positional(self, given: Sequence[str]) -> Iterator[int]:
        """Yield the indices of positional arguments, up to the name of a subcommand.

        Ends with an error at an option that does not exist.
        """
        at = 0
        while at < len(given):
            word = given[at]
            if word == "--":
                yield from range(at + 1, len(given))
                return
            if not _is_option(word):
                yield at
                if self._subparsers is not None:
                    return
                at += 1
                continue
            name, equals, _ = word.partition("=")
            action = self._option_string_actions.get(name)
            if action is None:
                meant = did_you_mean(name, self._option_string_actions)
                self.error(f"there is no option {clip(name)!r}{f'; {meant.rstrip()}' if meant else ''}")
            at += 1 if equals else 1 + _count_values(action.nargs, given[at + 1 :])

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        """Raise an error for a value that is not among the choices of an argument."""
        if action.choices is None or value in action.choices:
            return
        word, names = str(value), [str(choice) for choice in action.choices]
        hint = (suggest(word, names) if len(names) <= _MAX_LISTED else did_you_mean(word, names)).rstrip()
        if action.dest in SUBCOMMANDS:
            raise argparse.ArgumentError(None, f"there is no {str(action.metavar).lower()} {clip(word)!r}; {hint}")
        raise argparse.ArgumentError(action, f"{clip(word)!r} is not a valid choice{f'; {hint}' if hint else ''}")


def _is_option(word: str) -> bool:
    """Return whether argparse treats a word as an option.

    A negative number, or a word with a space, is not an option.
    """
    return word.startswith("-") and word != "-" and " " not in word and _NUMBER.fullmatch(word) is None


def _count_values(nargs: int | str | None, following: Sequence[str]) -> int:
    """Return the number of words after an option that are values of the option."""
    values = next((at for at, word in enumerate(following) if _is_option(word)), len(following))
    match nargs:
        case None:
            return 1
        case "?":
            return min(values, 1)
        case int():
            return nargs
        case _:
            return values
