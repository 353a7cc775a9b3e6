"""The contract of a mode: it encodes a request for the server, and reads the server's reply back into events."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping

    from promptools.modes.requests.foreign_text import Unescaper
    from promptools.modes.requests.repeated_calls import RepeatAction
    from promptools.modes.requests.tool_request import ToolRequest
    from promptools.parsing.events import Event
    from promptools.types import Call, ModeName, NewId, Reply
    from promptools.wire.chat_decoder import Delta
    from promptools.wire.raw.raw_request import RawPrompt


@dataclass(frozen=True, slots=True)
class PreparedRequest:
    """The request as a mode sends it, and what is needed to read its reply."""

    body: dict[str, Any]
    notes: tuple[str, ...] = ()
    """What was changed or could not be passed on, as sentences for the trace."""
    client_names: Mapping[str, str] = field(default_factory=dict[str, str])
    """Names sent to the server, mapped to the client's; only those that differ."""
    dialect: str | None = None
    """The dialect that the prompt asks for; None in native mode. With `harmony`, the whole reply is Harmony."""
    prompt: RawPrompt | None = None
    """The whole conversation, for a raw endpoint; None where the body holds messages."""
    prefill: str = ""
    """The start of the reply, written at the end of the prompt: the model continues it."""
    path: str = "chat/completions"
    """The route below the API's base URL."""
    restore: Unescaper | None = None
    """Unescapes in the reply's calls what was escaped in the request; None where nothing was."""
    in_reasoning: bool | None = None
    """Whether the prompt ends inside reasoning; None: as the profile has it."""
    turn_ends: tuple[str, ...] = ()
    """What ends the model's turn: the text from there on is not part of the reply."""
    repeat_action: RepeatAction | None = None
    """What is done about a call that the conversation holds over and over; None if it holds none."""
    examples: tuple[Call, ...] = ()
    """Calls that the prompt shows as examples: a verbatim copy of one, placeholders included, is not a call."""


class ChoiceReader(Protocol):
    """Read one choice of one reply; each choice has a reader of its own.

    The events obey the request: no call under `tool_choice` none, at most one without `parallel_tool_calls`. `End` is
    never among them, since the request may yet be retried.
    """

    def feed(self, delta: Delta) -> list[Event]:
        """Add a delta and return the events that are certain."""
        ...

    def close(self, finish_reason: str | None) -> list[Event]:
        """End the reply and return the last events; a `finish_reason` of None means that the stream was cut."""
        ...

    @property
    def reply(self) -> Reply:
        """The reply so far; complete after `close`."""
        ...

    @property
    def may_stop(self) -> bool:
        """Whether the stream may be dropped: a complete call was followed by a long run of white space."""
        ...

    @property
    def text(self) -> str:
        """The model's text in `content`, with all markup, after the prefill."""
        ...

    @property
    def raw(self) -> str:
        """The model's text in `content`, byte for byte, followed by the arguments of structured calls that failed."""
        ...


class Mode(Protocol):
    """One way of asking for tools."""

    @property
    def name(self) -> ModeName:
        """The mode's name in profiles and options."""
        ...

    def prepare(self, request: ToolRequest) -> PreparedRequest:
        """Encode the request. O(n) in the size of the conversation."""
        ...

    def reader(self, request: ToolRequest, prepared: PreparedRequest, new_id: NewId) -> ChoiceReader:
        """Return a reader for one choice of the reply to `prepared`."""
        ...
