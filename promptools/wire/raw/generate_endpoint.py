"""Ollama's `/api/generate` with `raw`: no template and no parser (0.32.15).

A reply is one object, or one per line of a stream; the last has `done`, the reason and the usage. Any line may be an
error. The token that ended the turn is left out.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from promptools.json_values import is_object
from promptools.wire.json_types import as_object, as_text
from promptools.wire.ollama import decode_response as ollama
from promptools.wire.parameters import apply_rules, merge_options
from promptools.wire.raw.raw_request import RawPrompt, RawRequest, stop_strings

if TYPE_CHECKING:
    from collections.abc import Mapping

    from promptools.wire.chat_decoder import Delta, Envelope

PATH = "/api/generate"
"""The route, below the server's root."""
_DECODED_KEYS = frozenset({"response", "thinking", "tool_calls", "context"})


def encode_request(body: Mapping[str, Any], prompt: RawPrompt, *, num_ctx: int | None = None) -> RawRequest:
    """Encode a Chat Completions body without its messages.

    `num_ctx` is the context to ask for, in tokens, unless the request's own `options` set it. Without a limit the
    answer may fill the context.
    """
    kept, options, notes = apply_rules(body, "generate")
    encoded = {"stream": False, "truncate": False, **kept, **prompt.constraint, "raw": True, "prompt": prompt.as_json}
    merged = merge_options(kept, options, num_ctx)
    if is_object(merged):
        stops = stop_strings(merged.get("stop"), prompt)
        encoded["options"] = {**merged, **({"stop": stops} if stops else {})}
    return RawRequest(encoded, notes)


def decode_envelope(body: Any) -> Envelope:
    """Decode the envelope; durations of the last line (nanoseconds) are passed on unchanged. There is no id."""
    envelope = ollama.decode_envelope(body)
    return replace(envelope, extra={key: value for key, value in envelope.extra.items() if key not in _DECODED_KEYS})


def decode_reply(body: Any) -> list[Delta]:
    """Decode a complete reply or one line: a delta of the only choice and one for the usage, or one with the error."""
    data = as_object(body)
    if "response" not in data:
        return ollama.decode_reply(body)
    return ollama.decode_reply({**data, "message": {**data, "content": as_text(data["response"])}})
