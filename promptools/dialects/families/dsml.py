"""DSML: DeepSeek V3.2, V4 and V4.1. Anthropic's tags between full-width bars, with the type of each value.

    <｜DSML｜function_calls>
    <｜DSML｜invoke name="get_weather">
    <｜DSML｜parameter name="city" string="true">Oslo</｜DSML｜parameter>
    <｜DSML｜parameter name="days" string="false">2</｜DSML｜parameter>
    </｜DSML｜invoke>
    </｜DSML｜function_calls>

The wrapper is `tool_calls` in V4, and ` calls` in V4.1, which puts a space after each bar. GigaChat 3.5 writes GCML.

Source: the encoders that DeepSeek published with V3.2 (2025-12), V4 and V4.1 (2026); SGLang 0.5.23.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from promptools.dialects.calls.resolve import dump
from promptools.dialects.contract import Head, Tier
from promptools.dialects.prefix_patterns import literal_text
from promptools.dialects.readers.markup.first_tags import LOOKAHEAD_PATTERN, begins_block
from promptools.dialects.readers.markup.markup_call import MarkupGrammar
from promptools.dialects.readers.markup.markup_reader import MarkupDialect
from promptools.dialects.rendering.declaration import shown_functions
from promptools.dialects.rendering.example_calls import NAME_SLOT
from promptools.dialects.rendering.markup_text import (
    PARAMETER_SLOT,
    call_instructions,
    render_parameters,
    wrap_results,
)
from promptools.types import Call, Result

if TYPE_CHECKING:
    from promptools.schema import Tools

_MARK = "｜DSML｜"
GRAMMAR = MarkupGrammar(
    canonical=re.compile(
        r"</?｜(?:DSML|GCML)｜ ?(?:function_calls|tool_calls|calls)>|</｜(?:DSML|GCML)｜ ?(?:invoke|parameter)>"
        r'|<｜(?:DSML|GCML)｜ ?invoke name="[^"<>]+">'
        r'|<｜(?:DSML|GCML)｜ ?parameter name="[^"<>]+" string="(?:true|false)">'
    ),
    wrapper=("<｜DSML｜function_calls>", "</｜DSML｜function_calls>"),
    closers=("</｜DSML｜invoke>", "</｜DSML｜parameter>"),
)
_WORD = f"(?:{literal_text('DSML')}|{literal_text('GCML')})"
_OPENING = (
    rf"< {{0,8}}(?:\Z|[|｜]{{1,4}}\s{{0,4}}(?:\Z|{_WORD}{LOOKAHEAD_PATTERN})"
    rf"|(?=[DG]){_WORD}\s{{0,4}}(?:\Z|[|｜]{LOOKAHEAD_PATTERN}))"
)


class Dsml(MarkupDialect):
    """`<｜DSML｜function_calls><｜DSML｜invoke name="..."> ... </｜DSML｜invoke></｜DSML｜function_calls>`."""

    grammar = GRAMMAR
    name = "dsml"
    models = "DeepSeek V3.2, V4 and V4.1; GigaChat 3.5"
    tier: Tier = "S"
    heads = (Head(("<｜", "<|", "<D", "<G", "< "), _OPENING, body_starts="", begins=begins_block),)
    closers = (
        "</｜DSML｜function_calls>",
        "</｜DSML｜tool_calls>",
        "</｜DSML｜ calls>",
        "</｜DSML｜invoke>",
        "</｜DSML｜ invoke>",
        "</｜GCML｜tool_calls>",
    )
    stop = ("</｜DSML｜function_calls>",)

    def render_tools(self, tools: Tools, *, parallel: bool = True, required: bool = False) -> str:
        """Render the system-prompt block that declares the tools and the format."""
        listed = "\n".join(map(dump, shown_functions(tools)))
        return f"""## Tools

You have a set of tools. You call them by writing a block like this at the end of your reply:

<{_MARK}function_calls>
<{_MARK}invoke name="{NAME_SLOT}">
<{_MARK}parameter name="{PARAMETER_SLOT}" string="true or false">its value</{_MARK}parameter>
</{_MARK}invoke>
</{_MARK}function_calls>

A string goes between the tags as it is, with string="true". Everything else is JSON, with string="false".
{call_instructions(parallel=parallel, required=required, several="Several calls are several invokes in one block.")}

These are the functions, described as JSON, one a line:
<functions>
{listed}
</functions>"""

    def render_calls(self, calls: Sequence[Call]) -> str:
        """Render calls as the model would write them, with a JSON body where a value could be misread between tags."""
        invokes = "\n".join(map(_invoke, calls))
        return f"<{_MARK}function_calls>\n{invokes}\n</{_MARK}function_calls>"

    def render_results(self, results: Sequence[Result]) -> str:
        """Render results as one user turn."""
        return f"<function_results>\n{wrap_results(results, '<result>', '</result>')}\n</function_results>"


def _invoke(call: Call) -> str:
    return f'<{_MARK}invoke name="{call.name}">\n{render_parameters(call, _parameter, has_type=True)}</{_MARK}invoke>'


def _parameter(key: str, text: str, string: bool) -> str:
    kind = "true" if string else "false"
    return f'<{_MARK}parameter name="{key}" string="{kind}">{text}</{_MARK}parameter>\n'
