"""Force the reply into a JSON Schema, where a call must come and the server can be trusted to do it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from promptools.modes.ask import Ask
    from promptools.types import Schema


def constraint(ask: Ask) -> str | None:
    """Give the request key to force the reply with, where a call must come."""
    wanted = len(ask.offered) and ask.choice.forced
    return ask.profile.constrained if wanted and ask.profile.constrained_ok else None


def constrain(body: dict[str, Any], key: str, ask: Ask) -> None:
    """Set `key` in the body, in place of any `response_format`."""
    body.pop("response_format", None)
    schema = _schema(ask)
    match key:
        case "response_format":
            form = {"name": "reply", "schema": schema, "strict": True}
            body["response_format"] = {"type": "json_schema", "json_schema": form}
        case "structured_outputs":  # vLLM >= 0.12; 0.32 ignores the older guided_json without a word
            body["structured_outputs"] = {"json": schema}
        case _:  # llama.cpp's json_schema, Ollama's format
            body[key] = schema


def _schema(ask: Ask) -> Schema:
    """Give the schema of one call of an offered tool.

    Relaxed, since engines take only a part of JSON Schema; the reply is checked against the whole of it.
    """
    forms: list[Schema] = [
        {
            "type": "object",
            "properties": {"tool": {"const": tool.name}, "arguments": ask.offered.relaxed(tool.name)[0]},
            "required": ["tool", "arguments"],
            "additionalProperties": False,
        }
        for tool in ask.offered
    ]
    return forms[0] if len(forms) == 1 else {"anyOf": forms}
