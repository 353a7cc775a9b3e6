"""Write messages so that a server's template takes them: system text, parts, roles that must alternate, reasoning."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from promptools.wire.chat import REASONING_FIELDS
from promptools.wire.content import split_parts
from promptools.wire.shapes import as_text, is_list

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from promptools.modes.ask import Ask
    from promptools.modes.history import Turn
    from promptools.profiles import Profile

Message = dict[str, Any]
GAP = "\n\n"
OPENING = "(The conversation begins.)"
"""Stands as the user's turn where a template demands one and the conversation begins with the assistant."""


def plain(turn: Turn, profile: Profile) -> Message:
    """Copy a message without its calls, in the form that the server takes: parts, reasoning's key, no empty keys."""
    dropped = {"tool_calls", "function_call", *REASONING_FIELDS}
    message = {
        key: value
        for key, value in turn.message.items()
        if key not in dropped and (value is not None or key == "content")
    }
    thoughts = next((said for key in REASONING_FIELDS if (said := as_text(turn.message.get(key)))), "")
    if turn.role == "assistant" and thoughts:
        message[profile.reasoning_field] = thoughts
    content = message.get("content")
    if is_list(content) and not profile.content_parts:
        text, others = split_parts(content)
        if not others:
            message["content"] = text
    return message


def take_system(turns: Sequence[Turn]) -> tuple[list[str], list[Turn]]:
    """Give the system texts that open the conversation, and what follows them."""
    texts: list[str] = []
    for position, turn in enumerate(turns):
        if turn.role != "system":
            return texts, list(turns[position:])
        texts.append(split_parts(turn.message.get("content"))[0])
    return texts, []


def place_system(ask: Ask, own: Sequence[str], tools: str) -> str:
    """Put the system text together: the request's own, the block of the tools, and the config's by its placement."""
    configured = ask.system_prompt
    match ask.profile.prompt_placement:
        case "append":
            texts = [*own, tools, configured]
        case "replace" if configured:
            texts = [configured, tools]
        case _:
            texts = [configured, *own, tools]
    return GAP.join(text for text in texts if text.strip())


def join(first: Any, second: Any) -> Any:
    """Join two contents: strings by a blank line, parts behind one another."""
    if isinstance(first, str) and isinstance(second, str):
        return GAP.join(text for text in (first, second) if text)
    return [*_parts(first), *_parts(second)]


def _parts(content: Any) -> list[Any]:
    if is_list(content):
        return content
    text = as_text(content)
    return [{"type": "text", "text": text}] if text else []


def settle(system: str, messages: Iterable[Message], profile: Profile) -> list[Message]:
    """Put the system text before the messages, and bend roles as far as the profile's template demands."""
    said = list(messages)
    if profile.alternate_roles or not profile.system_role:
        said = [{**each, "role": "user"} if each.get("role") in {"system", "developer"} else each for each in said]
    if system and not profile.system_role:
        said = _fold(system, said)
        system = ""
    if profile.alternate_roles:
        said = _alternate(said)
    return [{"role": "system", "content": system}, *said] if system else said


def _fold(system: str, said: list[Message]) -> list[Message]:
    """Put the system text before the words of the first user turn, or make one."""
    if said and said[0].get("role") == "user":
        return [{**said[0], "content": join(system, said[0].get("content"))}, *said[1:]]
    return [{"role": "user", "content": system}, *said]


def _alternate(said: Sequence[Message]) -> list[Message]:
    """Merge neighbours of one role, and begin with the user; messages with calls and results stay as they are."""
    merged: list[Message] = []
    for message in said:
        last = merged[-1] if merged else None
        same = last is not None and last.get("role") == message.get("role") and message.get("role") != "tool"
        if last is not None and same and "tool_calls" not in last:
            merged[-1] = {**last, **message, "content": join(last.get("content"), message.get("content"))}
        else:
            merged.append(message)
    if merged and merged[0].get("role") == "assistant":
        merged.insert(0, {"role": "user", "content": OPENING})
    return merged
