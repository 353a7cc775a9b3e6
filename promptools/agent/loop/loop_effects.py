"""The effects of the loop: what it asks its driver to do. An event is passed on to the app."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

from promptools.agent.run_events import RunEvent, Transcript

if TYPE_CHECKING:
    from promptools.agent.functions.toolbox import PreparedCall


@dataclass(frozen=True, slots=True)
class RequestReply:
    """Request a reply with this body; the result is an `AccumulatedReply`, and what the client raises is thrown in."""

    body: dict[str, Any]
    quiet: bool = False
    """Whether its text is no event of the run."""


@dataclass(frozen=True, slots=True)
class RunTools:
    """Run the tools of calls, several at the same time; the result is the list of their `Result`s, in order."""

    calls: tuple[PreparedCall, ...]


@dataclass(frozen=True, slots=True)
class Pause:
    """Wait."""

    seconds: float


LoopEffect: TypeAlias = RequestReply | RunTools | Pause | RunEvent
LoopGenerator: TypeAlias = Generator[LoopEffect, Any, Transcript]
"""A loop: yields effects, is sent their results, and returns the transcript."""
