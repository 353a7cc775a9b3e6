"""The command `promptools dialects`."""

from __future__ import annotations

import argparse

from promptools import dialects
from promptools.cli.shared_arguments import add_dialect_files, add_json
from promptools.cli.terminal_output import print_json, print_styled, print_table
from promptools.dialects.contract import Dialect
from promptools.dialects.sample import CONVERSATION, TOOL, sample_text, tiers
from promptools.modes.prompt_mode import render


def add(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument("name", nargs="?", metavar="NAME", help="show this one")
    add_dialect_files(parser)
    add_json(parser)


def run(arguments: argparse.Namespace) -> int:
    """List all dialects, or show one."""
    if arguments.name is not None:
        return _show(dialects.get(arguments.name), as_json=arguments.json)
    all_of_them = [dialects.get(name) for name in dialects.names()]
    if arguments.json:
        print_json([_row(dialect) for dialect in all_of_them])
        return 0
    print_table(
        "Dialects, in the order in which they are looked for",
        ("dialect", "tiers", "spoken by", "example"),
        ((dialect.name, " ".join(tiers(dialect)), dialect.models, sample_text(dialect)) for dialect in all_of_them),
    )
    return 0


def _row(dialect: Dialect) -> dict[str, object]:
    return {
        "name": dialect.name,
        "tiers": list(tiers(dialect)),
        "models": dialect.models,
        "stop": list(dialect.stop),
        "example": sample_text(dialect),
    }


def _show(dialect: Dialect, *, as_json: bool) -> int:
    contents = (message["content"] for message in render(CONVERSATION, [TOOL], dialect=dialect.name))
    parts = dict(zip(("tools", "calls", "results"), contents, strict=True))
    if as_json:
        print_json({**_row(dialect), **parts})
        return 0
    print_styled([(f"{dialect.name}: {dialect.models}\n", "bold")])
    for title, text in parts.items():
        print_styled([(f"--- {title}\n", "dim"), (f"{text}\n", "")])
    return 0
