"""The kind `python`: calls in Python's syntax between two markers, or after a label that begins a line."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar, Unpack

from promptools.dialects.calls.resolve import Evidence, ParseOptions
from promptools.dialects.contract import Head
from promptools.dialects.declared import CommonKeys, DeclaredDialect
from promptools.dialects.prefix_patterns import label_gate, literal_text
from promptools.dialects.readers.python_calls.python_heads import CALLEE, begins_with_marker, marker_head
from promptools.dialects.readers.python_calls.python_parts import CallLayout
from promptools.dialects.readers.python_calls.python_reader import PythonCallReader
from promptools.dialects.rendering.python_text import python_calls
from promptools.dialects.rendering.templates import Instructions
from promptools.parsing.parts import Candidate
from promptools.types import Call

EXAMPLE = 'function_name(parameter="value", other=2)'
PYTHON_TEXTS: CommonKeys = {
    "tool": "{function}",
    "tools": ("[", ",\n", "]"),
    "result": "{name} returned:\n{content}",
    "error": "{name} failed:\n{content}",
    "results": ("", "\n\n", ""),
}


class MarkedPythonCalls(DeclaredDialect):
    """Calls in Python's syntax after a marker.

    `openers`: maps each opening marker to its closing marker, which is empty where there is none; the first pair is the
    one that is written. `at_line_start`: the openers are words of prose too, and count only at the beginning of a line.
    `spaces`: the text after the opening and before the closing marker; `separator`: the text between two calls.
    `closer_is_final`: the closing marker cannot be prose, so that anything may follow it.
    """

    wording: ClassVar = Instructions(
        text="""{format}

Name each argument, and write its value as a literal of Python. {when}

The functions are:

{tools}""",
        parallel="Write one call a line to call several.",
        single="Call one function at a time.",
        required="You must call a function in this turn.",
        optional="If no function is needed, answer in plain text.",
    )

    def __init__(
        self,
        name: str,
        openers: Mapping[str, str],
        *,
        at_line_start: bool = False,
        spaces: Sequence[str] = ("", ""),
        separator: str = "\n",
        closer_is_final: bool = False,
        **common: Unpack[CommonKeys],
    ) -> None:
        closing = tuple(dict.fromkeys(filter(None, openers.values())))
        opener, closer = next(iter(openers.items()))
        self._before, self._after = f"{opener}{spaces[0]}", f"{spaces[1]}{closer}"
        between = f"write the call between these tags, and nothing after them:\n\n{self._before}{EXAMPLE}{self._after}"
        instructions = {
            "format": f"You can call functions. To do so, {between}\n\n{{how_many}}",
            **common.get("instructions", {}),
        }
        keys: CommonKeys = {**PYTHON_TEXTS, "closers": closing, **common, "instructions": instructions}
        super().__init__(name, **keys)
        self._separator = separator
        self.heads = tuple(map(_line_head, openers)) if at_line_start else (marker_head(*openers),)
        self._layout = CallLayout(
            closers=closing,
            brackets=False if at_line_start else None,
            one_per_line=bool(closing),
            closer_is_final=closer_is_final,
        )

    def candidate(self, head: str, rules: ParseOptions, place: Evidence, *, definite: bool) -> Candidate:
        """Start reading at the first call, or at the bracket before it."""
        return PythonCallReader(head, self._layout, rules, place, definite=definite)

    def render_calls(self, calls: Sequence[Call]) -> str:
        """Write calls in the model's own format."""
        return f"{self._before}{self._separator.join(python_calls(calls))}{self._after}" if calls else ""


def _line_head(label: str) -> Head:
    """Return the head of calls after a label at the beginning of a line."""
    return Head(
        (label,),
        rf"{literal_text(label)}(?:\Z|[ \t]{{0,8}}+(?:(?={CALLEE}\()|\Z|{CALLEE}\Z))",
        body_starts="c",
        gate=label_gate(label.split(maxsplit=1)[0]),
        begins=begins_with_marker,
        at_line_start=True,
        unindented=True,
    )
