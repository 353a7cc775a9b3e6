"""ATEM: Muse Glimmer. Anthropic's tags with a prefix, in a message to the tool.

    <|start|>assistant to=weather.get_weather<|message|><atem:function_calls>
    <atem:invoke name="weather.get_weather">
    <atem:parameter name="city">Oslo</atem:parameter>
    </atem:invoke>
    </atem:function_calls><|eom|>

Source: the chat template of Muse Glimmer (2026), and its parsers in vLLM 0.32, SGLang 0.5.23 and llama.cpp.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from promptools.dialects.calls.resolve import ParseOptions
from promptools.dialects.contract import Head, MessageFormat, Tier
from promptools.dialects.families.muse_messages import HEADER, MuseSplitter, header_begins
from promptools.dialects.readers.markup.first_tags import LOOKAHEAD_PATTERN, begins_block
from promptools.dialects.readers.markup.markup_call import MarkupGrammar
from promptools.dialects.readers.markup.markup_reader import MarkupDialect
from promptools.dialects.rendering.declaration import json_lines
from promptools.dialects.rendering.example_calls import NAME_SLOT
from promptools.dialects.rendering.markup_text import PARAMETER_SLOT, call_instructions, render_invoke, wrap_results
from promptools.types import Call, Result

if TYPE_CHECKING:
    from promptools.schema import Tools

GRAMMAR = MarkupGrammar(
    canonical=re.compile(
        r'</?atem:function_calls>|</atem:(?:invoke|parameter)>|<atem:(?:invoke|parameter) name="[^"<>]+">'
    ),
    wrapper=("<atem:function_calls>", "</atem:function_calls>"),
    closers=("</atem:invoke>", "</atem:parameter>"),
    namespaced=True,
)


def _make_splitter(rules: ParseOptions, inside: bool) -> MuseSplitter:
    del rules, inside  # they make no difference to where messages end
    return MuseSplitter()


CHANNELS = MessageFormat(
    markers=("<|start|>assistant to=",), stripped_header=HEADER, begins=header_begins, make_splitter=_make_splitter
)


class Muse(MarkupDialect):
    """`<atem:function_calls><atem:invoke name="..."> ... </atem:invoke></atem:function_calls>`."""

    grammar = GRAMMAR
    name = "muse"
    models = "Muse Glimmer"
    tier: Tier = "S"
    channels = CHANNELS
    heads = (
        Head(
            ("<atem:function_calls", "<atem:invoke"),
            rf"<atem:(?:function_calls|invoke)(?=[\s>]|\Z){LOOKAHEAD_PATTERN}",
            body_starts="",
            begins=begins_block,
        ),
    )
    closers = ("</atem:function_calls>", "<atem:function_calls>", "</atem:invoke>")
    stop = ("</atem:function_calls>",)
    result_openers = ("<atem:function_results>",)

    def render_tools(self, tools: Tools, *, parallel: bool = True, required: bool = False) -> str:
        """Render the system-prompt block that declares the tools and the format."""
        return f"""# Tools

You may call these functions, described as JSON, one a line:
{json_lines(tools)}

A call has this form; values go between the tags as they are, objects and lists as JSON:
<atem:function_calls>
<atem:invoke name="{NAME_SLOT}">
<atem:parameter name="{PARAMETER_SLOT}">its value</atem:parameter>
</atem:invoke>
</atem:function_calls>

{call_instructions(parallel=parallel, required=required, several="Several calls are several invokes in one block.")}"""

    def render_calls(self, calls: Sequence[Call]) -> str:
        """Render calls as the model would write them, with a JSON body where a value could be misread between tags."""
        listed = "\n".join(render_invoke(call, "atem:") for call in calls)
        return f"<atem:function_calls>\n{listed}\n</atem:function_calls>"

    def render_results(self, results: Sequence[Result]) -> str:
        """Render results as one user turn."""
        return wrap_results(results, "<atem:function_results>\n", "\n</atem:function_results>")
