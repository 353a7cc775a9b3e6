"""`promptools batch --engine vllm` in the Python of a vLLM, on a scripted model: no server, the engine is its own.

promptools is not installed there: the checkout is on its path, and tenacity, the one dependency of batches that vLLM
does not bring.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tenacity

from promptools.lab.llamacpp_server import TEMPLATES
from promptools.lab.script import ScriptedReply
from promptools.lab.scripted_model import CONTEXT
from rig.vllm import VllmInstallation, VllmTemplate, isolated_environment, make_model, write_script

RAY = ("ray", "ray-*.dist-info", "dateutil", "msgpack", "pandas", "pyarrow")
"""Ray and those of its dependencies that vLLM does not bring; vLLM's own versions of the others are used."""
CHECKOUT = Path(__file__).parents[2]


@dataclass(frozen=True, slots=True)
class BatchRig:
    """A folder with a scripted model, in which batches run."""

    folder: Path
    model: Path
    installed: VllmInstallation
    template: VllmTemplate

    def start(self, *options: str, context: int = CONTEXT, slots: int = 4) -> subprocess.Popen[str]:
        """Start a batch of `in.jsonl` to `out.jsonl`, in a session of its own; `end` ends it.

        The engine has `context` tokens for each of `slots` requests. `options` are further words of the command.
        """
        # as for the server in `rig.vllm`, which has the reasons
        engine: dict[str, Any] = {
            "enforce_eager": True,
            "dtype": "bfloat16" if self.installed.version.startswith("0.28.") else "float32",
            "max_num_seqs": slots,
            "max_model_len": context,
            "max_num_batched_tokens": 4096,
            "kv_cache_memory_bytes": "128M",
            "logits_processors": ["scripted.words:Words"],
            "override_generation_config": {"temperature": 0},
            "chat_template": str(TEMPLATES / f"{self.template}.jinja"),
        }
        command = [str(self.installed.python), "-m", "scripted.boot", "promptools", "batch", "in.jsonl", "out.jsonl"]
        command += ["--engine", "vllm", "--model", str(self.model), "--engine-args", json.dumps(engine), *options]
        return subprocess.Popen(
            command,
            cwd=self.folder,
            env=self.environment(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def environment(self) -> dict[str, str]:
        """Return the variables of a process in which promptools and vLLM can be imported."""
        environment = isolated_environment(self.installed, self.folder / "lines.json")
        paths = [environment["PYTHONPATH"], str(CHECKOUT), str(self.folder / "packages")]
        return {**environment, "PYTHONPATH": os.pathsep.join(paths)}

    def add_ray(self, python: Path) -> None:
        """Make Ray importable in the engine's Python, from the environment of another Python of the same version.

        The processes of a cluster that a batch starts on this machine inherit its variables, and so import it, too.
        """
        (site,) = python.parents[1].glob("lib/python*/site-packages")
        for pattern in RAY:
            (package,) = site.glob(pattern)
            (self.folder / "packages" / package.name).symlink_to(package)

    def write(self, rows: Iterable[dict[str, Any]]) -> None:
        """Write the input."""
        (self.folder / "in.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")

    def read(self, name: str = "out.jsonl") -> dict[str, Any]:
        """Return the lines of a file by their `custom_id`."""
        rows = [json.loads(line) for line in (self.folder / name).read_text(encoding="utf-8").splitlines()]
        by_id = {row["custom_id"]: row for row in rows}
        assert len(by_id) == len(rows)
        return by_id


def make_rig(
    lines: Iterable[ScriptedReply], *, installed: VllmInstallation, template: VllmTemplate, folder: Path
) -> BatchRig:
    """Make the model, its script and the folder of what the vLLM's Python lacks."""
    write_script(lines, folder / "lines.json")
    shutil.copytree(Path(str(tenacity.__file__)).parent, folder / "packages" / "tenacity")
    return BatchRig(folder, make_model(template, installed, print), installed, template)
