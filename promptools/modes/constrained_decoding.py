"""Constrain the reply to a JSON Schema, where a call is required and the server's constrained decoding is reliable."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from promptools.modes.requests.tool_request import ToolRequest
    from promptools.types import Schema


def constraint_key(request: ToolRequest) -> str | None:
    """Return the request key for constrained decoding; None where no call is required or the server is unreliable."""
    required = len(request.offered) and request.choice.forced
    return request.profile.constrained if required and request.profile.constrained_ok else None


def apply_constraint(body: dict[str, Any], key: str, request: ToolRequest) -> None:
    """Set `key` in the body and remove any `response_format`."""
    body.pop("response_format", None)
    schema = _call_schema(request)
    match key:
        case "response_format":
            form = {"name": "reply", "schema": schema, "strict": True}
            body["response_format"] = {"type": "json_schema", "json_schema": form}
        case "structured_outputs":  # vLLM >= 0.12; 0.32 silently ignores the older guided_json
            body["structured_outputs"] = {"json": schema}
        case _:  # llama.cpp's json_schema, Ollama's format
            body[key] = schema


def _call_schema(request: ToolRequest) -> Schema:
    """Return the schema of one call of an offered tool.

    It is relaxed, since engines support only a part of JSON Schema; the reply is checked against the full schema.
    """
    schemas: list[Schema] = [
        {
            "type": "object",
            "properties": {"tool": {"const": tool.name}, "arguments": request.offered.relaxed(tool.name)[0]},
            "required": ["tool", "arguments"],
            "additionalProperties": False,
        }
        for tool in request.offered
    ]
    return schemas[0] if len(schemas) == 1 else {"anyOf": schemas}
