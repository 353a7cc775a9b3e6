"""Qwen3-Coder: calls as tags, values as bare text on lines of their own.

    <tool_call>
    <function=get_weather>
    <parameter=city>
    Oslo
    </parameter>
    </function>
    </tool_call>

A JSON object may replace the parameters: that is what Llama 3.1 and Functionary 3.1 write, without a wrapper.

Source: the chat templates of Qwen3-Coder (2025-07) and Qwen3.5, Nemotron 3, Step 3.5 and MiMo V2 (2025-12 to 2026-03).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from promptools.dialects.calls.resolve import ParseOptions
from promptools.dialects.contract import Head
from promptools.dialects.readers.markup.first_tags import LOOKAHEAD_PATTERN, may_be_tool, read_first_tags
from promptools.dialects.readers.markup.markup_call import MarkupGrammar
from promptools.dialects.readers.markup.markup_reader import MarkupDialect
from promptools.dialects.readers.markup.tag_names import SHARED_NAMES, is_blank
from promptools.dialects.rendering.declaration import json_lines
from promptools.dialects.rendering.markup_text import render_parameters, wrap_results
from promptools.types import Call, Result

if TYPE_CHECKING:
    from promptools.schema import Tools

GRAMMAR = MarkupGrammar(
    canonical=re.compile(r"</?tool_call>|</(?:function|parameter)>|<(?:function|parameter)=[^\s<>\"'=]+>"),
    wrapper=("<tool_call>", "</tool_call>"),
    closers=("</function>", "</parameter>"),
    trim="line",
)
_NAMED = re.compile(
    r"<function>\s*+(?P<name>[\w.:/-]{0,128}+)\s*+(?:</?[a-z]{0,9}+\Z|(?:</function>\s*+)?+"
    r"(?:\Z|<[a-z]{0,9}+\Z|(?P<then><param(?:eter)?[\s=>])))"
)


def wrapped_begins(text: str, start: int, end: int, *, fresh: bool, rules: ParseOptions) -> bool | None:
    """Whether a tag that many dialects share opens a block of this one: the next tag shows it."""
    del fresh
    first = read_first_tags(text, start, end, rules)
    if not first.tags or first.tags[0].kind != "wrap" or first.tags[0].close:
        return None if first.incomplete and not first.tags else False
    between = first.texts[0].strip()
    if between[:1] in ("{", "[", "("):
        return False
    if SHARED_NAMES.lost_opening_tag.match(between):
        return True
    if len(first.tags) == 1:
        return None if first.incomplete else False
    tag = first.tags[1]
    if tag.close:
        return False
    if tag.kind == "call":  # Anthropic's calls in a plural wrapper are a dialect of their own
        return not ("tool_calls" in first.tags[0].raw and "invoke" in tag.raw)
    if tag.kind == "param":
        return may_be_tool(first.tags[0].name, rules)
    known = rules.tools is not None and rules.tools.get(between) is not None and tag.name in rules.tools.keys(between)
    return tag.kind == "element" and known


def bare_begins(text: str, start: int, end: int, *, fresh: bool, rules: ParseOptions) -> bool | None:
    """Whether `<function=NAME>` without its wrapper is a call: the tool is offered, and its body follows."""
    del fresh
    first = read_first_tags(text, start, end, rules)
    if not first.tags:
        return None if first.incomplete else False
    tag = first.tags[0]
    if tag.kind != "call" or tag.close or not may_be_tool(tag.name, rules):
        return False
    between = first.texts[0]
    if not is_blank(between):
        return between.lstrip()[:1] == "{"
    if len(first.tags) == 1:
        return None if first.incomplete else False
    following = first.tags[1]
    return (
        following.kind == "param"
        or (following.kind in ("call", "wrap") and following.close)
        or (following.kind == "element" and not following.close)
    )


def named_begins(text: str, start: int, end: int, *, fresh: bool, rules: ParseOptions) -> bool | None:
    """Whether `<function>NAME</function>` is a call: the tool is offered, and a parameter comes next."""
    del fresh
    named = _NAMED.match(text, start, end)
    if named is None:
        return False
    if named["then"]:
        return may_be_tool(named["name"], rules)
    return None if named.end() == end == len(text) else False


class Qwen3Coder(MarkupDialect):
    """`<tool_call><function=NAME><parameter=KEY>value</parameter></function></tool_call>`."""

    grammar = GRAMMAR
    name = "qwen3_coder"
    models = (
        "Qwen3-Coder, Qwen3.5 to 3.8, Nemotron 3, Step 3.5, MiMo V2; Llama 3.1 and Functionary 3.1 with JSON inside"
    )
    heads = (
        Head(("<tool_call",), rf"<tool_calls?(?=[\s>]|\Z){LOOKAHEAD_PATTERN}", body_starts="", begins=wrapped_begins),
        Head(
            ("<function=", "<function "), rf"<function {{0,8}}={LOOKAHEAD_PATTERN}", body_starts="", begins=bare_begins
        ),
        Head(("<function>",), rf"<function>{LOOKAHEAD_PATTERN}", body_starts="", begins=named_begins),
    )
    closers = ("</tool_call>", "<tool_call>", "</function>", "</parameter>")
    stop = ("<tool_response>",)

    def render_tools(self, tools: Tools, *, parallel: bool = True, required: bool = False) -> str:
        """Render the system-prompt block that declares the tools and the format."""
        how_many = "For several calls write one block after the other." if parallel else "Make one call at a time."
        when = "Call a function in this turn." if required else "If no function is needed, answer without one."
        return f"""# Tools

You can call these functions:

<tools>
{json_lines(tools)}
</tools>

To call a function, end your reply with a block of this form, and nothing after it:

<tool_call>
<function=function name>
<parameter=parameter name>
its value
</parameter>
<parameter=parameter name>
a value
of several lines
</parameter>
</function>
</tool_call>

<IMPORTANT>
- Write every call between <tool_call> and </tool_call>, and give all required parameters.
- A value stands between its tags as it is, without quotes or escapes; objects and lists are JSON.
- Explain yourself before the call if you like, never after it. {how_many}
- {when}
</IMPORTANT>"""

    def render_calls(self, calls: Sequence[Call]) -> str:
        """Render calls as the model would write them, with a JSON body where a value could be misread between tags."""
        return "\n".join(f"<tool_call>\n{_function(call)}\n</tool_call>" for call in calls)

    def render_results(self, results: Sequence[Result]) -> str:
        """Render results as one user turn."""
        return wrap_results(results, "<tool_response>\n", "\n</tool_response>")


def _function(call: Call) -> str:
    parameters = render_parameters(call, lambda key, text, _: f"<parameter={key}>\n{text}\n</parameter>\n")
    return f"<function={call.name}>\n{parameters}</function>"
