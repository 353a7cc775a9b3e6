"""Define and check the options of a request, which come from a client, the proxy, or the request's `promptools` key."""

from __future__ import annotations

from collections.abc import Sequence
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, TypedDict, Union, get_args, get_origin

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from promptools import dialects
from promptools.errors import UsageError, clip, did_you_mean, suggest
from promptools.harmony.conversation import CallOrder, ReasoningPolicy
from promptools.json_values import is_object
from promptools.profiles.profile import OnRepeat
from promptools.types import ModeName, Strictness, ToolPlacement

Hold = Literal["auto", "all"]
ArgumentStreaming = Literal["auto", "whole", "live"]
Undeclared = Literal["auto", "call"]
OnMalformed = Literal["content", "call", "error"]
Prefill = Literal["auto", "none", "channel", "thought", "call"]
Accept = Annotated[tuple[str, ...], Field(strict=False)]
Count = Annotated[int, Field(ge=0)]
Seconds = Annotated[float, Field(ge=0, allow_inf_nan=False)]


class RequestOptions(TypedDict, total=False):
    """The options of a request, as an app writes them.

    They do not include `provider`, which is declared with the client settings (`Settings`).
    """

    mode: ModeName | None
    """Use this mode only (None: the modes of the profile, in their order)."""
    agent: bool
    """Use the modes, reasoning effort and temperature that the profile has for agents."""
    family: str | None
    """The model family that the request is written for; an error if the model is known to belong to another family."""
    dialect: str | None
    """The dialect (text format of calls) that prompt mode uses (None: the profile's dialect)."""
    strictness: Strictness
    """How much evidence a call in text needs: `strict` requires the most, `lenient` the least."""
    accept: Sequence[str] | None
    """The dialects in which calls in text are recognized, besides the requested one (None: those of the profile)."""
    rescue: bool | None
    """Accept a call at the end of the reasoning if the reply has no other text (None: the dialect decides)."""
    hold: Hold
    """`all` holds a stream back until the reply is known to be good."""
    arguments: ArgumentStreaming
    """`live` streams a call's arguments as they arrive, `auto` only if the server parsed the call, `whole` never."""
    heartbeat: float
    """After this many seconds of silence, the client of a stream gets an SSE comment; 0: never."""
    corrections: int | None
    """How many times the model may be asked to correct its calls (None: once; with `harmony_react`, five times)."""
    trace: bool
    """Add a `promptools` key with the trace to the reply or the last chunk."""
    escape: bool
    """Escape markup in text that the app did not write itself."""
    heal_format: bool
    """Repair answers that do not match `response_format`, and ask again for those that cannot be repaired."""
    on_repeat: OnRepeat | None
    """What is done about a call that the history contains at least `repeats` times with the same result.

    `hint` tells the model that it repeats the call, `answer` makes the model answer without tools, and `off` does
    nothing. None means the profile's setting. If the profile has none, `hint` is used in prompt and harmony mode; in
    other modes, the repetition is only noted in the trace.
    """
    repeats: int
    """How many times the history must contain a call with the same result for `on_repeat` to apply; 0: never."""
    undeclared: Undeclared
    """`call` passes on calls to tools that the request does not declare, even if the request declares no tools."""
    on_malformed: OnMalformed
    """What a malformed call becomes after the last attempt.

    `content`: its text; `call`: a call whose arguments do not match the schema; `error`: an error.
    """
    tools_in: ToolPlacement | None
    """Harmony mode: which message declares the tools (None: as the profile says with `agent`, else `developer`)."""
    namespaces: dict[str, str]
    """Harmony mode: maps the names of tool namespaces to their descriptions."""
    thoughts: ReasoningPolicy
    """Harmony mode: which past reasoning is sent.

    `last-final`: the reasoning after the last final answer; `turn`: the reasoning after the user's last message;
    `first-final`, as in openai-harmony: the reasoning after the first final answer, or all reasoning if the assistant's
    last message is not a final answer; `keep`: all reasoning.
    """
    order: CallOrder
    """Harmony mode: what comes first in a past turn with calls, its reasoning or its text."""
    prefill: Prefill
    """Harmony mode: how the reply begins.

    `channel`: in the channel `analysis`, as in HarmonyReAct's paper; `thought`: inside an analysis message, as in
    HarmonyReAct's code; `call`: with the required call; `auto`: with that call, but only after a reply without it.
    """
    harmony_react: bool
    """Harmony mode: report errors to the model as its own reasoning, worded as in HarmonyReAct."""
    written: dict[str, str]
    """Harmony mode: maps the index of an assistant message, as a string, to the text exactly as the model wrote it."""
    last_prompt: dict[str, int]
    """Raw endpoints: the size of the previous prompt (`tokens`, `bytes`), from which this prompt's is estimated."""
    date: str | None
    """Harmony mode: today's date, such as `2025-06-28` (None: from the clock; empty: the prompt has no date)."""


class Options(BaseModel):
    """Checked options. For a single request, they are overridden by the `promptools` key of its body.

    `RequestOptions` explains each option.
    """

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    mode: ModeName | None = None
    agent: bool = False
    family: str | None = None
    provider: str | None = None
    """Use this provider of the config (None: the client's)."""
    dialect: str | None = None
    strictness: Strictness = "balanced"
    accept: Accept | None = None
    rescue: bool | None = None
    hold: Hold = "auto"
    arguments: ArgumentStreaming = "auto"
    heartbeat: Seconds = 5.0
    corrections: Count | None = None
    trace: bool = False
    escape: bool = True
    heal_format: bool = True
    on_repeat: OnRepeat | None = None
    repeats: Count = 2
    undeclared: Undeclared = "auto"
    on_malformed: OnMalformed = "content"
    tools_in: ToolPlacement | None = None
    namespaces: dict[str, str] = Field(default_factory=dict)
    thoughts: ReasoningPolicy = "last-final"
    order: CallOrder = "analysis-first"
    prefill: Prefill = "auto"
    harmony_react: bool = False
    written: dict[str, str] = Field(default_factory=dict)
    last_prompt: dict[str, int] = Field(default_factory=dict)
    date: str | None = None

    @field_validator("accept")
    @classmethod
    def _dialects(cls, names: tuple[str, ...] | None) -> tuple[str, ...] | None:
        if names and dialects.unknown(names):
            raise ValueError
        return names

    @property
    def takes_undeclared(self) -> bool:
        """Whether calls to tools that the request does not declare are passed on."""
        return self.undeclared == "call"

    @property
    def max_corrections(self) -> int:
        """How many times the model may be asked to correct its calls: once by default, five times for HarmonyReAct."""
        return self.corrections if self.corrections is not None else 5 if self.harmony_react else 1

    def override(self, changes: Any, source: str = "promptools") -> Options:
        """Return a copy with the keys in `changes` replaced. Raises UsageError for an unknown key or a wrong value."""
        if changes is None:
            return self
        if not is_object(changes):
            raise UsageError(f"{source!r} must be an object of options, not {clip(repr(changes))}")
        try:
            return Options.model_validate({**self.__dict__, **changes})
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
        name = str(first["loc"][0])
        if first["type"] == "extra_forbidden":
            raise UsageError(f"{source}: unknown option {name!r}; {suggest(name, OPTIONS)}")
        wrong, hint = changes[name], ""
        if isinstance(wrong, str) and (meant := did_you_mean(wrong, option_words(name))):
            hint = f"; {meant.rstrip()}"
        raise UsageError(f"{source}.{name} must be {_describe_option(name)}, not {wrong!r}{hint}")


OPTIONS = tuple(Options.model_fields)
"""The keys that a request's `promptools` object may hold."""

_TYPE_DESCRIPTIONS = {
    str: "a string",
    int: "a whole number, 0 or more",
    float: "a number, 0 or more",
    bool: "true or false",
}


def _kinds(name: str) -> tuple[Any, ...]:
    """Return the types of an option; if the first type is `Annotated`, return that type without its annotations."""
    kind: Any = Options.model_fields[name].annotation
    first, *others = get_args(kind) if get_origin(kind) in {Union, UnionType} else (kind,)
    return (get_args(first)[0] if get_origin(first) is Annotated else first, *others)


def option_words(name: str) -> tuple[str, ...]:
    """Return the words that an option accepts; empty if the option accepts values of another kind."""
    first = _kinds(name)[0]
    return get_args(first) if get_origin(first) is Literal else ()


def _describe_option(name: str) -> str:
    """Describe the values that an option accepts."""
    kinds = _kinds(name)
    first = kinds[0]
    if get_origin(first) is Literal:
        wanted = f"one of {', '.join(map(repr, get_args(first)))}"
    elif get_origin(first) is dict:
        wanted = f"an object of {'strings' if get_args(first)[1] is str else 'numbers'}"
    elif get_origin(first) is tuple:
        wanted = f"a list of dialects ({', '.join(sorted(dialects.names()))})"
    else:
        wanted = _TYPE_DESCRIPTIONS[first]
    return f"{wanted}, or null" if NoneType in kinds else wanted
