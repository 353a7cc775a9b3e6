"""Type guards for the two JSON containers, and a writer that says what is nested too deeply."""

from __future__ import annotations

import json
from typing import Any, TypeGuard

from promptools.errors import UsageError


def is_object(value: object) -> TypeGuard[dict[str, Any]]:
    """Whether a JSON value is an object, whose keys are therefore strings."""
    return isinstance(value, dict)


def is_array(value: object) -> TypeGuard[list[Any]]:
    """Whether a JSON value is an array."""
    return isinstance(value, list)


def write_json(value: object, what: str, *, compact: bool = False) -> str:
    """Return a value as JSON. Raises `UsageError`, about `what`, for one that is nested too deeply."""
    try:
        return json.dumps(value, ensure_ascii=False, separators=(",", ":") if compact else None)
    except RecursionError:
        raise UsageError(f"{what}: nested too deeply to be written as JSON; flatten it") from None
