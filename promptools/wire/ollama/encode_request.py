"""Encode a Chat Completions body as an `/api/chat` body; a table has a rule for every parameter.

No parameter is lost silently: one that is dropped is named in the trace, unless its value is the default.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from promptools.wire.json_types import as_list, as_object, as_text, is_object
from promptools.wire.ollama.encode_messages import NotExpressible, encode_messages

if TYPE_CHECKING:
    from collections.abc import Mapping

PATH = "/api/chat"
"""The route, below the server's root."""


@dataclass(frozen=True, slots=True)
class OllamaRule:
    """The rule for one parameter."""

    handling: Literal["kept", "option", "shaped", "dropped", "needless"]
    """`kept`: under its own name; `option`: in `options`; `shaped`: converted to another value; `dropped`: left out,
    with a note in the trace; `needless`: left out silently, since nothing is lost."""
    target: str = ""
    """The name to send it under, if it is another."""
    reason: str = ""
    """The reason for dropping it."""
    harmless: tuple[Any, ...] = ()
    """Values whose loss changes nothing: they are dropped silently."""


def _dropped(why: str, *harmless: Any) -> OllamaRule:
    return OllamaRule("dropped", "", why, harmless)


_NO_EQUIVALENT = "Ollama has nothing like it"
_ACCOUNT = "it is for OpenAI's own accounts"

OLLAMA_PARAMETERS: dict[str, OllamaRule] = {
    # Chat Completions, as of openai 2.x
    "model": OllamaRule("kept"),
    "messages": OllamaRule("shaped"),
    "tools": OllamaRule("shaped"),
    "stream": OllamaRule("shaped"),
    "stream_options": OllamaRule("needless", reason="the last line always tells the usage"),
    "max_completion_tokens": OllamaRule("option", "num_predict"),
    "max_tokens": OllamaRule("option", "num_predict"),
    "temperature": OllamaRule("option"),
    "top_p": OllamaRule("option"),
    "seed": OllamaRule("option"),
    "stop": OllamaRule("option"),
    "frequency_penalty": OllamaRule("option"),
    "presence_penalty": OllamaRule("option"),
    "reasoning_effort": OllamaRule("shaped", "think"),
    "reasoning": OllamaRule("shaped", "think"),
    "response_format": OllamaRule("shaped", "format"),
    "logprobs": OllamaRule("kept"),  # since 0.12.11
    "top_logprobs": OllamaRule("kept"),
    "n": _dropped("it gives one choice", 1),
    "tool_choice": _dropped("it is ignored there: the reply is checked instead", "auto"),
    "parallel_tool_calls": _dropped("it is ignored there: the reply is checked instead", True),
    "functions": _dropped("they are the old form of tools"),
    "function_call": _dropped("it is the old form of tool_choice", "auto"),
    "logit_bias": _dropped(_NO_EQUIVALENT),
    "audio": _dropped(_NO_EQUIVALENT),
    "modalities": _dropped(_NO_EQUIVALENT, ["text"]),
    "prediction": _dropped(_NO_EQUIVALENT),
    "verbosity": _dropped(_NO_EQUIVALENT),
    "web_search_options": _dropped(_NO_EQUIVALENT),
    "moderation": _dropped(_NO_EQUIVALENT),
    "metadata": _dropped(_ACCOUNT),
    "prompt_cache_key": _dropped(_ACCOUNT),
    "prompt_cache_options": _dropped(_ACCOUNT),
    "prompt_cache_retention": _dropped(_ACCOUNT),
    "safety_identifier": _dropped(_ACCOUNT),
    "service_tier": _dropped(_ACCOUNT, "auto", "default"),
    "store": _dropped(_ACCOUNT, False),
    "user": _dropped(_ACCOUNT),
    # what clients of open servers also send
    "top_k": OllamaRule("option"),
    "min_p": OllamaRule("option"),
    "typical_p": OllamaRule("option"),
    "repeat_penalty": OllamaRule("option"),
    "repetition_penalty": OllamaRule("option", "repeat_penalty"),
    "repeat_last_n": OllamaRule("option"),
    "num_ctx": OllamaRule("option"),
    "chat_template_kwargs": OllamaRule("shaped", "think"),
    # /api/chat's own, set by the application: they override what is converted from the others
    "options": OllamaRule("kept"),
    "format": OllamaRule("kept"),
    "think": OllamaRule("kept"),
    "keep_alive": OllamaRule("kept"),
    "truncate": OllamaRule("kept"),
    "shift": OllamaRule("kept"),
}
"""The rule for each parameter of a request; any other is dropped, with a note."""

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
    encoded |= _converted(given, notes)
    options = _options(given, num_ctx)
    encoded |= {
        key: value
        for key, value in given.items()
        if key in OLLAMA_PARAMETERS and OLLAMA_PARAMETERS[key].handling == "kept"
    }
    if options:
        encoded["options"] = options
    notes += _dropped_notes(given)
    return OllamaRequest(encoded, tuple(notes))


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


def _options(given: Mapping[str, Any], num_ctx: int | None) -> Any:
    """Return `options`: the parameters that belong there, overridden by the request's own."""
    options: dict[str, Any] = {}
    for key, rule in OLLAMA_PARAMETERS.items():
        if rule.handling == "option" and key in given:
            options.setdefault(rule.target or key, given[key])
    if isinstance(options.get("stop"), str):
        options["stop"] = [options["stop"]]
    if num_ctx is not None:
        options.setdefault("num_ctx", num_ctx)
    own = given.get("options", {})
    return {**options, **own} if is_object(own) else own  # anything else is for the server to refuse


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


def _dropped_notes(given: Mapping[str, Any]) -> list[str]:
    """Return notes on what was dropped, grouped by reason."""
    dropped: dict[str, list[str]] = {}
    for key, value in given.items():
        rule = OLLAMA_PARAMETERS.get(key) or _dropped("Ollama does not know it")
        if rule.handling == "dropped" and value not in rule.harmless:
            dropped.setdefault(rule.reason, []).append(key)
    return [f"not sent: {', '.join(keys)}; {why}" for why, keys in dropped.items()]
