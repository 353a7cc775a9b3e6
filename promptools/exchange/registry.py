"""The modes, by name, and which of them a request may be sent in."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from promptools.errors import UsageError
from promptools.modes.harmony import Harmony
from promptools.modes.native import Native
from promptools.modes.prompt import Prompt

if TYPE_CHECKING:
    from promptools.modes.ask import Ask
    from promptools.modes.mode import Mode
    from promptools.types import ModeName

MODES: dict[ModeName, Mode] = {
    "native": cast("Mode", Native()),
    "harmony": cast("Mode", Harmony()),
    "prompt": cast("Mode", Prompt()),
}
SPEAKS_HARMONY = "gpt-oss"
"""The family of models trained on Harmony."""


def mode_of(name: ModeName) -> Mode:
    """Return a mode by its name."""
    return MODES[name]


def modes_for(ask: Ask, *, tools: bool) -> tuple[ModeName, ...]:
    """Return the modes to try, in order: the one that the request forces, else those that the profile lists.

    A request that does not concern `tools` is the same in native and in prompt mode, so one of them is enough.
    Raises `UsageError` if the profile lists no mode, or if harmony mode is wanted and not possible.
    """
    profile, forced = ask.profile, ask.options.mode
    wanted: tuple[ModeName, ...] = (forced,) if forced else profile.modes
    if not wanted:
        raise UsageError(f"the profile lists no mode; set `modes` to some of {', '.join(map(repr, MODES))}")
    others: tuple[ModeName, ...] = tuple(name for name in wanted if name != "harmony")
    if others == wanted:
        return wanted if tools else wanted[:1]
    if profile.raw is None and not others:
        raise UsageError(
            f"harmony mode needs a raw endpoint, and none is known of a server of kind {profile.kind!r}. Say what"
            " server it is (provider=, or `kind` in the config), or set `raw` in its profile, as"
            " docs/reference/harmony-mode.md has it"
        )
    if profile.family != SPEAKS_HARMONY and not forced:
        raise UsageError(
            f"the profile of model {ask.model!r} lists harmony mode, gpt-oss' own format, and the model's family is"
            f" {profile.family or 'not known'}. Set family = {SPEAKS_HARMONY!r} on it in the config if it is one, or"
            " leave harmony out of `modes`"
        )
    if profile.raw is None:
        return others if tools else others[:1]
    return wanted if tools else (*others[:1], "harmony")
