"""Kimi K2: `<|tool_call_begin|>functions.NAME:N<|tool_call_argument_begin|>{...}<|tool_call_end|>` in a section.

    <|tool_calls_section_begin|><|tool_call_begin|>functions.get_weather:0<|tool_call_argument_begin|>{"city": "Oslo"}
    <|tool_call_end|><|tool_calls_section_end|>                                                     (in one line)

The header, `functions.get_weather:0`, is the call's id. Models leave out the tokens of the section, the first or last
token of the call, `functions.`, the number, and sometimes the name. If the name is missing, the arguments must show
which tool is called. Source: moonshotai/Kimi-K2-Instruct, docs/tool_call_guidance.md (2025-07), and Kimi K2 Thinking.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from promptools.dialects.calls.parse_options import Evidence, ParseOptions
from promptools.dialects.contract import NAME_GATE, Head, Textual, Tier
from promptools.dialects.prefix_patterns import any_literal_text, any_of, literal_text, optional_steps, sequence
from promptools.dialects.prompt import explain_tools, json_lines
from promptools.dialects.readers.block_markers import Closers
from promptools.dialects.readers.json_block import JsonBlockReader
from promptools.dialects.readers.marked_json import FENCE, unopened_head
from promptools.parsing.parts import NEED_MORE, Candidate, NeedMore
from promptools.patterns import lazy_pattern
from promptools.types import Call, Fix, Result

if TYPE_CHECKING:
    from promptools.schema import Tools

SECTION, SECTION_END = "<|tool_calls_section_begin|>", "<|tool_calls_section_end|>"
CALL, ARGUMENT, END = "<|tool_call_begin|>", "<|tool_call_argument_begin|>", "<|tool_call_end|>"
SECTIONS = (SECTION, "<|tool_call_section_begin|>")
SECTION_ENDS = (SECTION_END, "<|tool_call_section_end|>")

_GAP = r"\s{0,16}"
_SECTION_TEXT = r"[^<{]{0,200}+"
"""Matches text between the beginning of the section and the first call. Such text is not meant for users."""
_HEADER = r"[^<{]{1,200}+"
_OPENER = any_of(literal_text(CALL), sequence(any_literal_text(SECTIONS), _SECTION_TEXT, literal_text(CALL)))
_OPENERS = lazy_pattern(rf"(?s:.*{re.escape(CALL)})|{'|'.join(map(re.escape, SECTIONS))}")
_FORM = lazy_pattern(r"functions\.(.+):\d+\Z", re.DOTALL)
_RESIDUE = sequence(
    literal_text("functions."), r"[^\W\d][\w./-]{0,127}+", r"\s{0,4}", ":", r"\s{0,4}", r"\d{1,4}", r"\s{0,8}"
)
_RESIDUE_FORM = lazy_pattern(r"(?:functions\.)?([^\W\d][\w./-]*)\s*:\s*\d+\s*")
_UNOPENED = sequence(
    literal_text("functions."),
    r"[^\W\d][\w./-]{0,127}+",
    rf"(?:\s{{0,4}}:\s{{0,4}}(?:\Z|\d{{1,4}}))?+{_GAP}",
    literal_text(ARGUMENT),
)
"""Matches a header without its opening token, which a server misread or the model left out."""
_INDEXED = sequence(r"[^\W\d][\w./-]{0,127}+", ":", r"\d{1,4}", r"[ \t]{0,8}")
_INDEXED_FORM = lazy_pattern(r"([^\W\d][\w./-]*):\d+[ \t]*")

CLOSERS = Closers(right=(END,), wrong=(*SECTION_ENDS, "</think>"), openers=(CALL, *SECTIONS))
UNOPENED = Closers(
    right=(END,), wrong=(*SECTION_ENDS, "</think>"), openers=("functions.", CALL, *SECTIONS), required=False
)
UNMARKED = Closers(right=(), wrong=(END, *SECTION_ENDS), openers=("functions.",), required=False)


def _indexed_begins(text: str, start: int, end: int, *, fresh: bool, options: ParseOptions) -> bool | NeedMore:
    """Return whether `text[start:end]` is an offered tool's name and a number, such as `get_weather:0`."""
    del fresh
    if options.tools is None:
        return False
    form = _INDEXED_FORM.fullmatch(text, start, end)
    if form is None:
        return NEED_MORE if end == len(text) else False
    return options.tools.get(form[1]) is not None


class KimiK2(Textual):
    """Kimi K2: `<|tool_call_begin|>functions.NAME:N<|tool_call_argument_begin|>{...}<|tool_call_end|>`."""

    name = "kimi_k2"
    models = "Kimi K2, K2 Thinking, K2.5 and K2.6"
    tier: Tier = "S"
    heads = (
        Head(
            (CALL, *SECTIONS),
            sequence(_OPENER, _HEADER, literal_text(ARGUMENT), _GAP, FENCE),
            body_starts="{<",
            sure_pattern=r"(?s:.*argument_begin\|>.*)",
        ),
        Head(
            (CALL, *SECTIONS),
            sequence(_OPENER, _HEADER, optional_steps(literal_text(ARGUMENT)), _GAP, FENCE),
            body_starts="{",
        ),
        Head(
            SECTIONS,
            sequence(any_literal_text(SECTIONS), _HEADER, literal_text(ARGUMENT), _GAP, FENCE),
            body_starts="{<",
            sure_pattern=r"(?s:.*argument_begin\|>.*)",
        ),
        Head(
            ("functions.",),
            sequence(_UNOPENED, _GAP, FENCE),
            body_starts="{<",
            sure_pattern=r"(?s:.*argument_begin\|>.*)",
        ),
        unopened_head(literal_text(ARGUMENT), _GAP, FENCE),
        Head(("functions.",), _RESIDUE, body_starts="{", tier="B"),
        Head(
            (),
            _INDEXED,
            body_starts="{",
            gate=NAME_GATE,
            begins=_indexed_begins,
            at_line_start=True,
            unindented=True,
            tier="B",
        ),
    )
    closers = (*SECTION_ENDS, END, *SECTIONS)
    stop = (SECTION_END,)
    reasoning_tags: Mapping[str, str] = {"◁think▷": "◁/think▷"}  # Kimi VL
    result_openers = ("<|im_system|>", "<|im_user|>")
    end_tokens = ("[EOS]", "[EOT]")
    control_tokens = (ARGUMENT,)
    rescues = True  # on third-party servers, K2 Thinking ends its reasoning with the call (qwen-code)

    def candidate(self, head: str, options: ParseOptions, evidence: Evidence, *, definite: bool) -> Candidate:
        """Return a `Candidate` that reads the arguments after `head`, the text that begins the call."""
        residue = _RESIDUE_FORM.fullmatch(head)
        if residue is not None:
            lost = Fix("marker", "the markers around its name are missing")
            return JsonBlockReader(head, UNMARKED, options, evidence, definite=definite, name=residue[1], fixes=[lost])
        name, fixes = _name_in(head)
        closers = CLOSERS if CALL in head else UNOPENED
        return JsonBlockReader(head, closers, options, evidence, definite=definite, name=name, fixes=fixes)

    def render_tools(self, tools: Tools, *, parallel: bool = True, required: bool = False) -> str:
        """Render the system-prompt block that declares the tools and the format."""
        declared = f"<tools>\n{json_lines(tools)}\n</tools>"
        return explain_tools(self.render_calls, tools, declared, parallel=parallel, required=required)

    def call_id(self, call: Call, number: int) -> str:
        """Return the id of a call, such as `functions.get_weather:0`; `number` counts the calls before this one."""
        return f"functions.{call.name}:{number}"

    def render_calls(self, calls: Sequence[Call]) -> str:
        """Render calls as the model would write them; calls without an id of the right form are numbered from 0."""
        headers = (
            call.id if re.fullmatch(rf"functions\.{re.escape(call.name)}:\d+", call.id) else self.call_id(call, number)
            for number, call in enumerate(calls)
        )
        written = "".join(
            f"{CALL}{header}{ARGUMENT}{call.arguments_json}{END}" for header, call in zip(headers, calls, strict=True)
        )
        return f"{SECTION}{written}{SECTION_END}"

    def render_results(self, results: Sequence[Result]) -> str:
        """Render tool results as the text of one user message."""
        return "\n".join(f"## Return of {result.call_id}\n{result.content}" for result in results)


def _name_in(head: str) -> tuple[str, list[Fix]]:
    """Return the tool's name in `head`, and the fixes. The name is empty if the header is only a number."""
    header = _OPENERS.sub("", head).partition("<")[0].partition("`")[0].strip()
    form = _FORM.fullmatch(header)
    missing = [mark for mark in (CALL, ARGUMENT) if mark not in head]
    fixes = [Fix("marker", f"no {mark!r}") for mark in missing]
    if form is not None:
        return form[1].strip(), fixes
    if header.isdigit():
        return "", fixes
    return header, [*fixes, Fix("marker", f"the header is {header!r}, not 'functions.NAME:N'")]
