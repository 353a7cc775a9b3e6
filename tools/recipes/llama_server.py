"""The `llama-server` that Ollama starts for each model: llama.cpp's own server from the wheel xllamacpp.

Ollama looks for it in lib/ollama beside its bin folder, and speaks llama-server's options and HTTP API. The wheel is
the same server as a Python extension, so this file only turns the options into the wheel's settings. It stands there
by itself: nothing of promptools is on its path.
"""

from __future__ import annotations

import os
import sys
import time


def main(options: list[str]) -> None:
    """Do what Ollama asks for: list devices, show that the build works, or serve a model until Ollama is gone."""
    if "--list-devices" in options:
        print("Available devices:")  # none but the processor
        return
    parent = os.getppid()
    # Ollama starts it once without a model to read this line, then ends it
    _tell("system_info: n_threads = 1 | CPU : LLAMAFILE = 1 |")
    if "--model" in options:
        server = _serve(options)
        _tell(f"listening on {server.listening_address}")
    while os.getppid() == parent:  # an Ollama that was killed ends nobody
        time.sleep(0.1)
    os._exit(0)  # the server's threads have no orderly end


def _serve(options: list[str]) -> object:
    import xllamacpp

    params = xllamacpp.CommonParams()
    params.model.path = _given(options, "--model", "")
    params.hostnames = ["127.0.0.1"]
    params.port = int(_given(options, "--port", "0"))
    params.n_ctx = int(_given(options, "-c", "4096"))
    params.n_parallel = int(_given(options, "-np", "1"))
    params.use_jinja = "--no-jinja" not in options
    params.chat_template = _given(options, "--chat-template", "")
    params.n_batch = int(_given(options, "-b", "2048"))
    params.n_ubatch = int(_given(options, "-ub", "512"))
    params.ctx_shift = "--context-shift" in options
    params.n_keep = int(_given(options, "--keep", "0"))
    # scripted models tell phrases apart by small angles: full precision costs nothing at their size
    params.cache_type_k = xllamacpp.ggml_type.GGML_TYPE_F32
    params.cache_type_v = xllamacpp.ggml_type.GGML_TYPE_F32
    params.flash_attn_type = xllamacpp.llama_flash_attn_type.LLAMA_FLASH_ATTN_TYPE_DISABLED
    params.cpuparams.n_threads = 1
    params.cpuparams_batch.n_threads = 1
    params.cache_ram_mib = 64
    params.warmup = False
    params.ui = False
    return xllamacpp.Server(params)


def _given(options: list[str], name: str, default: str) -> str:
    return options[options.index(name) + 1] if name in options else default


def _tell(line: str) -> None:
    sys.stderr.write(line + "\n")
    sys.stderr.flush()


if __name__ == "__main__":
    main(sys.argv[1:])
