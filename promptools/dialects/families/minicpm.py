"""MiniCPM 4 and 5: `<function name="...">` around `<param name="...">`, with CDATA where a value has markup.

    <function name="get_weather"><param name="city">Oslo</param></function>

Source: the chat template of MiniCPM5 (2026), and its parsers in vLLM 0.32, SGLang 0.5.23 and llama.cpp.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from promptools.dialects.contract import Head
from promptools.dialects.families.qwen3_coder import bare_begins
from promptools.dialects.prefix_patterns import literal_text
from promptools.dialects.readers.markup.first_tags import LOOKAHEAD_PATTERN
from promptools.dialects.readers.markup.markup_call import MarkupGrammar
from promptools.dialects.readers.markup.markup_reader import MarkupDialect
from promptools.dialects.rendering.declaration import json_lines
from promptools.dialects.rendering.example_calls import NAME_SLOT
from promptools.dialects.rendering.markup_text import (
    PARAMETER_SLOT,
    call_instructions,
    render_parameters,
    wrap_cdata,
    wrap_results,
)
from promptools.types import Call, Result

if TYPE_CHECKING:
    from promptools.schema import Tools

GRAMMAR = MarkupGrammar(
    canonical=re.compile(r'</(?:function|param)>|<(?:function|param) name="[^"<>]+">'),
    wrapper=("", "</tool_call>"),
    closers=("</function>", "</param>"),
    unwrapped=True,
    cdata=True,
)


class MiniCpm(MarkupDialect):
    """`<function name="NAME"><param name="KEY">value</param></function>`."""

    grammar = GRAMMAR
    name = "minicpm"
    models = "MiniCPM 4 and 5"
    heads = (
        Head(
            ("<function ", "<function\n", "<functionĠ", "<functionname"),
            rf"<function[ \nĠ]{{0,8}}(?:\Z|{literal_text('name')}{LOOKAHEAD_PATTERN})",
            body_starts="",
            begins=bare_begins,
        ),
    )
    closers = ("</function>", "<tool_sep>")
    stop = ("<tool_response>",)

    def render_tools(self, tools: Tools, *, parallel: bool = True, required: bool = False) -> str:
        """Render the system-prompt block that declares the tools and the format."""
        return f"""# Tools

You may call these functions, described as JSON, one a line:
<tools>
{json_lines(tools)}
</tools>

A call has this form, one tag for each parameter:
<function name="{NAME_SLOT}"><param name="{PARAMETER_SLOT}">its value</param></function>

Put a value with `<`, `&` or line breaks into <![CDATA[...]]>; objects and lists are JSON.
{call_instructions(parallel=parallel, required=required)}"""

    def render_calls(self, calls: Sequence[Call]) -> str:
        """Render calls as the model would write them, with a JSON body where a value could be misread between tags."""
        return "\n".join(map(_function, calls))

    def render_results(self, results: Sequence[Result]) -> str:
        """Render results as one user turn."""
        return wrap_results(results, "<tool_response>\n", "\n</tool_response>")


def _function(call: Call) -> str:
    parameters = render_parameters(call, _parameter, keeps_space=False, may_hold_tags=True)
    return f'<function name="{call.name}">{parameters}</function>'


def _parameter(key: str, text: str, _string: bool) -> str:
    return f'<param name="{key}">{wrap_cdata(text)}</param>'
