"""LM Studio, for models without a format of their own: JSON between `[TOOL_REQUEST]` and `[END_TOOL_REQUEST]`.

In LM Studio, MiniMax models write `[TOOL_CALL]`, and arrows instead of JSON:

    [TOOL_CALL]
    {tool => "get_weather", args => {
      --city "Oslo"
    }}
    [/TOOL_CALL]

Calls in Python's syntax occur too. Source: lmstudio.ai/docs, tool use (2024-12); reports of MiniMax M2 under LM Studio
(2025-11).
"""

from __future__ import annotations

import json
from typing import Any

from promptools.dialects.calls.bare_values import read_parameter
from promptools.dialects.calls.envelope import JsonNode, UnresolvedCall
from promptools.dialects.calls.json_body import call_part, unreadable_part
from promptools.dialects.calls.parse_options import Evidence, ParseOptions
from promptools.dialects.calls.resolve import resolve_call
from promptools.dialects.declared import DeclaredDialect
from promptools.dialects.readers.block_markers import Closers
from promptools.dialects.readers.json_block import JsonBlockReader
from promptools.dialects.readers.marked_json import MarkedJson
from promptools.dialects.readers.marked_python import CallsOrJson, begins_offered_call, marker_head
from promptools.dialects.readers.python_reader import CallLayout, PythonFallbackReader
from promptools.dialects.table import read_family
from promptools.json_values import parse_finite_float, reject_constant
from promptools.parsing.parts import Candidate, Part
from promptools.patterns import lazy_pattern
from promptools.types import Fix, MalformedReason

ARROWS = "[TOOL_CALL]"
_ENDS = {"[TOOL_REQUEST]": "[END_TOOL_REQUEST]", ARROWS: "[/TOOL_CALL]"}
_PYTHON = {opener: CallLayout(closers=(closer,), one_per_line=True) for opener, closer in _ENDS.items()}
"""Maps each opener to the `CallLayout` of the Python calls that may follow it."""
_CALL = lazy_pattern(r"""\{\s*tool\s*=>\s*(["'])([^"'\n]{1,128})\1\s*,\s*args\s*=>\s*""")
_KEY = lazy_pattern(r"\s*,?\s*--([\w.-]{1,128})(?:\s+|=)")
_NEXT = lazy_pattern(r"[\n{}]|,?\s--[\w.-]{1,128}[\s=]")
"""Matches the text that ends a value without quotes: a line break, a brace, or the next `--key`."""
_END = lazy_pattern(r"\s*,?\s*\}\s*\}\Z")
_FIX = Fix("json", "arrows and dashes instead of JSON")
_DECODER = json.JSONDecoder(strict=False, parse_constant=reject_constant, parse_float=parse_finite_float)


class LmStudio(MarkedJson):
    """The dialect of LM Studio: `[TOOL_REQUEST]{...}[END_TOOL_REQUEST]`."""

    def candidate(self, head: str, options: ParseOptions, evidence: Evidence, *, definite: bool) -> Candidate:
        """Return a `Candidate` for the text after the marker `head`: JSON, arrows, or calls in Python's syntax."""
        opener = head[: head.index("]") + 1]
        return CallsOrJson(
            head,
            lambda: PythonFallbackReader(head, _PYTHON[opener], options, evidence, definite=definite),
            lambda: self._json(head, options, evidence, definite=definite),
            definite=definite,
        )

    def _json(self, head: str, options: ParseOptions, evidence: Evidence, *, definite: bool) -> Candidate:
        if head.startswith(ARROWS):
            return ArrowCandidate(head, self.closers_of(ARROWS), options, evidence, definite=definite)
        return super().candidate(head, options, evidence, definite=definite)


class ArrowCandidate(JsonBlockReader):
    """Reads a call that is JSON, or that is written with arrows instead: `{tool => "NAME", args => {...}}`."""

    def __init__(
        self, head: str, closers: Closers, options: ParseOptions, evidence: Evidence, *, definite: bool
    ) -> None:
        super().__init__(head, closers, options, evidence, definite=definite)
        self._context = options, evidence

    def read_unusual(self, raw: str) -> list[Part] | None:
        """Return the parts of a call that is written with arrows; None for any other text."""
        call = _CALL.match(raw)
        if call is None:
            return None
        members = read_arrows(raw, call.end(), call[2], self._context[0])
        if members is None:
            whole = raw.rstrip().endswith("}")
            reason: MalformedReason = "invalid_json" if whole else "truncated"
            return [unreadable_part(raw, *self._context, reason, "its arguments cannot be read", call[2])]
        values = JsonNode(members, raw, 0, len(raw), exact=False)
        return [call_part(resolve_call(UnresolvedCall(values, call[2], values, {}, (_FIX,)), *self._context), raw)]


def read_arrows(raw: str, at: int, tool: str, options: ParseOptions) -> dict[str, Any] | None:
    """Return the `--key value` pairs from `raw[at]` on, up to the closing braces; None for any other text. O(n)."""
    values: dict[str, Any] = {}
    if raw[at : at + 1] != "{":
        return None
    at += 1
    while (key := _KEY.match(raw, at)) is not None:
        try:
            values[key[1]], at = _DECODER.raw_decode(raw, key.end())
        except (ValueError, RecursionError):
            delimiter = _NEXT.search(raw, key.end())
            if delimiter is None or delimiter[0] == "{":
                return None
            values[key[1]] = read_parameter(options, tool, key[1], raw[key.end() : delimiter.start()].strip())[0]
            at = delimiter.start()
    return values if _END.match(raw, at) else None


def lmstudio() -> DeclaredDialect:
    """Return the dialect of LM Studio."""
    dialect = read_family("lmstudio", LmStudio)
    dialect.heads += tuple(marker_head(opener)._replace(begins=begins_offered_call) for opener in _PYTHON)
    return dialect
