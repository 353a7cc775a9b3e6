"""The command `promptools demo`."""

from __future__ import annotations

import argparse
import contextlib
import os
import subprocess
import sys
import tempfile
from collections.abc import Generator, Iterator, Sequence
from dataclasses import asdict, replace
from pathlib import Path

from promptools.cli.server_commands.demo_conversation import Scenario, ScenarioResult, run_scenario
from promptools.cli.server_errors import require_server
from promptools.cli.shared_arguments import add_api_key, add_base_url, add_json, server_key
from promptools.cli.terminal_output import print_json, print_progress, print_table
from promptools.errors import UsageError
from promptools.lab import weather
from promptools.lab.llamacpp_server import can_serve, check_gguf, serve, serve_file

_CONFIG = """\
default_provider = "{first}"
"""
_PROVIDER = """
[providers.{name}]
kind = "llamacpp"
base_url = "{base_url}"
default_model = "{name}"
"""

_DETERMINISTIC = {"temperature": 0, "max_tokens": 256}
"""Sampling with the same replies each time, and a limit: a model may never stop by itself."""


def add(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    add_base_url(parser)
    about = "model to ask there; without --base-url a GGUF file, which the demo runs with its own llama.cpp"
    parser.add_argument("--model", metavar="M", help=about)
    add_api_key(parser)
    parser.add_argument("--provider", metavar="KIND", help="kind of the server (see: promptools providers)")
    add_json(parser)


def run(arguments: argparse.Namespace) -> int:
    """Run every conversation; return 0 if all of those through promptools went as expected."""
    if arguments.base_url:
        if not arguments.model:
            raise UsageError("--base-url also needs --model: the name that the server knows its model by")
        seen = list(_run_own_server(arguments))
    elif arguments.provider:
        raise UsageError("--provider belongs to --base-url: without it the demo brings its own server, llama.cpp")
    else:
        path = _model_file(arguments.model) if arguments.model else None
        if not can_serve():
            print_progress(
                "the demo's own server needs xllamacpp, gguf and numpy: pip install 'promptools-compat[demo]';"
                " where xllamacpp has no wheel, use a server of yours: promptools demo --base-url URL --model M"
            )
            return 1
        seen = list(_run_model_file(path) if path else _run_scripted())
    if arguments.json:
        print_json([asdict(result) for result in seen])
    else:
        _show(seen)
    wrong = [result for result in seen if not result.fine]
    if wrong:
        print_progress(f"{len(wrong)} of {len(seen)} conversations are not as they should be")
    elif not arguments.json:
        print_progress("everything is as it should be")
    return 1 if wrong else 0


def _run_scripted() -> Iterator[ScenarioResult]:
    """Run the conversation in all ways, on two real llama.cpp servers with a proxy in front of them."""
    print_progress(
        "starting llama.cpp twice: a model that follows its template, and one that breaks the server's parser ..."
    )
    with (
        serve(weather.hermes_script(), template="hermes", name="hermes") as good,
        serve(weather.gpt_oss_script(), template="harmony", name="gpt-oss") as breaking,
        _config({"hermes": good.base_url, "gpt-oss": breaking.base_url}) as config,
        _proxy("--config", str(config), "--allow-provider") as proxy,
    ):
        yield run_scenario(Scenario("straight to the server", good.base_url, "hermes", direct=True))
        well = Scenario("", proxy, "hermes", answer=weather.ANSWER)
        yield run_scenario(replace(well, title="promptools, native", options={"mode": "native"}, mode="native"))
        yield run_scenario(replace(well, title="promptools, prompt", options={"mode": "prompt"}, mode="prompt"))
        yield run_scenario(replace(well, title="promptools, streamed", stream=True, mode="native"))
        yield run_scenario(
            Scenario("straight, the parser breaks", breaking.base_url, "gpt-oss", direct=True, must_fail=True)
        )
        broken = replace(well, model="gpt-oss", options={"provider": "gpt-oss"}, mode="harmony", needs_retry=True)
        yield run_scenario(replace(broken, title="promptools, fallback"))
        yield run_scenario(replace(broken, title="promptools, fallback, streamed", stream=True))


def _model_file(name: str) -> Path:
    path = Path(name)
    if not path.is_file() and path.suffix.lower() != ".gguf":
        raise UsageError(
            f"--model {name!r} is not a file: write the path of a GGUF file,"
            " or add --base-url for a model of your own server"
        )
    check_gguf(path)
    return path


def _run_model_file(path: Path) -> Iterator[ScenarioResult]:
    """Run the conversation with the model in the file `path`, on a llama.cpp server started for it."""
    print_progress(f"starting llama.cpp on {path.name} ...")
    with serve_file(path) as server, _proxy("--base-url", server.base_url) as proxy:
        route = Scenario("", proxy, server.name, sampling=_DETERMINISTIC, lenient=True)
        yield run_scenario(replace(route, title="straight to the server", base_url=server.base_url, direct=True))
        yield from _run_through_promptools(route)


def _run_own_server(arguments: argparse.Namespace) -> Iterator[ScenarioResult]:
    require_server(arguments.base_url)
    kind = ["--provider", arguments.provider] if arguments.provider else []
    with _proxy("--base-url", arguments.base_url, *kind) as proxy:
        key = server_key(arguments) or "none"
        yield run_scenario(
            Scenario("straight to the server", arguments.base_url, arguments.model, key=key, direct=True)
        )
        yield from _run_through_promptools(Scenario("", proxy, arguments.model, key=key))


def _run_through_promptools(scenario: Scenario) -> Iterator[ScenarioResult]:
    """Run the conversation of `scenario` through promptools, in three ways."""
    yield run_scenario(replace(scenario, title="promptools, as it chooses"))
    yield run_scenario(replace(scenario, title="promptools, prompt", options={"mode": "prompt"}, mode="prompt"))
    yield run_scenario(replace(scenario, title="promptools, streamed", stream=True))


@contextlib.contextmanager
def _config(providers: dict[str, str]) -> Generator[Path]:
    with tempfile.TemporaryDirectory(prefix="promptools-") as folder:
        path = Path(folder) / "promptools.toml"
        parts = [_PROVIDER.format(name=name, base_url=url) for name, url in providers.items()]
        path.write_text(_CONFIG.format(first=next(iter(providers))) + "".join(parts), encoding="utf-8")
        yield path


@contextlib.contextmanager
def _proxy(*arguments: str) -> Generator[str]:
    """Run `promptools serve` on a free port; yield its base URL."""
    command = [sys.executable, "-m", "promptools", "serve", "--port", "0", *arguments]
    environ = {name: value for name, value in os.environ.items() if name != "PROMPTOOLS_API_KEY"}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environ) as process:
        try:
            yield _address(process)
        finally:
            process.terminate()


def _address(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    for line in process.stdout:
        if line.startswith("listening "):
            return line.split()[1]
    raise UsageError("the proxy did not start; its message is above")


def _show(results: Sequence[ScenarioResult]) -> None:
    print_table(
        f"{weather.QUESTION!r}, with the tool get_weather",
        ("conversation", "the server said", "the app saw", "answered by, and why", ""),
        ((result.title, result.server, result.app, result.why, _verdict(result)) for result in results),
    )


def _verdict(result: ScenarioResult) -> str:
    if result.direct:
        return "without promptools" if result.fine else "WRONG: no failure to show"
    if not result.fine:
        return "WRONG"
    return "as it should be" if result.calls else "the model called nothing"
