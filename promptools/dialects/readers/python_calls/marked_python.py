"""The kind `python`: calls in Python's syntax between two markers, or after a label that begins a line."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar, Unpack

from promptools.dialects.calls.resolve import Evidence, ParseOptions
from promptools.dialects.contract import Head
from promptools.dialects.declared import CommonKeys, DeclaredDialect
from promptools.dialects.prefix_patterns import label_gate, literal_text
from promptools.dialects.readers.json_block.block_reader import Closers, JsonBlockReader
from promptools.dialects.readers.python_calls.python_heads import (
    BARE_LIST,
    CALLEE,
    CallsOrJson,
    begins_with_marker,
    list_head,
    marker_head,
)
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
    one that is written. `also`: closing markers that other writers use. `at_line_start`: the openers are words of prose
    too, and count only at the beginning of a line. `spaces`: the text after the opening and before the closing marker;
    `separator`: the text between two calls. `json`: objects may be between the markers, too. `bare_list`: a list of
    calls is read without its markers, too, where the request asked for the dialect. `statements`: a program is between
    the markers, and each of its statements calls a tool; it is read only in lenient parsing, or if the request asked
    for it. `repeats`: the calls may be repeated after their closing marker, with another one. `closer_is_final`: the
    closing marker cannot be prose, so that anything may follow it.
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
        also: Sequence[str] = (),
        at_line_start: bool = False,
        spaces: Sequence[str] = ("", ""),
        separator: str = "\n",
        json: bool = False,
        bare_list: bool = False,
        statements: bool = False,
        repeats: bool = False,
        closer_is_final: bool = False,
        **common: Unpack[CommonKeys],
    ) -> None:
        closing = tuple(dict.fromkeys(filter(None, (*openers.values(), *also))))
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
        if at_line_start:
            heads = tuple(map(_line_head, openers))
        elif statements:
            heads = tuple(map(self._program_head, openers))
        else:
            heads = (marker_head(*openers, json=json, spaced=True, tier=self.tier),)
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
        self._json_closers = Closers(right=closing, wrong=(), openers=tuple(openers)) if json else None

    def candidate(self, head: str, rules: ParseOptions, place: Evidence, *, definite: bool) -> Candidate:
        """Start reading at the first call, or at the bracket before it."""
        closers = self._json_closers
        if not head:
            return PythonCallReader(head, BARE_LIST, rules, place, definite=definite)
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

    def _program_head(self, opener: str) -> Head:
        """Return the head of a program after a marker."""

        def begins(text: str, start: int, end: int, *, fresh: bool, rules: ParseOptions) -> bool | None:
            if rules.strictness != "lenient" and rules.expect != self.name:
                return False
            return begins_with_marker(text, start, end, fresh=fresh, rules=rules)

        pattern = rf"{literal_text(opener)}(?:\Z|\s{{0,64}}+(?:\Z|(?=[A-Za-z_#])))"
        return Head((opener,), pattern, body_starts="c", begins=begins)


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
