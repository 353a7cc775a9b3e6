"""Decode Chat Completions as servers really send them: complete replies, chunks and error bodies become `Delta`s.

A complete reply becomes the same deltas as a stream, so higher layers read a single type. The decoder rejects nothing:
missing fields are empty, irregular fields are normalized, and no body raises an error.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from promptools.json_values import is_array, is_object, try_json
from promptools.numbers import as_count, as_int, as_timestamp
from promptools.wire.json_body import as_list, as_object, as_text, is_shallow

if TYPE_CHECKING:
    from collections.abc import Mapping

REASONING_FIELDS = ("reasoning_content", "reasoning", "thinking")
"""The fields for reasoning: llama.cpp, SGLang and old vLLM use the first, vLLM >= 0.16 the second, Ollama the third."""


@dataclass(frozen=True, slots=True)
class ErrorBody:
    """An error body of any form. `message` may contain the model's text, and is complete unless `is_clipped`."""

    message: str
    type: str | None = None
    param: str | None = None
    code: str | int | None = None
    body: Any = None
    prompt_tokens: int | None = None
    """The size, in tokens, of a prompt that exceeds the context.

    Older versions of llama.cpp state this and `context_tokens` in separate fields, but not in the message.
    """
    context_tokens: int | None = None
    is_clipped: bool = False
    """Whether `message` is only the beginning of the server's message."""
    whole_message: str = field(default="", repr=False)
    """The server's whole message, if `message` is clipped and the rest may be needed."""

    @property
    def status(self) -> int | None:
        """The HTTP status that the body states, if any; a server may send an error with HTTP status 200."""
        return self.code if isinstance(self.code, int) and 400 <= self.code <= 599 else None


@dataclass(frozen=True, slots=True)
class ToolDelta:
    """A fragment of one structured call; servers may omit the index, the id and the name."""

    index: int | None = None
    id: str | None = None
    name: str | None = None
    arguments: str = ""


@dataclass(frozen=True, slots=True)
class Delta:
    """What a message or chunk adds to one choice. `index` is None for usage and for an error that concerns all choices.

    Within a delta, reasoning comes before content, and content before calls. A `usage` replaces an earlier `usage` of
    the same reply, since vLLM's `continuous_usage_stats` sends running totals.
    """

    index: int | None = 0
    content: str = ""
    ids: tuple[int, ...] | None = None
    """The token ids of `content`, if the server sends them; ids may arrive before their text."""
    reasoning: str = ""
    tool_calls: tuple[ToolDelta, ...] = ()
    refusal: str = ""
    finish_reason: str | None = None
    stop_reason: str | int | None = None
    logprobs: dict[str, Any] | None = None
    choice_extra: dict[str, Any] = field(default_factory=dict[str, Any])
    """Additional fields of the choice, such as vLLM's `stop_reason`."""
    message_extra: dict[str, Any] = field(default_factory=dict[str, Any])
    """Additional fields of the message, such as `annotations`."""
    usage: dict[str, Any] | None = None
    error: ErrorBody | None = None


@dataclass(frozen=True, slots=True)
class Envelope:
    """The fields of a reply around its choices (id, model, time, ...), which are passed on to the client unchanged."""

    id: str = ""
    model: str = ""
    created: int = 0
    extra: dict[str, Any] = field(default_factory=dict[str, Any])
    """Other fields, such as `system_fingerprint`, `service_tier` and `timings`."""
    stop_reason: str | int | None = None
    """The server's stop reason for the choice that has ended: a stop sequence, or the id of a token."""
    choice_extra: dict[str, Any] = field(default_factory=dict[str, Any])
    """Additional fields of the choice that has ended, passed on to clients of the same API."""
    message_extra: dict[str, Any] = field(default_factory=dict[str, Any])
    """Additional fields of the message of the choice that has ended."""


def decode_envelope(body: Any) -> Envelope:
    """Decode the fields around the choices of a complete reply or of a stream's first chunk."""
    data = as_object(body)
    return Envelope(
        id=as_text(data.get("id")),
        model=as_text(data.get("model")),
        created=as_timestamp(data.get("created")),
        extra={key: value for key, value in data.items() if key not in _DECODED_KEYS and is_shallow(value)},
    )


_DECODED_KEYS = frozenset({"id", "object", "created", "model", "choices", "usage", "error"})
_CHOICE_KEYS = frozenset({"index", "message", "delta", "text", "token_ids", "finish_reason", "logprobs", "error"})
_MESSAGE_KEYS = frozenset({"role", "content", "refusal", "tool_calls", "function_call", *REASONING_FIELDS})


def decode_reply(body: Any) -> list[Delta]:
    """Decode a complete reply to a delta for each choice, then a delta for the usage.

    An error body becomes a single delta with `error`.
    """
    return _decode(body, "message")


def decode_chunk(body: Any) -> list[Delta]:
    """Decode a chunk of a stream to a delta for each choice, then a delta for the usage.

    An error body becomes a single delta with `error`.
    """
    return _decode(body, "delta")


def _decode(body: Any, key: str) -> list[Delta]:
    problem = error_of(body)
    if problem is not None:
        return [Delta(index=None, error=problem)]
    data = as_object(body)
    choices = as_list(data.get("choices"))
    deltas = [_decode_choice(as_object(choice), position, key) for position, choice in enumerate(choices)]
    usage = data.get("usage")
    if is_object(usage) and is_shallow(usage):
        deltas.append(Delta(index=None, usage=usage))
    return deltas


def _decode_choice(choice: Mapping[str, Any], position: int, key: str) -> Delta:
    index = as_int(choice.get("index"))
    index = position if index is None else index
    if is_error(choice.get("error")):  # OpenRouter: an error inside a choice, with finish_reason "error"
        return Delta(index=index, error=error_of({"error": choice["error"]}))
    # a chunk may contain a complete message, and a complete reply a delta: proxies that convert between the two do so
    message = as_object(choice.get(key) or choice.get("message") or choice.get("delta"))
    content, reasoning = _content(message.get("content"))
    stop = choice.get("stop_reason")
    return Delta(
        index=index,
        content=content or as_text(choice.get("text")),  # /v1/completions
        ids=_token_ids(choice.get("token_ids")),
        reasoning=reasoning_of(message) or reasoning,
        tool_calls=calls_of(message),
        refusal=as_text(message.get("refusal")),
        finish_reason=as_text(choice.get("finish_reason")) or None,
        stop_reason=stop if isinstance(stop, (str, int)) else None,
        logprobs=logprobs if is_object(logprobs := choice.get("logprobs")) and is_shallow(logprobs) else None,
        choice_extra=_other_fields(choice, _CHOICE_KEYS),
        message_extra=_other_fields(message, _MESSAGE_KEYS),
    )


def _other_fields(data: Mapping[str, Any], decoded: frozenset[str]) -> dict[str, Any]:
    """Return the fields whose names are not in `decoded`; leave out null, and values that are nested too deeply."""
    if data.keys() <= decoded:
        return {}
    return {key: value for key, value in data.items() if key not in decoded and value is not None and is_shallow(value)}


def add_fields(first: dict[str, Any], second: Mapping[str, Any]) -> None:
    """Add the fields of a later chunk to `first`: lists are extended, and other values are replaced."""
    for key, value in second.items():
        before = first.get(key)
        first[key] = [*before, *value] if is_array(before) and is_array(value) else value


def _token_ids(raw_ids: Any) -> tuple[int, ...] | None:
    """Return the token ids that vLLM sends for `return_token_ids`; None if there are none or if any is invalid."""
    ids = [as_int(token_id) for token_id in raw_ids] if is_array(raw_ids) else [None]
    return tuple(token_id for token_id in ids if token_id is not None) if None not in ids else None


def _content(content: Any) -> tuple[str, str]:
    """Return the text and the reasoning of `content`, which is a string or a list of parts.

    Mistral's servers send reasoning as a part of the content.
    """
    if isinstance(content, str):
        return content, ""
    texts: list[str] = []
    thoughts: list[str] = []
    for part in as_list(content):
        data = as_object(part)
        if data.get("type") == "thinking":
            inner = data.get("thinking")
            thoughts.append(inner if isinstance(inner, str) else _content(inner)[0])
        else:
            texts.append(part if isinstance(part, str) else as_text(data.get("text")))
    return "".join(texts), "".join(thoughts)


def reasoning_of(message: Mapping[str, Any]) -> str:
    """Return the reasoning of a message. Servers that send two fields for reasoning send the same text in both."""
    return next(
        (message[name] for name in REASONING_FIELDS if isinstance(message.get(name), str) and message[name]), ""
    )


def calls_of(message: Mapping[str, Any]) -> tuple[ToolDelta, ...]:
    """Return the structured calls in a message: complete calls or, in a stream, fragments of calls."""
    calls = tuple(_decode_call(as_object(call)) for call in as_list(message.get("tool_calls")) if is_object(call))
    legacy = message.get("function_call")
    if calls or not is_object(legacy):  # llama-cpp-python sends both; the newer field wins
        return calls
    return (_decode_call({"index": 0, "function": legacy}),)


def _decode_call(call: Mapping[str, Any]) -> ToolDelta:
    # some servers put the name and the arguments beside the id instead of under "function"
    function = as_object(call.get("function")) or call
    index = call.get("index", function.get("index"))  # Ollama's /api/chat: the index is inside the function
    return ToolDelta(
        index=_call_index(index),
        id=as_text(call.get("id")) or None,
        name=as_text(function.get("name")) or None,
        arguments=_arguments(function.get("arguments")),
    )


def _call_index(index: Any) -> int | None:
    """Return the index of a call, which some servers write as a string; None if it is invalid."""
    if isinstance(index, str):
        return int(index) if index.isdecimal() and len(index) < _MAX_INDEX_DIGITS else None
    return as_int(index)


_MAX_INDEX_DIGITS = 10
"""Limit for strings that are read as an index: they must have fewer digits than this."""


def _arguments(arguments: Any) -> str:
    if arguments is None:
        return ""
    # Ollama's /api/chat sends an object.
    return arguments if isinstance(arguments, str) else _encode(arguments)


def _encode(value: Any) -> str:
    """Encode a value as JSON; empty if it is nested too deeply."""
    return json.dumps(value, ensure_ascii=False) if is_shallow(value) else ""


def error_of(body: Any) -> ErrorBody | None:
    """Return the error in a body, whatever the HTTP status; None if the body is a reply or contains no error.

    `body` is decoded JSON, or text that is not JSON (a proxy's HTML, `Internal Server Error`).
    """
    if isinstance(body, str):
        return _error_text(body, body)
    if is_array(body):  # Google's front ends wrap the error object into a list
        return error_of(body[0]) if body else None
    data = as_object(body)
    if is_error(data.get("error")):
        return _error_value(data["error"], data)
    if data.get("choices") is not None:
        return None
    if data.get("object") == "error" or "message" in data:  # vLLM before 0.10; {"code": 400, "message": ...} under 200
        return _error_value(data, data)
    if data.get("detail"):  # FastAPI: transformers serve
        detail = data["detail"]
        return ErrorBody(detail if isinstance(detail, str) else _encode(detail), body=body)
    # Ollama 0.11.3 put the text into the key: {"error parsing tool call": "invalid character ..."}
    error_key = next((key for key in data if key.startswith("error ")), None)
    return None if error_key is None else ErrorBody(f"{error_key}: {as_text(data[error_key])}", body=body)


def is_error(value: Any) -> bool:
    """Return whether the value of an `error` key is an error; some servers send an empty value."""
    return any(value.values()) if is_object(value) else bool(value)


def _error_value(error: Any, body: Any) -> ErrorBody:
    if not is_object(error):
        return _error_text(error if isinstance(error, str) else _encode(error), body)
    code = error.get("code")
    return ErrorBody(
        message=as_text(error.get("message")) or _encode(error),
        type=as_text(error.get("type")) or None,
        param=as_text(error.get("param")) or None,
        code=code if isinstance(code, (str, int)) else None,
        body=body,
        prompt_tokens=as_count(error.get("n_prompt_tokens")),
        context_tokens=as_count(error.get("n_ctx")),
    )


def _error_text(text: str, body: Any) -> ErrorBody:
    """Decode an error that is sent as text.

    The text may be JSON: Ollama sends its runner's JSON error inside a string.
    """
    if text.lstrip().startswith("{"):
        inner = try_json(text)
        problem = error_of(inner) if is_object(inner) else None
        if problem is not None:
            return replace(problem, body=body)
    return ErrorBody(text, body=body)
