"""The command `promptools dialects`: list the dialects, show one of them, or learn a new one."""

from __future__ import annotations

import argparse
import re
from pathlib import Path
from typing import TYPE_CHECKING

from promptools import dialects
from promptools.cli.shared_arguments import add_api_key, add_dialect_files, add_json, base_url, server_key
from promptools.cli.terminal_output import print_json, print_progress, print_styled, print_table
from promptools.dialects.contract import Dialect
from promptools.dialects.sample import CONVERSATION, TOOL, sample_text, tiers
from promptools.errors import PromptoolsError, UsageError
from promptools.modes.prompt_mode import render

if TYPE_CHECKING:
    from promptools.learning import Learned


LEARN = "learn"
_URL = re.compile(r"https?://", re.IGNORECASE)
_FOR_LEARNING = ("model", "save", "api_key", "api_key_env")


def add(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument("name", nargs="?", metavar="NAME", help=f"show this one; {LEARN!r} learns one from SOURCE")
    parser.add_argument(
        "source",
        nargs="?",
        metavar="SOURCE",
        help="a chat template (a Jinja file or a tokenizer_config.json), or the URL of a server that renders its own",
    )
    parser.add_argument("--model", metavar="M", help="the model whose template a server renders")
    parser.add_argument("--save", metavar="FILE", help="write the learned table into a new file, NAME.toml")
    parser.add_argument(
        "--states", action="store_true", help="show what each tag does in a call of NAME, if it is a dialect of tags"
    )
    add_api_key(parser)
    add_dialect_files(parser)
    add_json(parser)


def run(arguments: argparse.Namespace) -> int:
    """List all dialects, show a dialect or what each of its tags does, or learn a new dialect."""
    if arguments.states:
        return _show_states(arguments.name, as_json=arguments.json)
    if arguments.name == LEARN:
        return _learn(arguments)
    if arguments.source is not None or any(getattr(arguments, key) is not None for key in _FOR_LEARNING):
        raise UsageError(f"a source, a model, a key and --save are for `promptools dialects {LEARN} SOURCE`")
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


def _show_states(name: str | None, *, as_json: bool) -> int:
    from promptools.dialects.states import states

    if name is None:
        raise UsageError("name the dialect whose states are shown: `promptools dialects --states NAME`")
    dialect = dialects.get(name)
    rows = states(dialect)
    if not rows:
        raise UsageError(f"the calls of {name!r} are not read tag by tag, so there are no states to show")
    if as_json:
        print_json({"name": dialect.name, "states": [row._asdict() for row in rows]})
        return 0
    print_table(f"States of {dialect.name}", ("state", "tag", "then"), rows)
    return 0


# Learning a dialect from a chat template.


def _learn(arguments: argparse.Namespace) -> int:
    """Learn a dialect, save its table if `--save` is given, and show the table and how it was checked."""
    if arguments.source is None:
        raise UsageError(f"name the chat template: `promptools dialects {LEARN} FILE`, or the URL of a server")
    name = _table_name(arguments.save)
    learned = _learn_table(arguments, name)
    if arguments.save is not None:
        _save(Path(arguments.save), learned.toml)
    _show_learned(learned, arguments.source, as_json=arguments.json)
    return 0


def _table_name(save: str | None) -> str:
    """Return the name of the new dialect: the name of the file to save, without `.toml`, or `learned` without `--save`.

    Raises `UsageError` if the file exists, or if its name cannot be the name of a new dialect.
    """
    if save is None:
        return "learned"
    path = Path(save)
    if path.exists():
        raise UsageError(f"{save!r} exists, and is not changed; name a new file")
    if path.suffix != ".toml" or not path.stem.isidentifier():
        raise UsageError(f"--save {save!r}: name a file NAME.toml, with a NAME of letters, digits and underscores")
    if path.stem in dialects.names():
        raise UsageError(f"--save {save!r}: there is a dialect {path.stem!r} already; give yours another name")
    return path.stem


def _learn_table(arguments: argparse.Namespace, name: str) -> Learned:
    if _URL.match(arguments.source):
        return _learn_at_server(arguments, name)
    from promptools.learning import learn
    from promptools.modes.jinja_template import jinja_renderer, read_template

    try:
        file = read_template(Path(arguments.source))
    except OSError as error:
        raise UsageError(f"cannot read {arguments.source!r}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise UsageError(f"cannot read {arguments.source!r}: it is not text") from error
    render = jinja_renderer(file.source, special_tokens={**file.tokens, "bos_token": ""})
    try:
        return learn(render, name=name, special_tokens=file.special, config=file.declared)
    except UsageError as error:
        raise PromptoolsError(str(error)) from error


def _learn_at_server(arguments: argparse.Namespace, name: str) -> Learned:
    from promptools.cli.server_errors import require_server
    from promptools.cli.synchronous_exchange import run_exchange
    from promptools.profiles import Config
    from promptools.transport import Session
    from promptools.transport.http_library import split_credentials

    try:
        url, basic = split_credentials(base_url(arguments.source).rstrip("/"))
    except argparse.ArgumentTypeError as error:
        raise UsageError(str(error)) from None
    require_server(url)
    key = server_key(arguments)
    authorization = basic or (f"Bearer {key}" if key else None)
    headers = (("authorization", authorization),) if authorization else ()
    session = Session({"config": Config()})
    try:
        return run_exchange(session.learn_dialect(url, arguments.model or "", headers, name))
    except UsageError as error:
        raise PromptoolsError(str(error)) from error


def _save(path: Path, text: str) -> None:
    try:
        with path.open("x", encoding="utf-8") as file:
            file.write(text)
    except OSError as error:
        raise UsageError(f"cannot write {str(path)!r}: {error.strerror}") from error
    print_progress(f'saved: name it in a config as dialects = ["{path.name}"], or with --dialect-file {path}')


def _show_learned(learned: Learned, source: str, *, as_json: bool) -> None:
    from promptools.exchange.learning import known_format

    known = known_format(learned.dialect())
    if as_json:
        print_json({
            "name": learned.name,
            "toml": learned.toml,
            "checks": list(learned.checks),
            "notes": list(learned.notes),
            "known_as": known,
        })  # fmt: skip
        return
    print_styled([(f"{learned.name}: learned from {source}\n", "bold")])
    print_styled([("--- table\n", "dim"), (learned.toml, "")])
    notes = [*learned.notes]
    if known is not None:
        notes.append(f"the dialect {known!r} reads what this template writes: no table of your own is needed")
    for title, lines in (("checks", learned.checks), ("notes", notes)):
        if lines:
            print_styled([(f"--- {title}\n", "dim"), ("\n".join(lines) + "\n", "")])
