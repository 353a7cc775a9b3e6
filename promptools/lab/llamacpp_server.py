"""llama.cpp's own HTTP server, from the wheel xllamacpp, on a scripted model or on any GGUF file."""

from __future__ import annotations

import importlib.util
import json
import os
import sys
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal

from promptools.errors import UsageError, install_command
from promptools.lab.script import ScriptedReply, SpecialTokens
from promptools.lab.scripted_model import CONTEXT, write_model
from promptools.lab.server_process import Server, cache_folder, start_server

LlamacppTemplate = Literal["hermes", "harmony", "plain"]
"""The chat templates in this package: `hermes` is ChatML with Hermes tool tags, `harmony` is for gpt-oss's format, and
`plain` is ChatML without tools."""

TEMPLATES = Path(__file__).parent / "templates"
_NO_SPECIAL_TOKENS = SpecialTokens()
FILE_CONTEXT = 8192
"""Context size in tokens for each slot of a model from a file. A slot serves one request at a time. The size is enough
for a conversation with tools, and needs only moderate memory."""
_BOOT_SECONDS = 60.0
_FILE_BOOT_SECONDS = 600.0  # gigabytes from a slow disk
_MAGIC = b"GGUF"


def can_serve() -> bool:
    """Return whether xllamacpp, gguf and numpy are installed, without importing them."""
    return all(importlib.util.find_spec(name) is not None for name in ("xllamacpp", "gguf", "numpy"))


def serve(
    lines: Iterable[ScriptedReply],
    *,
    template: LlamacppTemplate | Path = "hermes",
    name: str = "scripted",
    folder: Path | None = None,
    slots: int = 4,
    context: int = 2 * CONTEXT,
    special: SpecialTokens = _NO_SPECIAL_TOKENS,
    options: Mapping[str, Any] = MappingProxyType({}),
) -> Server:
    """Write a scripted model with the replies `lines`, start a server on it, and wait until the server is up.

    The model and the log are written to `folder`, by default `lab` in the cache folder. `context` is the number of
    tokens that all `slots` share. `special` holds the special tokens of the template's family. `options` sets
    attributes of xllamacpp's `CommonParams`, such as `use_jinja`. Raises `UsageError` if a package is not installed,
    and `UpstreamError` if the server does not come up.
    """
    if not can_serve():
        raise UsageError(f"running llama.cpp here needs xllamacpp, gguf and numpy: {install_command('demo')}")
    folder = folder or cache_folder() / "lab"
    path = template if isinstance(template, Path) else TEMPLATES / f"{template}.jinja"
    settings = {
        "model": str(write_model(lines, folder, special=special)),
        "name": name,
        "template": path.read_text(encoding="utf-8"),
        "slots": slots,
        "context": context,
        "options": dict(options),
    }
    return _start(settings, folder, _BOOT_SECONDS)


def serve_file(
    path: Path,
    *,
    name: str | None = None,
    folder: Path | None = None,
    slots: int = 1,
    context: int = FILE_CONTEXT,
    threads: int | None = None,
) -> Server:
    """Start the server on the GGUF file `path`, with the file's own chat template, and wait until it is up.

    `name` is the model's name, by default the file's name without `.gguf`. `context` is the number of tokens for each
    of the `slots`. `threads` defaults to the number of cores. The log is written to `folder`, with the same default as
    in `serve`. Raises `UsageError` if `path` is not a GGUF file or xllamacpp is not installed, and `UpstreamError` if
    the server does not come up.
    """
    check_gguf(path)
    if importlib.util.find_spec("xllamacpp") is None:
        raise UsageError(f"running llama.cpp here needs xllamacpp: {install_command('demo')}")
    settings = {
        "model": str(path.resolve()),
        "name": name or path.stem,
        "slots": slots,
        "context": slots * context,
        "threads": threads or _cores(),
    }
    return _start(settings, folder or cache_folder() / "lab", _FILE_BOOT_SECONDS)


def check_gguf(path: Path) -> None:
    """Raise `UsageError` unless there is a GGUF file at `path`."""
    try:
        with path.open("rb") as stream:
            magic = stream.read(len(_MAGIC))
    except OSError as error:
        raise UsageError(f"cannot read the model {str(path)!r}: {error.strerror}; pass a GGUF file") from error
    if magic != _MAGIC:
        raise UsageError(
            f"{str(path)!r} is not a GGUF file: it begins with {magic!r}, not {_MAGIC!r}; convert the model to GGUF"
        )


def _cores() -> int:
    """Return the number of cores that this process may use; before Python 3.13, the number of cores of the machine."""
    return getattr(os, "process_cpu_count", os.cpu_count)() or 1


def _start(settings: dict[str, Any], folder: Path, seconds: float) -> Server:
    with tempfile.NamedTemporaryFile("w", suffix=".json", encoding="utf-8") as file:
        json.dump(settings, file)
        file.flush()
        command = [sys.executable, "-m", "promptools.lab.llamacpp_host", file.name]
        return start_server(settings["name"], command, folder, _address, health="/health", seconds=seconds)


def _address(printed: str) -> str | None:
    return next((line.split()[1] for line in printed.splitlines() if line.startswith("listening ")), None)
