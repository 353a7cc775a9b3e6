"""Which past reasoning stays in a conversation: four policies, each a function from messages to messages.

Reasoning is a message of the assistant on `analysis` without a recipient. Calls on `analysis` (built-in tools) and
their results are not: they stay under every policy, since a model that does not see what it did does it again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Literal, TypeAlias

from promptools.harmony.rendering.renderer import Message

ReasoningPolicy: TypeAlias = Literal["last-final", "first-final", "turn", "keep"]


def is_reasoning(message: Message) -> bool:
    """Whether a message is reasoning."""
    return message.role == "assistant" and message.channel == "analysis" and not message.recipient


def last_final(messages: Sequence[Message]) -> list[Message]:
    """Drop reasoning before the last final answer (vLLM PR 28729, which drops built-in calls as well)."""
    return _without_reasoning_before(messages, max(_finals(messages), default=0))


def first_final(messages: Sequence[Message]) -> list[Message]:
    """Drop reasoning before the first final answer, if the assistant's last message is one (openai-harmony 0.0.8)."""
    finals = _finals(messages)
    by_assistant = [at for at, message in enumerate(messages) if message.role == "assistant"]
    return _without_reasoning_before(messages, finals[0] if finals and finals[-1] == by_assistant[-1] else 0)


def current_turn(messages: Sequence[Message]) -> list[Message]:
    """Drop reasoning before the last message of the user."""
    return _without_reasoning_before(
        messages, max((at for at, message in enumerate(messages) if message.role == "user"), default=0)
    )


REASONING_POLICIES: Mapping[ReasoningPolicy, Callable[[Sequence[Message]], list[Message]]] = MappingProxyType(
    {"last-final": last_final, "first-final": first_final, "turn": current_turn, "keep": list}
)


def _finals(messages: Sequence[Message]) -> list[int]:
    return [at for at, message in enumerate(messages) if message.role == "assistant" and message.channel == "final"]


def _without_reasoning_before(messages: Sequence[Message], start: int) -> list[Message]:
    return [message for at, message in enumerate(messages) if at >= start or not is_reasoning(message)]
