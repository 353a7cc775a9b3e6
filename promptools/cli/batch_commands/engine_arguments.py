"""`promptools batch --engine`: its arguments, and the engine that they describe."""

from __future__ import annotations

import argparse
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from time import monotonic
from typing import TYPE_CHECKING, Any

from promptools.cli.shared_arguments import read_config
from promptools.cli.terminal_output import print_progress
from promptools.dialects.table_file import read_table
from promptools.errors import UsageError

if TYPE_CHECKING:
    from promptools.batch.offline import EngineSettings, OfflineEngine

ENGINES = ("vllm",)


def add_engine(parser: argparse.ArgumentParser) -> None:
    """Add `--engine` and `--engine-args`."""
    parser.add_argument(
        "--engine", choices=ENGINES, help="run the model in this process, or in the actors of --ray, without a server"
    )
    parser.add_argument(
        "--engine-args",
        nargs="+",
        action="extend",
        metavar="KEY=VALUE",
        help="arguments of the engine, as `vllm serve` has them: tensor_parallel_size=2, or a JSON object",
    )


def read_settings(arguments: argparse.Namespace) -> EngineSettings | None:
    """Return the settings of the engine, None without one; raise `UsageError` if arguments contradict each other."""
    from promptools.batch.offline import EngineSettings, read_engine_arguments

    if arguments.engine is None:
        if arguments.engine_args:
            raise UsageError("--engine-args is for an engine in this process; add --engine vllm, or leave it out")
        return None
    if not arguments.model:
        raise UsageError("--engine needs --model: the name of a model on the Hugging Face hub, or its folder")
    for name in ("provider", "base_url", "api_key", "api_key_env"):
        if getattr(arguments, name):
            raise UsageError(
                f"--{name.replace('_', '-')} names a server, and --engine needs none; leave one of them out"
            )
    options: dict[str, Any] = {
        "config": read_config(arguments.config),
        "dialects": tuple(map(read_table, arguments.dialect_files)),  # an actor of Ray has other files
        "mode": arguments.mode,
    }
    if arguments.timeout:
        options["attempt_timeout"] = arguments.timeout
    return EngineSettings(arguments.model, read_engine_arguments(arguments.engine_args or ()), options)


@asynccontextmanager
async def start_engine(settings: EngineSettings) -> AsyncGenerator[OfflineEngine, None]:
    """Start an engine and end it, with lines about the progress."""
    from promptools.batch.offline import open_engine

    print_progress(f"vLLM loads {settings.model}")
    started = monotonic()
    async with open_engine(settings) as engine:
        modes = ", ".join(engine.target.profile.modes)
        print_progress(f"loaded in {monotonic() - started:.0f} s; modes for tools: {modes}")
        yield engine
