"""OpenAI's Responses API: decode a client's request, with all its keys, to a Chat Completions body.

Unknown keys are passed on, since clients send parameters of their server (`top_k`, `seed`). A feature that only
OpenAI's servers have is refused if the answer depends on it, otherwise left out.
"""

from __future__ import annotations

import base64
import binascii
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from promptools.errors import UsageError, clip
from promptools.json_values import copy_json, is_array, is_object
from promptools.wire.json_body import as_list, as_object, as_text
from promptools.wire.typed_tools import openai_tools, shell_output_text

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

    from promptools.types import Call
    from promptools.wire.typed_tools import TypedTool


# The tools of a Responses request as functions of Chat Completions, and the way back from a function's name.
#
# A `custom` tool, whose input is free text, becomes a function with one string parameter. A tool that the API defines
# by its type and the client runs, such as `shell`, becomes a function of `typed_tools`. The tools of a `namespace` are
# offered one by one, with the namespace in their names. Tools that only OpenAI has are left out with a note, or refused
# if no other tool is offered.


CUSTOM_PARAMETER = "input"
"""Name of the only parameter of a function that represents a custom tool."""
_HOSTED = "it runs on OpenAI's servers"
_NOT_SERVED = {
    **dict.fromkeys((
        "web_search", "web_search_2025_08_26", "web_search_preview", "web_search_preview_2025_03_11", "tool_search",
        "image_generation", "file_search", "code_interpreter", "mcp", "programmatic_tool_calling",
    ), _HOSTED),
    **dict.fromkeys(("computer", "computer_use", "computer_use_preview"), "it needs OpenAI's own models"),
}  # fmt: skip
"""Maps each type of tool that cannot be served, because it needs OpenAI's servers or models, to the reason."""


@dataclass(frozen=True, slots=True)
class ClientTool:
    """A tool as the client defined it: its name, its namespace if it has one, and its kind."""

    name: str
    namespace: str | None = None
    custom: bool = False
    typed: TypedTool | None = None
    """How calls are encoded, if the API defines the tool by its type; None for any other tool."""

    def custom_input(self, call: Call) -> str:
        """Return the free-text input of a call to this custom tool."""
        value = call.arguments.get(CUSTOM_PARAMETER)
        return value if isinstance(value, str) else call.arguments_json


class ClientTools:
    """Converts the tools of a request to the functions that a model of `family` is offered.

    `client_tool` finds the client's tool for a function.
    """

    def __init__(self, family: str | None = None) -> None:
        self.functions: list[Any] = []
        self.left_out: dict[str, str] = {}
        """For each tool that was left out, maps the tool's type to the reason."""
        self._typed = openai_tools(family)
        self._by_function: dict[str, ClientTool] = {}
        self._function_names: dict[tuple[str | None, str], str] = {}
        self._typed_names: dict[str, str] = {}

    def add(self, tools: Any) -> None:
        """Add the tools of a request. Raises UsageError for unknown types, and if none of the tools can be offered."""
        if tools is not None and not is_array(tools):
            raise UsageError(f"'tools' must be a list of objects, not {clip(repr(tools))}")
        for tool in as_list(tools):
            self._add_tool(as_object(tool), None, "")
        if self.left_out and not self.functions and [*self.left_out] != ["tool_search"]:
            raise UsageError(_refusal_for(self.left_out, ", and no other tool is offered"))

    def client_tool(self, function_name: str) -> ClientTool:
        """Return the client's tool that a function stands for; for an unknown function, a tool with the same name."""
        return self._by_function.get(function_name) or ClientTool(function_name)

    def function_name(self, name: str, namespace: str | None = None) -> str:
        """Return the name of the function that stands for a tool."""
        return self._function_names.get((namespace or None, name)) or _flat_name(name, namespace)

    def arguments_of(self, input_text: str) -> str:
        """Return the JSON arguments with which a custom tool's function is called, given the tool's input text."""
        return json.dumps({CUSTOM_PARAMETER: input_text}, ensure_ascii=False)

    def decode_typed_call(self, kind: str, item: Mapping[str, Any]) -> tuple[str, dict[str, Any]] | None:
        """Return the function name and arguments for a past call of a tool of type `kind`; None for an unknown type."""
        tool = self._typed.get(kind)
        return None if tool is None else (self._typed_name(kind), tool.to_arguments(item))

    def decode_choice(self, choice: Any) -> Any:
        """Return `tool_choice` in the form of Chat Completions. Raises UsageError if the tool cannot be served."""
        data = as_object(choice)
        kind = as_text(data.get("type"))
        if (kind in {"function", "custom"} and "function" not in data) or kind in self._typed:
            return self._choice_of(data)
        if kind == "allowed_tools":
            allowed = [as_object(tool) for tool in as_list(data.get("tools"))]
            named = [self._choice_of(tool) for tool in allowed if tool.get("name") or tool.get("type") in self._typed]
            if allowed and not named:
                raise UsageError(_refusal([as_text(tool.get("type")) for tool in allowed]))
            return {"type": kind, "allowed_tools": {"mode": data.get("mode") or "auto", "tools": named}}
        if kind and kind != "function":
            raise UsageError(f"tool_choice: {_refusal([kind])}")
        return choice

    def _choice_of(self, tool: Mapping[str, Any]) -> dict[str, Any]:
        kind = as_text(tool.get("type"))
        if kind in self._typed:
            name = self._typed_name(kind)
        else:
            name = self.function_name(as_text(tool.get("name")), as_text(tool.get("namespace")))
        return {"type": "function", "function": {"name": name}}

    def _add_tool(self, tool: Mapping[str, Any], namespace: str | None, preface: str) -> None:
        match tool.get("type"):
            case "function" if is_object(tool.get("function")):  # the form of Chat Completions
                self.functions.append(dict(tool))
            case "function" | None:
                self._add_function(_function(tool), ClientTool(as_text(tool.get("name")), namespace), preface)
            # Codex CLI's `apply_patch` (unsloth#9114).
            case "custom":
                client_tool = ClientTool(as_text(tool.get("name")), namespace, custom=True)
                self._add_function(_custom_function(tool), client_tool, preface)
            # Codex CLI sends its tools in namespaces, a type that vLLM refuses (vllm#49493).
            case "namespace":
                text = as_text(tool.get("description"))
                for member in as_list(tool.get("tools")):
                    self._add_tool(as_object(member), as_text(tool.get("name")), text)
                    text = ""  # the description of the namespace is added only to its first tool
            case "shell" if as_text(as_object(tool.get("environment")).get("type")).startswith("container"):
                self.left_out["shell"] = "it runs in a container on OpenAI's servers"
            case str(kind) if kind in self._typed:
                self._add_typed(self._typed[kind], tool)
            # Codex CLI offers such tools beside its own; llama.cpp refused each such request (codex#10635).
            case str(kind) if kind in _NOT_SERVED:
                self.left_out[kind] = _NOT_SERVED[kind]
            case kind:
                raise UsageError(_refusal([str(kind)]))

    def _add_typed(self, typed: TypedTool, tool: Mapping[str, Any]) -> None:
        function = copy_json({**typed.function})
        name = function.pop("name")
        skills = as_list(as_object(tool.get("environment")).get("skills"))
        function["description"] += "".join(map(_skill_line, skills))
        self._typed_names[typed.kind] = self._add_function(function, ClientTool(name, typed=typed), "")

    def _typed_name(self, kind: str) -> str:
        return self._typed_names.get(kind) or as_text(self._typed[kind].function["name"])

    def _add_function(self, function: dict[str, Any], tool: ClientTool, preface: str) -> str:
        """Add the function for a tool, and return the function's name."""
        name = flat = _flat_name(tool.name, tool.namespace)
        number = 1
        while name in self._by_function and self._by_function[name] != tool:
            number += 1
            name = f"{flat}_{number}"
        self._by_function[name] = tool
        if tool.typed is None:
            self._function_names[tool.namespace, tool.name] = name
        described = {"name": name, **function}
        if preface:
            described["description"] = "\n\n".join(filter(None, (preface, as_text(function.get("description")))))
        self.functions.append({"type": "function", "function": described})
        return name


def _skill_line(skill: Any) -> str:
    """Return the line about a skill for a shell's description; a skill is a folder with instructions for the model."""
    name, path, text = (as_text(as_object(skill).get(key)) for key in ("name", "path", "description"))
    return f"\nSkill {name}, described in {path}/SKILL.md: {text}"


def _flat_name(name: str, namespace: str | None) -> str:
    """Return the name of a tool, preceded by its namespace if it has one."""
    if not namespace:
        return name
    return f"{namespace}{name}" if namespace.endswith("__") else f"{namespace}__{name}"


def _function(tool: Mapping[str, Any]) -> dict[str, Any]:
    return {key: tool[key] for key in ("description", "parameters", "strict") if tool.get(key) is not None}


def _custom_function(tool: Mapping[str, Any]) -> dict[str, Any]:
    """Return the function for a custom tool; a grammar for the tool's input becomes part of the description."""
    format_ = as_object(tool.get("format"))
    texts = [as_text(tool.get("description"))]
    if format_.get("type") == "grammar":
        syntax, definition = as_text(format_.get("syntax")), as_text(format_.get("definition"))
        texts.append(f"The input must match this grammar ({syntax}):\n{definition}")
    texts.append(f"Pass the whole input as the string {CUSTOM_PARAMETER!r}.")
    parameter = {"type": "string", "description": "The whole input, as plain text."}
    schema = {
        "type": "object",
        "properties": {CUSTOM_PARAMETER: parameter},
        "required": [CUSTOM_PARAMETER],
        "additionalProperties": False,
    }
    return {"description": "\n\n".join(filter(None, texts)), "parameters": schema}


def _refusal(kinds: Iterable[str], more: str = "") -> str:
    """Return the error message for types of tools that cannot be served; `more` states a further problem."""
    return _refusal_for({kind: _NOT_SERVED.get(kind, "it is not known here") for kind in kinds}, more)


def _refusal_for(reasons: Mapping[str, str], more: str = "") -> str:
    names = ", ".join(repr(clip(kind)) for kind in reasons)
    why = ", or ".join(dict.fromkeys(reasons.values()))
    return f"a tool of type {names} cannot be served: {why}{more}; offer 'function' or 'custom' tools"


# Decode the input of a Responses request to messages of Chat Completions.
#
# An assistant's turn is one message in Chat Completions, but several items here: consecutive reasoning, texts and calls
# are collected into one message. System texts at the beginning of the conversation become one message, since many chat
# templates take only one system message. Items of tools that run on OpenAI's servers are left out with a note. Items of
# tools that the client runs (a shell, a patch) become calls and results.


_SEALED_PREFIX = "promptools:"
"""The prefix of an `encrypted_content` that promptools made itself."""
_TEXT_PARTS = frozenset({"input_text", "output_text", "text", "summary_text", "reasoning_text"})
_BLANK_LINE = "\n\n"
_NOT_CARRIED = "compaction_trigger", "configuration_update", "additional_tools"
"""The types of items that have no content for the model."""


def seal_reasoning(text: str) -> str:
    """Return reasoning as an opaque text for `encrypted_content`. The text is only encoded, not encrypted."""
    return _SEALED_PREFIX + base64.b64encode(text.encode("utf-8", "surrogatepass")).decode("ascii")


def _unseal_reasoning(sealed: str) -> str | None:
    """Return the reasoning in a text that `seal_reasoning` made; None if promptools did not make the text."""
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
    """Decode input items to messages; also return notes on what was left out. O(n) in the size of the conversation."""
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
        self._call_ids: dict[str, str] = {}
        """For calls to tools that OpenAI defines, such as its shell: maps the id of the call's item to the call id."""

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
                self._add_result(item, kind.removesuffix("_call_output"))
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
        """Return the assistant's message that is being collected; begin one if there is none."""
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
        self._append_call(item, name, arguments)

    def _append_call(self, item: Mapping[str, Any], name: str, arguments: str) -> None:
        call_id = as_text(item.get("call_id")) or as_text(item.get("id"))
        function = {"name": name, "arguments": arguments}
        calls = self._assistant().setdefault("tool_calls", [])
        calls.append({"id": call_id, "type": "function", "function": function})

    def _add_other_call(self, item: Mapping[str, Any], kind: str) -> None:
        """Add a call to a tool that OpenAI defines and the client runs, such as its shell."""
        if item_id := as_text(item.get("id")):
            self._call_ids[item_id] = as_text(item.get("call_id"))
        fields = {key: value for key, value in item.items() if key not in {"type", "id", "call_id", "status"}}
        name, arguments = self._tools.decode_typed_call(kind, item) or (kind, fields)
        self._append_call(item, name, json.dumps(arguments, ensure_ascii=False))

    def _add_result(self, item: Mapping[str, Any], kind: str) -> None:
        item_id = as_text(item.get("id"))  # a local shell's output has only this: the id of its call, or of that item
        call_id = as_text(item.get("call_id")) or self._call_ids.get(item_id, item_id)
        message = {"role": "tool", "tool_call_id": call_id, "content": _result_content(item, kind)}
        self.messages.append(message | {"is_error": True} if item.get("status") == "failed" else message)


def _result_content(item: Mapping[str, Any], kind: str) -> Any:
    output = item.get("output")
    text = shell_output_text(output) if kind == "shell" else None
    if text is not None:
        return text
    if output is None and kind == "apply_patch":
        return as_text(item.get("status"))
    is_content = not is_object(output) and all(_is_part(part) for part in as_list(output))
    return decode_content(output) if is_content else json.dumps(output, ensure_ascii=False)


def _is_part(value: Any) -> bool:
    kind = as_text(as_object(value).get("type"))
    return kind in _TEXT_PARTS or kind.startswith("input_")


def decode_content(content: Any) -> Any:
    """Decode the content of an item to a string or to parts of Chat Completions.

    Raises UsageError for content that cannot be expressed.
    """
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
    """If `content` consists only of texts, return them joined into one string; otherwise return `content` unchanged."""
    if not is_array(content) or any(as_object(part).get("type") != "text" for part in content):
        return content
    return separator.join(part["text"] for part in content)


def _join(first: Any, second: Any) -> Any:
    """Join two contents of messages; None means no content."""
    if not first or not second:
        return first or second
    if isinstance(first, str) and isinstance(second, str):
        return first + _BLANK_LINE + second
    return [*_as_parts(first), *_as_parts(second)]


def _as_parts(content: Any) -> list[Any]:
    return [{"type": "text", "text": content}] if isinstance(content, str) else list(content)


def normalize_input(value: Any) -> list[dict[str, Any]]:
    """Return the input as a list of items. Raises UsageError unless it is a string or a list of objects."""
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


# The request.


_REFUSED = {
    "background": "a response is computed while the client waits, or streamed",
    "conversation": "conversations are not stored here; use previous_response_id",
    "prompt": "prompt templates are stored at OpenAI; send 'instructions' and 'input'",
}
"""Maps each request parameter that is not supported to the reason, and to the alternative if there is one."""
_DECODED = frozenset({
    "input", "instructions", "tools", "tool_choice", "text", "reasoning", "max_output_tokens", "include",
    "previous_response_id", "store", "stream", "stream_options", *_REFUSED,
})  # fmt: skip
_OWN_KEYS = frozenset({
    "metadata", "max_tool_calls", "prompt_cache_key", "prompt_cache_retention", "prompt_cache_options",
    "safety_identifier", "service_tier", "truncation", "context_management", "moderation", "access_programs",
    "background_options", "client_metadata", "image", "n", "functions", "function_call",
})  # fmt: skip
"""Keys that are not sent.

They concern OpenAI's servers and do not change the answer, or they belong to Chat Completions and not to this API.
"""
_ECHOED: dict[str, Any] = {
    "instructions": None, "max_output_tokens": None, "max_tool_calls": None, "metadata": {},
    "parallel_tool_calls": True, "previous_response_id": None, "prompt_cache_key": None, "safety_identifier": None,
    "service_tier": "default", "store": True, "temperature": 1.0, "tool_choice": "auto", "tools": [], "top_logprobs": 0,
    "top_p": 1.0, "truncation": "disabled", "user": None,
}  # fmt: skip
"""Settings of a request that the response repeats, with their defaults."""
SEALED_REASONING = "reasoning.encrypted_content"
LOGPROBS = "message.output_text.logprobs"


@dataclass(frozen=True, slots=True)
class ResponsesRequest:
    """A request of the Responses API, decoded."""

    body: dict[str, Any]
    """The Chat Completions body."""
    items: list[dict[str, Any]]
    """The input of this request alone, without the conversation before it."""
    tools: ClientTools
    settings: dict[str, Any]
    """Settings of this request that are repeated in the response."""
    summary: bool = False
    """Whether reasoning is returned as a summary. A client that asks for a summary reads reasoning in no other form."""
    sealed: bool = False
    """Whether reasoning is also returned as `encrypted_content`."""
    stored: bool = True
    notes: tuple[str, ...] = ()


def decode_responses_request(
    data: Mapping[str, Any],
    history: Sequence[Mapping[str, Any]] = (),
    find_item: Callable[[str], dict[str, Any] | None] = lambda _: None,
    family: str | None = None,
) -> ResponsesRequest:
    """Decode a request for a model of `family`; `history` is the conversation before the request's own input.

    `find_item` returns the item that an `item_reference` names. Raises UsageError for anything that cannot be served.
    """
    for key, reason in _REFUSED.items():
        if data.get(key):
            raise UsageError(f"{key!r} cannot be served here: {reason}")
    items = [_resolve(item, find_item) for item in normalize_input(data.get("input"))]
    conversation = [*history, *items]
    tools = _offered_tools(data.get("tools"), conversation, family)
    messages, dropped = decode_items(conversation, _instructions(data.get("instructions")), tools)
    reasoning = as_object(data.get("reasoning"))
    include = [as_text(value) for value in as_list(data.get("include"))]
    body = _kept_parameters(data) | {"messages": messages, "stream": data.get("stream") is True}
    body |= _decode_tools(data, tools) | _decode_limit(data, body) | _decode_text(as_object(data.get("text")))
    if LOGPROBS in include or data.get("top_logprobs"):
        body["logprobs"] = True
    if reasoning.get("effort"):
        body["reasoning_effort"] = reasoning["effort"]
    notes = [f"not sent: the tool {kind!r}; {reason}" for kind, reason in tools.left_out.items()]
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
    """Return the parameters that are sent unchanged."""
    return {key: value for key, value in data.items() if key not in _DECODED | _OWN_KEYS and value is not None}


def _offered_tools(tools: Any, conversation: Sequence[Mapping[str, Any]], family: str | None) -> ClientTools:
    """Return the tools of the request, together with the tools that items of the conversation add."""
    items = (item for item in conversation if item.get("type") == "additional_tools")
    added = [tool for item in items for tool in as_list(item.get("tools"))]
    offered = ClientTools(family)
    offered.add([*as_list(tools), *added] if added else tools)
    return offered


def _resolve(item: dict[str, Any], find_item: Callable[[str], dict[str, Any] | None]) -> dict[str, Any]:
    """Return the item that an `item_reference` refers to; return any other item unchanged."""
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
    """Return the instructions as text. They are given as a string or as a list of items."""
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
    """Return the request's token limit; if there is one, remove the config's limit from `body`."""
    if data.get("max_output_tokens") is None:
        return {}
    body.pop("max_completion_tokens", None)
    return {"max_tokens": data["max_output_tokens"]}


def _decode_text(text: Mapping[str, Any]) -> dict[str, Any]:
    """Decode `text`: the format becomes `response_format`, and the verbosity is kept unchanged."""
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


def _settings(data: Mapping[str, Any], left_out: Collection[str]) -> dict[str, Any]:
    """Return the settings to repeat in the response, without tools of the types in `left_out`."""
    settings = {key: default if data.get(key) is None else data[key] for key, default in _ECHOED.items()}
    settings["tools"] = [tool for tool in as_list(settings["tools"]) if as_object(tool).get("type") not in left_out]
    reasoning = {"effort": None, "summary": None, **as_object(data.get("reasoning"))}
    text = {"format": {"type": "text"}, **as_object(data.get("text"))}
    return settings | {"background": False, "reasoning": reasoning, "text": text}
