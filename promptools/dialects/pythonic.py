"""Pythonic: a list of Python calls, as Llama 3.2 and 4, ToolACE and many fine-tunes on BFCL's format are trained.

    [get_weather(city="Oslo", days=2), ping()]

Llama 4 may put it between `<|python_start|>` and `<|python_end|>`. Bare, its marker is a bracket: tier B.
Source: Llama 4 and Llama 3.2 prompt formats (Meta, 2025-04, 2024-09), the model card of ToolACE-8B (2024-08).
"""

from __future__ import annotations

import re

from promptools.dialects.base import Head, Tier
from promptools.dialects.blocks.wrapped import Closers, WrappedCandidate
from promptools.dialects.pycalls import quoted
from promptools.dialects.pycalls.calls import CallBlock
from promptools.dialects.pycalls.heads import SPACED, Either, marked
from promptools.dialects.pycalls.marked import MarkedCalls
from promptools.dialects.pycalls.names import PROGRAM, plain
from promptools.dialects.pycalls.parts import Layout
from promptools.dialects.settle import PLAUSIBLE_NAME, Place, Rules
from promptools.dialects.tool_code import LABEL
from promptools.parsing.parts import Candidate

LIST = rf"\[\s{{0,64}}+(?:\Z|{SPACED}(?:\Z|\())"
BARE = Layout(brackets=True, spaced=True)
_BETWEEN = Layout(right=("<|python_end|>",), spaced=True, lines=True)
_TAGGED = Layout(right=("</tool_call>",), spaced=True, lines=True)
_CLOSERS = Closers(right=_BETWEEN.right, wrong=(), openers=("<|python_start|>",))
FENCES = (None, "", "json", "tool_call", LABEL)
_DATA = (None, "", "json")
_NAME = re.compile(r"\[\s*([^(]*)\(")


def list_begins(text: str, start: int, end: int, *, fresh: bool, rules: Rules) -> bool | None:
    """Whether a bracket begins a list of calls: of an offered tool, or of any if no text came before."""
    named = _NAME.fullmatch(text, start, end)
    if named is None:
        return None
    if rules.tools is None:
        return fresh and PLAUSIBLE_NAME.match(plain(named[1].strip())) is not None
    return rules.tools.find(plain(named[1])) is not None


def _program_begins(text: str, start: int, end: int, *, fresh: bool, rules: Rules) -> bool | None:
    """Whether such a list begins in a code fence for programs, which must be the whole reply."""
    return fresh and list_begins(text, start, end, fresh=fresh, rules=rules)


class Pythonic(MarkedCalls):
    """`[get_weather(city="Oslo"), ping()]`."""

    name = "pythonic"
    models = "Llama 3.2, Llama 4, ToolACE, Gemma 3, fine-tunes on BFCL"
    tier: Tier = "B"
    heads = (
        marked("<|python_start|>", json=True, spaced=True, tier="S"),
        marked("<tool_call>", tier="A"),
        Head(("[",), LIST, opens="", gate=LIST, begins=list_begins, labels=FENCES),
        Head(("[",), LIST, opens="", gate=LIST, begins=_program_begins, first=True, labels=PROGRAM),
        quoted.head(_DATA),
    )
    closers = ("<|python_end|>",)
    opener, closer, between = "[", "]", ", "
    naming = "Write each argument with its name, as a literal."

    def candidate(self, head: str, rules: Rules, place: Place, *, firm: bool) -> Candidate:
        """Read from the list, or from its first call."""
        if head == '"':
            return quoted.QuotedCalls(rules, place, firm=firm)
        if not head:
            return CallBlock(head, BARE, rules, place, firm=firm)
        if head.startswith("<tool"):
            return CallBlock(head, _TAGGED, rules, place, firm=firm)
        return Either(
            head,
            lambda: CallBlock(head, _BETWEEN, rules, place, firm=firm),
            lambda: WrappedCandidate(head, _CLOSERS, rules, place, firm=firm),
            firm=firm,
        )

    def explain(self, *, parallel: bool) -> str:
        """Return the instructions for writing a call."""
        how_many = "one or more functions" if parallel else "one function"
        return f"""You can call {how_many}. To do so, answer with nothing but a list of calls in Python's syntax:

[function_name(parameter="value", other=2)]"""
