"""The prompt of a request to the server as the page shows it: the text of a raw endpoint, or messages and tools."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from promptools.harmony.parser import Detokenizer
from promptools.harmony.tokens import raw_text
from promptools.wire.json_body import as_list, as_object, as_text, is_shallow, split_content

if TYPE_CHECKING:
    from promptools.proxy.inspector.exchange_store import KeptSend
    from promptools.wire.chat_template import RenderedPrompt
    from promptools.wire.raw_endpoints import RawPrompt


def view_prompt(send: KeptSend) -> dict[str, Any]:
    """Return the JSON of a prompt: `text` if it is rendered, else `messages` and `tools`, which the server renders."""
    sent = send.sent
    rendered = sent.tool_request.rendered if sent.tool_request is not None else None
    prompt = sent.prepared.prompt if sent.prepared is not None else None
    if prompt is not None:
        return {"text": _prompt_text(prompt, rendered)}
    body = _parse_object(send.body.data)
    return {
        "messages": [_view_message(as_object(message)) for message in as_list(body.get("messages"))],
        "tools": [
            {"name": _tool_name(as_object(tool)), "text": _as_json(tool, indent=2)}
            for tool in as_list(body.get("tools"))
        ],
    }


def _prompt_text(prompt: RawPrompt, rendered: RenderedPrompt | None) -> str:
    """Return the text of a prompt, which may have been sent as token ids."""
    if isinstance(prompt.content, str):
        return prompt.content
    if rendered is not None and rendered.text is not None:
        return rendered.text
    if prompt.decode is None:
        return " ".join(map(str, prompt.content))
    detokenizer = Detokenizer(prompt.decode)
    return "".join(map(raw_text, [*detokenizer.feed(prompt.content), *detokenizer.close()]))


def last_question(data: bytes) -> str:
    """Return the last text of a user in a client's request, of any API; empty if there is none."""
    body = _parse_object(data)
    messages = as_list(body.get("messages")) or as_list(body.get("input"))
    for message in map(as_object, reversed(messages)):
        text = split_content(message.get("content"))[0] if message.get("role") == "user" else ""
        if text.strip():
            return " ".join(text.split())
    return " ".join(as_text(body.get("input")).split())


def _view_message(message: dict[str, Any]) -> dict[str, Any]:
    text, others = split_content(message.get("content"))
    calls = [as_object(as_object(call).get("function")) for call in as_list(message.get("tool_calls"))]
    return {
        "role": as_text(message.get("role")),
        "text": text,
        "others": [as_text(part.get("type")) or "part" for part in others],
        "calls": [{"name": as_text(call.get("name")), "arguments": _as_json(call.get("arguments"))} for call in calls],
    }


def _tool_name(tool: dict[str, Any]) -> str:
    return as_text(as_object(tool.get("function")).get("name")) or as_text(tool.get("name"))


def _as_json(value: Any, indent: int | None = None) -> str:
    if isinstance(value, str):
        return value
    return (
        json.dumps(value, ensure_ascii=False, indent=indent) if is_shallow(value) else "nested too deeply to be shown"
    )


def _parse_object(data: bytes) -> dict[str, Any]:
    try:
        return as_object(json.loads(data))
    except (ValueError, RecursionError):
        return {}
