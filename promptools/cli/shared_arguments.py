"""Arguments that several commands share, and functions that read the files named in arguments."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from promptools.cli.terminal_output import print_progress
from promptools.errors import UsageError, clip
from promptools.json_values import is_array, is_object

if TYPE_CHECKING:
    from promptools.harness.sandbox import CommandLimits, Sandbox
    from promptools.profiles import Config


DEFAULT_KEY_VARIABLE = "OPENAI_API_KEY"


def add_json(parser: argparse.ArgumentParser) -> None:
    """Add `--json`."""
    parser.add_argument("--json", action="store_true", help="print JSON, for scripts")


def add_tools(parser: argparse.ArgumentParser) -> None:
    """Add `--tools`."""
    parser.add_argument(
        "--tools", metavar="FILE", help="a JSON file with a list of tools, or with a request that has one"
    )


def add_ray(parser: argparse.ArgumentParser) -> None:
    """Add `--ray`."""
    parser.add_argument(
        "--ray",
        nargs="?",
        const="",
        metavar="ADDRESS",
        help="run on a Ray cluster (default: RAY_ADDRESS, the one on this machine, or a new one)",
    )


def add_config(parser: argparse.ArgumentParser) -> None:
    """Add `--config`."""
    parser.add_argument(
        "--config", metavar="FILE", help="promptools.toml or ppxai-config.json (default: the first one found)"
    )


def add_dialect_files(parser: argparse.ArgumentParser) -> None:
    """Add `--dialect-file`."""
    parser.add_argument(
        "--dialect-file",
        dest="dialect_files",
        action="append",
        default=[],
        metavar="FILE",
        help="a dialect of your own, as a TOML table (repeatable)",
    )


def add_detect(parser: argparse.ArgumentParser) -> None:
    """Add `--no-detect`."""
    parser.add_argument("--no-detect", dest="detect", action="store_false", help="do not ask the server what it is")


def add_provider(parser: argparse.ArgumentParser) -> None:
    """Add `--provider`."""
    parser.add_argument("--provider", metavar="NAME", help="a provider of the config, or a kind of server")


def add_base_url(parser: argparse.ArgumentParser) -> None:
    """Add `--base-url`. `CommandParser` also accepts the URL as the first positional argument."""
    about = "the server's base URL, such as http://HOST:PORT/v1 (default path: /v1); can also come first"
    parser.add_argument("--base-url", type=base_url, metavar="URL", help=f"{about}, without --base-url")


def add_api_key(parser: argparse.ArgumentParser) -> None:
    """Add `--api-key` and `--api-key-env`."""
    keys = parser.add_mutually_exclusive_group()
    keys.add_argument(
        "--api-key",
        metavar="KEY",
        help="the server's key (prefer --api-key-env: other users of this machine can see arguments)",
    )
    keys.add_argument(
        "--api-key-env",
        metavar="NAME",
        help=f"environment variable that holds the key (default with a URL: {DEFAULT_KEY_VARIABLE}, if set)",
    )


def given_key(arguments: argparse.Namespace) -> str | None:
    """Return the key that `--api-key` or `--api-key-env` gives; None if neither does.

    Raises `UsageError` if the variable that `--api-key-env` names is not set, unless it is OPENAI_API_KEY.
    """
    variable: str | None = arguments.api_key_env
    if variable is None:
        return arguments.api_key or None
    key = os.environ.get(variable)
    if not key and variable != DEFAULT_KEY_VARIABLE:
        raise UsageError(f"the environment variable {variable!r} of --api-key-env is not set")
    return key or None


def server_key(arguments: argparse.Namespace) -> str | None:
    """Return the key for a server that `--base-url` names: the given key, else the one in OPENAI_API_KEY, else None."""
    return given_key(arguments) or os.environ.get(DEFAULT_KEY_VARIABLE) or None


def named_url(arguments: argparse.Namespace) -> str:
    """Return the server's base URL; raise `UsageError` if the arguments name none."""
    if not arguments.base_url:
        raise UsageError("name the server by its URL, such as http://HOST:PORT/v1")
    return str(arguments.base_url)


def base_url(text: str) -> str:
    """Check a base URL and return it, with `/v1` appended if the URL has no path. A slash alone counts as a path."""
    from promptools.proxy.upstream_url import parse_base_url
    from promptools.transport import installed_library

    try:
        parse_base_url(text, installed_library().module)
    except UsageError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    return text if urlsplit(text).path else f"{text}/v1"


def at_least(least: int, unit: str) -> Callable[[str], int]:
    """Return an argparse type for whole numbers from `least` up; `unit` says in the error message what is counted."""

    def read(text: str) -> int:
        if not (text.isascii() and text.isdigit() and len(text) < 16 and int(text) >= least):
            raise argparse.ArgumentTypeError(f"{clip(text)!r} is not a valid number of {unit}; write {least} or more")
        return int(text)

    return read


def seconds(text: str) -> float:
    """Parse a number of seconds above zero."""
    number = seconds_or_none(text)
    if number == 0:
        raise argparse.ArgumentTypeError(f"{clip(text)!r} is not a valid number of seconds; write one greater than 0")
    return number


def seconds_or_none(text: str) -> float:
    """Parse a number of seconds. Zero is allowed, unlike in `seconds`."""
    try:
        number = float(text)
    except ValueError:
        number = -1.0
    if not 0 <= number < float("inf"):
        raise argparse.ArgumentTypeError(f"{clip(text)!r} is not a valid number of seconds; write 0 or more")
    return number


def add_endpoint(
    parser: argparse.ArgumentParser, *, about_model: str = "model to ask (default: the provider's)"
) -> None:
    """Add the arguments that name a server, its key and a model, and `--config`, `--dialect-file` and `--no-detect`."""
    add_provider(parser)
    add_base_url(parser)
    add_api_key(parser)
    parser.add_argument("--model", metavar="M", help=about_model)
    add_config(parser)
    add_dialect_files(parser)
    add_detect(parser)


def read_text(name: str | None) -> str:
    """Read a text file, or standard input if `name` is None or `-`. Line endings are not converted."""
    if name in (None, "-"):
        return sys.stdin.buffer.read().decode("utf-8", errors="replace")
    try:
        return Path(str(name)).read_bytes().decode("utf-8", errors="replace")
    except OSError as error:
        raise UsageError(f"cannot read {name!r}: {error.strerror}") from error


def read_json(name: str) -> Any:
    """Read a JSON file."""
    try:
        return json.loads(read_text(name))
    except ValueError as error:
        raise UsageError(f"{name!r} is not valid JSON: {error}") from error


def read_tools(name: str | None) -> list[Any] | None:
    """Read the tools in the file that `--tools` names; return None if no file is named.

    Raises `UsageError` if any of the tools is invalid.
    """
    if name is None:
        return None
    data = read_json(name)
    tools = data.get("tools") if is_object(data) else data
    if not is_array(tools):
        raise UsageError(f"{name!r} does not contain a list of tools: write one, or a request body with a 'tools' key")
    from promptools.schema import Tools

    Tools(tools, strict=True)
    return tools


def read_config(name: str | None) -> Config:
    """Read the file that `--config` names, or else the first config that is found. Print its warnings to stderr.

    Without any config, return an empty config. A config that was found but is not trusted is also returned; its
    `standing` is `untrusted`.
    """
    from promptools.profiles import Config, load_config
    from promptools.transport.found_config import find_here, read_found

    if name:
        if not Path(name).is_file():
            raise UsageError(f"there is no config file {name!r}")
        config = load_config(Path(name))
    else:
        found = find_here()
        config = Config() if found is None else read_found(found)
    for warning in config.warnings:
        print_progress(f"warning: {warning}")
    return config


# Arguments that decide where the model's commands run.


def add_sandbox(parser: argparse.ArgumentParser, *, image: str | None = None) -> None:
    """Add `--sandbox` and the options that belong to it; `image` is the default for `--image`."""
    parser.set_defaults(default_image=image)
    where = parser.add_argument_group("where commands run")
    where.add_argument(
        "--sandbox",
        choices=("bubblewrap", "docker", "local"),
        default="bubblewrap",
        help="local: not isolated, with your permissions (default: bubblewrap)",
    )
    default = f" (default: {image})" if image else ""
    where.add_argument("--image", metavar="IMAGE", help=f"image of --sandbox docker{default}")
    where.add_argument("--network", action="store_true", help="let commands use the network")


def open_sandbox(
    arguments: argparse.Namespace, root: Path, limits: CommandLimits | None = None, *, writable_git: bool = False
) -> Sandbox:
    """Open the sandbox that the arguments name, with `root` as workspace.

    Commands cannot write to the workspace's `.git`, unless `writable_git` is set or the sandbox is `local`.
    """
    from promptools.harness.sandbox import BubblewrapSandbox, DockerSandbox, LocalSandbox

    if arguments.sandbox == "docker":
        image = arguments.image or arguments.default_image
        if not image:
            raise UsageError("--sandbox docker needs an image: name it with --image")
        return DockerSandbox(image, root, network=arguments.network, writable_git=writable_git, limits=limits)
    if arguments.image:
        raise UsageError("--image is for --sandbox docker")
    if arguments.sandbox == "local":
        return LocalSandbox(root, allow_unsandboxed=True, limits=limits)
    return BubblewrapSandbox(root, network=arguments.network, writable_git=writable_git, limits=limits)
