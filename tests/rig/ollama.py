"""A real Ollama on scripted models: its own server, scheduler, templates and parsers; only the models' text is ours.

A model's template decides which code parses its calls, and so how that fails: Ollama's Go code (from a Go template),
one of its built-in parsers, or llama.cpp's server (from the chat template in the model file). `OllamaTemplate` has one
of each.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NamedTuple

from promptools.errors import UpstreamError, UsageError
from promptools.lab.llamacpp_server import TEMPLATES
from promptools.lab.script import ScriptedReply
from promptools.lab.scripted_model import CONTEXT, write_model
from promptools.lab.server_process import Server, cache_folder, start_server
from rig import guard

OllamaTemplate = Literal["go", "jinja", "gptoss", "coder", "think", "notools"]
"""How a model's prompt is rendered and its reply parsed; the files in `modelfiles/` describe each."""

MODELFILES = Path(__file__).parent / "modelfiles"
_BOOT_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class ScriptedModel:
    """One scripted model of a server."""

    name: str
    lines: tuple[ScriptedReply, ...]
    template: OllamaTemplate = "go"
    context: int | None = CONTEXT
    """Its `num_ctx`, in tokens; None for the server's default (4,096)."""
    chat_template: str | None = None
    """The chat template in the model file of `jinja`; None: one with Hermes tags."""


def find_ollama() -> Path | None:
    """Return the path of the program `ollama`, if it is on PATH."""
    program = shutil.which("ollama")
    return Path(program) if program else None


def serve(
    lines: Iterable[ScriptedReply],
    *,
    template: OllamaTemplate = "go",
    name: str = "scripted",
    folder: Path | None = None,
    slots: int = 1,
    context: int | None = CONTEXT,
    program: Path | None = None,
) -> Server:
    """Start Ollama with one model with the replies `lines`; see `serve_models`. `context` is in tokens per slot."""
    models = [ScriptedModel(name, tuple(lines), template, context)]
    return serve_models(models, folder=folder, program=program, settings={"OLLAMA_NUM_PARALLEL": str(slots)})


def serve_models(
    models: Sequence[ScriptedModel],
    *,
    folder: Path | None = None,
    weights: Path | None = None,
    program: Path | None = None,
    port: int = 0,
    settings: Mapping[str, str] | None = None,
) -> Server:
    """Start Ollama and create `models` in it (about a second, and a third of one for each model).

    `program` is the `ollama` to run, by default the one on PATH. All its files are in `folder`, by default
    `lab/ollama` in the cache folder; models that are there already stay. `weights` is another folder for the files that
    models are created from: servers with the same models can share them. `settings` are environment variables of
    the server (OLLAMA_MAX_QUEUE and the like). `port` 0 is any free one. The server is named after the first model.
    Raises `UsageError` if there is no Ollama, and `UpstreamError` if it does not come up or refuses a model.
    """
    folder = folder or _default_folder()
    server, ollama = _start(models[0].name, folder, program, port, settings or {})
    try:
        for model in models:
            _create(model.name, _modelfile(model, weights or folder), folder, ollama)
    except BaseException:
        server.stop()
        raise
    return server


def serve_file(
    path: Path, *, name: str, context: int, folder: Path | None = None, program: Path | None = None
) -> Server:
    """Start Ollama with the model in the GGUF file `path`, with the chat template in the file; see `serve_models`."""
    folder = folder or _default_folder()
    server, ollama = _start(name, folder, program, 0, {})
    try:
        _create(name, f"FROM {path}\nPARAMETER num_ctx {context}\n", folder, ollama)
    except BaseException:
        server.stop()
        raise
    return server


def _default_folder() -> Path:
    return cache_folder() / "lab" / "ollama"


class _Ollama(NamedTuple):
    """The program `ollama`, and the environment in which it reaches the server."""

    program: Path
    environment: Mapping[str, str]


def _start(
    name: str, folder: Path, program: Path | None, port: int, settings: Mapping[str, str]
) -> tuple[Server, _Ollama]:
    program = program or find_ollama()
    if program is None:
        raise UsageError("running Ollama here needs the program `ollama` on PATH, or its path as `program`")
    environment = _environment(folder, port, settings)
    # an Ollama that is killed leaves its runners running: the guard ends them all
    server = start_server(
        name,
        [*guard.COMMAND, str(program), "serve"],
        folder,
        _address,
        health="/api/version",
        seconds=_BOOT_SECONDS,
        environment=environment,
    )
    return server, _Ollama(program, environment | {"OLLAMA_HOST": server.url})


def _environment(folder: Path, port: int, settings: Mapping[str, str]) -> dict[str, str]:
    """Return an environment that isolates the server: none of the user's Ollama files, no cloud."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("OLLAMA_")}
    return {
        **inherited,
        "HOME": str(folder / "home"),
        "OLLAMA_HOST": f"127.0.0.1:{port}",
        "OLLAMA_MODELS": str(folder / "models"),
        "OLLAMA_NOPRUNE": "1",
        "OLLAMA_NO_CLOUD": "1",
        **settings,
    }


def _address(printed: str) -> str | None:
    match = re.search(r"Listening on (127\.0\.0\.1:\d+)", printed)
    return f"http://{match[1]}" if match else None


def _modelfile(model: ScriptedModel, weights: Path) -> str:
    """Write the file of a scripted model, and return the text of its Modelfile."""
    hermes = (TEMPLATES / "hermes.jinja").read_text(encoding="utf-8")
    jinja = (model.chat_template or hermes) if model.template == "jinja" else None
    file = write_model(model.lines, weights, template=jinja)
    text = f"FROM {file}\n" + (MODELFILES / f"{model.template}.Modelfile").read_text(encoding="utf-8")
    return text if model.context is None else f"{text}PARAMETER num_ctx {model.context}\n"


def _create(name: str, modelfile: str, folder: Path, ollama: _Ollama) -> None:
    path = folder / f"{name}.Modelfile"
    path.write_text(modelfile, encoding="utf-8")
    done = subprocess.run(
        [ollama.program, "create", name, "-f", path],
        check=False,
        capture_output=True,
        text=True,
        env=ollama.environment,
    )
    if done.returncode != 0:
        raise UpstreamError(f"Ollama refused the model {name!r} ({path}): {done.stderr.strip()[-800:]}")
