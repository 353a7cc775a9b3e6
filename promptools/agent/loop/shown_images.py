"""Images of tools' results in the messages of a conversation, and the same messages for those who take none.

A result with images is a message of a tool with parts. promptools' clients send them in a form that the server takes;
for any other client they follow in a message of the user, as the API takes only text in results.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from promptools.wire.json_body import split_content

if TYPE_CHECKING:
    from promptools.types import Result

Message = dict[str, Any]
FOLLOW = "(The images of this result follow in the next message.)"
NOT_SHOWN = "[The images of this result are not shown: this model, or its server, takes none.]"
_REFUSED_LATER = frozenset({401, 403, 408, 429, 502, 503, 504})
"""Statuses that say nothing of the request's content."""


def result_content(result: Result, *, shown: bool) -> str | list[Message]:
    """Return the content of a result's message."""
    if not result.images:
        return result.content
    if not shown:
        return f"{result.content}\n{NOT_SHOWN}"
    return [{"type": "text", "text": result.content}, *map(dict, result.images)]


def has_images(messages: Sequence[Message]) -> bool:
    """Whether some result has images."""
    return any(_images(message) for message in messages)


def without_images(messages: Sequence[Message]) -> list[Message]:
    """Return messages whose results have a note in place of their images."""
    return [
        {**message, "content": f"{split_content(message['content'])[0]}\n{NOT_SHOWN}"} if _images(message) else message
        for message in messages
    ]


def images_after_results(messages: Sequence[Message]) -> list[Message]:
    """Return messages in which the images follow the last of consecutive results, in a message of the user."""
    made: list[Message] = []
    waiting: list[Message] = []
    for message in messages:
        if waiting and message.get("role") != "tool":
            made.append({"role": "user", "content": waiting})
            waiting = []
        images = _images(message)
        text = f"{split_content(message['content'])[0]}\n{FOLLOW}" if images else ""
        made.append({**message, "content": text} if images else message)
        waiting = [*waiting, *images]
    return [*made, {"role": "user", "content": waiting}] if waiting else made


def may_refuse_images(error: Exception) -> bool:
    """Whether an error may be due to images: the server, or the mode, has refused the request itself."""
    status = getattr(error, "status_code", None) or getattr(error.__cause__, "status_code", None)
    return isinstance(status, int) and status not in _REFUSED_LATER


def _images(message: Message) -> tuple[Message, ...]:
    return split_content(message.get("content"))[1] if message.get("role") == "tool" else ()
