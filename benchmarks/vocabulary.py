"""The vocabulary of gpt-oss, for benchmarks that count or render tokens."""

from __future__ import annotations

import os
import sys
from functools import cache
from pathlib import Path

from promptools.harmony import bpe_vocabulary

ROOT = Path(__file__).parents[1]


@cache
def why_not() -> str:
    """Make the vocabulary available to openai-harmony; return why that is impossible (empty: it is available)."""
    if bpe_vocabulary.configure_library(os.environ, Path.home()) is not None:
        return ""
    sys.path.insert(0, str(ROOT / "tools"))
    import environments
    from recipes.recipe import CannotMakeError

    try:
        os.environ[bpe_vocabulary.FOLDER_VARIABLE] = str(environments.path_of("o200k"))
    except CannotMakeError as error:
        return f"there is no vocabulary: {error}"
    finally:
        sys.path.pop(0)
    return ""
