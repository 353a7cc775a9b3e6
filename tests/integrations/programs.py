"""Programs that the tests run: the proxy, and the clients before it."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).parents[2]
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
