"""Step 3: steptml between tokens that look like DeepSeek's, but for the underscores in them.

    <｜tool_calls_begin｜>
    <｜tool_call_begin｜>function<｜tool_sep｜><steptml:invoke name="get_weather"><steptml:parameter name="city">Oslo
    </steptml:parameter></steptml:invoke><｜tool_call_end｜>
    <｜tool_calls_end｜>

Source: the chat template of Step 3 (2025-07); the parsers of vLLM 0.32 and SGLang 0.5.23.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from promptools.dialects.calls.resolve import ParseOptions
from promptools.dialects.contract import Head, Tier
from promptools.dialects.prefix_patterns import literal_text
from promptools.dialects.readers.markup.first_tags import LOOKAHEAD_PATTERN, begins_block
from promptools.dialects.readers.markup.markup_call import MarkupGrammar
from promptools.dialects.readers.markup.markup_reader import MarkupDialect
from promptools.dialects.rendering.declaration import json_lines
from promptools.dialects.rendering.example_calls import NAME_SLOT
from promptools.dialects.rendering.markup_text import (
    PARAMETER_SLOT,
    call_instructions,
    render_parameters,
    wrap_results,
)
from promptools.types import Call, Result

if TYPE_CHECKING:
    from promptools.schema import Tools

_OPENER, _CLOSER = "<｜tool_calls_begin｜>", "<｜tool_calls_end｜>"
GRAMMAR = MarkupGrammar(
    canonical=re.compile(
        r"<｜tool_calls_(?:begin|end)｜>|</steptml:(?:invoke|parameter)>"
        r'|<steptml:(?:invoke|parameter) name="[^"<>]+">'
    ),
    wrapper=(_OPENER, _CLOSER),
    closers=("</steptml:invoke>", "</steptml:parameter>"),
    trim="strip",
)
_BEFORE = re.compile(
    rf"(?:<｜tool_calls_begin｜>\s{{0,16}})?(?:<｜tool_call_begin｜>(?:\s{{0,16}}function)?)?"
    rf"\s{{0,16}}(?:<｜tool_sep｜>)?\s{{0,16}}(?P<call>{literal_text('<steptml:invoke')})"
)
_PARTIAL_OPENER = re.compile(
    rf"(?:{literal_text('<｜tool_calls_begin｜>')}\s{{0,16}})?(?:\Z|(?:{literal_text('<｜tool_call_begin｜>')}"
    rf"(?:\Z|\s{{0,16}}(?:\Z|{literal_text('function')}))?)?(?:\Z|\s{{0,16}}(?:\Z|(?:{literal_text('<｜tool_sep｜>')})?\s{{0,16}}\Z)))"
)


def tokens_begin(text: str, start: int, end: int, *, fresh: bool, rules: ParseOptions) -> bool | None:
    """Whether steptml follows the tokens, which DeepSeek's fine-tunes spell the same."""
    del fresh, rules
    window = text[start:end]
    opener = _BEFORE.match(window)
    if opener is not None:
        return True if opener["call"] == "<steptml:invoke" else None
    return None if _PARTIAL_OPENER.fullmatch(window) else False


_SEVERAL = "Several calls go into one block, each on its line."


class Step3(MarkupDialect):
    """`<｜tool_call_begin｜>function<｜tool_sep｜><steptml:invoke name="..."> ... </steptml:invoke>`."""

    grammar = GRAMMAR
    name = "step3"
    models = "Step 3"
    tier: Tier = "S"
    heads = (
        Head(
            (_OPENER, "<｜tool_call_begin｜>"),
            rf"<｜tool_calls?_begin｜>{LOOKAHEAD_PATTERN}",
            body_starts="",
            begins=tokens_begin,
        ),
        Head(("<steptml:invoke",), rf"<steptml:invoke{LOOKAHEAD_PATTERN}", body_starts="", begins=begins_block),
    )
    closers = (_CLOSER, "<｜tool_call_end｜>")
    stop = (_CLOSER,)
    result_openers = ("<tool_output>",)

    def render_tools(self, tools: Tools, *, parallel: bool = True, required: bool = False) -> str:
        """Render the system-prompt block that declares the tools and the format."""
        return f"""# Tools

You may call these tools, described as JSON, one a line:
{json_lines(tools)}

A call has this form; values go between the tags as they are, objects and lists as JSON:
{_OPENER}
<｜tool_call_begin｜>function<｜tool_sep｜><steptml:invoke name="{NAME_SLOT}">\
<steptml:parameter name="{PARAMETER_SLOT}">its value</steptml:parameter></steptml:invoke><｜tool_call_end｜>
{_CLOSER}

{call_instructions(parallel=parallel, required=required, several=_SEVERAL)}"""

    def render_calls(self, calls: Sequence[Call]) -> str:
        """Render calls as the model would write them, with a JSON body where a value could be misread between tags."""
        listed = "\n".join(map(_invoke, calls))
        return f"{_OPENER}\n{listed}\n{_CLOSER}"

    def render_results(self, results: Sequence[Result]) -> str:
        """Render results as one user turn."""
        return wrap_results(results, "<｜tool_output_begin｜>", "<｜tool_output_end｜>")


def _invoke(call: Call) -> str:
    inside = render_parameters(call, _parameter, keeps_space=False)
    body = f'<steptml:invoke name="{call.name}">{inside}</steptml:invoke>'
    return f"<｜tool_call_begin｜>function<｜tool_sep｜>{body}<｜tool_call_end｜>"


def _parameter(key: str, text: str, _string: bool) -> str:
    return f'<steptml:parameter name="{key}">{text}</steptml:parameter>'
