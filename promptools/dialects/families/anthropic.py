"""Anthropic's XML, which many prompts ask for and many models fall into: `<function_calls>` around `<invoke>`.

    <function_calls>
    <invoke name="get_weather">
    <parameter name="city">Oslo</parameter>
    </invoke>
    </function_calls>

The format of 2023 names the tool and its parameters by elements. A bare `<invoke>` is only a call at the end of a turn:
in 210 recorded runs the calls that were meant were in the wrapper, and those that were quoted were not.

Source: Anthropic's documentation of tool use, 2023 to 2024; leaks of MiniMax, Kimi K2 and DeepSeek V4 Flash, 2026.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from promptools.dialects.calls.resolve import ParseOptions, dump
from promptools.dialects.contract import Head
from promptools.dialects.prefix_patterns import literal_text
from promptools.dialects.readers.markup.first_tags import LOOKAHEAD_PATTERN, may_be_tool, read_first_tags
from promptools.dialects.readers.markup.markup_call import MarkupGrammar
from promptools.dialects.readers.markup.markup_reader import MarkupDialect
from promptools.dialects.readers.markup.tag_tokenizer import is_blank
from promptools.dialects.readers.markup.value_states import NAMING_ELEMENTS
from promptools.dialects.rendering.declaration import shown_functions
from promptools.dialects.rendering.example_calls import NAME_SLOT
from promptools.dialects.rendering.markup_text import PARAMETER_SLOT, call_instructions, render_invoke
from promptools.types import Call, Result

if TYPE_CHECKING:
    from promptools.schema import Tools

_PREFIX = "antml:"
GRAMMAR = MarkupGrammar(
    canonical=re.compile(
        rf"</?(?:{_PREFIX})?function_calls>|</(?:{_PREFIX})?(?:invoke|parameter)>"
        rf'|<(?:{_PREFIX})?(?:invoke|parameter) name="[^"<>]+">'
    ),
    wrapper=("<function_calls>", "</function_calls>"),
    closers=("</invoke>", "</parameter>"),
)


def wrapped_begins(text: str, start: int, end: int, *, fresh: bool, rules: ParseOptions) -> bool | None:
    """Whether a call follows the wrapper's opening tag: Olmo 3 writes Python in the same tag."""
    del fresh
    first = read_first_tags(text, start, end, rules)
    if not first.tags or first.tags[0].kind != "wrap":
        return None if first.incomplete and not first.tags else False
    if len(first.tags) == 1:
        return None if first.incomplete and is_blank(first.texts[0]) else False
    return first.tags[1].kind == "call" and not first.tags[1].close and is_blank(first.texts[0])


def bare_begins(text: str, start: int, end: int, *, fresh: bool, rules: ParseOptions) -> bool | None:
    """Whether `<invoke>` names an offered tool."""
    del fresh
    first = read_first_tags(text, start, end, rules)
    if not first.tags:
        return None if first.incomplete else False
    tag = first.tags[0]
    if tag.kind != "call" or tag.close:
        return False
    if tag.name is not None:
        return may_be_tool(tag.name, rules)
    if len(first.tags) == 1:
        return None if first.incomplete else False
    return first.tags[1].kind == "element" and first.tags[1].name in NAMING_ELEMENTS and not first.texts[0].strip()


class Anthropic(MarkupDialect):
    """`<function_calls><invoke name="..."><parameter name="...">value</parameter></invoke></function_calls>`."""

    grammar = GRAMMAR
    name = "anthropic"
    models = "models that are prompted so, and many that are unsure of their own format"
    heads = (
        Head(
            ("<function_calls", f"<{_PREFIX}function_calls", "<tool_calls", "<tvoe_calls"),
            rf"<(?:(?:{_PREFIX})?function_calls|tool_calls|tvoe_calls)(?=[\s>]|\Z){LOOKAHEAD_PATTERN}",
            body_starts="",
            begins=wrapped_begins,
        ),
        Head(
            ("<invoke", f"<{_PREFIX}invoke"),
            rf"(?:{literal_text('<invoke')}|{literal_text(f'<{_PREFIX}invoke')})(?=[\s>/]|\Z){LOOKAHEAD_PATTERN}",
            body_starts="",
            gate=rf"(?=[<])<(?:{_PREFIX[:1]}|i|\Z)",
            begins=bare_begins,
            at_line_start=True,
            tier="B",
        ),
    )
    closers = ("</function_calls>", f"</{_PREFIX}function_calls>", "</invoke>", f"</{_PREFIX}invoke>")
    stop = ("<function_results>", "</function_calls>")
    result_openers = ("<function_results>",)

    def render_tools(self, tools: Tools, *, parallel: bool = True, required: bool = False) -> str:
        """Render the system-prompt block that declares the tools and the format."""
        listed = "\n".join(f"<function>{dump(function)}</function>" for function in shown_functions(tools))
        return f"""You have access to a set of functions. You call them with a block like this as part of your reply:

<function_calls>
<invoke name="{NAME_SLOT}">
<parameter name="{PARAMETER_SLOT}">its value</parameter>
</invoke>
</function_calls>

Strings and numbers go between the tags as they are, objects and lists as JSON. The results are then given to you.
{call_instructions(parallel=parallel, required=required, several="Several calls are several invokes in one block.")}

These are the functions, described as JSON:
<functions>
{listed}
</functions>"""

    def render_calls(self, calls: Sequence[Call]) -> str:
        """Render calls as the model would write them, with a JSON body where a value could be misread between tags."""
        listed = "\n".join(render_invoke(call) for call in calls)
        return f"<function_calls>\n{listed}\n</function_calls>"

    def render_results(self, results: Sequence[Result]) -> str:
        """Render results as one user turn."""
        listed = "\n".join(map(_result, results))
        return f"<function_results>\n{listed}\n</function_results>"


def _result(result: Result) -> str:
    tag = "error" if result.is_error else "stdout"
    return f"<result>\n<tool_name>{result.name}</tool_name>\n<{tag}>\n{result.content}\n</{tag}>\n</result>"
