"""Ollama's own API, `/api/chat`: encode requests to Ollama servers, and decode their replies."""

from __future__ import annotations

import base64
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote_to_bytes

from promptools.json_values import is_object, try_json
from promptools.numbers import as_count, as_timestamp
from promptools.wire.chat_decoder import Delta, Envelope, calls_of, error_of, is_error, reasoning_of
from promptools.wire.json_body import as_list, as_object, as_text, is_shallow, split_content
from promptools.wire.parameters import apply_rules, merge_options

if TYPE_CHECKING:
    from collections.abc import Mapping


# The conversation: content as strings, arguments as objects, images in a separate field.


ROLES = {"developer": "system", "function": "tool"}
"""Replacements for roles that templates do not know, since a template drops a message of an unknown role."""
_KNOWN_KEYS = frozenset({
    "role", "content", "images", "tool_calls", "function_call", "tool_call_id", "tool_name",
    "reasoning", "reasoning_content", "thinking",
})  # fmt: skip


class NotExpressible(Exception):
    """Raised if `/api/chat` cannot express a part of the request; the message names this part."""


def encode_messages(conversation: Any, notes: list[str]) -> list[dict[str, Any]]:
    """Encode the conversation in O(n), and add to `notes` what was left out.

    Raises `NotExpressible` if `/api/chat` cannot express a part of the conversation.
    """
    names: dict[str, str] = {}
    unknown: dict[str, None] = {}
    messages: list[dict[str, Any]] = []
    for message in map(as_object, as_list(conversation)):
        encoded = _encode_message(message, names, notes)
        messages.append(encoded)
        known = _KNOWN_KEYS | {"name"} if encoded["role"] == "tool" else _KNOWN_KEYS  # sent as `tool_name`
        unknown |= dict.fromkeys(key for key, value in message.items() if key not in known and value is not None)
    if unknown:
        notes.append(f"keys of messages were not sent, /api/chat has no place for them: {', '.join(sorted(unknown))}")
    return messages


def _encode_message(message: Mapping[str, Any], names: dict[str, str], notes: list[str]) -> dict[str, Any]:
    """Encode one message. `names` maps the ids of past calls to tool names; calls in this message are added to it."""
    role = as_text(message.get("role"))
    text, others = split_content(message.get("content"))
    encoded: dict[str, Any] = {"role": ROLES.get(role, role), "content": text}
    images = [*as_list(message.get("images")), *(_encode_image(part) for part in others)]
    if images:
        encoded["images"] = images
    reasoning = reasoning_of(message)
    if reasoning:
        encoded["thinking"] = reasoning
    calls = [_encode_call(call, names, notes) for call in as_list(message.get("tool_calls")) if is_object(call)]
    if not calls and is_object(message.get("function_call")):
        calls = [_encode_call({"function": message["function_call"]}, names, notes)]
    if calls:
        encoded["tool_calls"] = calls
    return encoded | _result_fields(message, names) if encoded["role"] == "tool" else encoded


def _result_fields(message: Mapping[str, Any], names: Mapping[str, str]) -> dict[str, Any]:
    """Return the tool name and the call id of a result; templates need the name (Ollama 0.32, `.ToolName`)."""
    call_id = as_text(message.get("tool_call_id"))
    name = as_text(message.get("tool_name")) or as_text(message.get("name")) or names.get(call_id, "")
    return {key: value for key, value in (("tool_name", name), ("tool_call_id", call_id)) if value}


def _encode_call(call: Mapping[str, Any], names: dict[str, str], notes: list[str]) -> dict[str, Any]:
    """Encode a past call; Ollama requires its arguments to be an object (ollama#12794)."""
    function = as_object(call.get("function"))
    name, call_id = as_text(function.get("name")), as_text(call.get("id"))
    encoded = {"function": {"name": name, "arguments": _decode_arguments(function.get("arguments"), name, notes)}}
    if not call_id:
        return encoded
    names[call_id] = name
    return {"id": call_id, **encoded}


def _decode_arguments(arguments: Any, name: str, notes: list[str]) -> dict[str, Any]:
    value = try_json(arguments) if isinstance(arguments, str) else arguments
    if is_object(value):
        return value
    if arguments:
        notes.append(f"the arguments of a past call of {name!r} are not a JSON object and were sent as {{}}")
    return {}


def _encode_image(part: Mapping[str, Any]) -> str:
    """Return an image or a sound in base64; Ollama accepts both in `images` (openai/openai.go, 0.32.15)."""
    kind = as_text(part.get("type"))
    if kind == "image_url":
        image_url = part.get("image_url")
        return _data_of_url(as_text(image_url) or as_text(as_object(image_url).get("url")))
    if kind == "input_audio":
        return as_text(as_object(part.get("input_audio")).get("data"))
    raise NotExpressible(f"a part of type {kind!r} in a message")


def _data_of_url(url: str) -> str:
    scheme, colon, rest = url.partition(":")
    if not colon or scheme.lower() != "data":
        raise NotExpressible("an image by its address: it takes the image itself, as a data: URL")
    kind, _, data = rest.partition(",")
    if kind.lower().endswith(";base64"):
        return data
    return base64.b64encode(unquote_to_bytes(data)).decode()


# Encode a Chat Completions body as an `/api/chat` body; the rule for each parameter is in `wire/parameters.py`.


PATH = "/api/chat"
"""The route of Ollama's chat endpoint, relative to the server's root."""

EFFORTS: dict[str, Any] = {"none": False, "minimal": "low", "xhigh": "max", "ultra": "max"}
"""Maps each reasoning effort that `think` does not accept to the value that is sent instead.

Ollama's own /v1 maps them in the same way (openai/openai.go, 0.32.15).
"""


@dataclass(frozen=True, slots=True)
class OllamaRequest:
    """A request for `/api/chat`; `body` is None if `/api/chat` cannot express it."""

    body: dict[str, Any] | None
    notes: tuple[str, ...] = ()
    """What was left out, or why `body` is None, as sentences for the trace."""


def encode_chat_request(body: Mapping[str, Any], *, num_ctx: int | None = None) -> OllamaRequest:
    """Encode a Chat Completions body for `/api/chat`.

    `num_ctx` is the context size to request, in tokens, unless the request's own `options` set a size. The cost is O(n)
    in the size of the conversation.
    """
    given = {key: value for key, value in body.items() if value is not None}
    notes: list[str] = []
    try:
        encoded: dict[str, Any] = {"model": as_text(given.get("model")), "messages": _request_messages(given, notes)}
    except NotExpressible as problem:
        return OllamaRequest(None, (f"sent by /v1/chat/completions: /api/chat has no place for {problem}",))
    encoded["stream"] = given.get("stream") is True  # stated always, since Ollama's default is true
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
    """Return the context size that a Chat Completions body itself requests from Ollama; None if it requests none."""
    return as_object(body.get("options")).get("num_ctx", body.get("num_ctx"))


def _request_messages(given: Mapping[str, Any], notes: list[str]) -> list[dict[str, Any]]:
    messages = encode_messages(given.get("messages"), notes)
    if not messages:
        raise NotExpressible("a request without messages: it would only load the model")
    return messages


def _function_tools(offered: Any, notes: list[str]) -> list[Any]:
    """Return only the function tools, because Ollama would treat any other tool as a function without a name."""
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
    """Return the value of `think`: the reasoning effort, or else a template argument such as `enable_thinking`.

    Users of vLLM send such arguments in `chat_template_kwargs`.
    """
    template = as_object(given.get("chat_template_kwargs"))
    known = ("reasoning_effort", "enable_thinking", "thinking")
    others = [key for key in template if key not in known]
    if others:
        notes.append(f"not sent: chat_template_kwargs of {', '.join(sorted(others))}, Ollama has nothing like it")
    effort = given.get("reasoning_effort", as_object(given.get("reasoning")).get("effort"))
    think = effort if effort is not None else next((template[key] for key in known if key in template), None)
    return EFFORTS.get(think, think) if isinstance(think, str) else think


# Decode replies, complete or line by line, to the deltas of Chat Completions. A line has the same format as a complete
# reply, with a part of the message. The last line has `done`, the reason and the usage. Any line may be an error, even
# with HTTP status 200 (docs.ollama.com, errors).


_FINISH_REASONS = {"load": "stop", "unload": "stop"}
"""Maps a `done_reason` to the finish reason, for replies that only report that the model was loaded or unloaded."""
_DECODED_KEYS = frozenset({
    "model", "created_at", "message", "done", "done_reason", "logprobs", "error", "prompt_eval_count", "eval_count",
})  # fmt: skip


def decode_envelope(body: Any) -> Envelope:
    """Decode the fields around the message. Ollama sends no id; the durations of the last line, in ns, are kept."""
    data = as_object(body)
    extra = {key: value for key, value in data.items() if key not in _DECODED_KEYS and is_shallow(value)}
    return Envelope(model=as_text(data.get("model")), created=_timestamp(as_text(data.get("created_at"))), extra=extra)


def _timestamp(moment: str) -> int:
    """Return an RFC 3339 time as seconds since 1970; 0 if it is invalid."""
    try:
        return as_timestamp(datetime.fromisoformat(moment).timestamp())
    except (ValueError, OverflowError, OSError):
        return 0


def decode_reply(body: Any) -> list[Delta]:
    """Decode a complete reply, or a line of a stream, to deltas.

    There is one delta for the only choice and, if the usage is stated, one for the usage. An error becomes a single
    delta with `error`.
    """
    data = as_object(body)
    # unlike in other APIs, a `message` is not a sign of an error
    if is_error(data.get("error")) or not ("message" in data or "done" in data):
        problem = error_of(body)
        return [] if problem is None else [Delta(index=None, error=problem)]
    message = as_object(data.get("message"))
    logprobs = as_list(data.get("logprobs"))
    deltas = [
        Delta(
            content=as_text(message.get("content")),
            reasoning=reasoning_of(message),
            tool_calls=calls_of(message),
            finish_reason=_finish_reason(data),
            logprobs={"content": logprobs} if logprobs and is_shallow(logprobs) else None,
        )
    ]
    usage = _usage(data)
    return deltas if usage is None else [*deltas, Delta(index=None, usage=usage)]


def _finish_reason(data: Mapping[str, Any]) -> str | None:
    """Return the finish reason; None before the end. Ollama before 0.1.38 sends `done` without a reason."""
    if data.get("done") is not True:
        return None
    reason = as_text(data.get("done_reason")) or "stop"
    return _FINISH_REASONS.get(reason, reason)


def _usage(data: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the usage; None if there is none.

    The server omits a count of zero, for example if the prompt was cached.
    """
    prompt, answer = as_count(data.get("prompt_eval_count")), as_count(data.get("eval_count"))
    if prompt is None and answer is None:
        return None
    read, written = prompt or 0, answer or 0
    return {"prompt_tokens": read, "completion_tokens": written, "total_tokens": read + written}
