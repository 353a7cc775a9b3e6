"""Read a JSON value as the shape that is wanted, or as the empty one: bodies off the wire hold anything."""

from __future__ import annotations

from typing import Any, TypeGuard


def is_object(value: Any) -> TypeGuard[dict[str, Any]]:
    """Tell whether `value` is a JSON object."""
    return isinstance(value, dict)


def as_object(value: Any) -> dict[str, Any]:
    """Give `value` itself when it is an object, else an empty one."""
    return value if is_object(value) else {}


def is_list(value: Any) -> TypeGuard[list[Any]]:
    """Tell whether `value` is a JSON array."""
    return isinstance(value, list)


def as_list(value: Any) -> list[Any]:
    """Give `value` itself when it is an array, else an empty one."""
    return value if is_list(value) else []


def as_text(value: Any) -> str:
    """Give `value` itself when it is a string, else an empty one."""
    return value if isinstance(value, str) else ""


def as_int(value: Any) -> int | None:
    """Give `value` when it is a whole number; True and False are none."""
    return value if isinstance(value, int) and not isinstance(value, bool) else None
