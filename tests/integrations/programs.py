"""Programs that the tests run: the proxy, and the clients before it."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import environments

ROOT = Path(__file__).parents[2]
HERE = Path(__file__).parent
FOLDERS = (HERE / "clients", HERE / "forms", HERE / "own_tools")
SECONDS = 180
NOT_PASSED_ON = ("PYTEST_", "COV_", "OPENAI_", "ANTHROPIC_", "CODEX_", "CLAUDE")


@contextmanager
def proxy_before(server: str) -> Iterator[str]:
    """Run `promptools serve` before a server; yield the proxy's root address."""
    command = [sys.executable, "-m", "promptools", "serve", "--base-url", server, "--port", "0"]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield next(line.split()[1] for line in process.stdout if line.startswith("listening ")).removesuffix("/v1")
        finally:
            process.terminate()


def environment(**variables: str) -> dict[str, str]:
    """Return this process's environment without what would change a client's ways, and with `variables`."""
    return {key: value for key, value in os.environ.items() if not key.startswith(NOT_PASSED_ON)} | variables


def run(command: list[str | Path], folder: Path, **variables: str) -> str:
    """Run a command, and return what it prints; how it fails is shown."""
    done = subprocess.run(
        command,
        cwd=folder,
        env=environment(**variables),
        check=False,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        encoding="utf-8",
        timeout=SECONDS,
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-5000:]
    return done.stdout


def run_ways(program: str, kind: str, environment: str, words: list[str], folder: Path) -> list[dict[str, Any]]:
    """Run a client's program in its environment; return what it tells of each way: see `clients/run_ways.py`."""
    path = environments.path_of(environment)
    if kind == "Node":
        (folder / "node_modules").symlink_to(path)
        for file in (file for where in FOLDERS for file in where.glob("*.mjs")):
            (folder / file.name).write_bytes(file.read_bytes())
        printed = run(["node", "run_ways.mjs", program, *words], folder)
    else:
        printed = run(
            [path, HERE / "clients" / "run_ways.py", program, *words],
            folder,
            HOME=str(folder),
            PYTHONPATH=os.pathsep.join(map(str, FOLDERS)),
            PYTHONDONTWRITEBYTECODE="1",
            LITELLM_LOCAL_MODEL_COST_MAP="True",
            OPENAI_AGENTS_DISABLE_TRACING="1",
        )
    return [json.loads(line) for line in printed.splitlines() if line.startswith('{"api"')]
