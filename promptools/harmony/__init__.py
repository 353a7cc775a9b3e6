"""Harmony, the format of gpt-oss: written and read without a tokenizer."""

from __future__ import annotations

from importlib import import_module as _import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from promptools.harmony.transcript import Heard, Parsed, StreamParser, parse, parse_ids, parse_trace

__all__ = ["Heard", "Parsed", "StreamParser", "parse", "parse_ids", "parse_trace"]


def __getattr__(name: str) -> Any:
    """Load the reader of transcripts when it is first named: a reply is looked at for Harmony without it."""
    if name in __all__:
        return getattr(_import_module("promptools.harmony.transcript"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
