"""Long errors of servers: how much is read of them, and the shorter error that stands for one.

An error is short, except where it quotes the request or the model: validators repeat the whole conversation, with its
images, and parsers the call that they failed on. So an error is read whole up to `MAX_ERROR` bytes, and then it reaches
the client unchanged. Of a longer one `SHOWN_ERROR` bytes are kept: they decide what kind of error it is, and they are
what the client gets, in the same shape and with a mark. It is read on only if they introduce what the model wrote, up
to `max_reply`; its message is then decoded in slices.

What is bounded is the time for which the interpreter is held: `json` and regular expressions hold it in any thread.
"""

from __future__ import annotations

from typing import Any

from pydantic_core import from_json, to_json

from promptools.fallback.salvage import introduces_model_text
from promptools.json_values import is_array, is_object
from promptools.patterns import lazy_pattern
from promptools.wire.chat_decoder import error_of
from promptools.wire.json_types import as_object, as_text

MAX_ERROR = 1 << 20
"""Bytes of an error that is read whole: `json` takes up to 50 ms for so many."""
SHOWN_ERROR = 1 << 16
"""Bytes that are kept of a longer one."""
CLIPPED = (
    f"... [clipped by promptools: the server's error is longer than {MAX_ERROR:,} bytes, of which these are the first "
    f"{SHOWN_ERROR:,}]"
)
"""The mark at the end of what is kept."""
_SLICE = 1 << 18
"""Characters of a string that are decoded at a time."""
_STRING = lazy_pattern(
    r'(?:[^"\\]++|\\[^u]|\\u(?![dD][89abAB])[0-9a-fA-F]{4}|\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2})*+'
)
"""A part of a JSON string, with whole escapes and whole pairs of surrogates."""
_KEY = lazy_pattern(r'"(?:error|message)"\s*:\s*"')
_COMPARED = 1_000
"""Characters by which the string of the message is recognized."""
_NUMBER = "-+.0123456789eE"
"""A number at the end may have lost digits."""


def clip_error(body: bytes) -> bytes:
    """Return the start of an error's body, marked; what is JSON stays JSON of the same shape. O(1) in bytes."""
    start = _whole_characters(body[:SHOWN_ERROR])
    value = _parse_start(start.decode("utf-8", "replace"))
    return start + CLIPPED.encode() if value is None else to_json(_mark(value), inf_nan_mode="null")


def clip_reported_error(text: str) -> Any:
    """Return the start of the error that a long JSON text reports, marked; None if its start shows no error."""
    value = _parse_start(text[:SHOWN_ERROR])
    reports = value is not None and "choices" not in as_object(value) and error_of(value) is not None
    return _mark(value) if reports else None


def introduces_reply(body: bytes) -> bool:
    """Whether an error says at its start that what follows was written by the model."""
    return bool(_start_of_message(body[:SHOWN_ERROR].decode("utf-8", "replace")))


def quoting_message(text: str) -> str:
    """Return the whole message of a long error that quotes the model; empty if it does not, or is not complete.

    O(n) in characters; the interpreter is not held for longer than a slice takes.
    """
    beginning = _start_of_message(text[:SHOWN_ERROR])
    if not beginning:
        return ""
    for key in _KEY.finditer(text, 0, SHOWN_ERROR):
        message = _decode_string(text, key.end(), beginning[:_COMPARED])
        if message:
            return message
    return ""


def _start_of_message(text: str) -> str:
    """Return the message of the error that a text begins, if it introduces what the model wrote."""
    error = error_of(_parse_start(text))
    return error.message if error is not None and introduces_model_text(error.message) else ""


def _decode_string(text: str, at: int, beginning: str) -> str:
    """Decode the JSON string that goes on at `at`; empty if it does not begin like this, or does not end."""
    parts: list[str] = []
    while (end := _match_end(text, at)) > at:
        try:
            part = from_json(f'"{text[at:end]}"')
        except ValueError:
            return ""
        if not (parts or part.startswith(beginning)):
            return ""
        parts.append(part)
        at = end
    return "".join(parts) if text.startswith('"', at) else ""


def _match_end(text: str, at: int) -> int:
    match = _STRING.match(text, at, at + _SLICE)
    return at if match is None else match.end()


def _parse_start(text: str) -> Any:
    """Parse the start of a JSON object or list, as far as it goes; None for any other text."""
    try:
        value = from_json(text.rstrip(_NUMBER), allow_partial="trailing-strings")
    except ValueError:
        return None
    return value if is_object(value) or is_array(value) else None


def _mark(value: Any) -> Any:
    """Return an error with the mark at the end of its message, wherever servers put that."""
    if is_array(value):
        return [_mark(value[0])] if value else [CLIPPED]
    data = as_object(value)
    if is_object(data.get("error")):
        error = data["error"]
        return {**data, "error": {**error, "message": as_text(error.get("message")) + CLIPPED}}
    key = next((key for key in ("error", "message", "detail") if isinstance(data.get(key), str)), "message")
    return {**data, key: as_text(data.get(key)) + CLIPPED}


def _whole_characters(data: bytes) -> bytes:
    """Return the start of a text in UTF-8 without the part of a character at its end."""
    while data and data[-1] & 0b1100_0000 == 0b1000_0000:
        data = data[:-1]
    return data[:-1] if data and data[-1] & 0b1100_0000 == 0b1100_0000 else data
