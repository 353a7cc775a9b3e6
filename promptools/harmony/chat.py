"""A Harmony conversation as Chat Completions messages: the inverse of `convert`.

Harmony has no call ids. Each call gets a new one, and a result gets that of the oldest open call of its tool.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from promptools.harmony.header import NOBODY
from promptools.harmony.names import FUNCTIONS, Names
from promptools.harmony.render import Message
from promptools.types import NewId

THOUGHTS = ("reasoning", "reasoning_content")
"""Keys for reasoning, both of which are written: servers read one or the other."""


def to_chat(messages: Iterable[Message], new_id: NewId, names: Names | None = None) -> list[dict[str, Any]]:
    """Convert messages, one dict a turn. `names` are those of the request, which map recipients back to tools. O(n).

    `analysis` becomes `reasoning` and `reasoning_content`; text on `commentary` and `final` becomes the content, joined
    by newlines; a message with a recipient is a call, on whatever channel, its arguments as the model wrote them. Pass
    complete messages only: a truncated one would become a call.
    """
    writer = _Writer(new_id, names)
    for message in messages:
        writer.take(message)
    return [turn.written() for turn in writer.turns]


@dataclass(slots=True)
class _Turn:
    """One message of the chat while it is built."""

    role: str
    words: list[str] = field(default_factory=list[str])
    thoughts: list[str] = field(default_factory=list[str])
    calls: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    more: dict[str, Any] = field(default_factory=dict[str, Any])

    def written(self) -> dict[str, Any]:
        content = "\n".join(self.words) if self.words or not self.calls else None
        if self.thoughts and not (self.words or self.calls):
            content = None
        message: dict[str, Any] = {"role": self.role, **self.more, "content": content}
        if self.thoughts:
            message |= dict.fromkeys(THOUGHTS, "\n".join(self.thoughts))
        if self.calls:
            message["tool_calls"] = self.calls
        return message


class _Writer:
    def __init__(self, new_id: NewId, names: Names | None) -> None:
        self._new_id = new_id
        self._names = names
        self._waiting: list[tuple[str, str]] = []
        self.turns: list[_Turn] = []

    def take(self, message: Message) -> None:
        assert isinstance(message.content, str), "a message that was read has text"
        match message.role:
            case "assistant":
                self._assistant(message, message.content)
            case "tool":
                self._result(message, message.content)
            case role:
                more = {"name": message.name} if message.name else {}
                self.turns.append(_Turn(role, [message.content], more=more))

    def _assistant(self, message: Message, text: str) -> None:
        if not self.turns or self.turns[-1].role != "assistant":
            self.turns.append(_Turn("assistant"))
        turn = self.turns[-1]
        if message.recipient not in NOBODY:
            call_id, name = self._new_id(), self._tool(message.recipient)
            self._waiting.append((message.recipient, call_id))
            function = {"name": name, "arguments": text}
            turn.calls.append({"id": call_id, "type": "function", "function": function})
        elif message.channel == "analysis":
            turn.thoughts.append(text)
        else:
            turn.words.append(text)

    def _result(self, message: Message, text: str) -> None:
        waiting = next((call for call in self._waiting if call[0] == message.name), None)
        if waiting is not None:
            self._waiting.remove(waiting)
        more = {"tool_call_id": waiting[1] if waiting else self._new_id(), "name": self._tool(message.name)}
        self.turns.append(_Turn("tool", [text], more=more))

    def _tool(self, recipient: str) -> str:
        own = self._names.tool(recipient) if self._names is not None else None
        return own or recipient.removeprefix(f"{FUNCTIONS}.")
