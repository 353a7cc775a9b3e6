"""Decode a client's `/api/generate` request: to a chat of one turn, or with `raw` to a prompt for /v1/completions.

Formats of Ollama 0.32.15 (docs.ollama.com, api/generate). What needs Ollama's own templates is refused: without it the
answer would be one to another prompt.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from promptools.errors import UsageError
from promptools.wire.json_types import as_list, as_number, as_object, as_text
from promptools.wire.ollama.decode_request import decode_images, decode_options

if TYPE_CHECKING:
    from collections.abc import Mapping

    from promptools.profiles import Profile

_OWN_KEYS = frozenset({
    "prompt", "suffix", "system", "template", "context", "raw", "images", "width", "height", "steps",
})  # fmt: skip
"""Keys that a chat does not have."""
_REFUSED = {
    "suffix": "text before a suffix is inserted by a template of Ollama's: send the text before it as 'prompt' alone",
    "template": "only Ollama renders a template of the request: render the prompt in the app, and send it with 'raw'",
    "context": "it holds the tokens of another server: send the conversation to /api/chat",
}
"""Keys that only an Ollama can honor, with what to do instead."""
_REFUSED_RAW = {
    "images": "a raw prompt is text: send them without 'raw'",
    "format": "/v1/completions has no form of answers: send it without 'raw'",
}


def is_unload_request(data: Mapping[str, Any]) -> bool:
    """Whether a request without a prompt or messages unloads the model: by a `keep_alive` of zero."""
    return as_number(data.get("keep_alive")) == 0 or data.get("keep_alive") in ("0", "0s")


def check_generate_request(data: Mapping[str, Any]) -> None:
    """Raise `UsageError` for what this server cannot be asked."""
    raw = data.get("raw") is True
    if raw and any(data.get(key) for key in ("template", "system", "context")):
        raise UsageError("raw mode does not support template, system, or context")
    refused = _REFUSED | (_REFUSED_RAW if raw else {})
    key = next((key for key in refused if data.get(key)), None)
    if key is not None:
        raise UsageError(f"{key!r} needs an Ollama server, and this is none; {refused[key]}")


def encode_as_chat(data: Mapping[str, Any]) -> dict[str, Any]:
    """Return a request for `/api/chat` with the same prompt."""
    turn: dict[str, Any] = {"role": "user", "content": as_text(data.get("prompt"))}
    if images := decode_images(data):
        turn["content"] = [*images, {"type": "text", "text": turn["content"]}]
    system = as_text(data.get("system"))
    messages = [{"role": "system", "content": system}, turn] if system else [turn]
    return {**{key: value for key, value in data.items() if key not in _OWN_KEYS}, "messages": messages}


def encode_as_completion(
    data: Mapping[str, Any], profile: Profile, max_tokens: int
) -> tuple[dict[str, Any], list[str]]:
    """Return a request for `/v1/completions`, and notes on what was left out.

    `max_tokens` is sent where the request sets no limit: vLLM and SGLang stop after 16 tokens without one.
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
    """Return the texts of an `/api/embed` or `/api/embeddings` request; raise `UsageError` where there are others."""
    given = data.get("input") if data.get("input") is not None else data.get("prompt")
    texts = [given] if isinstance(given, str) and given else given or []
    if not isinstance(texts, list) or not all(isinstance(text, str) for text in as_list(texts)):
        raise UsageError("invalid input type")
    return as_list(texts)
