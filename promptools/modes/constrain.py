"""Force the reply into a JSON Schema, where a call must come and the server can be trusted to do it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from promptools.schema.relax import relaxed
from promptools.wire.shapes import as_object

if TYPE_CHECKING:
    from promptools.modes.ask import Ask
    from promptools.types import Schema


def constraint(ask: Ask) -> str | None:
    """Give the request key to force the reply with, where a call must come, or else an answer of a certain shape."""
    wanted = len(ask.offered) and (ask.choice.forced or _answer(ask) is not None)
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


def answer_in_words(ask: Ask) -> str:
    """Write what `response_format` demands, for the system message: enforced, it would make calls impossible."""
    schema = _answer(ask)
    if schema is None:
        return "\n\nAn answer that is no tool call is one JSON object and nothing else."
    text = json.dumps(schema, ensure_ascii=False)
    return f"\n\nAn answer that is no tool call is one JSON value that fits this JSON Schema, and nothing else: {text}"


def _schema(ask: Ask) -> Schema:
    """Give the schema of one call of an offered tool, or of the answer where a call need not come.

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
    answer = _answer(ask)
    if answer is not None and not ask.choice.forced:
        forms.append(relaxed(answer)[0])
    return forms[0] if len(forms) == 1 else {"anyOf": forms}


def _answer(ask: Ask) -> Schema | None:
    """Give the schema that the request wants its answer in."""
    form = as_object(ask.body.get("response_format"))
    return as_object(as_object(form.get("json_schema")).get("schema")) or None
