"""Anthropic's Messages API, `/v1/messages`: decode a client's request, with all its keys, to a Chat Completions body.

Keys that only Anthropic's servers can serve are left out, with a note if the client might miss something. Keys of Chat
Completions and of open servers are kept, since clients add them to the keys of this API. The formats are those of the
anthropic package 2.12.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from promptools.errors import UsageError, clip
from promptools.json_values import copy_json, is_array, is_object
from promptools.numbers import as_int
from promptools.patterns import lazy_pattern
from promptools.wire import messages_out
from promptools.wire.json_body import as_list, as_object, as_text
from promptools.wire.messages_out import DISCARDED_SIGNATURE
from promptools.wire.parameters import PARAMETERS, thinking_budget
from promptools.wire.typed_tools import ANTHROPIC_TOOLS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from promptools.profiles import Profile


# Decode the conversation of a `/v1/messages` request: messages of content blocks become messages of Chat Completions.
#
# One message may become several: tool results in a user's message become separate messages, before its other blocks.


BLANK_LINE = "\n\n"
_ASSISTANT = "assistant"


def join_texts(texts: Iterable[str], separator: str) -> str:
    """Join those texts that are not blank."""
    return separator.join(text for text in texts if text.strip())


def decode_messages(messages: Sequence[Any], notes: list[str]) -> list[Any]:
    """Decode a conversation in O(n), and add to `notes` what was left out.

    Raises UsageError for content that is malformed, or that open servers do not take.
    """
    unsent: dict[str, None] = {}
    roles: dict[str, None] = {}
    decoded: list[Any] = []
    for position, message in enumerate(messages):
        if not is_object(message):
            decoded.append(message)  # it is refused later, where the conversations of every API are checked
            continue
        blocks = _blocks(message.get("content"), f"messages[{position}].content")
        if message.get("role") == _ASSISTANT:
            decoded.append(_decode_assistant(blocks, unsent))
            continue
        if message.get("role") not in {"user", "system"}:
            roles[as_text(message.get("role"))] = None
        own = _decode_user(blocks, unsent)
        if message.get("role") == "system":  # Claude Code 2.1 sends system messages in mid-conversation
            own = [{**item, "role": "system"} if item["role"] == "user" else item for item in own]
        decoded += own
    if unsent:
        notes.append(f"not sent: content blocks of type {', '.join(unsent)}; only Anthropic's own servers read them")
    if roles:
        notes.append(f"messages of the roles {', '.join(map(repr, roles))} were sent as the user's")
    return decoded


def _blocks(content: Any, path: str) -> list[tuple[str, dict[str, Any]]]:
    """Return the content blocks of a message, each with its path for error messages (`messages[0].content[1]`)."""
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
    """Return the content of a message. If it is only text, it becomes a string, since every server accepts strings."""
    texts = [as_text(part.get("text")) for part in parts if part["type"] == "text"]
    if len(texts) < len(parts):
        return list(parts)
    return texts[0] if len(texts) == 1 else join_texts(texts, BLANK_LINE)


def _decode_part(block: Mapping[str, Any], path: str, unsent: dict[str, None]) -> list[dict[str, Any]]:
    """Decode a content block to content parts of Chat Completions."""
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


# The request.


_CONVERTED = frozenset({
    "messages", "system", "tools", "tool_choice", "stop_sequences", "thinking", "output_config", "output_format",
    "max_tokens", "mcp_servers", "compaction", "thread",
})  # fmt: skip
_NEEDLESS = frozenset({
    "metadata", "cache_control", "service_tier", "inference_geo", "speed", "diagnostics", "betas", "anthropic_version",
    "billing_policy", "user_profile_id", "workspace_id", "stream_options",
})  # fmt: skip
"""Keys that concern Anthropic's accounts or caches; nothing is lost by leaving them out."""
_KEPT = frozenset({"promptools", *PARAMETERS}) - _CONVERTED - _NEEDLESS - {"n", "functions", "function_call"}
_EFFORTS = {"xhigh": "high", "max": "high"}
"""Maps each reasoning effort that open models do not know to the effort that is sent instead."""
_LOW_BUDGET, _MEDIUM_BUDGET = 4_096, 16_384
"""The largest budgets, in thinking tokens, that become low effort and medium effort."""
_CHARACTERS_PER_TOKEN = 2
"""Characters per token, to estimate numbers of tokens.

Most text has more characters per token (runs of symbols do not), so the estimates are usually too high.
"""
_BILLING_LINE = lazy_pattern(r"^x-anthropic-billing-header:[^\n]*\n?", re.MULTILINE)


def decode_messages_request(data: Mapping[str, Any], profile: Profile) -> tuple[dict[str, Any], tuple[str, ...]]:
    """Return the Chat Completions body, and notes on what was left out.

    Raises UsageError for anything that matters to the answer, but cannot be expressed.
    """
    _refuse_services(data)
    notes: list[str] = []
    body = {key: value for key, value in data.items() if key in _KEPT}
    unknown = sorted(key for key in data.keys() - _KEPT - _CONVERTED - _NEEDLESS if data[key] is not None)
    if unknown:
        notes.append(f"not sent: {', '.join(unknown)}; Chat Completions has nothing like it")
    body["messages"] = data.get("messages")
    if is_array(data.get("messages")):
        system = _decode_system(data.get("system"), profile)
        body["messages"] = [*system, *decode_messages(data["messages"], notes)]
    if data.get("tools"):
        body["tools"] = _decode_tools(data["tools"], notes)
    body |= _decode_tool_choice(data.get("tool_choice"))
    body |= _decode_limit(data.get("max_tokens"), body, profile, notes)
    if data.get("stop_sequences"):
        body["stop"] = data["stop_sequences"]
    if "top_k" in body and "top_k" not in profile.sampling:
        notes.append("not sent: top_k; this server is not known to take it with a request")
        del body["top_k"]
    body |= _decode_thinking(data, body, profile, notes)
    return body | _decode_format(data), tuple(notes)


def _refuse_services(data: Mapping[str, Any]) -> None:
    """Raise UsageError if the answer depends on a feature that only Anthropic's own servers have."""
    advice = {
        "mcp_servers": "connect them in the app, and offer their tools in 'tools'",
        "compaction": "ask for a summary in a message",
        "thread": "send the whole conversation in 'messages'",
    }
    for key, instead in advice.items():
        if data.get(key) and not (key == "thread" and as_object(data[key]).get("type") == "create"):
            code = messages_out.THREAD_NOT_FOUND if key == "thread" else "usage"
            raise UsageError(f"{key!r} needs Anthropic's own servers, and this is not one: {instead}", code=code)


def _decode_system(system: Any, profile: Profile) -> list[dict[str, Any]]:
    """Decode the system prompt, a string or blocks, without Claude Code's billing line."""
    if system is None:
        return []
    texts = (
        [system] if isinstance(system, str) else [as_text(as_object(block).get("text")) for block in as_list(system)]
    )
    if profile.strip_billing_header:
        texts = [_BILLING_LINE.sub("", text) for text in texts]
    text = join_texts(texts, BLANK_LINE)
    return [{"role": "system", "content": text}] if text else []


# --- tools -----------------------------------------------------------------------------------------------------------


def _decode_tools(offered: Any, notes: list[str]) -> Any:
    """Decode tools. Tools that only Anthropic's servers have are left out, or refused if no other tool is offered."""
    if not is_array(offered):
        return offered
    tools: list[Any] = []
    left_out: dict[str, None] = {}
    for tool in offered:
        data = as_object(tool)
        kind = as_text(data.get("type")) or "custom"
        if kind == "custom" and data:
            tools.append({"type": "function", "function": _decode_function(data)})
        elif kind in ANTHROPIC_TOOLS:
            tools.append({"type": "function", "function": _typed_function(data, ANTHROPIC_TOOLS[kind])})
        elif kind == "function" or not data:
            tools.append(tool)  # in the form of Chat Completions, from the config's defaults
        else:
            left_out[kind] = None
    names = ", ".join(map(repr, left_out))
    if left_out and not tools:
        raise UsageError(
            f"'tools' holds only {names}, which only Anthropic's own servers provide: offer tools"
            " with an 'input_schema'"
        )
    if left_out:
        notes.append(f"not sent: tools of type {names}; only Anthropic's own servers and models know them")
    return tools


def _typed_function(tool: Mapping[str, Any], function: Mapping[str, Any]) -> dict[str, Any]:
    """Return the function for a tool that the API defines by its type and that the client runs."""
    own = {key: tool[key] for key in ("name", "strict") if tool.get(key) is not None}
    return copy_json({**function}) | own


def _decode_function(tool: Mapping[str, Any]) -> dict[str, Any]:
    schema = tool.get("input_schema")
    function: dict[str, Any] = {
        "name": tool.get("name"),
        "description": tool.get("description"),
        "parameters": {"type": "object", "properties": {}} if schema is None else schema,
        "strict": tool.get("strict"),
    }
    return {key: value for key, value in function.items() if value is not None}


def _decode_tool_choice(choice: Any) -> dict[str, Any]:
    if not is_object(choice):
        return {} if choice is None else {"tool_choice": choice}
    kind = choice.get("type")
    decoded: dict[str, Any] = {}
    match kind:
        case "auto" | "none":
            decoded["tool_choice"] = kind
        case "any":
            decoded["tool_choice"] = "required"
        case "tool":
            decoded["tool_choice"] = {"type": "function", "function": {"name": choice.get("name")}}
        case "function":
            decoded["tool_choice"] = choice
        case _:
            raise UsageError(f"'tool_choice' is {clip(repr(choice))}; its type must be 'auto', 'any', 'tool' or 'none'")
    if choice.get("disable_parallel_tool_use") is True:
        decoded["parallel_tool_calls"] = False
    return decoded


# --- parameters ------------------------------------------------------------------------------------------------------


def _decode_limit(limit: Any, body: Mapping[str, Any], profile: Profile, notes: list[str]) -> dict[str, Any]:
    """Decode `max_tokens`; leave it out if the prompt and that many tokens may exceed the context.

    Clients made for Anthropic's models ask for more tokens than the contexts of many models hold. Servers other than
    Ollama refuse such requests.
    """
    if limit is None:
        return {}
    if profile.context is not None and profile.wire != "ollama":
        prompt = len(json.dumps([body["messages"], body.get("tools")], ensure_ascii=False)) // _CHARACTERS_PER_TOKEN
        if prompt + (as_int(limit) or 0) > profile.context:
            notes.append(f"not sent: max_tokens of {limit}; the context holds {profile.context} tokens with the prompt")
            return {}
    return {"max_tokens": limit}


def _decode_thinking(
    data: Mapping[str, Any], body: Mapping[str, Any], profile: Profile, notes: list[str]
) -> dict[str, Any]:
    """Decode `thinking` and the effort to parameters for the server.

    These are `reasoning_effort`, a token budget, and the chat template's switch for reasoning.
    """
    thinking = as_object(data.get("thinking"))
    kind = thinking.get("type")
    if kind == "disabled":
        if profile.wire == "ollama":
            return {"think": False}
        if not profile.template_kwargs:
            notes.append("not sent: thinking; how this server switches it off is not known")
            return {}
        return {"chat_template_kwargs": {**as_object(body.get("chat_template_kwargs")), "enable_thinking": False}}
    decoded: dict[str, Any] = {}
    effort = as_text(as_object(data.get("output_config")).get("effort"))
    if not effort and kind == "enabled":
        effort = _effort_of(thinking_budget(thinking))
    if effort:
        decoded["reasoning_effort"] = _EFFORTS.get(effort, effort)
    budget = thinking_budget(thinking)
    if budget is not None and profile.thinking_budget is not None:
        decoded[profile.thinking_budget] = budget
    if kind in {"enabled", "adaptive"} and profile.template_kwargs:
        decoded["chat_template_kwargs"] = {**as_object(body.get("chat_template_kwargs")), "enable_thinking": True}
    return decoded


def _effort_of(budget: int | None) -> str:
    """Return the effort for a budget of thinking tokens; empty for None."""
    if budget is None:
        return ""
    if budget <= _LOW_BUDGET:
        return "low"
    return "medium" if budget <= _MEDIUM_BUDGET else "high"


def _decode_format(data: Mapping[str, Any]) -> dict[str, Any]:
    """Decode the format of the answer, from `output_config` or, as in the API's beta, from `output_format`."""
    form = as_object(as_object(data.get("output_config")).get("format") or data.get("output_format"))
    if not form:
        return {}
    if form.get("type") != "json_schema":
        raise UsageError(f"the output format {clip(repr(form))} is not known; its type must be 'json_schema'")
    return {"response_format": {"type": "json_schema", "json_schema": {"name": "answer", "schema": form.get("schema")}}}
