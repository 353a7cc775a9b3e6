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

from promptools.dialects.base import Head
from promptools.dialects.declaration import functions
from promptools.dialects.example import NAME
from promptools.dialects.markup.block_value import NAMING
from promptools.dialects.markup.collected import Grammar
from promptools.dialects.markup.openers import WITHIN, first_tags, offered
from promptools.dialects.markup.reader import Markup
from promptools.dialects.markup.tags import blank
from promptools.dialects.markup.written import KEY, invoked, when_to_call
from promptools.dialects.openings import token
from promptools.dialects.settle import Rules, dump
from promptools.types import Call, Result

if TYPE_CHECKING:
    from promptools.schema import Tools

_PREFIX = "antml:"
GRAMMAR = Grammar(
    canonical=re.compile(
        rf"</?(?:{_PREFIX})?function_calls>|</(?:{_PREFIX})?(?:invoke|parameter)>"
        rf'|<(?:{_PREFIX})?(?:invoke|parameter) name="[^"<>]+">'
    ),
    wrapper=("<function_calls>", "</function_calls>"),
    closers=("</invoke>", "</parameter>"),
)


def wrapped_begins(text: str, start: int, end: int, *, fresh: bool, rules: Rules) -> bool | None:
    """Whether a call follows the wrapper's opening tag: Olmo 3 writes Python in the same tag."""
    del fresh
    first = first_tags(text, start, end, rules)
    if not first.tags or first.tags[0].kind != "wrap":
        return None if first.more and not first.tags else False
    if len(first.tags) == 1:
        return None if first.more and blank(first.words[0]) else False
    return first.tags[1].kind == "call" and not first.tags[1].close and blank(first.words[0])


def bare_begins(text: str, start: int, end: int, *, fresh: bool, rules: Rules) -> bool | None:
    """Whether `<invoke>` names an offered tool."""
    del fresh
    first = first_tags(text, start, end, rules)
    if not first.tags:
        return None if first.more else False
    tag = first.tags[0]
    if tag.kind != "call" or tag.close:
        return False
    if tag.name is not None:
        return offered(tag.name, rules)
    if len(first.tags) == 1:
        return None if first.more else False
    return first.tags[1].kind == "element" and first.tags[1].name in NAMING and not first.words[0].strip()


class Anthropic(Markup):
    """`<function_calls><invoke name="..."><parameter name="...">value</parameter></invoke></function_calls>`."""

    grammar = GRAMMAR
    name = "anthropic"
    models = "models that are prompted so, and many that are unsure of their own format"
    heads = (
        Head(
            ("<function_calls", f"<{_PREFIX}function_calls", "<tool_calls", "<tvoe_calls"),
            rf"<(?:(?:{_PREFIX})?function_calls|tool_calls|tvoe_calls)(?=[\s>]|\Z){WITHIN}",
            opens="",
            begins=wrapped_begins,
        ),
        Head(
            ("<invoke", f"<{_PREFIX}invoke"),
            rf"(?:{token('<invoke')}|{token(f'<{_PREFIX}invoke')})(?=[\s>/]|\Z){WITHIN}",
            opens="",
            gate=rf"(?=[<])<(?:{_PREFIX[:1]}|i|\Z)",
            begins=bare_begins,
            line=True,
            tier="B",
        ),
    )
    closers = ("</function_calls>", f"</{_PREFIX}function_calls>", "</invoke>", f"</{_PREFIX}invoke>")
    stop = ("<function_results>", "</function_calls>")

    def render_tools(self, tools: Tools, *, parallel: bool = True, required: bool = False) -> str:
        """Render the system-prompt block that declares the tools and the format."""
        listed = "\n".join(f"<function>{dump(function)}</function>" for function in functions(tools))
        return f"""You have access to a set of functions. You call them with a block like this as part of your reply:

<function_calls>
<invoke name="{NAME}">
<parameter name="{KEY}">its value</parameter>
</invoke>
</function_calls>

Strings and numbers stand between the tags as they are, objects and lists as JSON. The results are then given to you.
{when_to_call(parallel=parallel, required=required, several="Several calls are several invokes in one block.")}

These are the functions, described as JSON:
<functions>
{listed}
</functions>"""

    def render_calls(self, calls: Sequence[Call]) -> str:
        """Render calls as the model would write them, with a JSON body where a value could be misread between tags."""
        listed = "\n".join(invoked(call) for call in calls)
        return f"<function_calls>\n{listed}\n</function_calls>"

    def render_results(self, results: Sequence[Result]) -> str:
        """Render results as one user turn."""
        listed = "\n".join(map(_result, results))
        return f"<function_results>\n{listed}\n</function_results>"


def _result(result: Result) -> str:
    tag = "error" if result.is_error else "stdout"
    return f"<result>\n<tool_name>{result.name}</tool_name>\n<{tag}>\n{result.content}\n</{tag}>\n</result>"
