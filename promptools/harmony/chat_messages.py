"""A Harmony conversation as Chat Completions messages: the inverse of `convert`.

Harmony has no call ids. Each call gets a new one, and a result gets that of the oldest open call of its tool.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from promptools.harmony.parsing.header import NON_TOOL_RECIPIENTS
from promptools.harmony.rendering.recipients import FUNCTIONS, RecipientNames
from promptools.harmony.rendering.renderer import Message
from promptools.types import NewId

REASONING_OUTPUT_KEYS = ("reasoning", "reasoning_content")
"""Keys for reasoning, both of which are written: servers read one or the other."""


def to_chat(messages: Iterable[Message], new_id: NewId, names: RecipientNames | None = None) -> list[dict[str, Any]]:
    """Convert messages, one dict a turn. `names` are those of the request, which map recipients back to tools. O(n).

    `analysis` becomes `reasoning` and `reasoning_content`; text on `commentary` and `final` becomes the content, joined
    by newlines; a message with a recipient is a call, on whatever channel, its arguments as the model wrote them. Pass
    complete messages only: a truncated one would become a call.
    """
    writer = _ChatBuilder(new_id, names)
    for message in messages:
        writer.add(message)
    return [turn.as_dict() for turn in writer.turns]


@dataclass(slots=True)
class _ChatTurn:
    """One message of the chat while it is built."""

    role: str
    content: list[str] = field(default_factory=list[str])
    reasoning: list[str] = field(default_factory=list[str])
    calls: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    extra: dict[str, Any] = field(default_factory=dict[str, Any])

    def as_dict(self) -> dict[str, Any]:
        content = "\n".join(self.content) if self.content or not self.calls else None
        if self.reasoning and not (self.content or self.calls):
            content = None
        message: dict[str, Any] = {"role": self.role, **self.extra, "content": content}
        if self.reasoning:
            message |= dict.fromkeys(REASONING_OUTPUT_KEYS, "\n".join(self.reasoning))
        if self.calls:
            message["tool_calls"] = self.calls
        return message


class _ChatBuilder:
    def __init__(self, new_id: NewId, names: RecipientNames | None) -> None:
        self._new_id = new_id
        self._names = names
        self._open_calls: list[tuple[str, str]] = []
        self.turns: list[_ChatTurn] = []

    def add(self, message: Message) -> None:
        assert isinstance(message.content, str), "a message that was read has text"
        match message.role:
            case "assistant":
                self._add_assistant(message, message.content)
            case "tool":
                self._add_result(message, message.content)
            case role:
                more = {"name": message.name} if message.name else {}
                self.turns.append(_ChatTurn(role, [message.content], extra=more))

    def _add_assistant(self, message: Message, text: str) -> None:
        if not self.turns or self.turns[-1].role != "assistant":
            self.turns.append(_ChatTurn("assistant"))
        turn = self.turns[-1]
        if message.recipient not in NON_TOOL_RECIPIENTS:
            call_id, name = self._new_id(), self._tool_name(message.recipient)
            self._open_calls.append((message.recipient, call_id))
            function = {"name": name, "arguments": text}
            turn.calls.append({"id": call_id, "type": "function", "function": function})
        elif message.channel == "analysis":
            turn.reasoning.append(text)
        else:
            turn.content.append(text)

    def _add_result(self, message: Message, text: str) -> None:
        waiting = next((call for call in self._open_calls if call[0] == message.name), None)
        if waiting is not None:
            self._open_calls.remove(waiting)
        more = {"tool_call_id": waiting[1] if waiting else self._new_id(), "name": self._tool_name(message.name)}
        self.turns.append(_ChatTurn("tool", [text], extra=more))

    def _tool_name(self, recipient: str) -> str:
        own = self._names.tool_of(recipient) if self._names is not None else None
        return own or recipient.removeprefix(f"{FUNCTIONS}.")
