"""Real llama.cpp servers on scripted models: started in a process of their own, waited for, and stopped."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Literal, Self
from urllib.error import URLError
from urllib.request import ProxyHandler, build_opener

from promptools.errors import UpstreamError, UsageError
from promptools.lab.model import CONTEXT, make_model
from promptools.lab.script import Line

Template = Literal["hermes", "harmony", "plain"]
"""Chat templates that ship with the lab: ChatML with Hermes tool tags, gpt-oss's Harmony, ChatML without tools."""

TEMPLATES = Path(__file__).parent / "templates"
_BOOT_SECONDS = 60.0
_KEEP_LOGS_SECONDS = 7 * 24 * 3600.0


def can_serve() -> bool:
    """Tell whether xllamacpp, gguf and numpy are installed here; imports none of them."""
    return all(importlib.util.find_spec(name) is not None for name in ("xllamacpp", "gguf", "numpy"))


def cache() -> Path:
    """Give the folder for what may be made again: PROMPTOOLS_CACHE, else `~/.cache/promptools`."""
    told = os.environ.get("PROMPTOOLS_CACHE")
    return Path(told).expanduser() if told else Path.home() / ".cache" / "promptools"


@dataclass(frozen=True, slots=True)
class Server:
    """One running llama.cpp server. Use it in a `with` block, or call `stop()`."""

    name: str
    template: str
    url: str
    """Its root, without `/v1`."""
    log: Path
    process: subprocess.Popen[bytes]

    @property
    def base_url(self) -> str:
        """What an OpenAI client takes as `base_url`."""
        return f"{self.url}/v1"

    def stop(self) -> None:
        """End the process; calling it again does nothing."""
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


def serve(
    lines: Iterable[Line],
    *,
    template: Template | Path = "hermes",
    name: str = "scripted",
    folder: Path | None = None,
    slots: int = 4,
    context: int | None = None,
) -> Server:
    """Start llama.cpp's server on a model that speaks `lines`, and wait until it answers (about a second).

    `folder` keeps the model and the log; without one it is `lab` in the cache folder, where logs older than a week are
    dropped. `context` is in tokens, shared by all `slots`. Raises `UsageError` where xllamacpp is not installed, and
    `UpstreamError`, with the end of the log, where the server does not come up.
    """
    if not can_serve():
        raise UsageError("running llama.cpp here needs xllamacpp, gguf and numpy: pip install 'promptools[demo]'")
    folder = folder or cache() / "lab"
    model = make_model(lines, folder)
    _drop_old_logs(folder)
    handle, log = tempfile.mkstemp(prefix=f"{name}-", suffix=".log", dir=folder)
    settings = Path(log).with_suffix(".json")
    path = template if isinstance(template, Path) else TEMPLATES / f"{template}.jinja"
    wanted = {
        "model": str(model),
        "name": name,
        "template": path.read_text(encoding="utf-8"),
        "slots": slots,
        "context": CONTEXT * 2 if context is None else context,
    }
    settings.write_text(json.dumps(wanted), encoding="utf-8")
    with os.fdopen(handle, "wb") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", "promptools.lab.host", str(settings)],
            stdin=subprocess.PIPE,
            stdout=output,
            stderr=subprocess.STDOUT,
        )
    try:
        url = _wait_until_up(process, Path(log))
    except BaseException:
        process.kill()
        process.wait()
        raise
    finally:
        settings.unlink()
    return Server(name, path.stem, url, Path(log), process)


def _drop_old_logs(folder: Path) -> None:
    for log in folder.glob("*.log"):
        try:
            if time.time() - log.stat().st_mtime > _KEEP_LOGS_SECONDS:
                log.unlink()
        except FileNotFoundError:
            pass  # another process dropped it first


def _wait_until_up(process: subprocess.Popen[bytes], log: Path) -> str:
    """Wait for the line that names the address, then for a healthy answer from it."""
    opener = build_opener(ProxyHandler({}))  # whatever HTTP_PROXY says, this is our own machine
    until = time.monotonic() + _BOOT_SECONDS
    url = None
    while time.monotonic() < until:
        ended = process.poll()
        text = log.read_text(encoding="utf-8", errors="replace")
        if ended is not None:
            raise UpstreamError(f"llama.cpp ended with status {ended} while starting; its log ends: {text[-800:]}")
        if url is None:
            url = next((line.split()[1] for line in text.splitlines() if line.startswith("listening ")), None)
        if url is not None:
            try:
                with opener.open(f"{url}/health", timeout=5) as reply:
                    if reply.status == 200:
                        return url
            except (URLError, OSError):
                pass
        time.sleep(0.02)
    raise UpstreamError(f"llama.cpp did not come up in {_BOOT_SECONDS:g} seconds; its log is {log}")
