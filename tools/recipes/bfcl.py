"""The Berkeley Function Calling Leaderboard: its own package, without what only its vector memory needs.

The handlers of all providers are imported at once, so their clients cannot be left out. What `memory_vector` needs is
left out: sentence-transformers brings PyTorch, which takes gigabytes. soundfile is added: qwen-agent imports it, but
does not require it.
"""

from __future__ import annotations

import sys

from recipes.recipe import CannotMakeError, Recipe

LEFT_OUT = ("faiss-cpu", "sentence-transformers")


def check() -> None:
    """Raise `CannotMakeError` for a Python for which numpy 1.26.4 has no wheel; the package pins that version."""
    if sys.version_info >= (3, 13):
        raise CannotMakeError("bfcl-eval pins numpy 1.26.4, which is for Python 3.12 or earlier: make .venv with one")


BFCL = Recipe(
    ("bfcl-eval==2026.3.23", "soundfile==0.13.1"),
    overrides=tuple(f"{name}; sys_platform == 'never'" for name in LEFT_OUT),
    only_binary=("numpy",),
    check=check,
    takes="0.4 GB",
)
