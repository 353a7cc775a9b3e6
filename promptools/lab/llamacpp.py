"""llama.cpp's own HTTP server, from the wheel xllamacpp, on a scripted model."""

from __future__ import annotations

import importlib.util
import json
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Literal

from promptools.errors import UsageError
from promptools.lab.model import CONTEXT, make_model
from promptools.lab.script import Line
from promptools.lab.server import Server, cache, start

Template = Literal["hermes", "harmony", "plain"]
"""Chat templates that ship with the lab: ChatML with Hermes tool tags, gpt-oss's Harmony, ChatML without tools."""

TEMPLATES = Path(__file__).parent / "templates"
_BOOT_SECONDS = 60.0


def can_serve() -> bool:
    """Tell whether xllamacpp, gguf and numpy are installed here; imports none of them."""
    return all(importlib.util.find_spec(name) is not None for name in ("xllamacpp", "gguf", "numpy"))


def serve(
    lines: Iterable[Line],
    *,
    template: Template | Path = "hermes",
    name: str = "scripted",
    folder: Path | None = None,
    slots: int = 4,
    context: int = 2 * CONTEXT,
) -> Server:
    """Start the server on a model that speaks `lines`, and wait until it answers (about a second).

    `folder` keeps the model and the log; without one it is `lab` in the cache folder. `context` is in tokens, shared
    by all `slots`. Raises `UsageError` where xllamacpp is not installed, and `UpstreamError` where it does not come up.
    """
    if not can_serve():
        raise UsageError(
            "running llama.cpp here needs xllamacpp, gguf and numpy: pip install 'promptools-compat[demo]'"
        )
    folder = folder or cache() / "lab"
    path = template if isinstance(template, Path) else TEMPLATES / f"{template}.jinja"
    settings = {
        "model": str(make_model(lines, folder)),
        "name": name,
        "template": path.read_text(encoding="utf-8"),
        "slots": slots,
        "context": context,
    }
    with tempfile.NamedTemporaryFile("w", suffix=".json", encoding="utf-8") as told:
        json.dump(settings, told)
        told.flush()
        command = [sys.executable, "-m", "promptools.lab.llamacpp_host", told.name]
        return start(name, command, folder, _address, health="/health", seconds=_BOOT_SECONDS)


def _address(printed: str) -> str | None:
    return next((line.split()[1] for line in printed.splitlines() if line.startswith("listening ")), None)
