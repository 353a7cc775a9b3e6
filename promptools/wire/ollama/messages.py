"""Encode a conversation for `/api/chat`: content as strings, arguments as objects, images in a field of their own."""

from __future__ import annotations

import base64
import json
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote_to_bytes

from promptools.wire.chat import reasoning_of
from promptools.wire.content import split_parts
from promptools.wire.shapes import as_list, as_object, as_text, is_object

if TYPE_CHECKING:
    from collections.abc import Mapping

ROLES = {"developer": "system", "function": "tool"}
"""Replacements for roles that templates do not know: a template drops a message of an unknown role."""
_TAKEN = frozenset({
    "role", "content", "images", "tool_calls", "function_call", "tool_call_id", "tool_name",
    "reasoning", "reasoning_content", "thinking",
})  # fmt: skip


class Uncarried(Exception):
    """`/api/chat` cannot express a part of the request; the message names it."""


def write_messages(given: Any, notes: list[str]) -> list[dict[str, Any]]:
    """Encode the conversation, and add to `notes` what was left out. O(n). Raises `Uncarried`."""
    names: dict[str, str] = {}
    unknown: dict[str, None] = {}
    messages: list[dict[str, Any]] = []
    for message in map(as_object, as_list(given)):
        encoded = _message(message, names, notes)
        messages.append(encoded)
        known = _TAKEN | {"name"} if encoded["role"] == "tool" else _TAKEN  # it is the `tool_name`
        unknown |= dict.fromkeys(key for key, value in message.items() if key not in known and value is not None)
    if unknown:
        notes.append(f"keys of messages were not sent, /api/chat has no place for them: {', '.join(sorted(unknown))}")
    return messages


def _message(message: Mapping[str, Any], names: dict[str, str], notes: list[str]) -> dict[str, Any]:
    """Encode one message; `names` are the tool names of the calls so far, by id."""
    role = as_text(message.get("role"))
    text, others = split_parts(message.get("content"))
    encoded: dict[str, Any] = {"role": ROLES.get(role, role), "content": text}
    images = [*as_list(message.get("images")), *(_image(part) for part in others)]
    if images:
        encoded["images"] = images
    reasoning = reasoning_of(message)
    if reasoning:
        encoded["thinking"] = reasoning
    calls = [_call(call, names, notes) for call in as_list(message.get("tool_calls")) if is_object(call)]
    if not calls and is_object(message.get("function_call")):
        calls = [_call({"function": message["function_call"]}, names, notes)]
    if calls:
        encoded["tool_calls"] = calls
    return encoded | _answer(message, names) if encoded["role"] == "tool" else encoded


def _answer(message: Mapping[str, Any], names: Mapping[str, str]) -> dict[str, Any]:
    """Return the name and the call id of a result; templates need the name (Ollama 0.32, `.ToolName`)."""
    call_id = as_text(message.get("tool_call_id"))
    name = as_text(message.get("tool_name")) or as_text(message.get("name")) or names.get(call_id, "")
    return {key: value for key, value in (("tool_name", name), ("tool_call_id", call_id)) if value}


def _call(given: Mapping[str, Any], names: dict[str, str], notes: list[str]) -> dict[str, Any]:
    """Encode a past call; its arguments must be an object (ollama#12794)."""
    function = as_object(given.get("function"))
    name, call_id = as_text(function.get("name")), as_text(given.get("id"))
    encoded = {"function": {"name": name, "arguments": _arguments(function.get("arguments"), name, notes)}}
    if not call_id:
        return encoded
    names[call_id] = name
    return {"id": call_id, **encoded}


def _arguments(said: Any, name: str, notes: list[str]) -> dict[str, Any]:
    value = said
    if isinstance(said, str):
        try:
            value = json.loads(said)
        except (ValueError, RecursionError):
            value = None
    if is_object(value):
        return value
    if said:
        notes.append(f"the arguments of a past call of {name!r} are no JSON object and were sent as {{}}")
    return {}


def _image(part: Mapping[str, Any]) -> str:
    """Return an image or sound in base64; Ollama accepts both in `images` (openai/openai.go, 0.32.15)."""
    kind = as_text(part.get("type"))
    if kind == "image_url":
        image_url = part.get("image_url")
        return _inline(as_text(image_url) or as_text(as_object(image_url).get("url")))
    if kind == "input_audio":
        return as_text(as_object(part.get("input_audio")).get("data"))
    raise Uncarried(f"a part of type {kind!r} in a message")


def _inline(url: str) -> str:
    """Return the base64 data of a `data:` URL."""
    scheme, colon, rest = url.partition(":")
    if not colon or scheme.lower() != "data":
        raise Uncarried("an image by its address: it takes the image itself, as a data: URL")
    kind, _, data = rest.partition(",")
    if kind.lower().endswith(";base64"):
        return data
    return base64.b64encode(unquote_to_bytes(data)).decode()
