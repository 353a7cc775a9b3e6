"""Start vLLM with a forked engine: `python -m scripted.boot MODULE ...` in place of `python -m MODULE ...`.

On a CPU, vLLM spawns a fresh process for its engine, which imports everything and reads the vocabulary again: ten
seconds of work. A forked one inherits both, as on other devices. Everything else is unchanged.
"""

from __future__ import annotations

import multiprocessing
import runpy
import sys
from typing import Any

_forking: Any = multiprocessing.get_context("fork")


def _get_context(method: str | None = None) -> Any:  # whatever is asked for
    return _forking


if __name__ == "__main__":
    multiprocessing.get_context = _get_context
    del sys.argv[0]
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
