"""Adapt messages to what a server's chat template accepts: system text, parts, alternating roles, reasoning."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from promptools.json_values import is_array
from promptools.modes.requests.history import Turn
from promptools.wire.chat_decoder import REASONING_FIELDS
from promptools.wire.json_types import as_text
from promptools.wire.message_content import split_content

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from promptools.modes.requests.tool_request import ToolRequest
    from promptools.profiles import Profile

Message = dict[str, Any]
BLANK_LINE = "\n\n"
FIRST_USER_MESSAGE = "(The conversation begins.)"
"""The user message for templates that require one first, where the conversation begins with the assistant."""
LATER_SYSTEM = "(System message)\n"
"""What precedes a system message that is sent as the user's."""
_SYSTEM_ROLES = frozenset(("system", "developer"))


def has_stray_system(messages: Sequence[Mapping[str, Any]]) -> bool:
    """Whether a conversation holds another system message than one at its beginning, or one of the `developer`."""
    return any(
        message.get("role") == "developer" or (position and message.get("role") == "system")
        for position, message in enumerate(messages)
    )


def place_system(turns: Sequence[Turn], profile: Profile) -> tuple[list[Turn], tuple[str, ...]]:
    """Turn system messages after the beginning into the user's, marked, where the template takes none; with a note.

    They stay in their places: in the first message they would change the beginning of the prompt, which the server has
    in its cache. From here on they are foreign text, so their markup is escaped: in a user's message it would be read
    as the conversation's own.
    """
    placed = list(turns)
    if profile.system_place == "anywhere":
        return placed, ()
    opening = next((position for position, turn in enumerate(placed) if turn.role != "system"), len(placed))
    later = [position for position, turn in enumerate(placed) if turn.role == "system" and position > opening]
    for position in later:
        placed[position] = _as_user(placed[position])
    note = f"system messages after the beginning were sent as the user's, marked: {len(later)}"
    return placed, (note,) if later else ()


def _as_user(turn: Turn) -> Turn:
    return Turn({**turn.message, "role": "user", "content": _marked(turn.message.get("content"))})


def _marked(content: Any) -> Any:
    if is_array(content):
        return [{"type": "text", "text": LATER_SYSTEM}, *content]
    return LATER_SYSTEM + as_text(content)


def plain_message(turn: Turn, profile: Profile) -> Message:
    """Copy a message without its calls, in the server's form: content parts, the reasoning field, no null fields."""
    dropped = {"tool_calls", "function_call", *REASONING_FIELDS}
    message = {
        key: value
        for key, value in turn.message.items()
        if key not in dropped and (value is not None or key == "content")
    }
    reasoning = next((field for key in REASONING_FIELDS if (field := as_text(turn.message.get(key)))), "")
    if turn.role == "assistant" and reasoning:
        message[profile.reasoning_field] = reasoning
    content = message.get("content")
    if is_array(content) and not profile.content_parts:
        text, others = split_content(content)
        if not others:
            message["content"] = text
    return message


def split_system(turns: Sequence[Turn]) -> tuple[list[str], list[Turn]]:
    """Split a conversation into the system texts that open it and the turns after them."""
    texts: list[str] = []
    for position, turn in enumerate(turns):
        if turn.role != "system":
            return texts, list(turns[position:])
        texts.append(split_content(turn.message.get("content"))[0])
    return texts, []


def join_system(request: ToolRequest, own_texts: Sequence[str], tool_block: str) -> str:
    """Join the system texts: the request's own, the tool block, and the config's, by `prompt_placement`."""
    configured = request.system_prompt
    match request.profile.prompt_placement:
        case "append":
            texts = [*own_texts, tool_block, configured]
        case "replace" if configured:
            texts = [configured, tool_block]
        case _:
            texts = [configured, *own_texts, tool_block]
    return BLANK_LINE.join(text for text in texts if text.strip())


def join_contents(first: Any, second: Any) -> Any:
    """Join two contents: strings with a blank line between them, anything else as a list of parts."""
    if isinstance(first, str) and isinstance(second, str):
        return BLANK_LINE.join(text for text in (first, second) if text)
    return [*_as_parts(first), *_as_parts(second)]


def _as_parts(content: Any) -> list[Any]:
    if is_array(content):
        return content
    text = as_text(content)
    return [{"type": "text", "text": text}] if text else []


def fit_template(system: str, messages: Iterable[Message], profile: Profile) -> list[Message]:
    """Prepend the system text, and change roles as far as the profile's template requires."""
    settled = list(messages)
    if profile.alternate_roles or not profile.system_role:
        settled = [
            {**message, "role": "user"} if message.get("role") in _SYSTEM_ROLES else message for message in settled
        ]
    if system and not profile.system_role:
        settled = _prepend_to_user(system, settled)
        system = ""
    if profile.alternate_roles:
        settled = _merge_same_roles(settled)
    return [{"role": "system", "content": system}, *settled] if system else settled


def _prepend_to_user(system: str, messages: list[Message]) -> list[Message]:
    """Prepend the system text to the first user message, or add one."""
    if messages and messages[0].get("role") == "user":
        return [{**messages[0], "content": join_contents(system, messages[0].get("content"))}, *messages[1:]]
    return [{"role": "user", "content": system}, *messages]


def _merge_same_roles(messages: Sequence[Message]) -> list[Message]:
    """Merge adjacent messages of one role and begin with the user; messages with calls, and results, are kept."""
    merged: list[Message] = []
    for message in messages:
        last = merged[-1] if merged else None
        same = last is not None and last.get("role") == message.get("role") and message.get("role") != "tool"
        if last is not None and same and "tool_calls" not in last:
            merged[-1] = {**last, **message, "content": join_contents(last.get("content"), message.get("content"))}
        else:
            merged.append(message)
    if merged and merged[0].get("role") == "assistant":
        merged.insert(0, {"role": "user", "content": FIRST_USER_MESSAGE})
    return merged
