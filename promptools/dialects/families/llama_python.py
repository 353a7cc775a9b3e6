"""Llama's `<|python_tag|>` and a call to a built-in tool, or to an app's tool in an `ipython` environment.

    <|python_tag|>brave_search.call(query="oslo weather")<|eom_id|>
    <|python_tag|>get_weather(city="Oslo")

Code for an interpreter may follow the same tag. If a code interpreter is offered, this code is a call to it
(`promptools.dialects.readers.free_text`). If not, only calls may follow the tag. A name such as
`brave_search.call` directly after the tag is taken as the name of a built-in tool, not as code. So this tool need not
be offered, and content may follow the call. Source: Llama 3.1 prompt format (Meta, 2024-07).
"""

from __future__ import annotations

from promptools.dialects.calls.parse_options import Evidence, ParseOptions
from promptools.dialects.contract import Head
from promptools.dialects.declared import DeclaredDialect
from promptools.dialects.prefix_patterns import literal_text, sequence
from promptools.dialects.readers.free_text import CODE_ALIAS, CodeCandidate, find_interpreter
from promptools.dialects.readers.marked_python import (
    MarkedPythonCalls,
    begins_offered_call,
    begins_with_marker,
    marker_head,
)
from promptools.dialects.readers.python_reader import CallLayout, PythonCallReader
from promptools.dialects.table import read_family
from promptools.parsing.parts import NEED_MORE, Candidate, NeedMore
from promptools.patterns import lazy_pattern

_TAG = "<|python_tag|>"
_MARKER = lazy_pattern(r"<\|python_tag\|>(?P<name>)")
_BUILT_IN_CALL = lazy_pattern(r"\w+\.call[ \t]{0,8}\(")


def _calls_begin(text: str, start: int, end: int, *, fresh: bool, options: ParseOptions) -> bool | NeedMore:
    """Return whether calls follow the tag. If an interpreter is offered, a call to an unknown tool is code."""
    if find_interpreter(options.tools) is None or _BUILT_IN_CALL.match(text, end):
        return begins_with_marker(text, start, end, fresh=fresh, options=options)
    return begins_offered_call(text, start, end, fresh=fresh, options=options)


def _code_begins(text: str, start: int, end: int, *, fresh: bool, options: ParseOptions) -> bool | NeedMore:
    """Return whether code follows the tag, which is possible if a code interpreter is offered."""
    del start, fresh
    if find_interpreter(options.tools) is None:
        return False
    return NEED_MORE if end == len(text) else text[end] not in "{["


HEADS = (
    marker_head(_TAG)._replace(begins=_calls_begin),
    Head((_TAG,), sequence(literal_text(_TAG), r"\s{0,16}"), body_starts="", begins=_code_begins, alias=CODE_ALIAS),
)
_LAYOUT = CallLayout(one_per_line=True, whole_reply=True)


class LlamaPython(MarkedPythonCalls):
    """The dialect of Llama's Python tag: `<|python_tag|>brave_search.call(query="oslo weather")`."""

    def candidate(self, head: str, options: ParseOptions, evidence: Evidence, *, definite: bool) -> Candidate:
        """Return a `Candidate` that reads the calls after the tag or, for code, the tag and the code."""
        if head == CODE_ALIAS:
            return CodeCandidate(_MARKER, options, evidence, definite=definite)
        return _TaggedCall(head, _LAYOUT, options, evidence._replace(sentinel=False), definite=definite)


def llama_python() -> DeclaredDialect:
    """Return the dialect of Llama's `<|python_tag|>`."""
    dialect = read_family("llama_python", LlamaPython)
    dialect.heads = HEADS
    return dialect


class _TaggedCall(PythonCallReader):
    """Reads calls after `<|python_tag|>`. Content may follow only a call whose name ends in `.call`."""

    def _match_callee(self, text: str, at: int) -> tuple[str, int]:
        name, end = super()._match_callee(text, at)
        if _BUILT_IN.search(name):
            self._evidence = self._evidence._replace(sentinel=True)
        elif self._evidence.sentinel and text[end - 1] == "(" and not self._is_offered(name):
            return "", at  # content or a program, after a call that counts
        return name, end

    def _is_offered(self, name: str) -> bool:
        return self._options.tools is not None and self._options.tools.find(name) is not None


_BUILT_IN = lazy_pattern(r"\w\.call\Z")
