"""The modes that an exchange can ask in."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from promptools.errors import UsageError
from promptools.modes.native import Native
from promptools.modes.prompt import Prompt

if TYPE_CHECKING:
    from promptools.modes.ask import Ask
    from promptools.modes.mode import Mode
    from promptools.types import ModeName

MODES: dict[ModeName, Mode] = {"native": cast("Mode", Native()), "prompt": cast("Mode", Prompt())}


def mode_of(name: ModeName) -> Mode:
    """Give a mode by its name."""
    return MODES[name]


def modes_for(ask: Ask, *, tools: bool) -> tuple[ModeName, ...]:
    """Give the modes to try, in order: the one that the request forces, else those that the profile lists.

    A request that has nothing to do with `tools` is the same in every mode: one is enough.
    """
    forced = ask.options.mode
    if forced is not None and forced not in MODES:
        raise UsageError(f"mode {forced!r} is not there yet; the modes are {', '.join(map(repr, MODES))}")
    wanted: tuple[ModeName, ...] = (forced,) if forced else ask.profile.modes
    listed: tuple[ModeName, ...] = tuple(name for name in wanted if MODES.get(name))
    if not listed:
        known = ", ".join(map(repr, MODES))
        raise UsageError(f"the profile lists no mode that is there ({ask.profile.modes!r}); the modes are {known}")
    return listed if tools else listed[:1]
