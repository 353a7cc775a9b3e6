"""The conversation as `/api/chat` takes it: content as strings, arguments as objects, images beside the text."""

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
"""Roles that templates do not know, and what they are to them: a template drops a message of an unknown role."""
_TAKEN = frozenset({
    "role", "content", "images", "tool_calls", "function_call", "tool_call_id", "tool_name",
    "reasoning", "reasoning_content", "thinking",
})  # fmt: skip


class Uncarried(Exception):
    """`/api/chat` has no place for something in the request; the message says for what."""


def write_messages(given: Any, notes: list[str]) -> list[dict[str, Any]]:
    """Write the conversation, and add to `notes` what was left out. O(n). Raises `Uncarried`."""
    names: dict[str, str] = {}
    lost: dict[str, None] = {}
    written: list[dict[str, Any]] = []
    for message in map(as_object, as_list(given)):
        said = _message(message, names, notes)
        written.append(said)
        taken = _TAKEN | {"name"} if said["role"] == "tool" else _TAKEN  # it is the `tool_name`
        lost |= dict.fromkeys(key for key, value in message.items() if key not in taken and value is not None)
    if lost:
        notes.append(f"keys of messages were not sent, /api/chat has no place for them: {', '.join(sorted(lost))}")
    return written


def _message(message: Mapping[str, Any], names: dict[str, str], notes: list[str]) -> dict[str, Any]:
    """Write one message; `names` are those of the calls so far, by id."""
    role = as_text(message.get("role"))
    text, others = split_parts(message.get("content"))
    said: dict[str, Any] = {"role": ROLES.get(role, role), "content": text}
    images = [*as_list(message.get("images")), *(_image(part) for part in others)]
    if images:
        said["images"] = images
    thoughts = reasoning_of(message)
    if thoughts:
        said["thinking"] = thoughts
    calls = [_call(each, names, notes) for each in as_list(message.get("tool_calls")) if is_object(each)]
    if not calls and is_object(message.get("function_call")):
        calls = [_call({"function": message["function_call"]}, names, notes)]
    if calls:
        said["tool_calls"] = calls
    return said | _answer(message, names) if said["role"] == "tool" else said


def _answer(message: Mapping[str, Any], names: Mapping[str, str]) -> dict[str, Any]:
    """Say which tool, and which call of it, a result is of; templates want the name (ollama 0.32, `.ToolName`)."""
    call_id = as_text(message.get("tool_call_id"))
    name = as_text(message.get("tool_name")) or as_text(message.get("name")) or names.get(call_id, "")
    return {key: value for key, value in (("tool_name", name), ("tool_call_id", call_id)) if value}


def _call(given: Mapping[str, Any], names: dict[str, str], notes: list[str]) -> dict[str, Any]:
    """Write a past call; the arguments have to be an object (ollama#12794)."""
    function = as_object(given.get("function"))
    name, call_id = as_text(function.get("name")), as_text(given.get("id"))
    said = {"function": {"name": name, "arguments": _arguments(function.get("arguments"), name, notes)}}
    if not call_id:
        return said
    names[call_id] = name
    return {"id": call_id, **said}


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
    """Give an image, or a sound, in base64; Ollama takes both in `images` (openai/openai.go, 0.32.15)."""
    kind = as_text(part.get("type"))
    if kind == "image_url":
        said = part.get("image_url")
        return _inline(as_text(said) or as_text(as_object(said).get("url")))
    if kind == "input_audio":
        return as_text(as_object(part.get("input_audio")).get("data"))
    raise Uncarried(f"a part of type {kind!r} in a message")


def _inline(url: str) -> str:
    """Give the data of a `data:` URL."""
    scheme, colon, rest = url.partition(":")
    if not colon or scheme.lower() != "data":
        raise Uncarried("an image by its address: it takes the image itself, as a data: URL")
    kind, _, data = rest.partition(",")
    if kind.lower().endswith(";base64"):
        return data
    return base64.b64encode(unquote_to_bytes(data)).decode()
