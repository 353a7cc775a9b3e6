"""How much text the requests of a batch have, in tokens if there is a vocabulary, else in characters."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from promptools.json_values import is_array
from promptools.transport.session import local_vocabulary
from promptools.wire.json_body import as_list, as_object

if TYPE_CHECKING:
    from promptools.batch.request_line import BatchRequest


class PromptSize:
    """Adds up the text of requests: of messages, prompts, inputs and instructions, and their tools as JSON.

    The unit is tokens of o200k_base if promptools finds that vocabulary, else characters. Markup of the chat template
    is not counted.
    """

    def __init__(self) -> None:
        vocabulary = local_vocabulary()
        self._encode = vocabulary.encode if vocabulary else None
        self.unit = "tokens of o200k_base" if vocabulary else "characters"
        self.total = 0
        self.largest = 0
        self.largest_line = 0

    def add(self, request: BatchRequest) -> None:
        """Add a request."""
        text = "\n".join(_texts(request.body))
        size = len(self._encode(text)) if self._encode else len(text)
        self.total += size
        if size > self.largest:
            self.largest, self.largest_line = size, request.line


def _texts(body: dict[str, Any]) -> list[str]:
    texts = [text for key in ("prompt", "input", "instructions") for text in _strings(body.get(key))]
    for message in (*as_list(body.get("messages")), *as_list(body.get("input"))):
        for key in ("content", "arguments", "output"):
            texts += _content_texts(as_object(message).get(key))
        if calls := as_object(message).get("tool_calls"):
            texts.append(json.dumps(calls, ensure_ascii=False))
    if tools := body.get("tools"):
        texts.append(json.dumps(tools, ensure_ascii=False))
    return texts


def _content_texts(content: Any) -> list[str]:
    parts: Sequence[Any] = content if is_array(content) else [content]
    return [text for part in parts for text in _strings(part if isinstance(part, str) else as_object(part).get("text"))]


def _strings(value: Any) -> list[str]:
    values: Sequence[Any] = value if is_array(value) else [value]
    return [text for text in values if isinstance(text, str)]
