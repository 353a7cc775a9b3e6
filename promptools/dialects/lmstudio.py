"""LM Studio, for models without a format of their own: JSON between `[TOOL_REQUEST]` and `[END_TOOL_REQUEST]`.

MiniMax models there write `[TOOL_CALL]`, and arrows instead of JSON:

    [TOOL_CALL]
    {tool => "get_weather", args => {
      --city "Oslo"
    }}
    [/TOOL_CALL]

Calls in Python's syntax occur there too. Source: lmstudio.ai/docs, tool use (2024-12); reports of MiniMax M2 under LM
Studio (2025-11).
"""

from __future__ import annotations

import json
import re
from typing import Any

from promptools.dialects.blocks.marked import Marked
from promptools.dialects.blocks.markers import Closers
from promptools.dialects.blocks.wrapped import WrappedCandidate
from promptools.dialects.body import part_of, unreadable
from promptools.dialects.envelope import Node, Said
from promptools.dialects.pycalls.heads import Either, marked, offered
from promptools.dialects.pycalls.instead import InsteadBlock
from promptools.dialects.pycalls.parts import Layout
from promptools.dialects.settle import Place, Rules, settle
from promptools.dialects.values import value_of
from promptools.parsing.parts import Candidate, Part
from promptools.types import Fix, MalformedReason

ARROWS = "[TOOL_CALL]"
_ENDS = {"[TOOL_REQUEST]": "[END_TOOL_REQUEST]", ARROWS: "[/TOOL_CALL]"}
_PYTHON = {opener: Layout(right=(closer,), lines=True) for opener, closer in _ENDS.items()}
"""The layout of calls in Python's syntax after each opener."""
_CALL = re.compile(r"""\{\s*tool\s*=>\s*(["'])([^"'\n]{1,128})\1\s*,\s*args\s*=>\s*""")
_KEY = re.compile(r"\s*,?\s*--([\w.-]{1,128})(?:\s+|=)")
_NEXT = re.compile(r"[\n{}]|,?\s--[\w.-]{1,128}[\s=]")
"""Ends a bare value."""
_END = re.compile(r"\s*,?\s*\}\s*\}\Z")
_FIX = Fix("json", "arrows and dashes instead of JSON")
_DECODER = json.JSONDecoder(strict=False)


class LmStudio(Marked):
    """`[TOOL_REQUEST]{...}[END_TOOL_REQUEST]`."""

    def __init__(self) -> None:
        super().__init__(
            "lmstudio",
            _ENDS,
            models="any model under LM Studio that has no format of its own",
        )
        self.heads = (*self.heads, *(marked(opener)._replace(begins=offered) for opener in _PYTHON))

    def candidate(self, head: str, rules: Rules, place: Place, *, firm: bool) -> Candidate:
        """Read from the opening bracket."""
        opener = head[: head.index("]") + 1]
        return Either(
            head,
            lambda: InsteadBlock(head, _PYTHON[opener], rules, place, firm=firm),
            lambda: self._json(head, rules, place, firm=firm),
            firm=firm,
        )

    def _json(self, head: str, rules: Rules, place: Place, *, firm: bool) -> Candidate:
        if head.startswith(ARROWS):
            return ArrowCandidate(head, self.closers_of(ARROWS), rules, place, firm=firm)
        return super().candidate(head, rules, place, firm=firm)


class ArrowCandidate(WrappedCandidate):
    """A block whose body may be written with arrows."""

    def __init__(self, head: str, closers: Closers, rules: Rules, place: Place, *, firm: bool) -> None:
        super().__init__(head, closers, rules, place, firm=firm)
        self._against = rules, place

    def other(self, raw: str) -> list[Part] | None:
        """Read a body written with arrows; None if it is something else."""
        call = _CALL.match(raw)
        if call is None:
            return None
        members = arguments(raw, call.end(), call[2], self._against[0])
        if members is None:
            whole = raw.rstrip().endswith("}")
            reason: MalformedReason = "invalid_json" if whole else "truncated"
            return [unreadable(raw, *self._against, reason, "its arguments cannot be read", call[2])]
        values = Node(members, raw, 0, len(raw), exact=False)
        return [part_of(settle(Said(values, call[2], values, {}, (_FIX,)), *self._against), raw)]


def arguments(raw: str, at: int, tool: str, rules: Rules) -> dict[str, Any] | None:
    """Read `--key value` from `raw[at]` to the last two brackets; None for anything else. O(n) in characters."""
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
            values[key[1]] = value_of(rules, tool, key[1], raw[key.end() : delimiter.start()].strip())[0]
            at = delimiter.start()
    return values if _END.match(raw, at) else None
