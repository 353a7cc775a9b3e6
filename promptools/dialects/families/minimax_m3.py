"""MiniMax M3: a marker precedes every tag, and parameters are elements, nested as the arguments are.

    ]<]minimax[>[<tool_call>
    ]<]minimax[>[<invoke name="search">]<]minimax[>[<query>x]<]minimax[>[</query>]<]minimax[>[<tags>]<]minimax[>[<item>a
    ]<]minimax[>[</item>]<]minimax[>[</tags>]<]minimax[>[</invoke>
    ]<]minimax[>[</tool_call>

Source: the chat template of MiniMax-M3 (2026), and its parsers in vLLM 0.32, SGLang 0.5.23 and llama.cpp.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from promptools.dialects.calls.parse_options import Evidence, ParseOptions
from promptools.dialects.contract import Head, Textual, Tier
from promptools.dialects.prompt import NAME_SLOT, shown_functions
from promptools.dialects.readers.element_value import ITEM, build_tree, read_members
from promptools.dialects.readers.markup_call import MarkupGrammar
from promptools.dialects.readers.nested_reader import MARK, MarkedTagTokenizer, NestedReader
from promptools.dialects.readers.tag_heads import LOOKAHEAD_PATTERN
from promptools.dialects.readers.tags import Tag, TokenBuffer
from promptools.dialects.written_calls import PARAMETER_SLOT, call_instructions, may_hold_tag, wrap_results
from promptools.json_values import is_array, is_object
from promptools.jsontext.text import dump
from promptools.parsing.parts import NEED_MORE, Candidate, NeedMore
from promptools.patterns import lazy_pattern
from promptools.types import Call, Result

if TYPE_CHECKING:
    from promptools.schema import Tools

GRAMMAR = MarkupGrammar(
    canonical=lazy_pattern(re.escape(MARK) + r'(?:</?tool_call>|<invoke name="[^"<>]+">|</invoke>)'),
    wrapper=(f"{MARK}<tool_call>", f"{MARK}</tool_call>"),
    closers=(f"{MARK}</invoke>", ""),
)
_NAME = lazy_pattern(r"[A-Za-z_][A-Za-z0-9_.-]{0,63}\Z", re.ASCII)


def tag_begins(text: str, start: int, end: int, *, fresh: bool, options: ParseOptions) -> bool | NeedMore:
    """Return whether the opening tag of a block or of a call follows the marker."""
    del fresh, options
    token = MarkedTagTokenizer().next(text[start:end], 0, final=False)
    if token is None:
        return NEED_MORE
    return isinstance(token, Tag) and not token.close and token.kind in ("wrap", "call")


class MiniMaxM3(Textual):
    """`<tool_call><invoke name="..."><key>value</key></invoke></tool_call>`, a marker before each tag."""

    name = "minimax_m3"
    models = "MiniMax M3"
    tier: Tier = "S"
    heads = (Head((MARK,), re.escape(MARK) + LOOKAHEAD_PATTERN, body_starts="", begins=tag_begins),)
    closers = (f"{MARK}</tool_call>", f"{MARK}</invoke>")
    stop = (f"{MARK}</tool_call>",)
    reasoning_tags: Mapping[str, str] = {"<mm:think>": "</mm:think>"}

    def candidate(self, head: str, options: ParseOptions, evidence: Evidence, *, definite: bool) -> Candidate:
        """Return a candidate for the text from the first marker on."""
        del head
        return NestedReader(GRAMMAR, options, evidence, definite=definite)

    def render_tools(self, tools: Tools, *, parallel: bool = True, required: bool = False) -> str:
        """Render the system-prompt block that declares the tools and the format."""
        listed = "\n".join(f"<tool>{dump(function)}</tool>" for function in shown_functions(tools))
        return f"""# Tools

You may call tools to help with the user's request. They are described here as JSON:
<tools>
{listed}
</tools>

A call is written in XML, with {MARK} before each of its tags, and an element for each parameter:

{MARK}<tool_call>
{MARK}<invoke name="{NAME_SLOT}">{MARK}{PARAMETER_SLOT}its value{MARK}</parameter name>{MARK}</invoke>
{MARK}</tool_call>

The items of a list are <item> elements, the members of an object are elements of their names.
{call_instructions(parallel=parallel, required=required, several="Several calls are several <invoke> in one block.")}"""

    def render_calls(self, calls: Sequence[Call]) -> str:
        """Render calls as the model would write them; arguments are JSON if elements would be read back differently."""
        listed = "".join(f"{_invoke(call)}\n" for call in calls)
        return f"{MARK}<tool_call>\n{listed}{MARK}</tool_call>"

    def render_results(self, results: Sequence[Result]) -> str:
        """Render results as one user turn."""
        return wrap_results(results, "<response>", "</response>")


def _invoke(call: Call) -> str:
    inside = _elements(call.arguments)
    if may_hold_tag(dump(call.arguments)) or not _reads_back(inside, call.arguments):
        inside = call.arguments_json
    return f'{MARK}<invoke name="{call.name}">{inside}{MARK}</invoke>'


def _elements(values: Mapping[str, Any]) -> str:
    return "".join(f"{MARK}<{key}>{_inside(value)}{MARK}</{key}>" for key, value in values.items())


def _inside(value: Any) -> str:
    if is_object(value):
        return _elements(value)
    if is_array(value):
        return "".join(f"{MARK}<{ITEM}>{_inside(item)}{MARK}</{ITEM}>" for item in value)
    return value if isinstance(value, str) else dump(value)


def _reads_back(text: str, arguments: Mapping[str, Any]) -> bool:
    """Return whether the elements in `text` are read back as `arguments` without a schema."""
    if not all(map(_NAME.match, arguments)):
        return False
    buffer = TokenBuffer(MarkedTagTokenizer(), text)
    buffer.final = True
    while buffer.read():
        pass
    root, fixes = build_tree(buffer.tokens, MARK)
    return not fixes and json.dumps(read_members(root, {}, {})) == json.dumps(arguments)
