"""Start vLLM's server, its engine forked: `python -m scripted.boot` for `python -m vllm.entrypoints.openai.api_server`.

On a processor vLLM wants a fresh process for its engine, which imports everything and reads the vocabulary once more:
ten seconds of work. A fork has them, as it does on other devices. All else is as vLLM has it.
"""

from __future__ import annotations

import multiprocessing
import runpy
from typing import Any

_forking: Any = multiprocessing.get_context("fork")


def _get_context(method: str | None = None) -> Any:  # noqa: ARG001 - whatever is asked for
    return _forking


if __name__ == "__main__":
    multiprocessing.get_context = _get_context
    runpy.run_module("vllm.entrypoints.openai.api_server", run_name="__main__", alter_sys=True)
