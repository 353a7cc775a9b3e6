"""The process in which llama.cpp runs: `python -m promptools.lab.llamacpp_host SETTINGS.json`.

llama.cpp's server can only be stopped by ending its process. The server also writes to stdout, and a crash ends its
process. So the server gets a separate process. This process ends when its standard input closes, and so never outlives
the process that started it. The line `listening URL` on stdout means that the server is up.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
from pathlib import Path
from typing import Any


def run(settings: dict[str, Any]) -> None:
    """Run the server until standard input closes.

    If the settings have a `template`, the model is a scripted one, and is used with this template. If not, the model's
    own template is used.
    """
    xllamacpp: Any = importlib.import_module("xllamacpp")  # it ships no types

    params = xllamacpp.CommonParams()
    params.model.path = settings["model"]
    params.model_alias = {settings["name"]}
    params.hostnames = ["127.0.0.1"]
    params.port = 0  # any free port
    params.use_jinja = True
    params.n_ctx = settings["context"]
    params.n_parallel = settings["slots"]
    params.kv_unified = True
    if "template" in settings:
        _configure_scripted(xllamacpp, params, settings["template"])
    else:
        params.cpuparams.n_threads = params.cpuparams_batch.n_threads = settings["threads"]
    for name, value in settings.get("options", {}).items():
        setattr(params, name, value)
    params.warmup = False
    params.ui = False
    server = xllamacpp.Server(params)
    sys.stdout.write(f"\nlistening {server.listening_address}\n")
    sys.stdout.flush()
    sys.stdin.buffer.read()
    # the server's threads cannot be stopped: exit without running their destructors
    os._exit(0)


def _configure_scripted(xllamacpp: Any, params: Any, template: str) -> None:
    params.chat_template = template
    # cues differ by small angles: full precision is needed, and costs nothing at this size
    params.cache_type_k = xllamacpp.ggml_type.GGML_TYPE_F32
    params.cache_type_v = xllamacpp.ggml_type.GGML_TYPE_F32
    params.flash_attn_type = xllamacpp.llama_flash_attn_type.LLAMA_FLASH_ATTN_TYPE_DISABLED
    params.cpuparams.n_threads = 1
    params.cpuparams_batch.n_threads = 1
    params.cache_ram_mib = 64
    # a prompt attends to all cells up to the end of its batch, masked ones too: in small batches there are fewer
    params.n_ubatch = 128


if __name__ == "__main__":
    run(json.loads(Path(sys.argv[1]).read_text(encoding="utf-8")))
