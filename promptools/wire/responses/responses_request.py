"""Decode a Responses request to a Chat Completions body; every key is handled here.

Keys that the API does not have are passed on, since clients send parameters of their server (`top_k`, `seed`). What
only OpenAI's servers can do is refused where the answer depends on it, else left out.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from promptools.errors import UsageError, clip
from promptools.wire.json_types import as_list, as_object, as_text
from promptools.wire.responses.client_tools import ClientTools
from promptools.wire.responses.input_items import decode_content, decode_items, normalize_input

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

_REFUSED = {
    "background": "a response is computed while the client waits, or streamed",
    "conversation": "conversations are not stored here; use previous_response_id",
    "prompt": "prompt templates are stored at OpenAI; send 'instructions' and 'input'",
}
"""Keys that cannot be served, with the reason and the alternative."""
_DECODED = frozenset({
    "input", "instructions", "tools", "tool_choice", "text", "reasoning", "max_output_tokens", "include",
    "previous_response_id", "store", "stream", "stream_options", *_REFUSED,
})  # fmt: skip
_OWN_KEYS = frozenset({
    "metadata", "max_tool_calls", "prompt_cache_key", "prompt_cache_retention", "prompt_cache_options",
    "safety_identifier", "service_tier", "truncation", "context_management", "moderation", "access_programs",
    "background_options", "client_metadata", "image", "n", "functions", "function_call",
})  # fmt: skip
"""Keys that are not sent: they concern OpenAI's servers and change no answer, or are of Chat Completions alone."""
_ECHOED: dict[str, Any] = {
    "instructions": None, "max_output_tokens": None, "max_tool_calls": None, "metadata": {},
    "parallel_tool_calls": True, "previous_response_id": None, "prompt_cache_key": None, "safety_identifier": None,
    "service_tier": "default", "store": True, "temperature": 1.0, "tool_choice": "auto", "tools": [], "top_logprobs": 0,
    "top_p": 1.0, "truncation": "disabled", "user": None,
}  # fmt: skip
"""The settings that a response repeats, with their defaults."""
SEALED_REASONING = "reasoning.encrypted_content"
LOGPROBS = "message.output_text.logprobs"


@dataclass(frozen=True, slots=True)
class ResponsesRequest:
    """A decoded request."""

    body: dict[str, Any]
    """The Chat Completions body."""
    items: list[dict[str, Any]]
    """The input of this request alone, without the conversation before it."""
    tools: ClientTools
    settings: dict[str, Any]
    """What the response repeats of the request."""
    summary: bool = False
    """Whether reasoning is returned as its summary, which is where clients that asked for one look for it."""
    sealed: bool = False
    """Whether reasoning is returned as `encrypted_content` too."""
    stored: bool = True
    notes: tuple[str, ...] = ()


def decode_responses_request(
    data: Mapping[str, Any],
    history: Sequence[Mapping[str, Any]] = (),
    find_item: Callable[[str], dict[str, Any] | None] = lambda _: None,
) -> ResponsesRequest:
    """Decode a request that continues `history`; `find_item` returns the item that an `item_reference` names.

    Raises UsageError for what cannot be served.
    """
    for key, reason in _REFUSED.items():
        if data.get(key):
            raise UsageError(f"{key!r} cannot be served here: {reason}")
    items = [_resolve(item, find_item) for item in normalize_input(data.get("input"))]
    conversation = [*history, *items]
    tools = _offered_tools(data.get("tools"), conversation)
    messages, dropped = decode_items(conversation, _instructions(data.get("instructions")), tools)
    reasoning = as_object(data.get("reasoning"))
    include = [as_text(value) for value in as_list(data.get("include"))]
    body = _kept_parameters(data) | {"messages": messages, "stream": data.get("stream") is True}
    body |= _decode_tools(data, tools) | _decode_limit(data, body) | _decode_text(as_object(data.get("text")))
    if LOGPROBS in include or data.get("top_logprobs"):
        body["logprobs"] = True
    if reasoning.get("effort"):
        body["reasoning_effort"] = reasoning["effort"]
    notes = [f"not sent: the hosted tool {clip(kind)!r}; it runs on OpenAI's servers" for kind in tools.left_out]
    if data.get("truncation") == "auto":
        notes.append("truncation 'auto' was not applied: nothing of the conversation is dropped")
    return ResponsesRequest(
        body=body,
        items=items,
        tools=tools,
        settings=_settings(data, tools.left_out),
        summary=bool(reasoning.get("summary") or reasoning.get("generate_summary")),
        sealed=SEALED_REASONING in include,
        stored=data.get("store") is not False,
        notes=(*notes, *dropped),
    )


def _kept_parameters(data: Mapping[str, Any]) -> dict[str, Any]:
    """Return the parameters that are sent as they are."""
    return {key: value for key, value in data.items() if key not in _DECODED | _OWN_KEYS and value is not None}


def _offered_tools(tools: Any, conversation: Sequence[Mapping[str, Any]]) -> ClientTools:
    """Return the request's tools, with those that items of the conversation add."""
    items = (item for item in conversation if item.get("type") == "additional_tools")
    added = [tool for item in items for tool in as_list(item.get("tools"))]
    offered = ClientTools()
    offered.add([*as_list(tools), *added] if added else tools)
    return offered


def _resolve(item: dict[str, Any], find_item: Callable[[str], dict[str, Any] | None]) -> dict[str, Any]:
    """Return the item that a reference names, and any other item itself."""
    if item.get("type") != "item_reference" and (item.get("type") or item.keys() != {"id"}):
        return item
    item_id = as_text(item.get("id"))
    referenced = find_item(item_id)
    if referenced is None:
        raise UsageError(
            f"item_reference {clip(repr(item_id))}: no item with this id is stored here; send the item itself, or"
            " let the response that it is from be stored (store=true)"
        )
    return referenced


def _instructions(value: Any) -> str:
    """Return the instructions, a string or items, as text."""
    if isinstance(value, str):
        return value
    texts = [decode_content(as_object(item).get("content")) for item in as_list(value)]
    return "\n\n".join(text for text in texts if isinstance(text, str))


def _decode_tools(data: Mapping[str, Any], tools: ClientTools) -> dict[str, Any]:
    decoded: dict[str, Any] = {"tools": tools.functions} if tools.functions else {}
    if data.get("tool_choice") is not None and (decoded or data["tool_choice"] not in ("auto", "none")):
        decoded["tool_choice"] = tools.decode_choice(data["tool_choice"])
    return decoded


def _decode_limit(data: Mapping[str, Any], body: dict[str, Any]) -> dict[str, Any]:
    """Return the limit of the answer, which replaces one of the config's defaults."""
    if data.get("max_output_tokens") is None:
        return {}
    body.pop("max_completion_tokens", None)
    return {"max_tokens": data["max_output_tokens"]}


def _decode_text(text: Mapping[str, Any]) -> dict[str, Any]:
    """Decode `text`: its format to `response_format`, the verbosity as it is."""
    decoded: dict[str, Any] = {"verbosity": text["verbosity"]} if text.get("verbosity") else {}
    format_ = as_object(text.get("format"))
    match format_.get("type"):
        case None | "text":
            return decoded
        case "json_object":
            return decoded | {"response_format": {"type": "json_object"}}
        case "json_schema":
            schema = {key: value for key, value in format_.items() if key != "type" and value is not None}
            return decoded | {"response_format": {"type": "json_schema", "json_schema": schema}}
        case kind:
            raise UsageError(
                f"text.format of type {clip(repr(kind))} is not known; use 'text', 'json_object' or 'json_schema'"
            )


def _settings(data: Mapping[str, Any], left_out: Sequence[str]) -> dict[str, Any]:
    """Return the settings that the response repeats; tools of the types that were left out are not among its tools."""
    settings = {key: default if data.get(key) is None else data[key] for key, default in _ECHOED.items()}
    settings["tools"] = [tool for tool in as_list(settings["tools"]) if as_object(tool).get("type") not in left_out]
    reasoning = {"effort": None, "summary": None, **as_object(data.get("reasoning"))}
    text = {"format": {"type": "text"}, **as_object(data.get("text"))}
    return settings | {"background": False, "reasoning": reasoning, "text": text}
