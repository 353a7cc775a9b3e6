"""MiniMax M2: Anthropic's tags in a wrapper of its own, values verbatim. rednote's dots only has another wrapper.

    <minimax:tool_call>
    <invoke name="get_weather">
    <parameter name="city">Oslo</parameter>
    </invoke>
    </minimax:tool_call>

Source: the chat templates of MiniMax-M2 and M2.1 (2025-10 to 2025-12); the parser of dots in vLLM 0.32.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from promptools.dialects.base import Head, Textual, Tier
from promptools.dialects.declaration import functions
from promptools.dialects.example import NAME
from promptools.dialects.markup.collected import Grammar
from promptools.dialects.markup.openers import WITHIN, at_once
from promptools.dialects.markup.reader import MarkupCandidate
from promptools.dialects.markup.written import KEY, invoked, results_in, when_to_call
from promptools.dialects.settle import Place, Rules, dump
from promptools.parsing.parts import Candidate
from promptools.types import Call, Result

if TYPE_CHECKING:
    from promptools.schema import Tools

_INNER = r'</(?:invoke|parameter)>|<(?:invoke|parameter) name="[^"<>]+">'
GRAMMAR = Grammar(
    canonical=re.compile(rf"</?minimax:tool_call>|{_INNER}"),
    wrapper=("<minimax:tool_call>", "</minimax:tool_call>"),
    closers=("</invoke>", "</parameter>"),
)
DOTS = GRAMMAR._replace(
    canonical=re.compile(rf"</?dots_function_call>|{_INNER}"),
    wrapper=("<dots_function_call>", "</dots_function_call>"),
    objects=True,
)


class MiniMax(Textual):
    """`<minimax:tool_call><invoke name="..."><parameter name="...">value</parameter></invoke></minimax:tool_call>`."""

    name = "minimax"
    models = "MiniMax M2 and M2.x, dots"
    tier: Tier = "S"
    heads = (
        Head(("<minimax:tool_call",), rf"<minimax:tool_call(?=[\s>]|\Z){WITHIN}", opens="", begins=at_once),
        Head(
            ("<dots_function_call",),
            rf"<dots_function_call(?=[\s>]|\Z){WITHIN}",
            opens="",
            begins=at_once,
            alias="<dots_function_call>",
        ),
    )
    closers = ("</minimax:tool_call>", "<minimax:tool_call>", "</dots_function_call>", "</invoke>")
    stop = ("</minimax:tool_call>",)

    def candidate(self, head: str, rules: Rules, place: Place, *, firm: bool) -> Candidate:
        """Read from the wrapper."""
        return MarkupCandidate(DOTS if head else GRAMMAR, rules, place, firm=firm)

    def render_tools(self, tools: Tools, *, parallel: bool = True, required: bool = False) -> str:
        """Render the system-prompt block that declares the tools and the format."""
        listed = "\n".join(f"<tool>{dump(function)}</tool>" for function in functions(tools))
        return f"""# Tools

You may call tools to help with the user's request. They are described here as JSON:
<tools>
{listed}
</tools>

A call is written in XML, like this; values stand between the tags as they are, objects and lists as JSON:

<minimax:tool_call>
<invoke name="{NAME}">
<parameter name="{KEY}">its value</parameter>
<parameter name="{KEY}">another value</parameter>
</invoke>
</minimax:tool_call>

{when_to_call(parallel=parallel, required=required, several="Several calls are several <invoke> in one block.")}"""

    def render_calls(self, calls: Sequence[Call]) -> str:
        """Render calls as the model would write them, with a JSON body where a value could be misread between tags."""
        listed = "\n".join(invoked(call) for call in calls)
        return f"<minimax:tool_call>\n{listed}\n</minimax:tool_call>"

    def render_results(self, results: Sequence[Result]) -> str:
        """Render results as one user turn."""
        return results_in(results, "<response>", "</response>")
