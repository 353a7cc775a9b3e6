"""Extract the model's own text from a server's error text: it is already generated, so it is used before a retry."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

from promptools.fallback.rules import SEARCHED_HEAD
from promptools.patterns import lazy_pattern

# Ollama 0.11 to 0.32 (ollama#12064, #17638): error parsing tool call: raw='<arguments>', err=<Go error>
_OLLAMA_PREFIX = lazy_pattern(r"error parsing tool call: raw='", re.IGNORECASE)
_OLLAMA_SUFFIX = "', err="
# llama.cpp (llama.cpp#23838): Failed to parse input at pos <n>: <the reply from there on, or all of it>
_LLAMACPP_PREFIX = lazy_pattern(r"failed to parse input at pos \d+: ?", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Salvage:
    """Model text found in an error: a call's `arguments` without its name, or `reply` text."""

    kind: Literal["arguments", "reply"]
    text: str


def introduces_model_text(text: str) -> bool:
    """Whether the start of an error text says that the model's text follows."""
    return any(prefix.search(text, 0, SEARCHED_HEAD) for prefix in (_OLLAMA_PREFIX, _LLAMACPP_PREFIX))


def salvage(text: str) -> Salvage | None:
    """Return the model's text inside an error text; None if there is none.

    What introduces it is looked for where the failure rules look first, so a long text is searched for its end only.
    """
    if match := _OLLAMA_PREFIX.search(text, 0, SEARCHED_HEAD):
        start = match.end()
        end = text.rfind(_OLLAMA_SUFFIX)
        # without the suffix the error text itself was cut, so the arguments may lack their end
        return Salvage("arguments", text[start:end]) if end >= start else None
    if match := _LLAMACPP_PREFIX.search(text, 0, SEARCHED_HEAD):
        raw = text[match.end() :]
        return Salvage("reply", raw) if raw.strip() else None
    return None
