"""Encode a Chat Completions body as an `/api/chat` body; the rule of each parameter is in `wire/parameters.py`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from promptools.json_values import is_object
from promptools.wire.json_types import as_list, as_object, as_text
from promptools.wire.ollama.encode_messages import NotExpressible, encode_messages
from promptools.wire.parameters import apply_rules, merge_options

if TYPE_CHECKING:
    from collections.abc import Mapping

PATH = "/api/chat"
"""The route, below the server's root."""

EFFORTS: dict[str, Any] = {"none": False, "minimal": "low", "xhigh": "max", "ultra": "max"}
"""Efforts that `think` does not have, mapped as in Ollama's own /v1 (openai/openai.go, 0.32.15)."""


@dataclass(frozen=True, slots=True)
class OllamaRequest:
    """A request for `/api/chat`; `body` is None where `/api/chat` cannot express it."""

    body: dict[str, Any] | None
    notes: tuple[str, ...] = ()
    """What was left out, or why there is no body, for the trace."""


def encode_chat_request(body: Mapping[str, Any], *, num_ctx: int | None = None) -> OllamaRequest:
    """Encode a Chat Completions body for `/api/chat`.

    `num_ctx` is the context to ask for, in tokens, unless the request's own `options` set it. O(n) in the conversation.
    """
    given = {key: value for key, value in body.items() if value is not None}
    notes: list[str] = []
    try:
        encoded: dict[str, Any] = {"model": as_text(given.get("model")), "messages": _encode_messages(given, notes)}
    except NotExpressible as problem:
        return OllamaRequest(None, (f"sent by /v1/chat/completions: /api/chat has no place for {problem}",))
    encoded["stream"] = given.get("stream") is True  # the default there is true
    tools = _function_tools(given.get("tools"), notes)
    if tools:
        encoded["tools"] = tools
    encoded["truncate"] = False  # otherwise the oldest messages are dropped silently
    kept, options, dropped = apply_rules(given, "ollama")
    if isinstance(options.get("stop"), str):
        options["stop"] = [options["stop"]]
    encoded |= {**_converted(given, notes), **kept}
    if merged := merge_options(kept, options, num_ctx):
        encoded["options"] = merged
    return OllamaRequest(encoded, (*notes, *dropped))


def requested_context(body: Mapping[str, Any]) -> Any:
    """Return the context that a Chat Completions body itself asks Ollama for; None if it does not."""
    return as_object(body.get("options")).get("num_ctx", body.get("num_ctx"))


def _encode_messages(given: Mapping[str, Any], notes: list[str]) -> list[dict[str, Any]]:
    messages = encode_messages(given.get("messages"), notes)
    if not messages:
        raise NotExpressible("a request without messages: it would only load the model")
    return messages


def _function_tools(offered: Any, notes: list[str]) -> list[Any]:
    """Return the function tools; any other would become a tool without a name."""
    tools = as_list(offered)
    functions = [tool for tool in tools if is_object(as_object(tool).get("function"))]
    if len(functions) < len(tools):
        kinds = dict.fromkeys(repr(as_text(as_object(tool).get("type"))) for tool in tools if tool not in functions)
        notes.append(f"not sent: tools of type {', '.join(kinds)}, Ollama knows functions only")
    return functions


def _converted(given: Mapping[str, Any], notes: list[str]) -> dict[str, Any]:
    encoded: dict[str, Any] = {}
    form = _format(as_object(given.get("response_format")), notes)
    if form is not None:
        encoded["format"] = form
    think = _think(given, notes)
    if think is not None:
        encoded["think"] = think
    return encoded


def _format(form: Mapping[str, Any], notes: list[str]) -> Any:
    match form.get("type"):
        case "json_object":
            return "json"
        case "json_schema":
            return as_object(form.get("json_schema")).get("schema")
        case None | "text":
            return None
        case other:
            notes.append(f"not sent: response_format of type {other!r}, Ollama knows json_object and json_schema")
            return None


def _think(given: Mapping[str, Any], notes: list[str]) -> Any:
    """Return `think`: from the effort, else from the template arguments that users of vLLM send."""
    template = as_object(given.get("chat_template_kwargs"))
    known = ("reasoning_effort", "enable_thinking", "thinking")
    others = [key for key in template if key not in known]
    if others:
        notes.append(f"not sent: chat_template_kwargs of {', '.join(sorted(others))}, Ollama has nothing like it")
    effort = given.get("reasoning_effort", as_object(given.get("reasoning")).get("effort"))
    think = effort if effort is not None else next((template[key] for key in known if key in template), None)
    return EFFORTS.get(think, think) if isinstance(think, str) else think
