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

from promptools.dialects.base import Head, Textual, Tier
from promptools.dialects.declaration import functions
from promptools.dialects.example import NAME
from promptools.dialects.markup.collected import Grammar
from promptools.dialects.markup.nested import ITEM, members, tree
from promptools.dialects.markup.nested_block import MARK, MarkedTags, NestedCandidate
from promptools.dialects.markup.openers import WITHIN
from promptools.dialects.markup.tags import Tag
from promptools.dialects.markup.written import KEY, is_markup, results_in, when_to_call
from promptools.dialects.settle import Place, Rules, dump
from promptools.parsing.parts import Candidate
from promptools.schema.graph import is_array, is_object
from promptools.types import Call, Result

if TYPE_CHECKING:
    from promptools.schema import Tools

GRAMMAR = Grammar(
    canonical=re.compile(re.escape(MARK) + r'(?:</?tool_call>|<invoke name="[^"<>]+">|</invoke>)'),
    wrapper=(f"{MARK}<tool_call>", f"{MARK}</tool_call>"),
    closers=(f"{MARK}</invoke>", ""),
)
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]{0,63}\Z", re.ASCII)


def begins(text: str, start: int, end: int, *, fresh: bool, rules: Rules) -> bool | None:
    """Whether the opening tag of a block or of a call follows the marker."""
    del fresh, rules
    token = MarkedTags().next(text[start:end], 0, final=False)
    if token is None:
        return None
    return isinstance(token, Tag) and not token.close and token.kind in ("wrap", "call")


class MiniMaxM3(Textual):
    """`<tool_call><invoke name="..."><key>value</key></invoke></tool_call>`, a marker before each tag."""

    name = "minimax_m3"
    models = "MiniMax M3"
    tier: Tier = "S"
    heads = (Head((MARK,), re.escape(MARK) + WITHIN, opens="", begins=begins),)
    closers = (f"{MARK}</tool_call>", f"{MARK}</invoke>")
    stop = (f"{MARK}</tool_call>",)

    def candidate(self, head: str, rules: Rules, place: Place, *, firm: bool) -> Candidate:
        """Read from the marker."""
        del head
        return NestedCandidate(GRAMMAR, rules, place, firm=firm)

    def render_tools(self, tools: Tools, *, parallel: bool = True, required: bool = False) -> str:
        """Render the system-prompt block that declares the tools and the format."""
        listed = "\n".join(f"<tool>{dump(function)}</tool>" for function in functions(tools))
        return f"""# Tools

You may call tools to help with the user's request. They are described here as JSON:
<tools>
{listed}
</tools>

A call is written in XML, with {MARK} before each of its tags, and an element for each parameter:

{MARK}<tool_call>
{MARK}<invoke name="{NAME}">{MARK}{KEY}its value{MARK}</parameter name>{MARK}</invoke>
{MARK}</tool_call>

The items of a list are <item> elements, the members of an object are elements of their names.
{when_to_call(parallel=parallel, required=required, several="Several calls are several <invoke> in one block.")}"""

    def render_calls(self, calls: Sequence[Call]) -> str:
        """Render calls as the model would write them, with a JSON body where elements would be read back otherwise."""
        listed = "".join(f"{_invoke(call)}\n" for call in calls)
        return f"{MARK}<tool_call>\n{listed}{MARK}</tool_call>"

    def render_results(self, results: Sequence[Result]) -> str:
        """Render results as one user turn."""
        return results_in(results, "<response>", "</response>")


def _invoke(call: Call) -> str:
    inside = _elements(call.arguments)
    if is_markup(dump(call.arguments)) or not _reads_back(inside, call.arguments):
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
    """Whether elements are read back as these arguments without the help of a schema."""
    if not all(map(_NAME.match, arguments)):
        return False
    tags, tokens, at = MarkedTags(), list[Tag | str](), 0
    while at < len(text):
        token = tags.next(text, at, final=True)
        assert token is not None
        tokens.append(token)
        at += len(token if isinstance(token, str) else token.raw)
    root, fixes = tree(tokens, MARK)
    return not fixes and json.dumps(members(root, {}, {})) == json.dumps(arguments)
