"""llama.cpp's own endpoint, `/completion` (b11549).

A reply is one object, or a list of them for several choices. In a stream each event is a part of one, and the last has
`stop`; no `[DONE]` follows.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from promptools.wire.chat import Delta, Envelope, error_of, is_error
from promptools.wire.decode import shallow
from promptools.wire.raw.fates import STOPS, Prompt, Written, carry, stops
from promptools.wire.shapes import as_count, as_int, as_object, as_text, is_list

if TYPE_CHECKING:
    from collections.abc import Mapping

PATH = "/completion"
"""The route, below the server's root."""
MARKERS = ("<|start|>", "<|channel|>", "<|message|>", "<|constrain|>", "<|end|>", *STOPS)
"""Tokens to keep in the text whatever the model file says; otherwise those that end a turn are stripped."""


def write_request(body: Mapping[str, Any], prompt: Prompt) -> Written:
    """Encode a Chat Completions body without its messages. Without a limit the answer may fill the context."""
    kept, _, notes = carry(body, "llamacpp")
    stop = stops(body.get("stop"))
    return Written({**kept, "prompt": prompt.sent, "stop": stop, "preserved_tokens": list(MARKERS)}, notes)


def read_envelope(body: Any) -> Envelope:
    """Decode the envelope: the model and the timings; the rest repeats the request. There is no id."""
    data = as_object(body[0] if is_list(body) and body else body)
    extra = {key: data[key] for key in ("timings",) if key in data and shallow(data[key])}
    return Envelope(model=as_text(data.get("model")), extra=extra)


def read_reply(body: Any) -> list[Delta]:
    """Decode a complete reply or an event of a stream; an error body is one delta with `error`.

    Usage is per choice, and has its index.
    """
    problem = None if _is_reply(body) else error_of(body)
    if problem is not None:
        return [Delta(index=None, error=problem)]
    return [delta for choice in (body if is_list(body) else [body]) for delta in _choice(as_object(choice))]


def _is_reply(body: Any) -> bool:
    first = as_object(body[0] if is_list(body) and body else body)
    return "content" in first and not is_error(first.get("error"))


def _choice(said: Mapping[str, Any]) -> list[Delta]:
    text, ended = as_text(said.get("content")), said.get("stop") is True
    stop_word = as_text(said.get("stopping_word"))
    delta = Delta(
        index=as_int(said.get("index")) or 0,
        content=text + stop_word if stop_word in STOPS else text,
        finish_reason=_finish(said) if ended else None,
        usage=_usage(said) if ended else None,
    )
    return [delta]


def _finish(said: Mapping[str, Any]) -> str:
    return "length" if said.get("stop_type") == "limit" else "stop"


def _usage(said: Mapping[str, Any]) -> dict[str, Any]:
    read, written = as_count(said.get("tokens_evaluated")) or 0, as_count(said.get("tokens_predicted")) or 0
    return {"prompt_tokens": read, "completion_tokens": written, "total_tokens": read + written}
