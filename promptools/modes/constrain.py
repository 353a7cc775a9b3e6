"""Constrain the reply to a JSON Schema, where a call is required and the server's constrained decoding is reliable."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from promptools.modes.ask import Ask
    from promptools.types import Schema


def constraint(ask: Ask) -> str | None:
    """Return the request key for constrained decoding; None where no call is required or the server is unreliable."""
    required = len(ask.offered) and ask.choice.forced
    return ask.profile.constrained if required and ask.profile.constrained_ok else None


def constrain(body: dict[str, Any], key: str, ask: Ask) -> None:
    """Set `key` in the body and remove any `response_format`."""
    body.pop("response_format", None)
    schema = _schema(ask)
    match key:
        case "response_format":
            form = {"name": "reply", "schema": schema, "strict": True}
            body["response_format"] = {"type": "json_schema", "json_schema": form}
        case "structured_outputs":  # vLLM >= 0.12; 0.32 silently ignores the older guided_json
            body["structured_outputs"] = {"json": schema}
        case _:  # llama.cpp's json_schema, Ollama's format
            body[key] = schema


def _schema(ask: Ask) -> Schema:
    """Return the schema of one call of an offered tool.

    It is relaxed, since engines support only a part of JSON Schema; the reply is checked against the full schema.
    """
    schemas: list[Schema] = [
        {
            "type": "object",
            "properties": {"tool": {"const": tool.name}, "arguments": ask.offered.relaxed(tool.name)[0]},
            "required": ["tool", "arguments"],
            "additionalProperties": False,
        }
        for tool in ask.offered
    ]
    return schemas[0] if len(schemas) == 1 else {"anyOf": schemas}
