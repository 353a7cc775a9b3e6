"""What the modes share: the type of an encoded request, and functions that several modes use to encode parts of it.

A mode is a function that makes a `PreparedRequest` from a `ToolRequest`; `ReplyReader` reads the reply in every mode.
The shared parts are the keys of the body that are forwarded, the JSON Schema that constrains the reply, and the number
of tokens left for the answer.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from promptools.wire.json_body import as_object, as_text
from promptools.wire.parameters import thinking_budget

if TYPE_CHECKING:
    from collections.abc import Mapping

    from promptools.modes.foreign_text import Unescaper
    from promptools.modes.history import RepeatAction
    from promptools.modes.tool_request import ToolRequest
    from promptools.types import Call, Schema
    from promptools.wire.raw_endpoints import RawPrompt


@dataclass(frozen=True, slots=True)
class PreparedRequest:
    """A request as a mode sends it to the server, and the facts needed to read the reply."""

    body: dict[str, Any]
    notes: tuple[str, ...] = ()
    """Sentences for the trace that say what was changed and what could not be passed on."""
    client_names: Mapping[str, str] = field(default_factory=dict[str, str])
    """Maps the tool names that were sent to the server to the client's names; only names that differ are included."""
    dialect: str | None = None
    """The dialect (format of calls) that the prompt asks for; None in native mode.

    If it is `harmony`, the whole reply is in Harmony, the format of gpt-oss.
    """
    prompt: RawPrompt | None = None
    """The whole conversation, for a raw endpoint; None if the body holds messages."""
    prefill: str = ""
    """The start of the reply. It is written at the end of the prompt, and the model continues it."""
    path: str = "chat/completions"
    """The route, relative to the API's base URL."""
    restore: Unescaper | None = None
    """Restores, in the reply's calls, text that was escaped in the request; None if nothing was escaped."""
    in_reasoning: bool | None = None
    """Whether the prompt ends inside reasoning; if None, the `in_reasoning` of the profile decides."""
    turn_ends: tuple[str, ...] = ()
    """Texts that end the model's turn; such a text, and everything after it, is not part of the reply."""
    repeat_action: RepeatAction | None = None
    """What is done about a call that the conversation repeats; None if there is no such call."""
    examples: tuple[Call, ...] = ()
    """Calls that the prompt shows as examples, with placeholders as values; a copy of an example is not a call."""


# The parts of a request's body that every mode passes on, and those that the server must not see.


TOOL_KEYS = frozenset(("tools", "tool_choice", "parallel_tool_calls", "functions", "function_call"))


def forwarded_body(request: ToolRequest) -> dict[str, Any]:
    """Copy the body without the messages and without the keys in `TOOL_KEYS`; unknown keys are kept.

    `n`, the thinking budget and `stream_options` are adapted to the server.
    """
    body = {key: value for key, value in request.body.items() if key not in TOOL_KEYS and key != "messages"}
    # Ollama, LM Studio and `transformers serve` ignore `n`: one choice comes back.
    if not request.profile.n:
        body.pop("n", None)
    budget = thinking_budget(body.get("thinking"))
    if budget is not None and request.profile.thinking_budget is not None:
        body.setdefault(request.profile.thinking_budget, budget)
    if request.stream and request.profile.stream_usage:
        body["stream_options"] = {**as_object(body.get("stream_options")), "include_usage": True}
    elif "stream_options" in body:
        body.pop("stream_options")
    return body


def other_tool_notes(request: ToolRequest, mode: str) -> list[str]:
    """Return a note for each offered tool that is not a function, since `mode` cannot describe it in the prompt."""
    kinds = [as_text(as_object(kind).get("type")) or "function" for kind in request.other_tools]
    return [f"{mode} mode cannot offer the tool of type {kind!r}" for kind in kinds if kind != "function"]


# Constrain the reply to a JSON Schema, where a call is required and the server's constrained decoding is reliable.


def constraint_key(request: ToolRequest) -> str | None:
    """Return the request key that turns on constrained decoding for a required call.

    Return None if no call is required, or if the server's constrained decoding is unreliable.
    """
    required = len(request.offered) and request.choice.forced
    return request.profile.constrained if required and request.profile.constrained_ok else None


def apply_constraint(body: dict[str, Any], key: str, request: ToolRequest) -> None:
    """Constrain the reply to a call by setting `key` in the body; remove any `response_format`."""
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
    """Return the schema of one call to an offered tool.

    The schema is relaxed, because engines support only part of JSON Schema. The reply is later checked against the full
    schema.
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


# How many tokens are left for an answer: a raw endpoint has to be told.


MIN_ANSWER_TOKENS = 4_096
"""Minimum number of tokens for an answer: enough for a call after some reasoning.

If neither the size of the context nor the number of tokens left is known, an answer may have this many tokens.
"""
BYTES_PER_TOKEN = 2
"""Number of bytes per token that is assumed if there is no vocabulary to count the tokens with.

Only runs of symbols have so few bytes per token; prose has about four. So the prompt's tokens are overestimated, and
the answer gets fewer tokens than are really left.
"""

DENSER = 1.25
"""The factor by which the tokens per byte may rise when a conversation is shortened, if denser text is left."""


def text_tokens(text: str) -> int:
    """Return an upper bound for the number of tokens in a text."""
    return len(text.encode("utf-8", "surrogatepass")) // BYTES_PER_TOKEN


def prompt_tokens(request: ToolRequest, text: str) -> int:
    """Return an estimate of the number of tokens in a prompt; it is rarely too low.

    The estimate is based on the server's count for the previous prompt, if known. If the conversation has grown, tokens
    are added in proportion to the added bytes. If it was shortened, the remaining text may have more tokens per byte
    than the removed text, so slightly more than a proportional share of the tokens is assumed.
    """
    known = request.options.last_prompt
    counted, before, size = known.get("tokens"), known.get("bytes"), len(text.encode("utf-8", "surrogatepass"))
    if not counted or not before:
        return text_tokens(text)
    if size >= before:
        return counted + (size - before) // BYTES_PER_TOKEN
    return min(text_tokens(text), int(counted * size / before * DENSER))


def answer_tokens(request: ToolRequest, prompt_tokens: int, context: int | None = None) -> int:
    """Return how many tokens are left for the answer; `prompt_tokens` is an upper bound for the prompt.

    `context` is the context size that the server states; if it is None, the profile's context size is used.
    """
    if request.tokens_left is not None:
        return request.tokens_left
    context = context or request.profile.context
    least = (request.options.agent and request.profile.agent_room) or MIN_ANSWER_TOKENS
    return least if context is None else max(least, context - prompt_tokens)
