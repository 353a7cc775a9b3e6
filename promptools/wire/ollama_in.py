"""Ollama's own API: decode a client's `/api/chat`, `/api/generate` and embedding requests, with all their keys.

For a server that has `/api/chat` itself, `options`, `think`, `keep_alive` and other keys that only Ollama knows are
kept unchanged. For any other server, each such key becomes its counterpart in Chat Completions; a key without a
counterpart is left out, with a note. The formats are those of Ollama 0.32.15 (docs.ollama.com, api/chat and
api/generate).
"""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from promptools.errors import UsageError, clip
from promptools.json_values import is_array, is_object
from promptools.numbers import as_number
from promptools.wire.json_body import MAX_DEPTH, as_list, as_object, as_text

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from promptools.profiles import Profile


_SAME_NAME = ("temperature", "top_p", "seed", "stop", "presence_penalty", "frequency_penalty")
"""Ollama's options that have the same name in Chat Completions."""
_RENAMED = {"repeat_penalty": ("repetition_penalty",)}
"""Maps an option of Ollama to the other names under which some servers know it."""
_OLLAMA_ONLY = ("options", "think", "keep_alive", "truncate", "shift")
"""Keys of a request that only Ollama knows."""
_TYPES = frozenset(("string", "number", "integer", "boolean", "object", "array", "null"))
_VALUE_KEYWORDS = frozenset(("enum", "const", "default", "examples"))
"""Keywords of JSON Schema whose values are not schemas."""
_IMAGE_PREFIXES = {"/9j/": "jpeg", "R0lGOD": "gif", "UklGR": "webp", "Qk": "bmp"}
"""Maps the first characters of an image in base64 to its format. Other images are taken for PNG, the most common."""

_LINE_BREAKS = {ord("\r"): None, ord("\n"): None}


def decode_chat_request(data: Mapping[str, Any], profile: Profile) -> tuple[dict[str, Any], tuple[str, ...]]:
    """Return the Chat Completions body, and notes on what was left out.

    Raises UsageError for a request that the server cannot serve.
    """
    notes: list[str] = []
    body = {key: value for key, value in data.items() if key not in {"format", *_OLLAMA_ONLY}}
    if is_array(data.get("messages")):
        body["messages"] = [_decode_message(item, f"messages[{at}].") for at, item in enumerate(data["messages"])]
    if data.get("tools"):
        body["tools"] = [_normalize_types(item) for item in as_list(data["tools"])] or data["tools"]
    body["stream"] = data.get("stream") is not False
    options = _checked(data, "options", "", is_object, "an object")
    if profile.wire == "ollama":
        body |= {key: data[key] for key in _OLLAMA_ONLY if key in data}
    else:
        if not data.get("messages"):
            raise UsageError("'messages' is empty, which only Ollama takes as loading a model: send a message")
        body |= decode_options(as_object(options), profile, notes)
        body |= _decode_think(data.get("think"), profile, notes)
        notes += [f"not sent: {key}; only Ollama knows it" for key in _OLLAMA_ONLY[2:] if data.get(key) is not None]
    return body | _decode_format(data.get("format"), profile), tuple(notes)


# --- messages --------------------------------------------------------------------------------------------------------


def _decode_message(message: Any, where: str) -> Any:
    """Decode one message. Calls and results get their ids later, in the same way as for every other API."""
    if not is_object(message):
        return message
    handled = {"thinking", "images", "tool_name", "tool_calls"}
    decoded = {key: value for key, value in message.items() if key not in handled}
    decoded["content"] = message.get("content") or ""
    if message.get("thinking"):
        decoded["reasoning_content"] = message["thinking"]
    if message.get("tool_name"):
        decoded["name"] = message["tool_name"]
    calls = as_list(_checked(message, "tool_calls", where, is_objects, "a list of objects"))
    if calls:
        decoded["tool_calls"] = [_decode_call(item) for item in calls]
    images = decode_images(message, where)
    if images:
        text = [{"type": "text", "text": decoded["content"]}] if decoded["content"] else []
        decoded["content"] = [*images, *text]
    return decoded


def _decode_call(call: Mapping[str, Any]) -> dict[str, Any]:
    function = as_object(call.get("function"))
    arguments = function.get("arguments")
    encoded = arguments if isinstance(arguments, str) else json.dumps(arguments or {}, ensure_ascii=False)
    kept = {key: value for key, value in call.items() if key != "function"}
    return {**kept, "type": "function", "function": {"name": as_text(function.get("name")), "arguments": encoded}}


def _checked(data: Mapping[str, Any], key: str, where: str, fits: Callable[[Any], bool], what: str) -> Any:
    """Return the value of a key; raise `UsageError`, as Ollama does, if the value is invalid and not null.

    Without this check an invalid value would be lost silently.
    """
    value = data.get(key)
    if value is None or fits(value):
        return value
    raise UsageError(f"'{where}{key}' must be {what}, not {clip(repr(value))}")


def is_objects(value: Any) -> bool:
    """Return whether a value is a list of objects."""
    return is_array(value) and all(map(is_object, value))


def decode_images(data: Mapping[str, Any], where: str = "") -> list[dict[str, Any]]:
    """Decode `images` to parts of a message. Raises `UsageError` for values that Ollama would not accept either."""
    images = as_list(_checked(data, "images", where, is_array, "a list of images in base64"))
    return [_image_part(_base64_of(item, f"{where}images[{at}]")) for at, item in enumerate(images)]


def _base64_of(image: Any, where: str) -> str:
    """Return an image in base64 without line breaks; the image may also be a list of bytes, as in Ollama."""
    with suppress(ValueError, TypeError):
        if is_array(image) and image:
            return b64encode(bytes(image)).decode()
        encoded = image.translate(_LINE_BREAKS) if isinstance(image, str) else ""
        if encoded and b64decode(encoded, validate=True):
            return encoded
    raise UsageError(f"'{where}' must be an image in base64, not {clip(repr(image))}")


def _image_part(data: str) -> dict[str, Any]:
    kind = next((kind for start, kind in _IMAGE_PREFIXES.items() if data.startswith(start)), "png")
    return {"type": "image_url", "image_url": {"url": f"data:image/{kind};base64,{data}"}}


def _normalize_types(value: Any, depth: int = 0) -> Any:
    """Normalize the types in a schema to JSON Schema. The ollama package writes a union as `integer, string` (0.6.3).

    Schemas that are nested too deeply are left unchanged.
    """
    if depth > MAX_DEPTH:
        return value
    if is_array(value):
        return [_normalize_types(item, depth + 1) for item in value]
    if not is_object(value):
        return value
    schema = {key: item if key in _VALUE_KEYWORDS else _normalize_types(item, depth + 1) for key, item in value.items()}
    types = as_text(schema.get("type")).split(", ")
    return {**schema, "type": sorted(types)} if len(types) > 1 and _TYPES.issuperset(types) else schema


# --- parameters ------------------------------------------------------------------------------------------------------


def decode_options(options: Mapping[str, Any], profile: Profile, notes: list[str]) -> dict[str, Any]:
    """Decode `options` to parameters. An option that OpenAI's API lacks is sent only to servers known to accept it."""
    parameters: dict[str, Any] = {}
    dropped: list[str] = []
    for key, value in options.items():
        names = (key, *_RENAMED.get(key, ()))
        name = next(
            (candidate for candidate in names if candidate in _SAME_NAME or candidate in profile.sampling), None
        )
        if value is None:
            continue
        if name is not None:
            parameters[name] = value
        elif key != "num_predict":
            dropped.append(key)
        elif isinstance(value, int) and value > 0:  # zero and below mean no limit, like no value at all
            parameters["max_tokens"] = value
    if dropped:
        notes.append(f"not sent: {', '.join(dropped)} of options; this server is not known to take it with a request")
    return parameters


def _decode_think(think: Any, profile: Profile, notes: list[str]) -> dict[str, Any]:
    """Decode `think`: an effort becomes `reasoning_effort`; a boolean becomes the chat template's `enable_thinking`."""
    if isinstance(think, str) and think:
        return {"reasoning_effort": think}
    if isinstance(think, bool) and profile.template_kwargs:
        return {"chat_template_kwargs": {"enable_thinking": think}}
    if think is not None:
        notes.append("not sent: think; how this server takes it is not known")
    return {}


def _decode_format(format_: Any, profile: Profile) -> dict[str, Any]:
    if format_ is None or format_ == "":
        return {}
    if format_ == "json":
        return {"response_format": {"type": "json_object"}}
    if is_object(format_):
        return {"response_format": {"type": "json_schema", "json_schema": {"name": "answer", "schema": format_}}}
    if profile.wire == "ollama":
        return {"format": format_}
    raise UsageError(f"'format' must be 'json' or a JSON Schema object, not {clip(repr(format_))}")


# `/api/generate` becomes a chat of one turn or, with `raw`, a prompt for /v1/completions. Keys that need Ollama's own
# templates are refused: without them the model would answer another prompt.


_OWN_KEYS = frozenset({
    "prompt", "suffix", "system", "template", "context", "raw", "images", "width", "height", "steps",
})  # fmt: skip
"""Keys of `/api/generate` that `/api/chat` does not have."""
_REFUSED = {
    "suffix": "text before a suffix is inserted by a template of Ollama's: send the text before it as 'prompt' alone",
    "template": "only Ollama renders a template of the request: render the prompt in the app, and send it with 'raw'",
    "context": "it holds the tokens of another server: send the conversation to /api/chat",
}
"""Keys that only an Ollama server can honor, with the advice on what to do instead."""
_REFUSED_RAW = {
    "images": "a raw prompt is text: send them without 'raw'",
    "format": "/v1/completions has no form of answers: send it without 'raw'",
}


def is_unload_request(data: Mapping[str, Any]) -> bool:
    """Return whether `keep_alive` is zero; without a prompt or messages, such a request unloads the model."""
    return as_number(data.get("keep_alive")) == 0 or data.get("keep_alive") in ("0", "0s")


def check_generate_request(data: Mapping[str, Any]) -> None:
    """Raise `UsageError` if the request has a feature that this server cannot provide."""
    raw = data.get("raw") is True
    if raw and any(data.get(key) for key in ("template", "system", "context")):
        raise UsageError("raw mode does not support template, system, or context")
    refused = _REFUSED | (_REFUSED_RAW if raw else {})
    key = next((key for key in refused if data.get(key)), None)
    if key is not None:
        raise UsageError(f"{key!r} needs an Ollama server, and this is not one; {refused[key]}")


def encode_as_chat(data: Mapping[str, Any]) -> dict[str, Any]:
    """Convert an `/api/generate` request to a request for `/api/chat` with the same prompt."""
    turn: dict[str, Any] = {"role": "user", "content": as_text(data.get("prompt"))}
    if images := decode_images(data):
        turn["content"] = [*images, {"type": "text", "text": turn["content"]}]
    system = as_text(data.get("system"))
    messages = [{"role": "system", "content": system}, turn] if system else [turn]
    return {**{key: value for key, value in data.items() if key not in _OWN_KEYS}, "messages": messages}


def encode_as_completion(
    data: Mapping[str, Any], profile: Profile, max_tokens: int
) -> tuple[dict[str, Any], list[str]]:
    """Convert an `/api/generate` request to a request for `/v1/completions`; also return notes on what was left out.

    If the request sets no token limit, `max_tokens` is sent, because vLLM and SGLang stop after 16 tokens without a
    limit.
    """
    notes: list[str] = []
    streamed = data.get("stream") is not False
    body: dict[str, Any] = {"model": data.get("model"), "prompt": as_text(data.get("prompt")), "stream": streamed}
    if streamed and profile.stream_usage:
        body["stream_options"] = {"include_usage": True}
    body |= {"max_tokens": max_tokens, **decode_options(as_object(data.get("options")), profile, notes)}
    dropped = [key for key in ("think", "keep_alive", "logprobs", "top_logprobs") if data.get(key)]
    if dropped:
        notes.append(f"not sent: {', '.join(dropped)}; a raw prompt has no such thing on this server")
    return body, notes


def embedding_inputs(data: Mapping[str, Any]) -> list[str]:
    """Return the texts of an `/api/embed` or `/api/embeddings` request. Raises `UsageError` for other input."""
    given = data.get("input") if data.get("input") is not None else data.get("prompt")
    texts = [given] if isinstance(given, str) and given else given or []
    if not isinstance(texts, list) or not all(isinstance(text, str) for text in as_list(texts)):
        raise UsageError("invalid input type")
    return as_list(texts)
