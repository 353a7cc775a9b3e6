"""What a mode is: it writes the upstream request of an `Ask`, and reads the upstream's reply back into events."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping

    from promptools.modes.ask import Ask
    from promptools.modes.foreign import Restore
    from promptools.parsing.events import Event
    from promptools.types import Call, ModeName, NewId, Reply
    from promptools.wire.chat import Delta
    from promptools.wire.raw.fates import Prompt


@dataclass(frozen=True, slots=True)
class Upstream:
    """One request to the server, and what reading its reply needs to know."""

    body: dict[str, Any]
    notes: tuple[str, ...] = ()
    """What was changed or could not be passed on, in words, for the trace."""
    names: Mapping[str, str] = field(default_factory=dict[str, str])
    """Tool names as the server knows them, to the client's own; only those that differ."""
    dialect: str | None = None
    """The dialect that the request asked for, if it asked in text; `harmony` is the only one that the reply is in."""
    prompt: Prompt | None = None
    """The whole conversation, for a raw endpoint; None: the body holds messages."""
    prefill: str = ""
    """What the prompt says in the model's name: the reply goes on from there."""
    path: str = "chat/completions"
    """The route below the API's base URL: raw modes take another."""
    restore: Restore | None = None
    """Undoes in the reply's calls what was escaped in the request; None: nothing was."""
    examples: tuple[Call, ...] = ()
    """Calls that the prompt shows as examples: a copy of one, placeholders and all, is no call."""


class Reader(Protocol):
    """Read one choice of one reply. Deltas of other choices go to readers of their own.

    The events obey the request: no call under `tool_choice` none, one call without `parallel_tool_calls`. `End` is
    never among them, since a reply that must be asked again does not end here.
    """

    def feed(self, delta: Delta) -> list[Event]:
        """Take what came and give what is certain."""
        ...

    def close(self, finish_reason: str | None) -> list[Event]:
        """End the reply; None means that the stream was cut. Gives the last events."""
        ...

    @property
    def reply(self) -> Reply:
        """The reply as read so far; complete after `close`."""
        ...

    @property
    def over(self) -> bool:
        """Whether nothing more is to be waited for: a whole call came, and then white space without end."""
        ...

    @property
    def raw(self) -> str:
        """The model's own words in `content`, byte for byte, and after them the arguments of calls that failed."""
        ...


class Mode(Protocol):
    """One way of asking for tools."""

    @property
    def name(self) -> ModeName:
        """The mode's name, as profiles and options spell it."""
        ...

    def body(self, ask: Ask) -> Upstream:
        """Write the upstream request. O(n) in the size of the conversation."""
        ...

    def reader(self, ask: Ask, upstream: Upstream, new_id: NewId) -> Reader:
        """Make a reader for one choice of the reply to `upstream`."""
        ...
