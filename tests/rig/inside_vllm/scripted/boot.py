"""Start vLLM's server with a forked engine: `python -m scripted.boot`, not `-m vllm.entrypoints.openai.api_server`.

On a CPU, vLLM spawns a fresh process for its engine, which imports everything and reads the vocabulary again: ten
seconds of work. A forked one inherits both, as on other devices. Everything else is unchanged.
"""

from __future__ import annotations

import multiprocessing
import runpy
from typing import Any

_forking: Any = multiprocessing.get_context("fork")


def _get_context(method: str | None = None) -> Any:  # whatever is asked for
    return _forking


if __name__ == "__main__":
    multiprocessing.get_context = _get_context
    runpy.run_module("vllm.entrypoints.openai.api_server", run_name="__main__", alter_sys=True)
