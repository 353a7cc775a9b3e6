"""Decode a client's `/v1/messages` request to a Chat Completions body; every key is handled here.

Keys that only Anthropic's servers can serve are left out, with a note where the client might miss something. Keys of
Chat Completions and of open servers are kept, since clients pass them beside the API's own. Formats of anthropic 2.12.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

from promptools.errors import UsageError, clip
from promptools.json_values import is_array, is_object
from promptools.patterns import lazy_pattern
from promptools.wire.json_types import as_int, as_list, as_object, as_text
from promptools.wire.messages import message_body
from promptools.wire.messages.content_blocks import BLANK_LINE, decode_messages, join_texts
from promptools.wire.parameters import PARAMETERS, thinking_budget

if TYPE_CHECKING:
    from collections.abc import Mapping

    from promptools.profiles import Profile

_CONVERTED = frozenset({
    "messages", "system", "tools", "tool_choice", "stop_sequences", "thinking", "output_config", "output_format",
    "max_tokens", "mcp_servers", "compaction", "thread",
})  # fmt: skip
_NEEDLESS = frozenset({
    "metadata", "cache_control", "service_tier", "inference_geo", "speed", "diagnostics", "betas", "anthropic_version",
    "billing_policy", "user_profile_id", "workspace_id", "stream_options",
})  # fmt: skip
"""Keys that concern an account at Anthropic or its caches: leaving them out loses nothing."""
_KEPT = frozenset({"promptools", *PARAMETERS}) - _CONVERTED - _NEEDLESS - {"n", "functions", "function_call"}
_EFFORTS = {"xhigh": "high", "max": "high"}
"""Efforts that open models do not have."""
_LOW_BUDGET, _MEDIUM_BUDGET = 4_096, 16_384
"""The largest budgets of thinking tokens that count as low and as medium effort."""
_CHARACTERS_PER_TOKEN = 2
"""Fewer than in any text except runs of symbols, so that a prompt is rather overestimated."""
_BILLING_LINE = lazy_pattern(r"^x-anthropic-billing-header:[^\n]*\n?", re.MULTILINE)


def decode_messages_request(data: Mapping[str, Any], profile: Profile) -> tuple[dict[str, Any], tuple[str, ...]]:
    """Return the body, and notes on what was left out. Raises UsageError for what cannot be expressed."""
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
    """Raise UsageError for what the answer depends on, and only Anthropic's own servers do."""
    advice = {
        "mcp_servers": "connect them in the app, and offer their tools in 'tools'",
        "compaction": "ask for a summary in a message",
        "thread": "send the whole conversation in 'messages'",
    }
    for key, instead in advice.items():
        if data.get(key) and not (key == "thread" and as_object(data[key]).get("type") == "create"):
            code = message_body.THREAD_NOT_FOUND if key == "thread" else "usage"
            raise UsageError(f"{key!r} needs Anthropic's own servers, and this is none: {instead}", code=code)


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
    """Decode tools; those that Anthropic runs or defines are left out beside others, and refused alone."""
    if not is_array(offered):
        return offered
    tools: list[Any] = []
    left_out: dict[str, None] = {}
    for tool in offered:
        data = as_object(tool)
        kind = as_text(data.get("type")) or "custom"
        if kind == "custom" and data:
            tools.append({"type": "function", "function": _decode_function(data)})
        elif kind == "function" or not data:
            tools.append(tool)  # of Chat Completions, from the config's defaults
        else:
            left_out[kind] = None
    names = ", ".join(map(repr, left_out))
    if left_out and not tools:
        raise UsageError(
            f"'tools' holds only {names}, which Anthropic's own servers and models know, and this is none: offer tools"
            " with an 'input_schema'"
        )
    if left_out:
        notes.append(f"not sent: tools of type {names}; only Anthropic's own servers and models know them")
    return tools


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
    """Decode `max_tokens`; it is left out if the context may not hold the prompt and that many tokens.

    Clients made for Anthropic's models ask for more than many contexts hold, and servers refuse that. Ollama does not.
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
    """Decode `thinking` and the effort: to `reasoning_effort`, a budget of tokens, and the switch of chat templates."""
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
    """Return the effort for a budget of thinking tokens."""
    if budget is None:
        return ""
    if budget <= _LOW_BUDGET:
        return "low"
    return "medium" if budget <= _MEDIUM_BUDGET else "high"


def _decode_format(data: Mapping[str, Any]) -> dict[str, Any]:
    """Decode the format of the answer, in its present place or in that of the beta."""
    form = as_object(as_object(data.get("output_config")).get("format") or data.get("output_format"))
    if not form:
        return {}
    if form.get("type") != "json_schema":
        raise UsageError(f"the output format {clip(repr(form))} is not known; its type must be 'json_schema'")
    return {"response_format": {"type": "json_schema", "json_schema": {"name": "answer", "schema": form.get("schema")}}}
