"""The tools that were confirmed, as definitions and as the marks of a config."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from promptools.discovery.findings import ParameterFinding, ToolFinding
from promptools.discovery.samples import well_formed


def definitions(tools: Sequence[ToolFinding]) -> list[dict[str, Any]]:
    """Return the confirmed tools as tools of a request, with `names` and `aliases` as marks."""
    return [
        {"type": "function", "function": {**definition(tool), "x-promptools": marks(tool, tools)}}
        for tool in tools
        if tool.verdict == "confirmed"
    ]


def definition(tool: ToolFinding) -> dict[str, Any]:
    """Return the name, description and parameters of a tool."""
    used = [own for own in tool.parameters if own.verdict in {"confirmed", "optional"}]
    schema: dict[str, Any] = {"type": "object", "properties": {own.name: _schema(own) for own in used}}
    if required := [own.name for own in used if own.required]:
        schema["required"] = required
    return {"name": tool.name, "description": tool.description, "parameters": schema}


def marks(tool: ToolFinding, tools: Sequence[ToolFinding]) -> dict[str, Any]:
    """Return the other names of a tool and of its parameters."""
    names = [other.name for other in tools if other.verdict == "alias" and other.alias_of == tool.name]
    aliases = {own.name: own.alias_of for own in tool.parameters if own.verdict == "alias"}
    return {**({"names": names} if names else {}), **({"aliases": aliases} if aliases else {})}


def marks_toml(tools: Sequence[ToolFinding]) -> str:
    """Return the marks as tables of a `promptools.toml`."""
    lines: list[str] = []
    for tool in tools:
        if tool.verdict != "confirmed":
            continue
        given = marks(tool, tools)
        lines += [f"[tools.{_quoted(tool.name)}]"]
        if "names" in given:
            lines.append(f"names = [{', '.join(map(_quoted, given['names']))}]")
        if "aliases" in given:
            pairs = (f"{_quoted(name)} = {_quoted(target)}" for name, target in given["aliases"].items())
            lines.append(f"aliases = {{ {', '.join(pairs)} }}")
        lines.append("")
    return "\n".join(lines)


def _quoted(text: str) -> str:
    """Return a basic string of TOML: JSON's, without surrogates, and with DEL escaped."""
    return json.dumps(well_formed(text), ensure_ascii=False).replace("\x7f", "\\u007f")


def _schema(parameter: ParameterFinding) -> dict[str, Any]:
    kinds = parameter.types.keys() - {"null"}
    if kinds <= {"integer", "number"} and kinds:
        return {"type": "number" if "number" in kinds else "integer"}
    array, _, items = parameter.type.partition(" of ")
    if not items:
        return {} if array == "null" else {"type": array}
    return {"type": array, "items": {"type": items.partition(" of ")[0]}}
