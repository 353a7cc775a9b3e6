"""How a request is served: the options of clients, of the proxy and of a request's own `promptools` key."""

from __future__ import annotations

from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from promptools import dialects
from promptools.errors import UsageError
from promptools.harmony.convert import Order, ToolsIn
from promptools.harmony.thoughts import Policy
from promptools.types import ModeName, Strictness
from promptools.wire.shapes import is_object

Hold = Literal["auto", "all"]
Arguments = Literal["auto", "whole", "live"]
OnMalformed = Literal["content", "call", "error"]
Prefill = Literal["auto", "none", "channel", "thought", "call"]
Accept = Annotated[tuple[str, ...], Field(strict=False)]
Count = Annotated[int, Field(ge=0)]
Seconds = Annotated[float, Field(ge=0, allow_inf_nan=False)]


class Options(BaseModel):
    """How a request is to be served; the body's `promptools` key sets any of it for one request."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    mode: ModeName | None = None
    """Use this mode only (None: the profile's, in order)."""
    provider: str | None = None
    """Use this provider of the config (None: the client's)."""
    dialect: str | None = None
    """Ask in this dialect in prompt mode (None: the profile's)."""
    strictness: Strictness = "balanced"
    """How much evidence a call in text needs."""
    accept: Accept | None = None
    """The dialects in which a call in text is one, beside the one asked for (None: the profile's)."""
    rescue: bool | None = None
    """Take a call that ends the reasoning of a reply without another word (None: of models that are known for it)."""
    hold: Hold = "auto"
    """`all` keeps a stream back until it is known to be good."""
    arguments: Arguments = "auto"
    """`live` streams a call's arguments as they come, `auto` those of calls that the server itself has parsed."""
    heartbeat: Seconds = 5.0
    """Seconds without a byte after which the client of a stream gets a comment; 0: never."""
    corrections: Count | None = None
    """How often the model may be asked to mend its calls (None: once; with `harmony_react` five times)."""
    trace: bool = False
    """Put a `promptools` key with the trace into the reply or the last chunk."""
    escape: bool = True
    """Make markup harmless in what the app did not write itself."""
    on_malformed: OnMalformed = "content"
    """What becomes of a malformed call when all is used up: its raw text, a call that does not fit, or an error."""
    tools_in: ToolsIn = "developer"
    """Harmony mode: the message that declares the tools."""
    thoughts: Policy = "last-final"
    """Harmony mode: which past thoughts are told."""
    order: Order = "analysis-first"
    """Harmony mode: what is told first of a past turn with calls, its thoughts or its words."""
    prefill: Prefill = "auto"
    """Harmony mode: how the reply begins. `channel`: on `analysis`, as HarmonyReAct's paper has it; `thought`: inside a
    thought, as its code has it; `call`: with the call that must come; `auto`: with it once it did not come."""
    harmony_react: bool = False
    """Harmony mode: tell the model what is wrong with its reply in a thought of its own, in HarmonyReAct's words."""
    date: str | None = None
    """Harmony mode: today, as `2025-06-28` (None: by the clock; empty: not told)."""

    @field_validator("accept")
    @classmethod
    def _dialects(cls, names: tuple[str, ...] | None) -> tuple[str, ...] | None:
        if names and dialects.unknown(names):
            raise ValueError
        return names

    @property
    def most_corrections(self) -> int:
        """Give how often the model may be asked to mend its calls; HarmonyReAct tries it five times."""
        return self.corrections if self.corrections is not None else 5 if self.harmony_react else 1

    def override(self, changes: Any, where: str = "promptools") -> Options:
        """Copy with the keys of `changes` replaced; an unknown key or a wrong value is a `UsageError`."""
        if changes is None:
            return self
        if not is_object(changes):
            raise UsageError(f"{where!r} must be an object of options, not {changes!r}")
        try:
            return Options.model_validate({**self.__dict__, **changes})
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
        name = str(first["loc"][0])
        if first["type"] == "extra_forbidden":
            raise UsageError(f"{where}: unknown option {name!r}; the options are {', '.join(OPTIONS)}")
        raise UsageError(f"{where}.{name} must be {_wanted(name)}, not {changes[name]!r}")


OPTIONS = tuple(Options.model_fields)
"""The keys that a request's `promptools` object may hold."""

_WORDS = {
    str: "a string",
    int: "a whole number, 0 or more",
    float: "a number, 0 or more",
    bool: "true or false",
}


def _wanted(name: str) -> str:
    """Say what the value of an option may be."""
    kind: Any = Options.model_fields[name].annotation
    kinds = get_args(kind) if get_origin(kind) in {Union, UnionType} else (kind,)
    first = kinds[0]
    if get_origin(first) is Annotated:
        first = get_args(first)[0]
    if get_origin(first) is Literal:
        words = f"one of {', '.join(map(repr, get_args(first)))}"
    elif get_origin(first) is tuple:
        words = f"a list of dialects ({', '.join(sorted(dialects.names()))})"
    else:
        words = _WORDS[first]
    return f"{words}, or null" if NoneType in kinds else words
