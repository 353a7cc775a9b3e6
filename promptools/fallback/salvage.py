"""Extract the model's own text from a server's error text: it is already generated, so it is used before a retry."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

# Ollama 0.11 to 0.32 (ollama#12064, #17638): error parsing tool call: raw='<arguments>', err=<Go error>
_OLLAMA_PREFIX = re.compile(r"error parsing tool call: raw='", re.IGNORECASE)
_OLLAMA_SUFFIX = "', err="
# llama.cpp (llama.cpp#23838): Failed to parse input at pos <n>: <the reply from there on, or all of it>
_LLAMACPP_PREFIX = re.compile(r"failed to parse input at pos \d+: ?", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Salvage:
    """Model text found in an error: a call's `arguments` without its name, or `reply` text."""

    kind: Literal["arguments", "reply"]
    text: str


def salvage(text: str) -> Salvage | None:
    """Return the model's text inside an error text; None if there is none."""
    if match := _OLLAMA_PREFIX.search(text):
        start = match.end()
        end = text.rfind(_OLLAMA_SUFFIX)
        # without the suffix the error text itself was cut, so the arguments may lack their end
        return Salvage("arguments", text[start:end]) if end >= start else None
    if match := _LLAMACPP_PREFIX.search(text):
        raw = text[match.end() :]
        return Salvage("reply", raw) if raw.strip() else None
    return None
