"""Encode a conversation for `/api/chat`: content as strings, arguments as objects, images in a field of their own."""

from __future__ import annotations

import base64
import json
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote_to_bytes

from promptools.json_values import is_object
from promptools.wire.chat_decoder import reasoning_of
from promptools.wire.json_types import as_list, as_object, as_text
from promptools.wire.message_content import split_content

if TYPE_CHECKING:
    from collections.abc import Mapping

ROLES = {"developer": "system", "function": "tool"}
"""Replacements for roles that templates do not know: a template drops a message of an unknown role."""
_KNOWN_KEYS = frozenset({
    "role", "content", "images", "tool_calls", "function_call", "tool_call_id", "tool_name",
    "reasoning", "reasoning_content", "thinking",
})  # fmt: skip


class NotExpressible(Exception):
    """`/api/chat` cannot express a part of the request; the message names it."""


def encode_messages(conversation: Any, notes: list[str]) -> list[dict[str, Any]]:
    """Encode the conversation, and add to `notes` what was left out. O(n). Raises `NotExpressible`."""
    names: dict[str, str] = {}
    unknown: dict[str, None] = {}
    messages: list[dict[str, Any]] = []
    for message in map(as_object, as_list(conversation)):
        encoded = _encode_message(message, names, notes)
        messages.append(encoded)
        known = _KNOWN_KEYS | {"name"} if encoded["role"] == "tool" else _KNOWN_KEYS  # it is the `tool_name`
        unknown |= dict.fromkeys(key for key, value in message.items() if key not in known and value is not None)
    if unknown:
        notes.append(f"keys of messages were not sent, /api/chat has no place for them: {', '.join(sorted(unknown))}")
    return messages


def _encode_message(message: Mapping[str, Any], names: dict[str, str], notes: list[str]) -> dict[str, Any]:
    """Encode one message; `names` are the tool names of the calls so far, by id."""
    role = as_text(message.get("role"))
    text, others = split_content(message.get("content"))
    encoded: dict[str, Any] = {"role": ROLES.get(role, role), "content": text}
    images = [*as_list(message.get("images")), *(_encode_image(part) for part in others)]
    if images:
        encoded["images"] = images
    reasoning = reasoning_of(message)
    if reasoning:
        encoded["thinking"] = reasoning
    calls = [_encode_call(call, names, notes) for call in as_list(message.get("tool_calls")) if is_object(call)]
    if not calls and is_object(message.get("function_call")):
        calls = [_encode_call({"function": message["function_call"]}, names, notes)]
    if calls:
        encoded["tool_calls"] = calls
    return encoded | _result_fields(message, names) if encoded["role"] == "tool" else encoded


def _result_fields(message: Mapping[str, Any], names: Mapping[str, str]) -> dict[str, Any]:
    """Return the name and the call id of a result; templates need the name (Ollama 0.32, `.ToolName`)."""
    call_id = as_text(message.get("tool_call_id"))
    name = as_text(message.get("tool_name")) or as_text(message.get("name")) or names.get(call_id, "")
    return {key: value for key, value in (("tool_name", name), ("tool_call_id", call_id)) if value}


def _encode_call(call: Mapping[str, Any], names: dict[str, str], notes: list[str]) -> dict[str, Any]:
    """Encode a past call; its arguments must be an object (ollama#12794)."""
    function = as_object(call.get("function"))
    name, call_id = as_text(function.get("name")), as_text(call.get("id"))
    encoded = {"function": {"name": name, "arguments": _decode_arguments(function.get("arguments"), name, notes)}}
    if not call_id:
        return encoded
    names[call_id] = name
    return {"id": call_id, **encoded}


def _decode_arguments(arguments: Any, name: str, notes: list[str]) -> dict[str, Any]:
    value = arguments
    if isinstance(arguments, str):
        try:
            value = json.loads(arguments)
        except (ValueError, RecursionError):
            value = None
    if is_object(value):
        return value
    if arguments:
        notes.append(f"the arguments of a past call of {name!r} are not a JSON object and were sent as {{}}")
    return {}


def _encode_image(part: Mapping[str, Any]) -> str:
    """Return an image or sound in base64; Ollama accepts both in `images` (openai/openai.go, 0.32.15)."""
    kind = as_text(part.get("type"))
    if kind == "image_url":
        image_url = part.get("image_url")
        return _data_of_url(as_text(image_url) or as_text(as_object(image_url).get("url")))
    if kind == "input_audio":
        return as_text(as_object(part.get("input_audio")).get("data"))
    raise NotExpressible(f"a part of type {kind!r} in a message")


def _data_of_url(url: str) -> str:
    scheme, colon, rest = url.partition(":")
    if not colon or scheme.lower() != "data":
        raise NotExpressible("an image by its address: it takes the image itself, as a data: URL")
    kind, _, data = rest.partition(",")
    if kind.lower().endswith(";base64"):
        return data
    return base64.b64encode(unquote_to_bytes(data)).decode()
