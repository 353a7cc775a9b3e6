"""The real models of `tests/models`: those that `make models` names; without it, all that are here."""

import os
from pathlib import Path

import environments
import pytest

CHOSEN = "PROMPTOOLS_MODELS"
"""The variable by which `tools/stage.py` tells which models it was asked for."""


def file_of(model: str) -> Path:
    """Return the file of a model; skip the test where it is not here, or others are chosen."""
    chosen = os.environ.get(CHOSEN)
    if not environments.is_made(f"model-{model}") or (chosen is not None and model not in chosen.split()):
        pytest.skip(f"the model is not here, or others were chosen: make models MODELS={model}")
    return environments.path_of(f"model-{model}")
