"""Map each mode's name to the function that encodes a request, and decide which modes a request may use."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from promptools.errors import UsageError
from promptools.modes.harmony_mode import HARMONY_FAMILY, prepare_harmony
from promptools.modes.native_mode import prepare_native
from promptools.modes.prompt_mode import prepare_prompt

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from promptools.modes.prepared_request import PreparedRequest
    from promptools.modes.tool_request import ToolRequest
    from promptools.profiles import Profile
    from promptools.types import ModeName


OneStepMode: TypeAlias = Literal["native", "harmony", "prompt"]
"""A mode that encodes a request in one step.

Raw mode takes two steps: `prepare_conversation` encodes the conversation that the template renders, and `prepare_raw`
needs the rendered prompt.
"""

PREPARE: Final[Mapping[OneStepMode, Callable[[ToolRequest], PreparedRequest]]] = MappingProxyType(
    {"native": prepare_native, "harmony": prepare_harmony, "prompt": prepare_prompt}
)


def renders_template(profile: Profile) -> bool:
    """Return whether raw mode is possible.

    Raw mode requires that the chat template can be rendered, and that the server has an endpoint that continues a
    prompt.
    """
    return profile.raw is not None and (profile.template_endpoint is not None or profile.chat_template is not None)


def modes_for(request: ToolRequest, *, tools: bool) -> tuple[ModeName, ...]:
    """Return the modes to try, in order: only the mode that the request forces, else those that the profile lists.

    For an agent's requests the profile may list modes separately (`agent_modes`).

    A request without `tools` is the same in native and prompt mode, so one of these modes is enough. Raises
    `UsageError` if the profile lists no mode, if harmony or raw mode is requested but impossible, or if the request is
    written for a model family other than the one to which the model is known to belong.
    """
    profile, forced = request.profile, request.options.mode
    _check_family(request)
    listed = (request.options.agent and profile.agent_modes) or profile.modes
    wanted: tuple[ModeName, ...] = (forced,) if forced else listed
    if not wanted:
        raise UsageError("the profile lists no mode; set `modes` to some of 'native', 'harmony', 'raw', 'prompt'")
    if "raw" in wanted and not renders_template(profile):
        wanted = tuple(name for name in wanted if name != "raw")
        if not wanted:
            raise _impossible_raw_mode(profile)
    if not tools and not forced:
        wanted = tuple(name for name in wanted if name != "raw") or wanted
    others: tuple[ModeName, ...] = tuple(name for name in wanted if name != "harmony")
    if others == wanted:
        return wanted if tools else wanted[:1]
    _check_harmony_mode(request, others)
    if profile.raw is None:
        return others if tools else others[:1]
    if not tools and request.options.takes_undeclared:
        return ("harmony", *others[:1])  # without tools, other modes find only the calls that the server parses
    return wanted if tools else (*others[:1], "harmony")


def _impossible_raw_mode(profile: Profile) -> UsageError:
    return UsageError(
        f"raw mode needs a server that renders its chat template, and none is known for servers of kind"
        f" {profile.kind!r}. Name what server it is (provider=, or `kind` in the config), or set `raw` and"
        " `chat_template` in its profile, see docs/reference/raw-mode.md"
    )


def _check_harmony_mode(request: ToolRequest, others: tuple[ModeName, ...]) -> None:
    """Raise `UsageError` if harmony mode cannot be used, or is listed for a model whose family is not gpt-oss.

    Harmony mode requires a raw endpoint. If the server has none, that is an error only if `others`, the other modes
    that could be used, is empty.
    """
    profile = request.profile
    if profile.raw is None and not others:
        raise UsageError(
            f"harmony mode needs a raw endpoint, and none is known for servers of kind {profile.kind!r}. Say what"
            " server it is (provider=, or `kind` in the config), or set `raw` in its profile, see"
            " docs/reference/harmony-mode.md"
        )
    if profile.family != HARMONY_FAMILY and not request.options.mode:
        raise UsageError(
            f"the profile of model {request.model!r} lists harmony mode, gpt-oss' own format, and the model's family is"
            f" {profile.family or 'not known'}. Set family = {HARMONY_FAMILY!r} on it in the config if it is one, or"
            " leave harmony out of `modes`"
        )


def _check_family(request: ToolRequest) -> None:
    """Raise `UsageError` if the request is written for one model family, but the model is known to be of another."""
    meant, known = request.options.family, request.profile.family
    if meant is not None and known is not None and known != meant:
        raise UsageError(
            f"the request is written for the family {meant!r}, and the model {request.model!r} is of the family"
            f" {known!r}, by what its server says of it, or by its name. Use policy='default' (--policy default), which"
            f" asks any model as its profile says. If it is a {meant} all the same, set family = {meant!r} on the model"
            " in the config; to send the request anyway, leave the option `family` out (AgentPolicy.family = None)"
        )
