"""Llama's Python tag with a call after it: a built-in tool, or one of the app's in an `ipython` environment.

    <|python_tag|>brave_search.call(query="oslo weather")<|eom_id|>
    <|python_tag|>get_weather(city="Oslo")

The same tag may precede code for an interpreter, which is a call if such a tool is offered
(`promptools.dialects.interpreter`); otherwise nothing but calls may follow the tag. A name that ends in `.call` is not
a program's: content may follow such a call, and its tool need not be offered.
Source: Llama 3.1 prompt format (Meta, 2024-07).
"""

from __future__ import annotations

import re

from promptools.dialects.base import Head, Tier
from promptools.dialects.interpreter import CODE, CodeCandidate, interpreter
from promptools.dialects.openings import then, token
from promptools.dialects.pycalls.calls import CallBlock
from promptools.dialects.pycalls.heads import behind, marked, offered
from promptools.dialects.pycalls.marked import MarkedCalls
from promptools.dialects.pycalls.parts import Layout
from promptools.dialects.settle import Place, Rules
from promptools.parsing.parts import Candidate

_TAG = "<|python_tag|>"
_MARKER = re.compile(r"<\|python_tag\|>(?P<name>)")
_BUILT_IN_CALL = re.compile(r"\w+\.call[ \t]{0,8}\(")


def _calls(text: str, start: int, end: int, *, fresh: bool, rules: Rules) -> bool | None:
    """Whether calls follow the tag: if an interpreter is offered, the name of no offered tool is a program's."""
    if interpreter(rules.tools) is None or _BUILT_IN_CALL.match(text, end):
        return behind(text, start, end, fresh=fresh, rules=rules)
    return offered(text, start, end, fresh=fresh, rules=rules)


def _code(text: str, start: int, end: int, *, fresh: bool, rules: Rules) -> bool | None:
    """Whether code may follow the tag."""
    del start, fresh
    if interpreter(rules.tools) is None:
        return False
    return None if end == len(text) else text[end] not in "{["


class LlamaPython(MarkedCalls):
    """`<|python_tag|>brave_search.call(query="oslo weather")`."""

    name = "llama_python"
    models = "Llama 3.1, 3.2 and 3.3 with built-in tools or an ipython environment"
    tier: Tier = "S"
    heads: tuple[Head, ...] = (
        marked(_TAG)._replace(begins=_calls),
        Head((_TAG,), then(token(_TAG), r"\s{0,16}"), opens="", begins=_code, alias=CODE),
    )
    stop: tuple[str, ...] = ("<|eom_id|>",)
    layout = Layout(lines=True, alone=True)
    opener, between = _TAG, "; "

    def candidate(self, head: str, rules: Rules, place: Place, *, firm: bool) -> Candidate:
        """Read from the call, or from the tag before code."""
        if head == CODE:
            return CodeCandidate(_MARKER, rules, place, firm=firm)
        return _TaggedCall(head, self.layout, rules, place._replace(sentinel=False), firm=firm)

    def explain(self, *, parallel: bool) -> str:
        """Return the instructions for writing a call."""
        how_many = "Write a semicolon between several calls." if parallel else "Call one function at a time."
        return f"""You can call functions. To do so, answer with your Python tag and a call, and nothing after it:

function_name.call(parameter="value", other=2)

{how_many}"""


class _TaggedCall(CallBlock):
    """Calls after the tag, and nothing else unless they are unmistakable."""

    def _named(self, text: str, at: int) -> tuple[str, int]:
        name, end = super()._named(text, at)
        if _BUILT_IN.search(name):
            self._place = self._place._replace(sentinel=True)
        elif self._place.sentinel and text[end - 1] == "(" and not self._is_offered(name):
            return "", at  # content or a program, after a call that counts
        return name, end

    def _is_offered(self, name: str) -> bool:
        return self._rules.tools is not None and self._rules.tools.find(name) is not None


_BUILT_IN = re.compile(r"\w\.call\Z")
