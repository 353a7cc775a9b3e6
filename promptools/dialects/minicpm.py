"""MiniCPM 4 and 5: `<function name="...">` around `<param name="...">`, with CDATA where a value has markup.

    <function name="get_weather"><param name="city">Oslo</param></function>

Source: the chat template of MiniCPM5 (2026), and its parsers in vLLM 0.32, SGLang 0.5.23 and llama.cpp.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from promptools.dialects.base import Head
from promptools.dialects.declaration import lines
from promptools.dialects.example import NAME
from promptools.dialects.markup.collected import Grammar
from promptools.dialects.markup.openers import WITHIN
from promptools.dialects.markup.reader import Markup
from promptools.dialects.markup.written import KEY, cdata, results_in, when_to_call, written
from promptools.dialects.openings import token
from promptools.dialects.qwen3_coder import bare_begins
from promptools.types import Call, Result

if TYPE_CHECKING:
    from promptools.schema import Tools

GRAMMAR = Grammar(
    canonical=re.compile(r'</(?:function|param)>|<(?:function|param) name="[^"<>]+">'),
    wrapper=("", "</tool_call>"),
    closers=("</function>", "</param>"),
    bare=True,
    cdata=True,
)


class MiniCpm(Markup):
    """`<function name="NAME"><param name="KEY">value</param></function>`."""

    grammar = GRAMMAR
    name = "minicpm"
    models = "MiniCPM 4 and 5"
    heads = (
        Head(
            ("<function ", "<function\n", "<functionĠ", "<functionname"),
            rf"<function[ \nĠ]{{0,8}}(?:\Z|{token('name')}{WITHIN})",
            opens="",
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
{lines(tools)}
</tools>

A call has this form, one tag for each parameter:
<function name="{NAME}"><param name="{KEY}">its value</param></function>

Put a value with `<`, `&` or line breaks into <![CDATA[...]]>; objects and lists are JSON.
{when_to_call(parallel=parallel, required=required)}"""

    def render_calls(self, calls: Sequence[Call]) -> str:
        """Render calls as the model would write them, with a JSON body where a value could be misread between tags."""
        return "\n".join(map(_function, calls))

    def render_results(self, results: Sequence[Result]) -> str:
        """Render results as one user turn."""
        return results_in(results, "<tool_response>\n", "\n</tool_response>")


def _function(call: Call) -> str:
    return f'<function name="{call.name}">{written(call, _parameter, edges=False, markup=True)}</function>'


def _parameter(key: str, text: str, _string: bool) -> str:
    return f'<param name="{key}">{cdata(text)}</param>'
