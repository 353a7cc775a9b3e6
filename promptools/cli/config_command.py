"""The command `promptools config`, and `ask_trust`, which asks the user whether to trust a config that was found."""

from __future__ import annotations

import argparse
import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from promptools.cli.shared_arguments import add_config, add_json, add_provider, read_config
from promptools.cli.terminal_output import print_json, print_progress, print_table
from promptools.errors import UsageError
from promptools.masking import mask_url
from promptools.profiles import Config, UntrustedConfig, load_config, reach_of
from promptools.profiles.config_reach import shown_text
from promptools.transport import Session
from promptools.transport.found_config import drop_trust, find_all_here, find_here, keep_trust
from promptools.transport.http_library import split_credentials
from promptools.transport.session import environment_address

if TYPE_CHECKING:
    from promptools.profiles import ConfigReach, Target


# The question whether to trust a config that was found.


def ask_trust(error: UntrustedConfig) -> bool:
    """Show what a config reaches, and ask on the terminal whether to trust it; return whether the user trusts it.

    A config reaches, for example, addresses, files and environment variables. Without a terminal, return False. The
    answer applies only to what was shown: if the file changes and reaches something else, the file is not trusted.
    """
    if not (_is_terminal(sys.stdin) and _is_terminal(sys.stderr)):
        return False
    _print_shown(f"{shown_text(error.config.file)} was found in the current folder. It reaches:")
    print_reach(error.reach)
    print("Trust it? This is asked again only if the list changes. [y/N] ", end="", file=sys.stderr, flush=True)
    if sys.stdin.readline().strip().lower() not in {"y", "yes"}:
        return False
    keep_trust(Path(error.config.file), error.reach)
    return True


def print_reach(reach: ConfigReach) -> None:
    """Print a line to stderr for each thing that a config reaches, such as an address or an environment variable.

    Things that need trust come first.
    """
    for entry in sorted(reach.entries, key=lambda entry: not (entry.is_remote or entry.is_outside)):
        where = "beyond this machine: " if entry.is_remote else "outside of its folder: " if entry.is_outside else ""
        is_set = ""
        if entry.is_variable:
            is_set = " (set)" if os.environ.get(entry.value) else " (not set)"
        _print_shown(f"  {where}{entry}{is_set}")


def _print_shown(text: str) -> None:
    """Print a line to stderr, even with `--quiet`, because the user's trust applies only to what was shown."""
    print(text, file=sys.stderr, flush=True)


def _is_terminal(stream: object) -> bool:
    return bool(stream is not None and getattr(stream, "isatty", bool)())


# The command.


SDK_ADDRESS = "https://api.openai.com/v1"
_STANDINGS = {
    "given": "used: it is named by an argument or a variable",
    "own": "used: it is in the config folder of the user or the system",
    "trusted": "used: you have trusted it",
    "local": "used: it reaches nothing beyond this machine",
    "untrusted": "NOT TRUSTED, so not used: see `promptools config trust`",
}
_PRECEDENCE = "arguments and a named config take precedence"


@dataclass(frozen=True, slots=True)
class Decision:
    """A setting, its value, and what decides the value."""

    setting: str
    value: str | None
    by: str


def add(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    about = "print which file and which variable decide the provider, base URL, key, model and mode"
    show = actions.add_parser("show", help=about, description=about, allow_abbrev=False)
    add_provider(show)
    show.add_argument("--model", metavar="M", help="a model to ask for (default: the provider's)")
    add_config(show)
    add_json(show)
    about = "trust a config that was found: let it use the servers and keys that it names now"
    trust = actions.add_parser("trust", help=about, description=about, allow_abbrev=False)
    trust.add_argument("path", nargs="?", metavar="PATH", help="the file (default: the one found here)")
    trust.add_argument("--remove", action="store_true", help="stop trusting it")


def run(arguments: argparse.Namespace) -> int:
    """Show what decides the settings, or change whether a file is trusted.

    Return 1 if an untrusted config would decide a setting.
    """
    return _trust(arguments) if arguments.action == "trust" else _show(arguments)


def _trust(arguments: argparse.Namespace) -> int:
    path = _trusted_path(arguments.path)
    if arguments.remove:
        was_trusted = drop_trust(path)
        print_progress(f"{path} is {'no longer' if was_trusted else 'not'} trusted")
        return 0
    config = load_config(path)
    reach = reach_of(config)
    keep_trust(path, reach)
    print_progress(f"{path} is trusted. It reaches:" if reach.entries else f"{path} is trusted. It reaches nothing.")
    print_reach(reach)
    return 0


def _trusted_path(name: str | None) -> Path:
    """Return the path of the file to trust.

    Symbolic links in the path of its folder are resolved, as in the search for configs.
    """
    if name is None:
        found = find_here()
        if found is None:
            raise UsageError("there is no config here; name the file: promptools config trust PATH")
        return found.path
    path = Path(name)
    if not path.is_file():
        raise UsageError(f"there is no config file {name!r}")
    return path.parent.resolve() / path.name


def _show(arguments: argparse.Namespace) -> int:
    config = read_config(arguments.config)
    refusal: UntrustedConfig | None = None
    decisions: list[Decision] = []
    try:
        decisions = decide(config, arguments.provider, arguments.model)
    except UntrustedConfig as error:
        refusal = error
    found_by = "--config" if arguments.config else _found_by()
    unused = _unused(config, arguments)
    if arguments.json:
        print_json(_as_json(config, found_by, decisions, unused))
    else:
        rows = [(decision.setting, decision.value or "", decision.by) for decision in decisions]
        file = "none" if config.file == Config().file else f"{shown_text(config.file)}"
        print_table(
            "What decides", ("setting", "is", "decided by"), [("config", file, _config_by(config, found_by)), *rows]
        )
        print_table("Set, and not used", ("what", "is", "because"), unused)
    if refusal is not None:
        print_progress(f"promptools config: {refusal}")
    return 0 if refusal is None else 1


def _found_by() -> str | None:
    found = find_here()
    return None if found is None else found.by


def _config_by(config: Config, found_by: str | None) -> str:
    return f"{found_by}; {_STANDINGS[config.standing]}" if found_by else "nothing names one, and none was found"


def decide(config: Config, provider: str | None, model: str | None) -> list[Decision]:
    """Return the settings of a client that is created without `base_url=` and `api_key=`, and what decides each.

    Raises `UntrustedConfig` if an untrusted config would affect the requests of this client.
    """
    session = Session({"config": config, "provider": provider})
    address = session.environment_address()
    if address is None and provider is None and not config.providers and config.standing != "untrusted":
        target = session.resolve_target(model, base_url=SDK_ADDRESS)
    else:
        target = session.resolve_target(model, base_url=address, provider=provider)
    base_url = target.base_url or SDK_ADDRESS
    by = describe_source(config, provider, target.provider)
    named = target.provider is not None
    chosen_by = mask_url(target.reasons[0].partition(": ")[2])
    return [
        Decision("provider", target.provider and shown_text(target.provider), chosen_by),
        Decision("base URL", shown_text(mask_url(base_url)), by),
        _decide_key(target, config, base_url),
        Decision("model", *_decide_model(target, model, config)),
        Decision("mode", ", then ".join(target.profile.modes), _mode_by(target) if named else "promptools' default"),
    ]


def describe_source(config: Config, asked: str | None, provider: str | None) -> str:
    """Return what decides the server's address.

    `asked` is the provider that the arguments name, if any. `provider` is the provider whose server is used.
    """
    if environment_address(config, asked) is not None:
        return "the environment variable OPENAI_BASE_URL"
    if provider is None:
        return "the openai package's default"
    configured = config.providers.get(provider)
    if configured is None:
        return f"the usual address of {shown_text(provider)}"
    name = f"provider {shown_text(repr(provider))} of {shown_text(config.file)}"
    return name if configured.base_url else f"the usual address of the kind of {name}"


def _decide_key(target: Target, config: Config, base_url: str) -> Decision:
    if split_credentials(base_url)[1] is not None:
        return Decision("key", "***", "the user and password in the base URL")
    variable = target.api_key_env if target.provider is not None else "OPENAI_API_KEY"
    if variable is None:
        return Decision("key", None, f"none: {shown_text(target.provider or '')} names no variable")
    shown = "***" if os.environ.get(variable) else None
    where = f", named in {shown_text(config.file)}" if target.provider is not None else ""
    state = "" if shown else ", which is not set"
    return Decision("key", shown, f"the environment variable {shown_text(variable)}{where}{state}")


def _decide_model(target: Target, asked: str | None, config: Config) -> tuple[str | None, str]:
    if not target.model:
        return None, "each request; for commands, the only one that the server lists"
    by = "--model" if asked else f"default_model in {shown_text(config.file)}"
    return shown_text(target.model), by


def _mode_by(target: Target) -> str:
    reason = next((reason for reason in target.reasons if reason.startswith("modes = ")), "")
    return shown_text(reason.partition(": ")[2]) or "promptools' default"


def _unused(config: Config, arguments: argparse.Namespace) -> list[tuple[str, str, str]]:
    """Return the configs and variables that exist but have no effect, each with the reason."""
    files = [] if config.standing == "given" and arguments.config else find_all_here()[1:]
    rows = [
        ("config", shown_text(str(file.path)), f"in {file.by}" if file.standing != "given" else file.by)
        for file in files
        if str(file.path) != config.file
    ]
    address = os.environ.get("OPENAI_BASE_URL")
    if address and environment_address(config, arguments.provider) is None:
        rows.append(("OPENAI_BASE_URL", shown_text(mask_url(address)), _PRECEDENCE))
    return rows


def _as_json(
    config: Config, found_by: str | None, decisions: list[Decision], unused: list[tuple[str, str, str]]
) -> dict[str, Any]:
    is_there = config.file != Config().file
    return {
        "file": config.file if is_there else None,
        "found_by": found_by,
        "standing": config.standing if is_there else None,
        "decisions": {each.setting: {"is": each.value, "by": each.by} for each in decisions},
        "reaches": [
            {"what": entry.what, "is": mask_url(entry.value), "beyond_this_machine": entry.is_remote}
            for entry in reach_of(config).entries
        ],
        "not_used": [{"what": what, "is": value, "because": why} for what, value, why in unused],
    }
