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

from promptools.dialects.base import Channels, Head, Tier
from promptools.dialects.declaration import lines
from promptools.dialects.example import NAME
from promptools.dialects.markup.collected import Grammar
from promptools.dialects.markup.openers import WITHIN, at_once
from promptools.dialects.markup.reader import Markup
from promptools.dialects.markup.written import KEY, invoked, results_in, when_to_call
from promptools.dialects.muse_cutter import HEADER, MuseCutter, begins
from promptools.dialects.settle import Rules
from promptools.types import Call, Result

if TYPE_CHECKING:
    from promptools.schema import Tools

GRAMMAR = Grammar(
    canonical=re.compile(
        r'</?atem:function_calls>|</atem:(?:invoke|parameter)>|<atem:(?:invoke|parameter) name="[^"<>]+">'
    ),
    wrapper=("<atem:function_calls>", "</atem:function_calls>"),
    closers=("</atem:invoke>", "</atem:parameter>"),
    spaced=True,
)


def _cutter(rules: Rules, inside: bool) -> MuseCutter:
    del rules, inside  # they make no difference to where messages end
    return MuseCutter()


CHANNELS = Channels(markers=("<|start|>assistant to=",), bare=HEADER, begins=begins, cutter=_cutter)


class Muse(Markup):
    """`<atem:function_calls><atem:invoke name="..."> ... </atem:invoke></atem:function_calls>`."""

    grammar = GRAMMAR
    name = "muse"
    models = "Muse Glimmer"
    tier: Tier = "S"
    channels = CHANNELS
    heads = (
        Head(
            ("<atem:function_calls", "<atem:invoke"),
            rf"<atem:(?:function_calls|invoke)(?=[\s>]|\Z){WITHIN}",
            opens="",
            begins=at_once,
        ),
    )
    closers = ("</atem:function_calls>", "<atem:function_calls>", "</atem:invoke>")
    stop = ("</atem:function_calls>",)

    def render_tools(self, tools: Tools, *, parallel: bool = True, required: bool = False) -> str:
        """Render the system-prompt block that declares the tools and the format."""
        return f"""# Tools

You may call these functions, described as JSON, one a line:
{lines(tools)}

A call has this form; values stand between the tags as they are, objects and lists as JSON:
<atem:function_calls>
<atem:invoke name="{NAME}">
<atem:parameter name="{KEY}">its value</atem:parameter>
</atem:invoke>
</atem:function_calls>

{when_to_call(parallel=parallel, required=required, several="Several calls are several invokes in one block.")}"""

    def render_calls(self, calls: Sequence[Call]) -> str:
        """Render calls as the model would write them, with a JSON body where a value could be misread between tags."""
        listed = "\n".join(invoked(call, "atem:") for call in calls)
        return f"<atem:function_calls>\n{listed}\n</atem:function_calls>"

    def render_results(self, results: Sequence[Result]) -> str:
        """Render results as one user turn."""
        return results_in(results, "<atem:function_results>\n", "\n</atem:function_results>")
