"""Harmony, the format of gpt-oss: rendered and parsed without a tokenizer.

Parsing: text or token ids are split into control tokens and the text between them (`tokens`). These become items: the
beginning, the content and the end of each message (`parser`, with `messages`, `quotes` and `stripped_headers`). The
items are assembled into messages (`transcript`).

Rendering: a request becomes a `conversation`, which is rendered (`renderer`, `tool_declarations`, `recipients`).
"""

from __future__ import annotations

from importlib import import_module as _import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from promptools.harmony.bpe_vocabulary import load_encode
    from promptools.harmony.conversation import Options
    from promptools.harmony.prompts import count_tokens, render_ids, render_text
    from promptools.harmony.renderer import Part
    from promptools.harmony.transcript import (
        Deviation,
        Examination,
        Parsed,
        ParsedMessage,
        StreamParser,
        examine,
        parse,
        parse_ids,
        parse_trace,
    )

__all__ = [
    "Deviation",
    "Examination",
    "Options",
    "Parsed",
    "ParsedMessage",
    "Part",
    "StreamParser",
    "count_tokens",
    "examine",
    "load_encode",
    "parse",
    "parse_ids",
    "parse_trace",
    "render_ids",
    "render_text",
]

_HOMES = {
    "Options": "conversation",
    "Part": "renderer",
    "count_tokens": "prompts",
    "load_encode": "bpe_vocabulary",
    "render_ids": "prompts",
    "render_text": "prompts",
}
"""Maps each exported name to the module that defines it, except for names from `transcript`."""


def __getattr__(name: str) -> Any:
    """Import the parser or the renderer on first use, since detecting Harmony in a reply needs neither."""
    if name in __all__:
        return getattr(_import_module(f"promptools.harmony.{_HOMES.get(name, 'transcript')}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
