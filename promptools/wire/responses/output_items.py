"""Encode Responses objects: the items of the output, the response around them, and its usage."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from promptools.wire.chat_encoder import finish_reason
from promptools.wire.json_types import as_count, as_list, as_object
from promptools.wire.responses.input_items import seal_reasoning

if TYPE_CHECKING:
    from collections.abc import Mapping

    from promptools.types import Call, Reply
    from promptools.wire.responses.client_tools import ClientTool
    from promptools.wire.responses.responses_request import ResponsesRequest

ID_PREFIX = "resp_"
"""How the ids of responses begin."""
_INCOMPLETE_REASONS = {"length": "max_output_tokens", "content_filter": "content_filter"}
"""The reasons of an incomplete response, by finish reason."""


@dataclass(slots=True)
class ResponseFrame:
    """What is known of a response before its output: ids, time, and what it repeats of the request."""

    request: ResponsesRequest
    token: str
    """The part that the ids of the response and of its items share."""
    created_at: int
    model: str

    @property
    def id(self) -> str:
        """The response's id."""
        return ID_PREFIX + self.token

    def item_id(self, prefix: str, index: int) -> str:
        """Return the id of an item of the output."""
        return f"{prefix}_{self.token}_{index}"

    def encode(self, status: str, output: list[dict[str, Any]], **fields: Any) -> dict[str, Any]:
        """Encode the response; `fields` replace those that are null while it is in progress."""
        return {
            "id": self.id,
            "object": "response",
            "created_at": self.created_at,
            "status": status,
            "error": None,
            "incomplete_details": None,
            "model": self.model,
            "output": output,
            "usage": None,
            **self.request.settings,
            **fields,
        }

    def encode_end(
        self, reply: Reply, output: list[dict[str, Any]], usage: Mapping[str, Any] | None, completed_at: int
    ) -> dict[str, Any]:
        """Encode the response to which `reply` is the answer."""
        reason = incomplete_reason(reply)
        fields: dict[str, Any] = {"usage": encode_usage(usage)}
        if reason:
            return self.encode("incomplete", output, incomplete_details={"reason": reason}, **fields)
        return self.encode("completed", output, completed_at=completed_at, **fields)

    def tool(self, function_name: str) -> ClientTool:
        """Return the client's tool of a function."""
        return self.request.tools.client_tool(function_name)


def incomplete_reason(reply: Reply) -> str | None:
    """Return why a reply is incomplete; None if it is complete."""
    return _INCOMPLETE_REASONS.get(finish_reason(reply))


def encode_usage(usage: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """Encode the usage; null where the server reported none."""
    if not usage:
        return None
    spent, prompt, completion = usage, usage.get("prompt_tokens_details"), usage.get("completion_tokens_details")
    read, written = as_count(spent.get("prompt_tokens")) or 0, as_count(spent.get("completion_tokens")) or 0
    return {
        "input_tokens": read,
        "input_tokens_details": {
            "cached_tokens": as_count(as_object(prompt).get("cached_tokens")) or 0,
            "cache_write_tokens": as_count(as_object(prompt).get("cache_write_tokens")) or 0,
        },
        "output_tokens": written,
        "output_tokens_details": {"reasoning_tokens": as_count(as_object(completion).get("reasoning_tokens")) or 0},
        "total_tokens": as_count(spent.get("total_tokens")) or read + written,
    }


# --- items -----------------------------------------------------------------------------------------------------------


def text_part(text: str = "", logprobs: Any = None) -> dict[str, Any]:
    """Encode the one content part of a message."""
    return {"type": "output_text", "annotations": [], "logprobs": token_logprobs(logprobs), "text": text}


def token_logprobs(logprobs: Any) -> list[Any]:
    """Return the log probabilities of Chat Completions as a list of tokens."""
    return as_list(as_object(logprobs).get("content"))


def message_item(item_id: str, content: list[dict[str, Any]], status: str) -> dict[str, Any]:
    """Encode a message."""
    return {"id": item_id, "type": "message", "status": status, "role": "assistant", "content": content}


def reasoning_part(text: str, *, summary: bool) -> dict[str, Any]:
    """Encode the one part of a reasoning item's content or summary."""
    return {"type": "summary_text" if summary else "reasoning_text", "text": text}


def reasoning_item(frame: ResponseFrame, item_id: str, text: str, status: str) -> dict[str, Any]:
    """Encode reasoning, as a summary or as content, and sealed if the request includes that."""
    summary = frame.request.summary
    parts = [reasoning_part(text, summary=summary)] if text else []
    item: dict[str, Any] = {"id": item_id, "type": "reasoning", "status": status, "summary": parts if summary else []}
    if not summary:
        item["content"] = parts
    return item | {"encrypted_content": seal_reasoning(text) if frame.request.sealed and text else None}


@dataclass(slots=True)
class CallItem:
    """A call whose arguments, or input, may still be coming in."""

    tool: ClientTool
    item_id: str
    call_id: str
    fragments: list[str] = field(default_factory=list[str])

    def encode(self, status: str) -> dict[str, Any]:
        """Encode the call with what has come so far."""
        text = "".join(self.fragments)
        item: dict[str, Any] = {"id": self.item_id, "type": "function_call", "status": status}
        item |= {"call_id": self.call_id, "name": self.tool.name}
        if self.tool.namespace:
            item["namespace"] = self.tool.namespace
        return item | ({"type": "custom_tool_call", "input": text} if self.tool.custom else {"arguments": text})


def complete_call(frame: ResponseFrame, index: int, call: Call) -> CallItem:
    """Return the item of a complete call, at `index` of the output."""
    tool = frame.tool(call.name)
    text = tool.custom_input(call) if tool.custom else call.arguments_json
    return CallItem(tool, frame.item_id(call_prefix(tool), index), call.id, [text])


def call_prefix(tool: ClientTool) -> str:
    """Return the prefix of the ids of a tool's calls."""
    return "ctc" if tool.custom else "fc"


def encode_output(frame: ResponseFrame, reply: Reply, logprobs: Any = None) -> list[dict[str, Any]]:
    """Encode a whole reply: the reasoning, the text, then the calls."""
    output: list[dict[str, Any]] = []
    status = "incomplete" if incomplete_reason(reply) else "completed"
    if reply.reasoning:
        cut = status if not (reply.content or reply.calls) else "completed"
        output.append(reasoning_item(frame, frame.item_id("rs", 0), reply.reasoning, cut))
    if reply.content.strip() or (reply.content and not output and not reply.calls):
        item_id = frame.item_id("msg", len(output))
        output.append(message_item(item_id, [text_part(reply.content, logprobs)], status))
    for call in reply.calls:
        output.append(complete_call(frame, len(output), call).encode("completed"))
    return output
