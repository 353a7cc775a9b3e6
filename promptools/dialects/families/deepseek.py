"""DeepSeek V3, R1 and V3.1: `<｜tool▁call▁begin｜>`, with a fence (V3, R1) or without (V3.1).

    <｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>get_weather
    ```json
    {"city": "Oslo"}
    ```<｜tool▁call▁end｜><｜tool▁calls▁end｜>

    <｜tool▁call▁begin｜>get_weather<｜tool▁sep｜>{"city": "Oslo"}<｜tool▁call▁end｜>

One pattern reads both forms: after the separator comes either the tool's name on a separate line, or the arguments.
Source: the tokenizer configurations of DeepSeek-V3 (2024-12), R1 and V3.1 (2025-08); Cogito v2 writes the same.
"""

from __future__ import annotations

import re

from promptools.dialects.calls.parse_options import Evidence, ParseOptions
from promptools.dialects.contract import Head
from promptools.dialects.declared import DeclaredDialect
from promptools.dialects.prefix_patterns import any_of, literal_text, optional_steps, sequence
from promptools.dialects.readers.block_markers import Closers
from promptools.dialects.readers.json_block import JsonBlockReader
from promptools.dialects.readers.marked_json import FENCE, LOST_OPENER, NamedMarkerJson, unopened_head
from promptools.dialects.table import read_family
from promptools.parsing.parts import NEED_MORE, Candidate, NeedMore
from promptools.patterns import lazy_pattern
from promptools.types import Fix

CALLS, CALL, SEP = "<｜tool▁calls▁begin｜>", "<｜tool▁call▁begin｜>", "<｜tool▁sep｜>"
END, ENDS = "<｜tool▁call▁end｜>", "<｜tool▁calls▁end｜>"
RESULT_TOKENS = (
    "<｜tool▁outputs▁begin｜>",
    "<｜tool▁outputs▁end｜>",
    "<｜tool▁output▁begin｜>",
    "<｜tool▁output▁end｜>",
)

_SPELLINGS = (("｜", "▁"), ("｜", "_"), ("｜", " "), ("｜", "\\_"), ("|", "▁"), ("|", " "), ("|", "\\_"))
"""The pairs of bar and space characters that models write in markers.

The pair `|` and `_` is left out, because it makes markers of Kimi K2.
"""


def _spelled(*marks: str) -> tuple[str, ...]:
    """Return markers in every spelling; the spelling that the models are trained on comes first."""
    return tuple(
        dict.fromkeys(mark.replace("｜", bar).replace("▁", space) for bar, space in _SPELLINGS for mark in marks)
    )


_BAR = "[|｜]"
_SPACE = any_of("▁", "_", " ", sequence(r"\\", "_"))
_GAP = r"\s{0,16}"


def _mark(*words: str) -> str:
    """Return the pattern of a marker in all of its spellings."""
    steps = [literal_text("<"), _BAR, literal_text("tool")]
    for word in words:
        steps += [_SPACE, literal_text(word)]
    return sequence(*steps, _BAR, ">")


_OPEN_ALL = any_of(_mark("calls", "begin"), _mark("calls"))
_OPEN_ONE = _mark("call", "begin")
_TYPE = rf"{_GAP}[^<>\n{{]{{0,128}}+{_GAP}"
_LINE = optional_steps(r"[^<>\n{}`]{1,128}", r"[ \t]{0,8}(?:\r?\n)\s{0,16}")
_HEAD = sequence(
    any_of(sequence(_OPEN_ALL, _GAP, optional_steps(_OPEN_ONE)), _OPEN_ONE),
    _TYPE,
    _mark("sep"),
    _GAP,
    _LINE,
    FENCE,
)
_ALONE = r"(?s:.*sep[|｜]>\s*(?:[\w./:-]+[ \t]*\n\s*)?(?:```\w*\s*)?)"
"""Matches all of the text that begins a call: up to the separator, or up to the code fence after the name."""
_NAMES = lazy_pattern(r"(?:<[^<>]*>\s*)*([^<>\n{]*)\s*<[^<>]*>\s*([^<>\n{}`]*)")
_RESIDUE = sequence(
    literal_text("function"),
    r"[^\W\d][\w.-]{0,127}",
    r"[ \t]{0,8}\r?\n",
    "`",
    "`",
    "`",
    optional_steps(literal_text("json")),
    r"\s{0,16}",
)

CLOSERS = Closers(
    right=(END,),
    wrong=(*(mark for mark in _spelled(END, ENDS) if mark != END), "</think>"),
    openers=_spelled(CALL, CALLS),
)
UNMARKED = Closers(right=("```",), wrong=(), openers=())


def _named(text: str, start: int, end: int, *, fresh: bool, options: ParseOptions) -> bool | NeedMore:
    """Return whether `function` and an offered tool's name begin a call whose markers a server has stripped."""
    del fresh
    if options.tools is None:
        return False
    line, newline, _ = text[start + len("function") : end].partition("\n")
    name = line.strip()
    if newline and options.tools.find(name) is None:
        return False
    if end < len(text):
        return text[end] == "{"
    return NEED_MORE if newline or any(offered.startswith(name) for offered in options.tools.all_names) else False


HEADS = (
    Head(("<｜tool", "<|tool"), _HEAD, body_starts="{<", sure_pattern=_ALONE),
    unopened_head(_mark("sep"), _GAP, FENCE),
    Head(("function",), sequence(literal_text("function"), _GAP, _mark("sep"), _GAP, _LINE, FENCE), body_starts="{"),
    Head(("function",), _RESIDUE, body_starts="{", begins=_named, tier="B"),
)


class DeepSeek(NamedMarkerJson):
    """The dialect of DeepSeek: `<｜tool▁call▁begin｜>name<｜tool▁sep｜>{...}<｜tool▁call▁end｜>`."""

    def candidate(self, head: str, options: ParseOptions, evidence: Evidence, *, definite: bool) -> Candidate:
        """Return a `Candidate` that reads the arguments after `head`, the text that begins the call."""
        names = _NAMES.match(head)
        if names is None:
            name = head.partition("\n")[0].removeprefix("function").strip()
            lost = Fix("marker", "the markers around its name are missing")
            return JsonBlockReader(head, UNMARKED, options, evidence, definite=definite, name=name, fixes=[lost])
        kind, line = names[1].strip(), names[2].strip()
        marks = re.findall(r"<[^<>]*>", head)
        misspelled = [mark for mark in marks if mark not in (CALLS, CALL, SEP)]
        fixes = [Fix("marker", f"{misspelled[0]!r} is misspelled")] if misspelled else []
        if not head.startswith("<"):
            fixes.append(Fix("marker", LOST_OPENER))
        return JsonBlockReader(head, CLOSERS, options, evidence, definite=definite, name=line or kind, fixes=fixes)


def deepseek() -> DeclaredDialect:
    """Return the dialect of DeepSeek V3, R1 and V3.1."""
    dialect = read_family("deepseek", DeepSeek)
    dialect.heads = HEADS
    dialect.closers = _spelled(ENDS, END, CALLS)
    dialect.control_tokens = _spelled(CALL, SEP, *RESULT_TOKENS)
    return dialect
