"""How a request asks for tools, and how the reply is read back: one module a mode."""

from __future__ import annotations

from typing import TYPE_CHECKING

from promptools.errors import UsageError
from promptools.modes.native import Native
from promptools.modes.prompt import Prompt

if TYPE_CHECKING:
    from promptools.modes.mode import Mode

_MODES: dict[str, Mode] = {each.name: each for each in (Native(), Prompt())}


def get(name: str) -> Mode:
    """Give the mode called `name`; raises UsageError when there is none."""
    if name not in _MODES:
        raise UsageError(f"there is no mode {name!r}; the modes are {', '.join(_MODES)}")
    return _MODES[name]


def names() -> tuple[str, ...]:
    """Give the modes that there are."""
    return tuple(_MODES)


__all__ = ["Native", "Prompt", "get", "names"]
