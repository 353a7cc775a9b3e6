"""A real inference server in a separate process: start it, wait until it is up, keep its output, and stop it."""

from __future__ import annotations

import os
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self
from urllib.error import URLError
from urllib.request import ProxyHandler, build_opener

from promptools.errors import UpstreamError

_KEEP_LOGS_SECONDS = 7 * 24 * 3600.0


def cache_folder() -> Path:
    """Return the cache folder: the value of PROMPTOOLS_CACHE, or else `~/.cache/promptools`."""
    configured = os.environ.get("PROMPTOOLS_CACHE")
    return Path(configured).expanduser() if configured else Path.home() / ".cache" / "promptools"


@dataclass(frozen=True, slots=True)
class Server:
    """A running server. Use it in a `with` block, or call `stop()`."""

    name: str
    """The name of the server's model, for requests."""
    url: str
    """The server's root URL, without `/v1`."""
    log: Path
    """The file with the server's output."""
    process: subprocess.Popen[bytes]

    @property
    def base_url(self) -> str:
        """The `base_url` for an OpenAI client."""
        return f"{self.url}/v1"

    def stop(self) -> None:
        """End the process. Further calls do nothing."""
        if self.process.stdin is not None and not self.process.stdin.closed:
            self.process.stdin.close()
        try:
            self.process.wait(timeout=5)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        self.stop()


def start_server(
    name: str,
    command: Sequence[str],
    folder: Path,
    address: Callable[[str], str | None],
    *,
    health: str,
    seconds: float,
    environment: Mapping[str, str] | None = None,
) -> Server:
    """Start a server with `command`, and wait until it answers.

    `stop()` ends the server by closing its standard input. `address` finds the server's root URL in the output so far.
    `health` is a path that responds with 200 when the server is up. `environment` is the server's whole environment, by
    default that of this process. The output goes to a log in `folder`, where logs older than a week are deleted. Raises
    `UpstreamError` if the process ends, or if the server does not answer within `seconds`.
    """
    folder.mkdir(parents=True, exist_ok=True)
    _drop_old_logs(folder)
    handle, path = tempfile.mkstemp(prefix=f"{name}-", suffix=".log", dir=folder)
    log = Path(path)
    with os.fdopen(handle, "wb") as output:
        process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=output, stderr=subprocess.STDOUT, env=environment
        )
    try:
        return Server(name, _wait(process, log, address, health, seconds), log, process)
    except BaseException:
        process.kill()
        process.communicate()
        raise


def _wait(
    process: subprocess.Popen[bytes], log: Path, address: Callable[[str], str | None], health: str, seconds: float
) -> str:
    """Wait for the address in the log, then for a successful health check; return the address."""
    until = time.monotonic() + seconds
    url = None
    while time.monotonic() < until:
        ended = process.poll()
        text = log.read_text(encoding="utf-8", errors="replace")
        if ended is not None:
            raise UpstreamError(f"the server ended with status {ended} while starting; its log ends: {text[-800:]}")
        url = url or address(text)
        if url is not None and _answers(url + health):
            return url
        time.sleep(0.02)
    raise UpstreamError(f"the server did not come up in {seconds:g} seconds; its log is {log}")


def _answers(url: str) -> bool:
    opener = build_opener(ProxyHandler({}))  # no HTTP_PROXY: the server is on this machine
    try:
        with opener.open(url, timeout=5) as reply:
            return bool(reply.status == 200)
    except (URLError, OSError):
        return False


def _drop_old_logs(folder: Path) -> None:
    for log in folder.glob("*.log"):
        try:
            if time.time() - log.stat().st_mtime > _KEEP_LOGS_SECONDS:
                log.unlink()
        except FileNotFoundError:
            pass  # another process deleted it first
