"""Bare values of Gemma's objects, which may be strings whose special tokens were stripped."""

from __future__ import annotations

from math import isfinite
from typing import Final

from promptools.dialects.calls.bare_values import read_typed
from promptools.dialects.readers.literals.python_arguments import LiteralError
from promptools.jsontext.text import FixLog, dump
from promptools.patterns import lazy_pattern

STRING_DELIMITERS: Final = ('<|"|>', "<escape>")
"""Tokens around a string: Gemma 4's and FunctionGemma's."""
CROSSED = lazy_pattern(r"<\||\|>|<(?:start|end)_function_call>|\}\s{0,16}+call:")
"""What a string with a guessed end must not hold: tokens, or the next call."""
_NUMBER = lazy_pattern(r"-?(?:0|[1-9]\d{0,300}+)(?:\.\d++)?+(?:[eE][+-]?\d++)?+")
_SINGLE = lazy_pattern(r"'[^'\\]*+'")


def read_bare_value(text: str, types: frozenset[str], fix_log: FixLog, at: int) -> str:
    """Return a bare value that ends at offset `at` as JSON; `types`: those of its schema. Raise `LiteralError`."""
    for delimiter in STRING_DELIMITERS:
        if text.endswith(delimiter):
            text = text.removesuffix(delimiter)
            fix_log.add("no delimiter before a string", "marker")
        if delimiter in text:
            raise LiteralError("a delimiter is in a value", start=at)
    if CROSSED.search(text):
        raise LiteralError("a broken delimiter is in a value", start=at)
    if not text:
        raise LiteralError("a value is missing", start=at)
    if (not types or "number" in types) and _NUMBER.fullmatch(text) and isfinite(float(text)):
        return text
    if _SINGLE.fullmatch(text):
        fix_log.add("single quotes")
        return dump(text[1:-1])
    value, fixes = read_typed(text, types)
    for fix in fixes:
        fix_log.add(fix.detail, fix.kind)
    if isinstance(value, str):
        fix_log.add("no delimiters around a string", "marker")
    return dump(value)
