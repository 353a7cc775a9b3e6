"""The tools of a Responses request as functions of Chat Completions, and the way back from a function's name.

A `custom` tool, whose input is free text, becomes a function with one string parameter. The tools of a `namespace` are
offered one by one, with the namespace in their names. Hosted tools run on OpenAI's servers and cannot be served: those
that a client declares on its own account are left out with a note, all others are refused by name.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from promptools.errors import UsageError, clip
from promptools.json_values import is_array, is_object
from promptools.wire.json_types import as_list, as_object, as_text

if TYPE_CHECKING:
    from collections.abc import Mapping

    from promptools.types import Call

CUSTOM_PARAMETER = "input"
"""The parameter of a function that is a custom tool."""
_OPTIONAL_HOSTED_TOOLS = frozenset({
    "web_search", "web_search_2025_08_26", "web_search_preview", "web_search_preview_2025_03_11", "image_generation",
    "tool_search",
})  # fmt: skip
"""Hosted tools that agents such as Codex CLI offer beside their own; the model can do without them."""


@dataclass(frozen=True, slots=True)
class ClientTool:
    """A tool as the client named it."""

    name: str
    namespace: str | None = None
    custom: bool = False

    def custom_input(self, call: Call) -> str:
        """Return the input of a call of this custom tool."""
        value = call.arguments.get(CUSTOM_PARAMETER)
        return value if isinstance(value, str) else call.arguments_json


class ClientTools:
    """The offered tools: as functions, and by the name of their function."""

    def __init__(self) -> None:
        self.functions: list[Any] = []
        self.left_out: list[str] = []
        """The types of hosted tools that were left out."""
        self._by_function: dict[str, ClientTool] = {}
        self._function_names: dict[tuple[str | None, str], str] = {}

    def add(self, tools: Any) -> None:
        """Add the tools of a request. Raises UsageError for hosted tools that cannot be left out."""
        if tools is not None and not is_array(tools):
            raise UsageError(f"'tools' must be a list of objects, not {clip(repr(tools))}")
        for tool in as_list(tools):
            self._add_tool(as_object(tool), None, "")
        if self.left_out and not self.functions and self.left_out != ["tool_search"]:
            raise UsageError(_hosted(self.left_out, ", and no other tool is offered"))

    def client_tool(self, function_name: str) -> ClientTool:
        """Return the tool of a function, which the client may not have offered."""
        return self._by_function.get(function_name) or ClientTool(function_name)

    def function_name(self, name: str, namespace: str | None = None) -> str:
        """Return the name of the function that stands for a tool."""
        return self._function_names.get((namespace or None, name)) or _flat_name(name, namespace)

    def arguments_of(self, input_text: str) -> str:
        """Return the arguments of the function for the input of a custom tool."""
        return json.dumps({CUSTOM_PARAMETER: input_text}, ensure_ascii=False)

    def decode_choice(self, choice: Any) -> Any:
        """Return `tool_choice` in the form of Chat Completions. Raises UsageError if it names a hosted tool."""
        data = as_object(choice)
        kind = as_text(data.get("type"))
        if kind in {"function", "custom"} and "function" not in data:
            return self._choice_of(data)
        if kind == "allowed_tools":
            allowed = [as_object(tool) for tool in as_list(data.get("tools"))]
            named = [self._choice_of(tool) for tool in allowed if as_text(tool.get("name"))]
            if allowed and not named:
                raise UsageError(_hosted([as_text(tool.get("type")) for tool in allowed]))
            return {"type": kind, "allowed_tools": {"mode": data.get("mode") or "auto", "tools": named}}
        if kind and kind != "function":
            raise UsageError(f"tool_choice: {_hosted([kind])}")
        return choice

    def _choice_of(self, tool: Mapping[str, Any]) -> dict[str, Any]:
        name = self.function_name(as_text(tool.get("name")), as_text(tool.get("namespace")))
        return {"type": "function", "function": {"name": name}}

    def _add_tool(self, tool: Mapping[str, Any], namespace: str | None, preface: str) -> None:
        match tool.get("type"):
            case "function" if is_object(tool.get("function")):  # the form of Chat Completions
                self.functions.append(dict(tool))
            case "function" | None:
                self._add_function(_function(tool), ClientTool(as_text(tool.get("name")), namespace), preface)
            case "custom":
                client_tool = ClientTool(as_text(tool.get("name")), namespace, custom=True)
                self._add_function(_custom_function(tool), client_tool, preface)
            case "namespace":
                text = as_text(tool.get("description"))
                for member in as_list(tool.get("tools")):
                    self._add_tool(as_object(member), as_text(tool.get("name")), text)
                    text = ""  # once is enough: it is the same for all
            case str(kind) if kind in _OPTIONAL_HOSTED_TOOLS:
                self.left_out.append(kind)
            case kind:
                raise UsageError(_hosted([str(kind)]))

    def _add_function(self, function: dict[str, Any], tool: ClientTool, preface: str) -> None:
        name = flat = _flat_name(tool.name, tool.namespace)
        number = 1
        while name in self._by_function and self._by_function[name] != tool:
            number += 1
            name = f"{flat}_{number}"
        self._by_function[name] = tool
        self._function_names[tool.namespace, tool.name] = name
        described = {"name": name, **function}
        if preface:
            described["description"] = "\n\n".join(filter(None, (preface, as_text(function.get("description")))))
        self.functions.append({"type": "function", "function": described})


def _flat_name(name: str, namespace: str | None) -> str:
    """Return the name of a tool with that of its namespace before it."""
    if not namespace:
        return name
    return f"{namespace}{name}" if namespace.endswith("__") else f"{namespace}__{name}"


def _function(tool: Mapping[str, Any]) -> dict[str, Any]:
    return {key: tool[key] for key in ("description", "parameters", "strict") if tool.get(key) is not None}


def _custom_function(tool: Mapping[str, Any]) -> dict[str, Any]:
    """Return the function for a custom tool; the grammar of its input goes into the description."""
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


def _hosted(kinds: list[str], more: str = "") -> str:
    """Return the error for hosted tools; `more` is what else is wrong."""
    names = ", ".join(repr(clip(kind)) for kind in dict.fromkeys(kinds))
    return f"a tool of type {names} runs on OpenAI's servers, not here{more}; offer 'function' or 'custom' tools"
