"""The command `promptools doctor`: check what is installed, what is configured, and whether the server answers."""

from __future__ import annotations

import argparse
import platform
import re
import sys
from importlib.metadata import PackageNotFoundError, requires, version
from typing import Final

import promptools
from promptools.cli.config_command import SDK_ADDRESS, decide
from promptools.cli.server_errors import require_server
from promptools.cli.shared_arguments import (
    add_api_key,
    add_base_url,
    add_config,
    add_json,
    add_provider,
    given_key,
    read_config,
    server_key,
)
from promptools.cli.synchronous_exchange import run_exchange
from promptools.cli.terminal_output import print_json, print_styled, print_table
from promptools.errors import DISTRIBUTION, UpstreamError, UsageError, install_command
from promptools.masking import mask_url
from promptools.profiles import Config, UntrustedConfig, load_builtin
from promptools.profiles.config_reach import shown_text
from promptools.transport import Session
from promptools.transport.http_library import split_credentials

_REQUIREMENT: Final = re.compile(
    r"(?P<name>[\w.-]+)(?:\[(?P<extras>[^]]*)\])?[^;]*(?:;.*extra == ['\"](?P<extra>[\w-]+)['\"])?"
)
_INSTALLED: Final = "installed"
_FOR_DEVELOPERS: Final = frozenset({"dev", "docs"})

Rows = list[tuple[str, ...]]


def add(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    add_base_url(parser)
    add_provider(parser)
    parser.add_argument("--model", metavar="M", help="a model to check (default: the config's)")
    add_config(parser)
    add_api_key(parser)
    add_json(parser)


def run(arguments: argparse.Namespace) -> int:
    """Run all checks; return 1 if there is a problem."""
    problems: list[str] = []
    tables: dict[str, tuple[tuple[str, ...], Rows]] = {
        "Installed": (("package", "version"), _versions()),
        "Extras": (("extra", "state"), _extras()),
    }
    try:
        config, server = _check_config(arguments, problems)
    except UsageError as error:
        problems.append(f"the config is not used: {error}")
        config, server = [], []
    tables["What decides"] = (("setting", "is", "decided by"), config)
    tables["Server"] = (("what", "is", "because"), server)
    if arguments.json:
        shown = {
            title.lower().replace(" ", "_"): [dict(zip(columns, row, strict=True)) for row in rows]
            for title, (columns, rows) in tables.items()
        }
        print_json({**shown, "problems": problems})
    else:
        tables["Extras"] = (("state", "extras"), _shown_extras(tables["Extras"][1]))
        for title, (columns, rows) in tables.items():
            print_table(title, columns, rows)
        for problem in problems:
            print_styled([("problem: ", "bold red"), (problem, "")])
        if not problems:
            print_styled([("no problem was found", "bold green")])
    return 1 if problems else 0


# What is installed.


def _versions() -> Rows:
    """Return the versions of promptools, Python, and the packages that promptools always needs."""
    needed = [name for name, extra, _ in _requirements() if extra is None]
    own: Rows = [("promptools", promptools.__version__), ("Python", f"{platform.python_version()} ({sys.platform})")]
    return [*own, *((name, _version(name) or "missing") for name in needed)]


def _extras() -> Rows:
    """Return a row for each extra, with its state: installed, or which of its packages are missing."""
    needed: dict[str, list[str]] = {}
    for name, extra, _ in _requirements():
        if extra is not None and extra not in _FOR_DEVELOPERS and name != DISTRIBUTION:
            needed.setdefault(extra, []).append(name)
    for _, extra, others in _requirements():
        if extra in needed:
            needed[extra] += [name for other in others for name in needed.get(other, [])]
    return [(extra, _state(extra, names)) for extra, names in sorted(needed.items())]


def _shown_extras(extras: Rows) -> Rows:
    """Return the installed extras as one row, and the others as a second row. A missing extra is not a problem."""
    names = {here: [extra for extra, state in extras if (state == _INSTALLED) is here] for here in (True, False)}
    rows: Rows = [("installed", ", ".join(names[True]) or "none")]
    if names[False]:
        rows.append(("not installed", f"{', '.join(names[False])}; if you need one: {install_command('NAME')}"))
    return rows


def _state(extra: str, names: list[str]) -> str:
    missing = [name for name in dict.fromkeys(names) if _version(name) is None]
    if not missing:
        return _INSTALLED
    return f"not installed ({', '.join(missing)}): {install_command(extra)}"


def _requirements() -> list[tuple[str, str | None, list[str]]]:
    """Return `(name, extra, extras)` for each required package.

    `extra` is the extra of promptools that needs the package, or None if promptools always needs the package. `extras`
    are the package's own extras that are required with it.
    """
    found = (_REQUIREMENT.match(line) for line in requires(DISTRIBUTION) or ())
    return [(match["name"], match["extra"], (match["extras"] or "").split(",")) for match in found if match is not None]


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None


# What is configured, and whether the server answers.


def _check_config(arguments: argparse.Namespace, problems: list[str]) -> tuple[Rows, Rows]:
    """Return the rows about what decides each setting, and the rows about the server.

    Problems are added to `problems`.
    """
    config = read_config(arguments.config)
    is_there = config.file != Config().file
    rows: Rows = [("config", shown_text(config.file) if is_there else "none", config.standing if is_there else "")]
    if arguments.base_url:
        rows.append(("base URL", mask_url(arguments.base_url), "the argument"))
        return rows, _check_server(Session({"config": config}), arguments.base_url, arguments, problems)
    try:
        decisions = decide(config, arguments.provider, arguments.model)
    except UntrustedConfig as error:
        problems.append(str(error))
        return rows, []
    rows += [(each.setting, each.value or "", each.by) for each in decisions]
    session = Session({"config": config, "provider": arguments.provider})
    named = session.environment_address()
    target = session.resolve_target(arguments.model, base_url=named, provider=arguments.provider)
    if target.base_url in {None, SDK_ADDRESS} and target.provider is None:
        problems.append("no server is named: give its URL, or write a config (promptools probe URL --write FILE)")
        return rows, []
    return rows, _check_server(session, target.base_url or SDK_ADDRESS, arguments, problems)


def _check_server(session: Session, address: str, arguments: argparse.Namespace, problems: list[str]) -> Rows:
    """Detect a server; return the rows about the server, its model and the modes in use. Add problems to `problems`."""
    base_url, basic = split_credentials(address.rstrip("/"))
    before = session.resolve_target(arguments.model, base_url=base_url, provider=arguments.provider)
    key = server_key(arguments) if arguments.base_url else given_key(arguments) or session.find_key(before)
    authorization = basic or (f"Bearer {key}" if key else None)
    headers = (("authorization", authorization),) if authorization else ()
    route, seen = run_exchange(session.detect_server(base_url, before.model, headers))
    shown = mask_url(base_url)
    if not seen.answered:
        try:
            require_server(base_url)
        except UpstreamError as error:
            problems.append(str(error))
            return [("address", shown, "it does not answer")]
    refused = [f"{asked}: {answer}" for asked, answer in seen.asked if answer in {"HTTP 401", "HTTP 403"}]
    if refused:
        problems.append(f"{shown} refuses the key: {refused[0]}; name it with --api-key-env, or in the config")
    profile = route.target.profile
    title = load_builtin(profile.kind).title
    modes = next((reason for reason in route.target.reasons if reason.startswith("modes = ")), "")
    return [
        ("address", shown, "it answers" if seen.answered else "something listens there; it was not asked what it is"),
        ("kind", f"{title} {seen.version or ''}".rstrip(), seen.why),
        ("model", before.model or "not named", "" if before.model else "name one with --model to have it checked"),
        ("family", seen.family or profile.family or "not known", seen.family_why),
        ("modes", ", then ".join(profile.modes), shown_text(modes.partition(": ")[2]) or "promptools' default"),
    ]
