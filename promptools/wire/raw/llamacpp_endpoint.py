"""llama.cpp's own endpoint, `/completion` (b11549).

A reply is one object, or a list of them for several choices. In a stream each event is a part of one, and the last has
`stop`; no `[DONE]` follows.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from promptools.json_values import is_array
from promptools.wire.chat_decoder import Delta, Envelope, error_of, is_error
from promptools.wire.json_types import as_count, as_int, as_object, as_text
from promptools.wire.lenient_json import is_shallow
from promptools.wire.parameters import apply_rules
from promptools.wire.raw.raw_request import END_OF_TURN_TOKENS, RawPrompt, RawRequest, stop_strings

if TYPE_CHECKING:
    from collections.abc import Mapping

PATH = "/completion"
"""The route, below the server's root."""


def encode_request(body: Mapping[str, Any], prompt: RawPrompt) -> RawRequest:
    """Encode a Chat Completions body without its messages. Without a limit the answer may fill the context."""
    kept, _, notes = apply_rules(body, "llamacpp")
    stop = stop_strings(body.get("stop"), prompt)
    encoded = {**kept, **prompt.constraint, "prompt": prompt.as_json}
    return RawRequest({**encoded, "stop": stop, "preserved_tokens": list(prompt.preserved)}, notes)


def decode_envelope(body: Any) -> Envelope:
    """Decode the envelope: the model and the timings; the rest repeats the request. There is no id."""
    data = as_object(body[0] if is_array(body) and body else body)
    extra = {key: data[key] for key in ("timings",) if key in data and is_shallow(data[key])}
    return Envelope(model=as_text(data.get("model")), extra=extra)


def decode_reply(body: Any) -> list[Delta]:
    """Decode a complete reply or an event of a stream; an error body is one delta with `error`.

    Usage is per choice, and has its index.
    """
    problem = None if _is_reply(body) else error_of(body)
    if problem is not None:
        return [Delta(index=None, error=problem)]
    return [_decode_choice(as_object(choice)) for choice in (body if is_array(body) else [body])]


def _is_reply(body: Any) -> bool:
    first = as_object(body[0] if is_array(body) and body else body)
    return "content" in first and not is_error(first.get("error"))


def _decode_choice(raw_choice: Mapping[str, Any]) -> Delta:
    text, ended = as_text(raw_choice.get("content")), raw_choice.get("stop") is True
    stop_word = as_text(raw_choice.get("stopping_word"))
    return Delta(
        index=as_int(raw_choice.get("index")) or 0,
        content=text + stop_word if stop_word in END_OF_TURN_TOKENS else text,
        finish_reason=_finish_reason(raw_choice) if ended else None,
        usage=_usage(raw_choice) if ended else None,
    )


def _finish_reason(raw_choice: Mapping[str, Any]) -> str:
    return "length" if raw_choice.get("stop_type") == "limit" else "stop"


def _usage(raw_choice: Mapping[str, Any]) -> dict[str, Any]:
    read, written = as_count(raw_choice.get("tokens_evaluated")) or 0, as_count(raw_choice.get("tokens_predicted")) or 0
    return {"prompt_tokens": read, "completion_tokens": written, "total_tokens": read + written}
