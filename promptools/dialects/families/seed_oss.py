"""Seed-OSS: Qwen3-Coder's tags in a wrapper of its own, values mostly inline.

    <seed:tool_call>
    <function=get_weather>
    <parameter=city>Oslo</parameter>
    </function>
    </seed:tool_call>

Source: the chat template of Seed-OSS-36B-Instruct (2025-08). It prints values other than strings as Python does.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from promptools.dialects.contract import Head, Tier
from promptools.dialects.readers.markup.first_tags import LOOKAHEAD_PATTERN, begins_block
from promptools.dialects.readers.markup.markup_call import MarkupGrammar
from promptools.dialects.readers.markup.markup_reader import MarkupDialect
from promptools.dialects.rendering.declaration import json_lines
from promptools.dialects.rendering.markup_text import call_instructions, render_parameters, wrap_results
from promptools.types import Call, Result

if TYPE_CHECKING:
    from promptools.schema import Tools

GRAMMAR = MarkupGrammar(
    canonical=re.compile(r"</?seed:tool_call>|</(?:function|parameter)>|<(?:function|parameter)=[^\s<>\"'=]+>"),
    wrapper=("<seed:tool_call>", "</seed:tool_call>"),
    closers=("</function>", "</parameter>"),
    trim="line",
)


class SeedOss(MarkupDialect):
    """`<seed:tool_call><function=NAME><parameter=KEY>value</parameter></function></seed:tool_call>`."""

    grammar = GRAMMAR
    name = "seed_oss"
    models = "Seed-OSS"
    tier: Tier = "S"
    heads = (
        Head(
            ("<seed:tool_call",),
            rf"<seed:tool_call(?=[\s>]|\Z){LOOKAHEAD_PATTERN}",
            body_starts="",
            begins=begins_block,
        ),
    )
    closers = ("</seed:tool_call>", "<seed:tool_call>", "</function>")
    stop = ("</seed:tool_call>",)
    reasoning_tags: Mapping[str, str] = {"<seed:think>": "</seed:think>"}
    end_tokens = ("<seed:eos>",)

    def render_tools(self, tools: Tools, *, parallel: bool = True, required: bool = False) -> str:
        """Render the system-prompt block that declares the tools and the format."""
        return f"""You can call these functions, described as JSON, one a line:

{json_lines(tools)}

A call has this form; values go between the tags as they are, objects and lists as JSON:

<seed:tool_call>
<function=function name>
<parameter=parameter name>its value</parameter>
<parameter=parameter name>a value
of several lines</parameter>
</function>
</seed:tool_call>

Give every required parameter. {call_instructions(parallel=parallel, required=required)}"""

    def render_calls(self, calls: Sequence[Call]) -> str:
        """Render calls as the model would write them, with a JSON body where a value could be misread between tags."""
        return "\n".join(f"<seed:tool_call>\n{_function(call)}\n</seed:tool_call>" for call in calls)

    def render_results(self, results: Sequence[Result]) -> str:
        """Render results as one user turn."""
        return wrap_results(results, "<tool_response>\n", "\n</tool_response>")


def _function(call: Call) -> str:
    parameters = render_parameters(call, _parameter)
    return f"<function={call.name}>\n{parameters}</function>"


def _parameter(key: str, text: str, _string: bool) -> str:
    edge = "\n" if text.startswith("\n") else ""  # a line break at the beginning would be read as layout
    return f"<parameter={key}>{edge}{text}{edge}</parameter>\n"
