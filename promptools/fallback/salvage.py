"""The model's own words, inside a server's error text: already paid for, so they are read before anything is sent."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

# Ollama 0.11 to 0.32 (ollama#12064, #17638): error parsing tool call: raw='<arguments>', err=<Go error>
_RAW = re.compile(r"error parsing tool call: raw='", re.IGNORECASE)
_ERR = "', err="
# llama.cpp (llama.cpp#23838): Failed to parse input at pos <n>: <the reply from there on, or all of it>
_POS = re.compile(r"failed to parse input at pos \d+: ?", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Salvage:
    """Text of the model found in an error. `arguments`: a call's arguments without its name; `reply`: reply text."""

    what: Literal["arguments", "reply"]
    text: str


def salvage(text: str) -> Salvage | None:
    """Find the model's words in an error text."""
    if found := _RAW.search(text):
        start = found.end()
        end = text.rfind(_ERR)
        # without the tail the text itself was cut: what is left may miss its end, so nothing can be trusted
        return Salvage("arguments", text[start:end]) if end >= start else None
    if found := _POS.search(text):
        raw = text[found.end() :]
        return Salvage("reply", raw) if raw.strip() else None
    return None
