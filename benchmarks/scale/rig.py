"""The processes of the measurements: the paced server with its clients, the proxy with one worker, and Redis."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import redis

ROOT = Path(__file__).parents[2]
KEY, LIMITED_KEY, BOUNDED_KEY = "k-plain", "k-limited", "k-bounded"
"""API keys of the proxy with Redis: one without limits, one with a limit on requests per minute, and one with a limit
on requests in progress."""
CONFIG = """
[providers.stub]
kind = "openai-compatible"
base_url = "{url}"
detect = false

[proxy.keys.plain]
env = "PLAIN_KEY"
[proxy.keys.limited]
env = "LIMITED_KEY"
requests_per_minute = 1000000
[proxy.keys.bounded]
env = "BOUNDED_KEY"
concurrency = 100000
"""


class Streams:
    """The paced server and its clients."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None
        self._process = process
        self.port = int(process.stdout.readline())

    def begin(self, job: dict[str, Any]) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(job) + "\n")
        self._process.stdin.flush()

    def end(self) -> dict[str, float]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError("the process of the clients has ended: see above")
        return dict(json.loads(line))

    def run(self, job: dict[str, Any]) -> dict[str, float]:
        self.begin(job)
        return self.end()


@dataclass(frozen=True, slots=True)
class ProxyProcess:
    """A proxy with one worker, in one process."""

    port: int
    process: psutil.Process

    def spent(self) -> float:
        """Return the processor time of the process so far, in seconds."""
        times = self.process.cpu_times()
        return float(times.user + times.system)

    def resident(self) -> float:
        """Return the resident memory of the process, in bytes."""
        return float(self.process.memory_info().rss)

    def descriptors(self) -> int:
        """Return the number of open file descriptors of the process."""
        return int(self.process.num_fds())

    def ask(self, path: str, body: dict[str, Any], key: str) -> dict[str, Any]:
        """Send a request that is not streamed; return its response."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        fields = {"Authorization": f"Bearer {key}", "Content-Type": "application/json"}
        connection.request("POST", path, json.dumps(body), fields)
        response = connection.getresponse()
        text = response.read()
        connection.close()
        if response.status != 200:
            raise RuntimeError(f"HTTP {response.status}: {text[:300]!r}")
        return dict(json.loads(text))


@contextlib.contextmanager
def paced_streams() -> Iterator[Streams]:
    """Run the server and its clients."""
    with _process([sys.executable, "-m", "benchmarks.scale.paced"]) as process:
        yield Streams(process)


@contextlib.contextmanager
def proxy(upstream: int, *, redis_url: str = "") -> Iterator[ProxyProcess]:
    """Run the proxy with one worker; if `redis_url` is given, run it with Redis and the three keys."""
    url = f"http://127.0.0.1:{upstream}/v1"
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "promptools", "serve", "--port", "0", "--no-detect"]
        if redis_url:
            config = Path(folder) / "promptools.toml"
            config.write_text(CONFIG.format(url=url), encoding="utf-8")
            command += ["--config", str(config), "--provider", "stub", "--redis-url", redis_url]
        else:
            command += ["--base-url", url]
        keys = {"PLAIN_KEY": KEY, "LIMITED_KEY": LIMITED_KEY, "BOUNDED_KEY": BOUNDED_KEY}
        with _process(command, keys if redis_url else {}) as process:
            assert process.stdout is not None
            line = next(line for line in process.stdout if line.startswith("listening "))
            yield ProxyProcess(int(line.strip().rpartition(":")[2].partition("/")[0]), psutil.Process(process.pid))


@contextlib.contextmanager
def redis_server() -> Iterator[tuple[str, Any] | str]:
    """Run Redis; yield its URL and a client, or the reason why it cannot run."""
    sys.path.insert(0, str(ROOT / "tools"))
    import environments
    from recipes.recipe import CannotMakeError

    try:
        program = environments.path_of("redis")
    except (CannotMakeError, subprocess.CalledProcessError) as error:
        yield f"cannot be installed: {error}"
        return
    from benchmarks.proxy import free_port

    port = free_port()
    command = [str(program), "--port", str(port), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no"]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as process:
        try:
            client: Any = redis.Redis(port=port)
            _wait_until_up(client)
            yield f"redis://127.0.0.1:{port}/0", client
        finally:
            process.terminate()


def _wait_until_up(client: Any) -> None:
    for _ in range(100):
        with contextlib.suppress(redis.ConnectionError):
            client.ping()
            return
        time.sleep(0.1)
    raise RuntimeError("Redis did not start")


@contextlib.contextmanager
def _process(command: list[str], settings: dict[str, str] | None = None) -> Iterator[subprocess.Popen[str]]:
    pipe, environment = subprocess.PIPE, os.environ | {"PYTHONPATH": str(ROOT)} | (settings or {})
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, cwd=ROOT, env=environment) as process:
        try:
            yield process
        finally:
            process.terminate()
