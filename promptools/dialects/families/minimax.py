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

from promptools.dialects.calls.resolve import Evidence, ParseOptions, dump
from promptools.dialects.contract import Head, Textual, Tier
from promptools.dialects.readers.markup.first_tags import LOOKAHEAD_PATTERN, begins_block
from promptools.dialects.readers.markup.markup_call import MarkupGrammar
from promptools.dialects.readers.markup.markup_reader import MarkupReader
from promptools.dialects.rendering.declaration import shown_functions
from promptools.dialects.rendering.example_calls import NAME_SLOT
from promptools.dialects.rendering.markup_text import PARAMETER_SLOT, call_instructions, render_invoke, wrap_results
from promptools.parsing.parts import Candidate
from promptools.types import Call, Result

if TYPE_CHECKING:
    from promptools.schema import Tools

_INNER = r'</(?:invoke|parameter)>|<(?:invoke|parameter) name="[^"<>]+">'
GRAMMAR = MarkupGrammar(
    canonical=re.compile(rf"</?minimax:tool_call>|{_INNER}"),
    wrapper=("<minimax:tool_call>", "</minimax:tool_call>"),
    closers=("</invoke>", "</parameter>"),
)
DOTS_GRAMMAR = GRAMMAR._replace(
    canonical=re.compile(rf"</?dots_function_call>|{_INNER}"),
    wrapper=("<dots_function_call>", "</dots_function_call>"),
    json_calls=True,
)


class MiniMax(Textual):
    """`<minimax:tool_call><invoke name="..."><parameter name="...">value</parameter></invoke></minimax:tool_call>`."""

    name = "minimax"
    models = "MiniMax M2 and M2.x, dots"
    tier: Tier = "S"
    heads = (
        Head(
            ("<minimax:tool_call",),
            rf"<minimax:tool_call(?=[\s>]|\Z){LOOKAHEAD_PATTERN}",
            body_starts="",
            begins=begins_block,
        ),
        Head(
            ("<dots_function_call",),
            rf"<dots_function_call(?=[\s>]|\Z){LOOKAHEAD_PATTERN}",
            body_starts="",
            begins=begins_block,
            alias="<dots_function_call>",
        ),
    )
    closers = ("</minimax:tool_call>", "<minimax:tool_call>", "</dots_function_call>", "</invoke>")
    stop = ("</minimax:tool_call>",)
    result_openers = ("]~b]tool", "]~b]user")
    end_tokens = ("[e~[", "<end_of_sentence>")

    def candidate(self, head: str, rules: ParseOptions, place: Evidence, *, definite: bool) -> Candidate:
        """Read from the wrapper."""
        return MarkupReader(DOTS_GRAMMAR if head else GRAMMAR, rules, place, definite=definite)

    def render_tools(self, tools: Tools, *, parallel: bool = True, required: bool = False) -> str:
        """Render the system-prompt block that declares the tools and the format."""
        listed = "\n".join(f"<tool>{dump(function)}</tool>" for function in shown_functions(tools))
        return f"""# Tools

You may call tools to help with the user's request. They are described here as JSON:
<tools>
{listed}
</tools>

A call is written in XML, like this; values go between the tags as they are, objects and lists as JSON:

<minimax:tool_call>
<invoke name="{NAME_SLOT}">
<parameter name="{PARAMETER_SLOT}">its value</parameter>
<parameter name="{PARAMETER_SLOT}">another value</parameter>
</invoke>
</minimax:tool_call>

{call_instructions(parallel=parallel, required=required, several="Several calls are several <invoke> in one block.")}"""

    def render_calls(self, calls: Sequence[Call]) -> str:
        """Render calls as the model would write them, with a JSON body where a value could be misread between tags."""
        listed = "\n".join(render_invoke(call) for call in calls)
        return f"<minimax:tool_call>\n{listed}\n</minimax:tool_call>"

    def render_results(self, results: Sequence[Result]) -> str:
        """Render results as one user turn."""
        return wrap_results(results, "<response>", "</response>")
