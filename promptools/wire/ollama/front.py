"""Read a client's `/api/chat` request as a Chat Completions body: the fate of every key is decided here.

For a server that speaks `/api/chat` itself, `options`, `think`, `keep_alive` and what else only Ollama knows stay as
they are. For any other they become what Chat Completions has for them; what has no like is left out, and said.
Shapes of Ollama 0.32.15 (docs.ollama.com, api/chat).
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from promptools.errors import UsageError, clip
from promptools.wire.shapes import as_list, as_object, as_text, is_list, is_object

if TYPE_CHECKING:
    from collections.abc import Mapping

    from promptools.profiles import Profile

_ALIKE = ("temperature", "top_p", "seed", "stop", "presence_penalty", "frequency_penalty")
"""Options that Chat Completions have under the same name."""
_RENAMED = {"repeat_penalty": ("repetition_penalty",)}
"""Options that some servers know by another name."""
_OLLAMAS = ("options", "think", "keep_alive", "truncate", "shift")
"""Keys that only Ollama knows."""
_TYPES = frozenset(("string", "number", "integer", "boolean", "object", "array", "null"))
_DATA = frozenset(("enum", "const", "default", "examples"))
"""Keywords whose values are no schemas."""
_PICTURES = {"/9j/": "jpeg", "R0lGOD": "gif", "UklGR": "webp", "Qk": "bmp"}
"""How the formats of images begin in base64; all others are taken for PNG, the commonest."""


def read_request(data: Mapping[str, Any], profile: Profile) -> tuple[dict[str, Any], tuple[str, ...]]:
    """Give the body, and in words what was left out. `UsageError` for what cannot be asked of such a server."""
    notes: list[str] = []
    body = {key: value for key, value in data.items() if key not in {"format", *_OLLAMAS}}
    if is_list(data.get("messages")):
        body["messages"] = [_message(each) for each in data["messages"]]
    if data.get("tools"):
        body["tools"] = [_schema(each) for each in as_list(data["tools"])] or data["tools"]
    body["stream"] = data.get("stream") is not False
    if profile.wire == "ollama":
        body |= {key: data[key] for key in _OLLAMAS if key in data}
    else:
        if not data.get("messages"):
            raise UsageError("'messages' is empty, which loads a model on Ollama; this server is none: send a message")
        body |= _parameters(as_object(data.get("options")), profile, notes)
        body |= _thinking(data.get("think"), profile, notes)
        notes += [f"not sent: {key}; only Ollama knows it" for key in _OLLAMAS[2:] if data.get(key) is not None]
    return body | _form(data.get("format"), profile), tuple(notes)


# --- messages --------------------------------------------------------------------------------------------------------


def _message(message: Any) -> Any:
    """Write one message; results find their calls by `name`, and calls get ids, where every history is read."""
    if not is_object(message):
        return message
    own = {"thinking", "images", "tool_name", "tool_calls"}
    said = {key: value for key, value in message.items() if key not in own}
    said["content"] = message.get("content") or ""
    if message.get("thinking"):
        said["reasoning_content"] = message["thinking"]
    if message.get("tool_name"):
        said["name"] = message["tool_name"]
    if message.get("tool_calls"):
        said["tool_calls"] = [_call(as_object(each)) for each in as_list(message["tool_calls"])]
    images = [_picture(each) for each in as_list(message.get("images")) if isinstance(each, str)]
    if images:
        words = [{"type": "text", "text": said["content"]}] if said["content"] else []
        said["content"] = [*images, *words]
    return said


def _call(call: Mapping[str, Any]) -> dict[str, Any]:
    function = as_object(call.get("function"))
    arguments = function.get("arguments")
    written = arguments if isinstance(arguments, str) else json.dumps(arguments or {}, ensure_ascii=False)
    kept = {key: value for key, value in call.items() if key != "function"}
    return {**kept, "type": "function", "function": {"name": as_text(function.get("name")), "arguments": written}}


def _picture(data: str) -> dict[str, Any]:
    kind = next((kind for start, kind in _PICTURES.items() if data.startswith(start)), "png")
    return {"type": "image_url", "image_url": {"url": f"data:image/{kind};base64,{data}"}}


def _schema(value: Any) -> Any:
    """Write types as JSON Schema does: the ollama package joins those of a union to `integer, string` (0.6.3)."""
    if is_list(value):
        return [_schema(each) for each in value]
    if not is_object(value):
        return value
    made = {key: each if key in _DATA else _schema(each) for key, each in value.items()}
    types = as_text(made.get("type")).split(", ")
    return {**made, "type": sorted(types)} if len(types) > 1 and _TYPES.issuperset(types) else made


# --- parameters ------------------------------------------------------------------------------------------------------


def _parameters(options: Mapping[str, Any], profile: Profile, notes: list[str]) -> dict[str, Any]:
    """Write `options` as parameters; those that OpenAI's API lacks go to servers that are known to take them."""
    made: dict[str, Any] = {}
    lost: list[str] = []
    for key, value in options.items():
        names = (key, *_RENAMED.get(key, ()))
        name = next((each for each in names if each in _ALIKE or each in profile.sampling), None)
        if value is None:
            continue
        if name is not None:
            made[name] = value
        elif key != "num_predict":
            lost.append(key)
        elif isinstance(value, int) and value > 0:  # below it, no limit is meant: as it is without one
            made["max_tokens"] = value
    if lost:
        notes.append(f"not sent: {', '.join(lost)} of options; this server is not known to take it with a request")
    return made


def _thinking(think: Any, profile: Profile, notes: list[str]) -> dict[str, Any]:
    """Write `think`: an effort as such, yes and no as templates read it."""
    if isinstance(think, str) and think:
        return {"reasoning_effort": think}
    if isinstance(think, bool) and profile.template_kwargs:
        return {"chat_template_kwargs": {"enable_thinking": think}}
    if think is not None:
        notes.append("not sent: think; nothing says how this server is told to think or not")
    return {}


def _form(form: Any, profile: Profile) -> dict[str, Any]:
    """Write `format` as `response_format`."""
    if form is None or form == "":
        return {}
    if form == "json":
        return {"response_format": {"type": "json_object"}}
    if is_object(form):
        return {"response_format": {"type": "json_schema", "json_schema": {"name": "answer", "schema": form}}}
    if profile.wire == "ollama":
        return {"format": form}
    raise UsageError(f"'format' must be 'json' or a JSON Schema object, not {clip(repr(form))}")
