"""The command `promptools launch`: run a coding agent with a proxy in front of the server.

The proxy ends when the agent ends. The agent gets the address of the proxy through environment variables and arguments.
The settings of the agent are not changed, so without this command the agent works as before.
"""

from __future__ import annotations

import argparse
import json
import os
import secrets
import shutil
import signal
import subprocess
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from promptools.cli.serve_command import proxy_config, serve_in_thread
from promptools.cli.shared_arguments import (
    add_api_key,
    add_base_url,
    add_config,
    add_detect,
    add_dialect_files,
    add_provider,
    given_key,
    server_key,
)
from promptools.cli.terminal_output import print_progress
from promptools.errors import UsageError, did_you_mean
from promptools.masking import mask_url
from promptools.transport.session import PLACEHOLDER_KEY

if TYPE_CHECKING:
    from types import FrameType

    from promptools.cli.command_parser import CommandParser
    from promptools.proxy import Extension, Proxy

PROVIDER: Final = "promptools"
"""The name of the proxy in the settings of an agent."""
KEY_VARIABLE: Final = "PROMPTOOLS_LAUNCH_KEY"
"""The environment variable from which Codex reads the key."""
ENDING: Final = (signal.SIGTERM, *((signal.SIGHUP,) if hasattr(signal, "SIGHUP") else ()))
"""Signals that `promptools launch` passes on to the agent: those that ask a process to end.

An interrupt from the keyboard need not be passed on, because the agent receives it too.
"""


class Place(NamedTuple):
    """What an agent needs to use the proxy: the address, the name of the model, and the key."""

    address: str
    """The URL of the proxy, without a path."""
    model: str
    key: str


class Settings(NamedTuple):
    """The environment variables and the arguments with which an agent is started."""

    variables: Mapping[str, str]
    arguments: Sequence[str] = ()
    """Arguments to put before those of the user."""
    unset: Sequence[str] = ()
    """Variables to remove from the environment, because they would name another server or a key for it."""


def _claude(place: Place) -> Settings:
    # https://docs.claude.com/en/docs/claude-code/settings (2026-11): the small model writes titles of conversations
    names = ("ANTHROPIC_MODEL", "ANTHROPIC_SMALL_FAST_MODEL", "ANTHROPIC_DEFAULT_HAIKU_MODEL")
    variables = {
        "ANTHROPIC_BASE_URL": place.address,
        "ANTHROPIC_AUTH_TOKEN": place.key,
        **dict.fromkeys(names, place.model),
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
    }
    return Settings(variables, unset=("ANTHROPIC_API_KEY", "CLAUDE_CODE_USE_BEDROCK", "CLAUDE_CODE_USE_VERTEX"))


def _codex(place: Place) -> Settings:
    # https://developers.openai.com/codex/config-reference (2026-11): `-c` takes a key, and a value in TOML
    provider = f"model_providers.{PROVIDER}"
    settings = {
        "model": place.model,
        "model_provider": PROVIDER,
        f"{provider}.name": PROVIDER,
        f"{provider}.base_url": f"{place.address}/v1",
        f"{provider}.wire_api": "responses",
        f"{provider}.env_key": KEY_VARIABLE,
    }
    words = [word for key, value in settings.items() for word in ("-c", f"{key}={json.dumps(value)}")]
    return Settings({KEY_VARIABLE: place.key}, words)


def _opencode(place: Place) -> Settings:
    # https://opencode.ai/docs/config (2026-11): the variable takes precedence over the config files
    config = {
        "provider": {
            PROVIDER: {
                "npm": "@ai-sdk/openai-compatible",
                "options": {"baseURL": f"{place.address}/v1", "apiKey": place.key},
                "models": {place.model: {"tool_call": True}},
            }
        },
        "model": f"{PROVIDER}/{place.model}",
        "small_model": f"{PROVIDER}/{place.model}",
    }
    return Settings({"OPENCODE_CONFIG_CONTENT": json.dumps(config)})


def _qwen(place: Place) -> Settings:
    # https://qwenlm.github.io/qwen-code-docs (2026-11)
    return Settings(
        {"OPENAI_BASE_URL": f"{place.address}/v1", "OPENAI_API_KEY": place.key, "OPENAI_MODEL": place.model},
        ("--auth-type", "openai"),
    )


def _other(place: Place) -> Settings:
    """Return settings for a program that is not in `AGENTS`, as environment variables.

    These are the variables in which the SDKs for the proxy's APIs, and many programs, look for the server's address,
    the key and the model.
    """
    return Settings(
        {
            "OPENAI_BASE_URL": f"{place.address}/v1",
            "OPENAI_API_BASE": f"{place.address}/v1",
            "OPENAI_API_KEY": place.key,
            "OPENAI_MODEL": place.model,
            "ANTHROPIC_BASE_URL": place.address,
            "ANTHROPIC_AUTH_TOKEN": place.key,
            "ANTHROPIC_MODEL": place.model,
            "OLLAMA_HOST": place.address,
        },
        unset=("ANTHROPIC_API_KEY",),
    )


AGENTS: Final[Mapping[str, Callable[[Place], Settings]]] = {
    "claude": _claude,
    "codex": _codex,
    "opencode": _opencode,
    "qwen": _qwen,
}


def add(parser: CommandParser) -> None:
    """Add the command's arguments. The agent's own arguments follow `--`."""
    parser.add_argument(
        "agent",
        metavar="AGENT",
        help=f"{', '.join(AGENTS)}; or another program, which gets the variables of the SDKs (OPENAI_BASE_URL, "
        "ANTHROPIC_BASE_URL, OLLAMA_HOST)",
    )
    parser.usage = "%(prog)s [-h] [OPTIONS] AGENT [-- ARGUMENT ...]"
    parser.passed_on = "words"
    add_base_url(parser)
    add_provider(parser)
    add_config(parser)
    parser.add_argument("--model", metavar="M", help="the model (default: the config's, or the only one of the server)")
    add_api_key(parser)
    add_dialect_files(parser)
    add_detect(parser)
    parser.add_argument("--inspect", action="store_true", help="show the agent's requests at /inspect while it runs")


def run(arguments: argparse.Namespace) -> int:
    """Run the agent with the proxy; return the agent's exit status."""
    program = _find_program(arguments.agent)
    key = (server_key(arguments) if arguments.base_url else given_key(arguments)) or PLACEHOLDER_KEY
    proxy = _build_proxy(arguments)
    if proxy.access.requires_key:  # the config or PROMPTOOLS_API_KEY has keys, which are for clients of `serve`
        key = secrets.token_urlsafe()
        proxy = _build_proxy(arguments, key)
    with serve_in_thread(proxy) as address:
        model = arguments.model or proxy.target.model or _only_model(proxy, address, key)
        print_progress(f"{arguments.agent} asks {model} of {mask_url(proxy.base_url)} through {address}")
        if arguments.inspect:
            print_progress(f"inspector {address}/inspect")
        settings = AGENTS.get(arguments.agent, _other)(Place(address, model, key))
        kept = {name: value for name, value in os.environ.items() if name not in settings.unset}
        return _wait_for([program, *settings.arguments, *arguments.words], {**kept, **settings.variables})


def _find_program(name: str) -> str:
    program = shutil.which(name)
    if program is None:
        meant = did_you_mean(name, AGENTS) if name not in AGENTS else ""
        raise UsageError(f"there is no program {name!r} on the PATH; {meant}install it, or name another agent")
    return program


def _only_model(proxy: Proxy, address: str, key: str) -> str:
    import openai

    from promptools.cli.command_client import only_model
    from promptools.cli.server_errors import require_server

    require_server(proxy.base_url)
    with openai.OpenAI(base_url=f"{address}/v1", api_key=key) as client:
        return only_model(client)


def _build_proxy(arguments: argparse.Namespace, *keys: str) -> Proxy:
    from promptools.proxy import Proxy

    inspectors: list[Extension] = []
    if arguments.inspect:
        from promptools.proxy.inspector import Inspector

        inspectors.append(Inspector())
    return Proxy(
        base_url=arguments.base_url,
        provider=arguments.provider,
        config=proxy_config(arguments),
        dialects=arguments.dialect_files,
        detect=arguments.detect,
        api_keys=keys,
        extensions=inspectors,
    )


def _wait_for(command: Sequence[str], environment: Mapping[str, str]) -> int:
    """Run a command in this terminal; return its exit status, or 128 plus the number of the signal that ended it.

    While the command runs, this process handles signals with functions. It must not ignore them with `SIG_IGN` instead:
    the command would inherit that setting and ignore the signals too.
    """
    agent: subprocess.Popen[bytes] | None = None

    def forward(number: int, _: FrameType | None) -> None:
        if agent is not None:
            agent.send_signal(number)

    def leave_to_agent(_number: int, _frame: FrameType | None) -> None:
        pass  # the terminal sends an interrupt from the keyboard to the agent too, and the agent decides what to do

    handlers: dict[int, Callable[[int, FrameType | None], None]] = {signal.SIGINT: leave_to_agent}
    handlers |= dict.fromkeys(ENDING, forward)
    before = {number: signal.signal(number, handler) for number, handler in handlers.items()}
    try:
        agent = subprocess.Popen(command, env=environment)
        status = agent.wait()
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    return status if status >= 0 else 128 - status
