"""Policies: which replies are used, how often another one is requested, and what the model learns of the error."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

from promptools.errors import UsageError
from promptools.fallback import Stop, WaitFor

Checks: TypeAlias = Literal["default", "paper", "none"]
PolicyName: TypeAlias = Literal["default", "paper"]


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentPolicy:
    """What becomes of a reply.

    Checks are made of each reply. `default`, in any mode: several calls are run, a call wins over an answer, what is
    wrong with a call is its result; a reply that is cut off, or empty, is requested again. `paper`: the conditions of
    HarmonyAgent in their order, on the messages of the strict Harmony parse. `none`: every reply is used as it is.
    """

    checks: Checks = "default"
    attempts: int = 10
    """Replies that are requested for one step at most."""
    stop: Stop | None = None
    """In place of `attempts`: an object of tenacity's, such as `stop_after_delay(60)`."""
    wait: WaitFor | None = None
    """Seconds between attempts: an object of tenacity's, such as `wait_fixed(2)`; None: none."""
    show_errors: bool = True
    """Whether the next attempt shows the model its reply and the error. False: the same prompt is sent again, as the
    paper does. Either way nothing of a failed attempt stays in the conversation."""
    temperatures: tuple[float, ...] = ()
    """The temperature of each attempt; the last one is for all further ones. Empty: that of the request."""
    harmony_react: bool = False
    """Harmony mode: begin each reply on `analysis`, and have the exchange correct replies, as HarmonyReAct does."""
    options: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Options of each request, if the client is one of promptools'."""

    def __post_init__(self) -> None:
        if self.attempts < 1:
            raise UsageError(f"AgentPolicy.attempts is {self.attempts!r}; at least one reply has to be requested")

    @property
    def request_options(self) -> dict[str, Any]:
        """The options of each request."""
        if not self.harmony_react:
            return dict(self.options)
        kept = {key: value for key, value in self.options.items() if key != "corrections"}
        return {"harmony_react": True, "prefill": "channel", **kept}

    def temperature(self, attempt: int) -> dict[str, float]:
        """Return the parameters of an attempt, counted from 0."""
        return {"temperature": self.temperatures[min(attempt, len(self.temperatures) - 1)]} if self.temperatures else {}


def _two_seconds(_: object) -> float:
    return 2.0


DEFAULT_POLICY = AgentPolicy()
PAPER_POLICY = AgentPolicy(
    checks="paper",
    wait=_two_seconds,
    options={"mode": "harmony", "tools_in": "auto", "thoughts": "keep", "corrections": 0, "on_repeat": "off"},
)
"""HarmonyAgent's, except that the model sees its errors: `replace(PAPER_POLICY, show_errors=False)` is the paper's."""
UNCHECKED_POLICY = AgentPolicy(checks="none")
_POLICIES: dict[str, AgentPolicy] = {"default": DEFAULT_POLICY, "paper": PAPER_POLICY}


def find_policy(policy: AgentPolicy | str) -> AgentPolicy:
    """Return a policy by its name, or as it is. Raises `UsageError` for an unknown name."""
    if isinstance(policy, AgentPolicy):
        return policy
    if policy not in _POLICIES:
        raise UsageError(f"there is no policy {policy!r}; there are {', '.join(map(repr, _POLICIES))} and AgentPolicy")
    return _POLICIES[policy]


Clock: TypeAlias = Callable[[], float]
