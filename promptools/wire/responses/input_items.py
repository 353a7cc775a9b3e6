"""Decode the input of a Responses request to messages of Chat Completions.

An assistant's turn is one message there and several items here: the reasoning, texts and calls between two items of
others are collected into one message. System texts that open the conversation become one message, since many chat
templates take only one. Items of hosted tools, which no other server knows, are left out with a note; those that a
client runs itself (a shell, a patch) become calls and results.
"""

from __future__ import annotations

import base64
import binascii
import json
from typing import TYPE_CHECKING, Any

from promptools.errors import UsageError, clip
from promptools.json_values import is_array, is_object
from promptools.wire.json_types import as_list, as_object, as_text

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from promptools.wire.responses.client_tools import ClientTools

_SEALED_PREFIX = "promptools:"
"""How reasoning begins that was sealed here."""
_TEXT_PARTS = frozenset({"input_text", "output_text", "text", "summary_text", "reasoning_text"})
_BLANK_LINE = "\n\n"
_NOT_CARRIED = "compaction_trigger", "configuration_update", "additional_tools"
"""Items without content for the model."""


def seal_reasoning(text: str) -> str:
    """Return reasoning as the opaque text of `encrypted_content`: it is encoded, not secret."""
    return _SEALED_PREFIX + base64.b64encode(text.encode("utf-8", "surrogatepass")).decode("ascii")


def _unseal_reasoning(sealed: str) -> str | None:
    """Return the reasoning that was sealed here; None for anybody else's."""
    if not sealed.startswith(_SEALED_PREFIX):
        return None
    try:
        encoded = base64.b64decode(sealed[len(_SEALED_PREFIX) :], validate=True)
        return encoded.decode("utf-8", "surrogatepass")
    except (binascii.Error, ValueError):
        return None


def decode_items(
    items: Iterable[Mapping[str, Any]], instructions: str, tools: ClientTools
) -> tuple[list[dict[str, Any]], tuple[str, ...]]:
    """Return the messages, and notes on what was left out. O(n) in the size of the conversation."""
    conversation = _Conversation(tools)
    if instructions:
        conversation.add_message("system", instructions)
    for item in items:
        conversation.add_item(item)
    return conversation.messages, (*dict.fromkeys(conversation.notes),)


class _Conversation:
    def __init__(self, tools: ClientTools) -> None:
        self.messages: list[dict[str, Any]] = []
        self.notes: list[str] = []
        self._tools = tools

    def add_item(self, item: Mapping[str, Any]) -> None:
        kind = as_text(item.get("type")) or "message"
        match kind:
            case "message":
                self.add_message(as_text(item.get("role")) or "user", decode_content(item.get("content")))
            case "reasoning":
                self._add_reasoning(item)
            case "function_call":
                self._add_call(item, as_text(item.get("arguments")))
            case "custom_tool_call":
                self._add_call(item, self._tools.arguments_of(as_text(item.get("input"))))
            case _ if kind.endswith("_call_output"):
                self._add_result(item)
            case _ if kind.endswith("_call") and as_text(item.get("call_id")):
                self._add_other_call(item, kind.removesuffix("_call"))
            case _ if kind in _NOT_CARRIED:
                pass
            case _:
                self.notes.append(f"not sent: an input item of type {clip(kind)!r}; only OpenAI's servers know it")

    def add_message(self, role: str, content: Any) -> None:
        role = "system" if role == "developer" else role
        if role == "assistant":
            message = self._assistant()
            message["content"] = _join(message.get("content"), _joined_text(content, ""))
            return
        if role == "system":
            content = _joined_text(content, _BLANK_LINE)
            if len(self.messages) == 1 and self.messages[0]["role"] == "system":
                self.messages[0]["content"] = _join(self.messages[0]["content"], content)
                return
        self.messages.append({"role": role, "content": content})

    def _assistant(self) -> dict[str, Any]:
        """Return the assistant's message that is being collected, or begin one."""
        if not self.messages or self.messages[-1]["role"] != "assistant":
            self.messages.append({"role": "assistant", "content": None})
        return self.messages[-1]

    def _add_reasoning(self, item: Mapping[str, Any]) -> None:
        parts = as_list(item.get("content")) or as_list(item.get("summary"))
        text = _BLANK_LINE.join(filter(None, (as_text(as_object(part).get("text")) for part in parts)))
        sealed = as_text(item.get("encrypted_content"))
        if not text and sealed:
            text = _unseal_reasoning(sealed) or ""
            if not text:
                self.notes.append("not sent: encrypted_content of reasoning that was not made here")
        if text:
            message = self._assistant()
            message["reasoning_content"] = _join(message.get("reasoning_content"), text)

    def _add_call(self, item: Mapping[str, Any], arguments: str) -> None:
        name = self._tools.function_name(as_text(item.get("name")), as_text(item.get("namespace")))
        call_id = as_text(item.get("call_id")) or as_text(item.get("id"))
        function = {"name": name, "arguments": arguments}
        calls = self._assistant().setdefault("tool_calls", [])
        calls.append({"id": call_id, "type": "function", "function": function})

    def _add_other_call(self, item: Mapping[str, Any], name: str) -> None:
        """Add a call of a tool that OpenAI defines and the client runs, such as its shell."""
        arguments = {key: value for key, value in item.items() if key not in {"type", "id", "call_id", "status"}}
        self._add_call({**item, "name": name}, json.dumps(arguments, ensure_ascii=False))

    def _add_result(self, item: Mapping[str, Any]) -> None:
        output = item.get("output")
        is_content = not is_object(output) and all(_is_part(part) for part in as_list(output))
        content = decode_content(output) if is_content else json.dumps(output, ensure_ascii=False)
        self.messages.append({"role": "tool", "tool_call_id": as_text(item.get("call_id")), "content": content})


def _is_part(value: Any) -> bool:
    kind = as_text(as_object(value).get("type"))
    return kind in _TEXT_PARTS or kind.startswith("input_")


def decode_content(content: Any) -> Any:
    """Decode the content of an item to a string, or to parts of Chat Completions. Raises UsageError for others."""
    if content is None or isinstance(content, str):
        return content or ""
    if not is_array(content):
        raise UsageError(f"the content of an input item must be a string or a list of parts, not {clip(repr(content))}")
    parts = [_decode_part(part) for part in content]
    return parts[0]["text"] if len(parts) == 1 and parts[0]["type"] == "text" else parts


def _decode_part(part: Any) -> dict[str, Any]:
    if isinstance(part, str):
        return {"type": "text", "text": part}
    data = as_object(part)
    match data.get("type"):
        case "refusal":
            return {"type": "text", "text": as_text(data.get("refusal"))}
        case str(kind) if kind in _TEXT_PARTS:
            return {"type": "text", "text": as_text(data.get("text"))}
        case "input_image" | "computer_screenshot" if as_text(data.get("image_url")):
            detail = {"detail": data["detail"]} if data.get("detail") else {}
            return {"type": "image_url", "image_url": {"url": data["image_url"], **detail}}
        case "input_file" if as_text(data.get("file_data")):
            return {"type": "file", "file": {key: data[key] for key in ("filename", "file_data") if data.get(key)}}
        case "input_image" | "input_file" as kind:
            raise UsageError(
                f"an {kind} must hold its data (image_url, file_data) here: file_id and file_url name files that only"
                " OpenAI's servers can read"
            )
        case "input_audio" | "image_url" | "file":  # the same in Chat Completions
            return dict(data)
        case kind:
            raise UsageError(f"a content part of type {clip(repr(kind))} cannot be expressed in Chat Completions")


def _joined_text(content: Any, separator: str) -> Any:
    """Return content of text alone as one string."""
    if not is_array(content) or any(as_object(part).get("type") != "text" for part in content):
        return content
    return separator.join(part["text"] for part in content)


def _join(first: Any, second: Any) -> Any:
    """Join two contents; None is no content."""
    if not first or not second:
        return first or second
    if isinstance(first, str) and isinstance(second, str):
        return first + _BLANK_LINE + second
    return [*_as_parts(first), *_as_parts(second)]


def _as_parts(content: Any) -> list[Any]:
    return [{"type": "text", "text": content}] if isinstance(content, str) else list(content)


def normalize_input(value: Any) -> list[dict[str, Any]]:
    """Return the input as items. Raises UsageError for anything but a string or a list of objects."""
    if isinstance(value, str):
        return [{"type": "message", "role": "user", "content": [{"type": "input_text", "text": value}]}]
    if value is None:
        return []
    if not is_array(value):
        raise UsageError(f"'input' must be a string or a list of items, not {clip(repr(value))}")
    for position, item in enumerate(value):
        if not is_object(item):
            raise UsageError(f"input[{position}] must be an object, not {clip(repr(item))}")
    return list(value)
