"""A real vLLM on a scripted model: its own server, engine, templates and parsers; only the model's text is ours.

It runs on the CPU, from an environment of its own (`tools/environments.py vllm` creates one). A boot takes ten to forty
seconds, so the script can be changed while it runs.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from promptools.errors import UpstreamError, UsageError
from promptools.lab.llamacpp_server import TEMPLATES
from promptools.lab.script import ScriptedReply
from promptools.lab.scripted_model import CONTEXT
from promptools.lab.server_process import Server, cache_folder, start_server
from rig import guard

VllmTemplate = Literal["hermes", "harmony", "plain", "coder"]
"""A tiny Llama with Hermes tags, without tools or with Qwen3-Coder's XML; and gpt-oss, whose prompts vLLM renders."""

PLUGIN_FOLDER = Path(__file__).parent / "inside_vllm"
PARSERS: dict[VllmTemplate, str] = {"hermes": "hermes", "harmony": "openai", "plain": "hermes", "coder": "qwen3_coder"}
_BOOT_SECONDS = 600.0  # a busy machine takes ten times as long


@dataclass(frozen=True, slots=True)
class VllmInstallation:
    """An installation of vLLM."""

    python: Path
    """A Python with vLLM and its dependencies."""
    version: str
    """The version of vLLM, for messages."""
    packages: Path | None = None
    """A folder with another vLLM, which takes precedence over the environment's own."""
    vocabulary: Path | None = None
    """The folder of `o200k_base.tiktoken`; only gpt-oss needs it."""


@dataclass(frozen=True, slots=True)
class VllmServer(Server):
    """A running vLLM."""

    script: Path
    """The file with its script."""
    session: int
    """The id of the session and process group of all its processes."""

    def set_script(self, lines: Iterable[ScriptedReply]) -> None:
        """Replace the script, from the next request on."""
        write_script(lines, self.script)


def serve(
    lines: Iterable[ScriptedReply],
    *,
    installed: VllmInstallation,
    template: VllmTemplate = "hermes",
    chat_template: Path | None = None,
    tools: bool = True,
    name: str = "scripted",
    folder: Path | None = None,
    slots: int = 4,
    context: int = CONTEXT,
    port: int = 0,
    report: Callable[[str], None] | None = None,
) -> VllmServer:
    """Start vLLM on a model with the replies `lines`, and wait until it is up (ten to forty seconds).

    With `tools`, it has the two flags without which vLLM refuses tools: --enable-auto-tool-choice and
    --tool-call-parser. `chat_template` is the file of a template that is not in `promptools.lab`. `slots` requests run
    at once, the others wait. `context` is in tokens, for each. `port` 0 is any free one. `report` is called with
    progress messages, by default it prints them to stderr. Raises `UsageError` if the vocabulary is missing, and
    `UpstreamError` if a model cannot be created or the server does not come up.
    """
    report = report or _print_progress
    folder = folder or cache_folder() / "lab" / "vllm"
    folder.mkdir(parents=True, exist_ok=True)
    script = folder / f"{name}.lines.json"
    write_script(lines, script)
    port = port or _free_port()
    flags = ["--enable-auto-tool-choice", "--tool-call-parser", PARSERS[template]] if tools else []
    chat_template = chat_template or TEMPLATES / f"{template}.jinja"
    # the logits of gpt-oss's 200,000 tokens take six times as long in bfloat16 on a processor that does not know it;
    # vLLM 0.28 has it in bfloat16 only
    dtype = "bfloat16" if installed.version.startswith("0.28.") else "float32"
    command = [
        *(str(installed.python), "-m", "scripted.boot", "vllm.entrypoints.openai.api_server"),
        *("--model", str(make_model(template, installed, report)), "--served-model-name", name),
        *("--host", "127.0.0.1", "--port", str(port)),
        *("--enforce-eager", "--dtype", dtype, "--max-num-seqs", str(slots), "--max-model-len", str(context)),
        *("--max-num-batched-tokens", "4096", "--logits-processors", "scripted.words:Words"),
        *(
            "--kv-cache-memory-bytes",
            "128M",
        ),  # enough for `slots` prompts of maximum length; all of it is written at start
        *("--chat-template", str(chat_template)),  # passed even if it is not used: searching for one takes long
        # the script leaves one token: sampling it from 200,000 takes as long as the rest of a step; at temperature 0 a
        # request for several choices is refused unless it sets its own
        *("--override-generation-config", '{"temperature": 0}'),
        *flags,
    ]
    began = time.monotonic()
    label = f"vLLM {installed.version}, {template}, {'with' if tools else 'without'} tool flags"
    report(f"{label}: booting")
    server = start_server(
        name,
        [*guard.COMMAND, *command],
        folder,
        lambda printed: f"http://127.0.0.1:{port}" if "Application startup complete" in printed else None,
        health="/health",
        seconds=_BOOT_SECONDS,
        environment=isolated_environment(installed, script),
    )
    report(f"{label}: up after {time.monotonic() - began:.0f} s")
    session = re.search(r"guard: running (\d+)", server.log.read_text(encoding="utf-8", errors="replace"))
    assert session is not None, "the guard says what it runs before anything else"
    return VllmServer(server.name, server.url, server.log, server.process, script, int(session[1]))


def write_script(lines: Iterable[ScriptedReply], path: Path) -> None:
    """Write the script that a running vLLM reads, atomically."""
    unfinished = path.with_suffix(".part")
    unfinished.write_text(json.dumps([(line.cue, line.says, line.setting) for line in lines]), encoding="utf-8")
    unfinished.replace(path)


def isolated_environment(installed: VllmInstallation, script: Path) -> dict[str, str]:
    """Return an environment for vLLM on the CPU that isolates it: no downloads, no telemetry, no user settings."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("VLLM_")}
    # without its bytecode cache vLLM spends half of its boot compiling
    inherited.pop("PYTHONDONTWRITEBYTECODE", None)
    paths = [str(path) for path in (installed.packages, PLUGIN_FOLDER) if path is not None]
    settings: Mapping[str, str] = {
        "PYTHONPATH": os.pathsep.join(paths),
        "PROMPTOOLS_LINES": str(script),
        "HF_HUB_OFFLINE": "1",
        "DO_NOT_TRACK": "1",
        "OMP_NUM_THREADS": "1",
        "VLLM_NO_USAGE_STATS": "1",
        # its cache of model facts, one for each version: they overwrite each other's, and a miss takes ten seconds
        "VLLM_CACHE_ROOT": str(cache_folder() / "lab" / f"vllm-{installed.version}"),
        "VLLM_CPU_OMP_THREADS_BIND": "nobind",
        "VLLM_ENABLE_V1_MULTIPROCESSING": "0",  # the engine runs in the server's process: one process less to boot
        "VLLM_SYSTEM_START_DATE": "2026-01-01",  # for the date in gpt-oss's system message
    }
    if installed.vocabulary is not None:
        settings = {**settings, "TIKTOKEN_ENCODINGS_BASE": str(installed.vocabulary)}
    return {**inherited, **settings}


def make_model(template: VllmTemplate, installed: VllmInstallation, report: Callable[[str], None]) -> Path:
    """Return the folder of the model for a template; it is created atomically if it is missing."""
    kind = "gptoss" if template == "harmony" else "llama"
    source = [(PLUGIN_FOLDER / "scripted" / "models.py").read_bytes()]
    ranks: list[str] = []
    if kind == "gptoss":
        if installed.vocabulary is None:
            raise UsageError("gpt-oss needs the folder of o200k_base.tiktoken: give it as `Installed.vocabulary`")
        ranks = [str(installed.vocabulary / "o200k_base.tiktoken")]
        source.append(Path(ranks[0]).read_bytes())
    folder = cache_folder() / "lab" / f"vllm-{kind}-{hashlib.sha256(b''.join(source)).hexdigest()[:16]}"
    if folder.exists():
        return folder
    report(f"vLLM: making the model {kind} in {folder}")
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f"{folder.name}-", dir=folder.parent) as scratch:
        done = subprocess.run(
            [installed.python, "-m", "scripted.models", kind, scratch, *ranks],
            check=False,
            capture_output=True,
            text=True,
            env=os.environ | {"PYTHONPATH": str(PLUGIN_FOLDER), "HF_HUB_OFFLINE": "1"},
        )
        if done.returncode != 0:
            raise UpstreamError(f"the model {kind} could not be made with {installed.python}: {done.stderr[-800:]}")
        if not folder.exists():  # another process was faster
            Path(scratch).rename(folder)
            Path(scratch).mkdir()  # for the cleanup of the temporary folder
    return folder


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _print_progress(text: str) -> None:
    print(text, file=sys.stderr, flush=True)  # a boot is long: silence would look like a hang
