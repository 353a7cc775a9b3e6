"""Decode the conversation of a `/v1/messages` request: messages of content blocks to those of Chat Completions.

One message may become several: the results in a user's message are messages of their own, before its other blocks.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from promptools.errors import UsageError, clip
from promptools.json_values import is_array, is_object
from promptools.wire.json_types import as_object, as_text
from promptools.wire.messages.message_body import DISCARDED_SIGNATURE

if TYPE_CHECKING:
    from collections.abc import Mapping

BLANK_LINE = "\n\n"
_ASSISTANT = "assistant"


def join_texts(texts: Iterable[str], separator: str) -> str:
    """Join texts, without the blank ones."""
    return separator.join(text for text in texts if text.strip())


def decode_messages(messages: Sequence[Any], notes: list[str]) -> list[Any]:
    """Decode a conversation, and add to `notes` what was left out. O(n). Raises UsageError for what is refused."""
    unsent: dict[str, None] = {}
    roles: dict[str, None] = {}
    decoded: list[Any] = []
    for position, message in enumerate(messages):
        if not is_object(message):
            decoded.append(message)  # refused where every conversation is checked
            continue
        blocks = _blocks(message.get("content"), f"messages[{position}].content")
        if message.get("role") == _ASSISTANT:
            decoded.append(_decode_assistant(blocks, unsent))
            continue
        if message.get("role") not in {"user", "system"}:
            roles[as_text(message.get("role"))] = None
        own = _decode_user(blocks, unsent)
        if message.get("role") == "system":  # Claude Code 2.1 sends them in mid-conversation
            own = [{**item, "role": "system"} if item["role"] == "user" else item for item in own]
        decoded += own
    if unsent:
        notes.append(f"not sent: content blocks of type {', '.join(unsent)}; only Anthropic's own servers read them")
    if roles:
        notes.append(f"messages of the roles {', '.join(map(repr, roles))} were sent as the user's")
    return decoded


def _blocks(content: Any, path: str) -> list[tuple[str, dict[str, Any]]]:
    """Return the blocks of a message, each with its path for error messages."""
    if isinstance(content, str):
        return [(path, {"type": "text", "text": content})] if content else []
    if content is None:
        return []
    if not is_array(content):
        raise UsageError(f"{path} must be a string or a list of content blocks, not {clip(repr(content))}")
    return [(f"{path}[{index}]", _block(block, f"{path}[{index}]")) for index, block in enumerate(content)]


def _block(block: Any, path: str) -> dict[str, Any]:
    if isinstance(block, str):
        return {"type": "text", "text": block}
    if not is_object(block):
        raise UsageError(f"{path} must be a content block, an object with a 'type', not {clip(repr(block))}")
    return block


# --- the assistant's messages ----------------------------------------------------------------------------------------


def _decode_assistant(blocks: Sequence[tuple[str, Mapping[str, Any]]], unsent: dict[str, None]) -> dict[str, Any]:
    texts: list[str] = []
    thoughts: list[str] = []
    calls: list[dict[str, Any]] = []
    for _, block in blocks:
        match as_text(block.get("type")):
            case "text":
                texts.append(as_text(block.get("text")))
            case "compaction":
                texts.append(as_text(block.get("content")))
            case "thinking" if block.get("signature") == DISCARDED_SIGNATURE:
                pass
            case "thinking":
                thoughts.append(as_text(block.get("thinking")))
            case "tool_use":
                calls.append(_decode_call(block))
            case kind:
                unsent[kind] = None
    message: dict[str, Any] = {"role": _ASSISTANT, "content": "".join(texts) or (None if calls else "")}
    if reasoning := "".join(thoughts):
        message["reasoning_content"] = reasoning
    return message | {"tool_calls": calls} if calls else message


def _decode_call(block: Mapping[str, Any]) -> dict[str, Any]:
    arguments = json.dumps(block.get("input") or {}, ensure_ascii=False)
    function = {"name": as_text(block.get("name")), "arguments": arguments}
    return {"id": as_text(block.get("id")), "type": "function", "function": function}


# --- the user's messages ---------------------------------------------------------------------------------------------


def _decode_user(blocks: Sequence[tuple[str, Mapping[str, Any]]], unsent: dict[str, None]) -> list[dict[str, Any]]:
    results: list[dict[str, Any]] = []
    parts: list[dict[str, Any]] = []
    for path, block in blocks:
        if block.get("type") == "tool_result":
            results.append(_decode_result(block, path, unsent))
        else:
            parts += _decode_part(block, path, unsent)
    return [*results, {"role": "user", "content": _content(parts)}] if parts or not results else results


def _decode_result(block: Mapping[str, Any], path: str, unsent: dict[str, None]) -> dict[str, Any]:
    inner = _blocks(block.get("content"), f"{path}.content")
    parts = [part for inner_path, item in inner for part in _decode_part(item, inner_path, unsent)]
    message = {"role": "tool", "tool_call_id": as_text(block.get("tool_use_id")), "content": _content(parts)}
    return message | {"is_error": True} if block.get("is_error") is True else message


def _content(parts: Sequence[dict[str, Any]]) -> str | list[dict[str, Any]]:
    """Return content of text alone as a string, which every server takes."""
    texts = [as_text(part.get("text")) for part in parts if part["type"] == "text"]
    if len(texts) < len(parts):
        return list(parts)
    return texts[0] if len(texts) == 1 else join_texts(texts, BLANK_LINE)


def _decode_part(block: Mapping[str, Any], path: str, unsent: dict[str, None]) -> list[dict[str, Any]]:
    """Decode a block to content parts."""
    match as_text(block.get("type")):
        case "text":
            return [_text_part(as_text(block.get("text")))]
        case "image":
            return [_decode_image(block, path)]
        case "document":
            return _decode_document(block, path, unsent)
        case "compaction":
            return [_text_part(as_text(block.get("content")))]
        case "search_result":
            head = join_texts((as_text(block.get("title")), as_text(block.get("source"))), "\n")
            return [_text_part(head), *_decode_parts(block.get("content"), path, unsent)]
        case kind:
            unsent[kind] = None
            return []


def _decode_parts(content: Any, path: str, unsent: dict[str, None]) -> list[dict[str, Any]]:
    return [
        part
        for inner_path, item in _blocks(content, f"{path}.content")
        for part in _decode_part(item, inner_path, unsent)
    ]


def _text_part(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text}


def _decode_image(block: Mapping[str, Any], path: str) -> dict[str, Any]:
    source = as_object(block.get("source"))
    match source.get("type"):
        case "base64":
            url = _data_url(source, "image/png")
        case "url":
            url = as_text(source.get("url"))
        case kind:
            raise _refusal(path, "an image", kind, "'base64' or 'url'")
    return {"type": "image_url", "image_url": {"url": url}}


def _decode_document(block: Mapping[str, Any], path: str, unsent: dict[str, None]) -> list[dict[str, Any]]:
    source = as_object(block.get("source"))
    title = as_text(block.get("title"))
    head = join_texts((title, as_text(block.get("context"))), "\n")
    parts = [_text_part(head)] if head else []
    match source.get("type"):
        case "text":
            return [*parts, _text_part(as_text(source.get("data")))]
        case "content":
            return [*parts, *_decode_parts(source.get("content"), f"{path}.source", unsent)]
        case "base64":
            file = {"filename": title or "document.pdf", "file_data": _data_url(source, "application/pdf")}
            return [*parts, {"type": "file", "file": file}]
        case kind:
            raise _refusal(path, "a document", kind, "'text', 'content' or 'base64'")


def _data_url(source: Mapping[str, Any], default: str) -> str:
    return f"data:{as_text(source.get('media_type')) or default};base64,{as_text(source.get('data'))}"


def _refusal(path: str, what: str, kind: object, known: str) -> UsageError:
    return UsageError(f"{path} is {what} with a source of type {clip(repr(kind))}; open servers take {known}")
