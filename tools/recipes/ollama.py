"""Ollama, built from its module, over llama.cpp from a wheel.

Ollama is two programs: its own server in Go (API, scheduler, templates, parsers), and llama.cpp's `llama-server`, which
it starts for each model. The first is built here, unchanged; the second would take a quarter of an hour and a C++
compiler, so the wheel xllamacpp is used instead (`llama_server.py`). In place of `llama-quantize`, which `ollama
create` uses to check a model, a script copies the file.
"""

from __future__ import annotations

import hashlib
import os
import shutil
from pathlib import Path

from recipes.recipe import Recipe, need, run

VERSION = "0.32.15"

_MODULE = "github.com/ollama/ollama"
_STAND_IN = Path(__file__).with_name("llama_server.py")
_SERVER = '#!/bin/sh\nexec "{python}" "{script}" "$@"\n'
# --allow-requantize IN OUT TYPE: no conversion is needed, so the output is a copy of the input
_QUANTIZE = '#!/bin/sh\nexec cp "$2" "$3"\n'


def _check() -> None:
    need("go", f"Ollama {VERSION} is built from its Go module, which takes Go 1.26 or later (https://go.dev/dl)")
    need("cc", "Ollama's Go module has parts in C, which take a C compiler")


def _finish(folder: Path) -> None:
    version = f"-X={_MODULE}/version.Version={VERSION}"  # without it the server reports version 0.0.0
    settings = os.environ | {"GOBIN": str(folder / "bin"), "GOFLAGS": "-mod=mod", "CGO_ENABLED": "1"}
    run([need("go", "install it"), "install", "-ldflags", version, f"{_MODULE}@v{VERSION}"], settings)
    beside = folder / "lib" / "ollama"
    beside.mkdir(parents=True, exist_ok=True)
    script = Path(shutil.copy(_STAND_IN, beside))
    _program(beside / "llama-server", _SERVER.format(python=folder / "bin" / "python", script=script))
    _program(beside / "llama-quantize", _QUANTIZE)


def _program(path: Path, text: str) -> None:
    path.write_text(text, encoding="utf-8")
    path.chmod(0o755)


OLLAMA = Recipe(
    ("xllamacpp==2026.10.11549",),
    only_binary=("xllamacpp",),
    check=_check,
    finish=_finish,
    gives="bin/ollama",
    marks=(VERSION, _SERVER, _QUANTIZE, hashlib.sha256(_STAND_IN.read_bytes()).hexdigest()),
)
