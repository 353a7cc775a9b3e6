"""The kind `python`: calls in Python's syntax between two markers, or after a label that begins a line."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import ClassVar, Unpack

from promptools.dialects.calls.parse_options import Evidence, ParseOptions
from promptools.dialects.contract import Head
from promptools.dialects.declared import CommonKeys, DeclaredDialect
from promptools.dialects.readers.json_block.block_markers import Closers
from promptools.dialects.readers.json_block.block_reader import JsonBlockReader
from promptools.dialects.readers.python_calls.python_heads import (
    BARE_LIST,
    CallsOrJson,
    fence_heads,
    label_head,
    list_head,
    marker_head,
    program_head,
)
from promptools.dialects.readers.python_calls.python_parts import FENCE, CallLayout
from promptools.dialects.readers.python_calls.python_reader import PythonCallReader
from promptools.dialects.rendering.python_text import python_calls
from promptools.dialects.rendering.templates import Instructions
from promptools.parsing.parts import Candidate
from promptools.types import Call

PYTHON_TEXTS: CommonKeys = {
    "tool": "{function}",
    "tools": ("[", ",\n", "]"),
    "result": "{name} returned:\n{content}",
    "error": "{name} failed:\n{content}",
    "results": ("", "\n\n", ""),
}


@lru_cache(maxsize=8)
def fence_layout(run: str) -> CallLayout:
    """Return the layout of a program in a code fence that was opened by `run`."""
    return CallLayout(closers=(run,), one_per_line=True, statements=True)


def _with_texts(common: CommonKeys, separator: str) -> CommonKeys:
    """Return the keys with the kind's texts for those that are missing; `separator` is between two calls."""
    several = (
        "Write one call a line to call several."
        if separator == "\n"
        else "Several calls are written like this:\n\n{calls}"
    )
    instructions = {"parallel": several, **common.get("instructions", {})}
    return {**PYTHON_TEXTS, **common, "instructions": instructions}


class MarkedPythonCalls(DeclaredDialect):
    """Calls in Python's syntax. The arguments are the keys of the kind, in `promptools.dialects.table_kinds`."""

    wording: ClassVar = Instructions(
        text="""{format}

Name each argument, and write its value as a literal of Python. {when}

The functions are:

{tools}""",
        format="You can call functions. To do so, write a call like this, and nothing after it:"
        "\n\n{call}\n\n{how_many}",
        single="Call one function at a time.",
        required="You must call a function in this turn.",
        optional="If no function is needed, answer in plain text.",
    )

    def __init__(
        self,
        name: str,
        openers: Mapping[str, str],
        *,
        also: Sequence[str] = (),
        at_line_start: bool = False,
        spaces: Sequence[str] = ("", ""),
        separator: str = "\n",
        json: bool = False,
        bare_list: bool = False,
        statements: bool = False,
        repeats: bool = False,
        closer_is_final: bool = False,
        fence_label: str = "",
        **common: Unpack[CommonKeys],
    ) -> None:
        closing = tuple(dict.fromkeys(filter(None, (*openers.values(), *also))))
        opener, closer = next(iter(openers.items()))
        self._before, self._after = f"{opener}{spaces[0]}", f"{spaces[1]}{closer}"
        self._fenced = opener.startswith(FENCE)
        alone = () if self._fenced else closing  # the end of a fence is also the beginning of one
        keys: CommonKeys = {"closers": alone, **_with_texts(common, separator)}
        super().__init__(name, **keys)
        self._separator = separator
        self._fence_label = fence_label
        heads = self._make_heads(openers, json=json, at_line_start=at_line_start, statements=statements)
        self.heads = (*heads, *([list_head(tier="B", on_request=True)] if bare_list else []))
        self._layout = CallLayout(
            closers=closing,
            brackets=False if at_line_start or statements else None,
            one_per_line=bool(closing),
            spaced_names=True,
            statements=statements,
            may_repeat=repeats,
            closer_is_final=closer_is_final,
        )
        self._layout_in_fence = replace(self._layout, fenced=True)
        self._json_closers = Closers(right=closing, wrong=(), openers=tuple(openers)) if json else None

    def _make_heads(
        self, openers: Iterable[str], *, json: bool, at_line_start: bool, statements: bool
    ) -> tuple[Head, ...]:
        if self._fenced:
            return fence_heads(next(iter(openers)).removeprefix(FENCE))
        if at_line_start:
            return tuple(map(label_head, openers))
        if statements:
            return tuple(program_head(marker, self.name) for marker in openers)
        return (marker_head(*openers, json=json, spaced=True, tier=self.tier, fence_label=self._fence_label),)

    def candidate(self, head: str, rules: ParseOptions, place: Evidence, *, definite: bool) -> Candidate:
        """Start reading at the first call, or at the bracket before it."""
        closers = self._json_closers
        if self._fenced:  # the label is as much evidence as a tag
            run = head[: len(head) - len(head.lstrip(head[:1]))] or FENCE
            definite = definite or rules.strictness != "strict"
            return PythonCallReader(head, fence_layout(run), rules, place, definite=definite)
        if not head:
            return PythonCallReader(head, BARE_LIST, rules, place, definite=definite)
        if self._fence_label and FENCE in head:
            return PythonCallReader(head, self._layout_in_fence, rules, place, definite=definite)
        if closers is None:
            return PythonCallReader(head, self._layout, rules, place, definite=definite)
        return CallsOrJson(
            head,
            lambda: PythonCallReader(head, self._layout, rules, place, definite=definite),
            lambda: JsonBlockReader(head, closers, rules, place, definite=definite),
            definite=definite,
        )

    def render_calls(self, calls: Sequence[Call]) -> str:
        """Write calls in the model's own format."""
        return f"{self._before}{self._separator.join(python_calls(calls))}{self._after}" if calls else ""
