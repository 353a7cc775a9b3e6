"""Make further Python environments, outside the checkout, and tell where they are.

    python tools/environments.py NAME      make it if it is not there, print the path of its Python
    python tools/environments.py           list the names

They live under PROMPTOOLS_CACHE (default ~/.cache/promptools), in a folder named after what is pinned in it, so a
changed pin is a new environment. One that was left half-made is made again. promptools itself is not installed in
them: put the checkout on PYTHONPATH.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

CORE = ("jsonschema==4.26.0", "ollama==0.6.3", "pydantic==2.14.3", "regex==2026.11.15", "tenacity==9.2.1")
"""What promptools needs at run time, without the OpenAI client."""

TESTS = ("pytest==9.2.0", "uvicorn==0.54.0")

ENVIRONMENTS: dict[str, tuple[str, ...]] = {
    # the last release of each major: 3.x runs on httpx2, the others on httpx
    "openai-1": ("openai==1.109.1", *CORE, *TESTS),
    "openai-2": ("openai==2.54.0", *CORE, *TESTS),
    "openai-3": ("openai==3.54.0", *CORE, *TESTS),
    # what the benchmarks compare with
    "bench": (
        "baml-py==0.226.3",
        "json-repair==0.64.5",
        "orjson==3.13.0",
        "partial-json-parser==0.2.1.1.post7",
        "openai==3.54.0",
        *CORE,
        *TESTS,
    ),
}

_MADE = "made.json"


def cache() -> Path:
    """Give the folder that outlives checkouts: PROMPTOOLS_CACHE, else ~/.cache/promptools."""
    told = os.environ.get("PROMPTOOLS_CACHE")
    return Path(told).expanduser() if told else Path.home() / ".cache" / "promptools"


def folder_of(name: str) -> Path:
    """Give the folder of the environment `name`, there or not."""
    pins = json.dumps([ENVIRONMENTS[name], sys.version_info[:2]])
    return cache() / "environments" / f"{name}-{hashlib.sha256(pins.encode()).hexdigest()[:12]}"


def python_of(name: str) -> Path:
    """Give the Python of the environment `name`, made now if it is missing or half-made; tells on stderr."""
    if name not in ENVIRONMENTS:
        raise SystemExit(f"no environment is called {name!r}: there are {', '.join(ENVIRONMENTS)}")
    folder = folder_of(name)
    python = folder / "bin" / "python"
    if (folder / _MADE).exists():
        return python
    with _alone(folder):
        if not (folder / _MADE).exists():
            _make(name, folder, python)
    return python


def _make(name: str, folder: Path, python: Path) -> None:
    started = time.monotonic()
    print(f"environment {name}: making {folder}", file=sys.stderr, flush=True)
    shutil.rmtree(folder, ignore_errors=True)
    subprocess.run([sys.executable, "-m", "venv", folder], check=True)
    pins = ENVIRONMENTS[name]
    if not _install([sys.executable, "-m", "uv", "pip", "install", "-q", "--python", python, *pins]):
        subprocess.run([python, "-m", "pip", "install", "-q", *pins], check=True, stdout=sys.stderr)
    (folder / _MADE).write_text(json.dumps(pins), encoding="utf-8")
    print(f"environment {name}: made in {time.monotonic() - started:.0f} s", file=sys.stderr, flush=True)


def _install(command: list[str | Path]) -> bool:
    """Try the fast installer; its absence or failure is no error, pip is asked next."""
    return subprocess.run(command, check=False, capture_output=True).returncode == 0


@contextlib.contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Let one process at a time make `folder`; the system drops the lock of a process that died."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    with folder.with_suffix(".lock").open("w", encoding="utf-8") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


if __name__ == "__main__":
    if len(sys.argv) == 2:
        print(python_of(sys.argv[1]))
    else:
        for each in ENVIRONMENTS:
            state = "made" if (folder_of(each) / _MADE).exists() else "not made"
            print(f"{each:10} {state:9} {folder_of(each)}")
