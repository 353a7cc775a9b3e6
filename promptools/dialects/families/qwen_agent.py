"""The first format of Qwen-Agent, for Qwen 1.5 and 2: keywords between florets.

    ✿FUNCTION✿: get_weather
    ✿ARGS✿: {"city": "Oslo"}

The app writes `✿RESULT✿: ...`, and the model answers after `✿RETURN✿:`. Source: QwenLM/Qwen-Agent, fncall_prompts
(2024).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from promptools.dialects.calls.resolve import Evidence, ParseOptions, dump
from promptools.dialects.contract import Head, Textual
from promptools.dialects.prefix_patterns import literal_text, sequence
from promptools.dialects.readers.json_block.block_markers import Closers
from promptools.dialects.readers.json_block.block_reader import JsonBlockReader
from promptools.dialects.rendering.signature import describe
from promptools.parsing.parts import Candidate
from promptools.types import Call, Result

if TYPE_CHECKING:
    from promptools.schema import Tools

FUNCTION, ARGS, RESULT, RETURN = "✿FUNCTION✿", "✿ARGS✿", "✿RESULT✿", "✿RETURN✿"
_CLOSERS = Closers(right=("```",), wrong=(), openers=(FUNCTION,), required=False)
_NAMED = re.compile(rf"{FUNCTION}\s*:?\s*([^\n✿]*?)\s*{ARGS}")


class QwenAgent(Textual):
    """`✿FUNCTION✿: NAME`, `✿ARGS✿: {...}`."""

    name = "qwen_agent"
    models = "Qwen 1.5 and Qwen 2 under Qwen-Agent"
    heads = (
        Head(
            (FUNCTION,),
            FUNCTION
            + sequence(
                r"\s{0,8}",
                r":?\s{0,8}",
                r"[^\s✿][^\n✿]{0,80}+",
                r"\s{0,8}",
                literal_text(ARGS),
                r"\s{0,8}",
                r":?\s{0,16}",
                r"(?:`{1,2}\Z|```(?:\Z|[a-z]{0,8}\s{0,8}))?",
            ),
        ),
    )
    stop = (RESULT,)
    result_openers = (RESULT,)

    def candidate(self, head: str, rules: ParseOptions, place: Evidence, *, definite: bool) -> Candidate:
        """Read from the arguments."""
        named = _NAMED.match(head)
        return JsonBlockReader(head, _CLOSERS, rules, place, definite=definite, name=named[1] if named else None)

    def render_tools(self, tools: Tools, *, parallel: bool = True, required: bool = False) -> str:
        """Render the system-prompt block that declares the tools and the format."""
        listed = "\n\n".join(describe(tool) for tool in tools)
        several = " To use several at once, write one such pair for each." if parallel else ""
        when = "You must use a tool in this turn." if required else "If no tool is needed, answer in plain text."
        return f"""# Tools

You have these tools:

{listed}

To use one, end your message with its name and its arguments, which are one JSON object:

{FUNCTION}: <the name of the tool>
{ARGS}: {{"parameter": "value"}}

Then stop: its result comes to you after {RESULT}, which you never write yourself.{several} {when}"""

    def render_calls(self, calls: Sequence[Call]) -> str:
        """Render calls as the model would write them."""
        return "\n".join(f"{FUNCTION}: {call.name}\n{ARGS}: {dump(call.arguments)}" for call in calls)

    def render_results(self, results: Sequence[Result]) -> str:
        """Render results as one user turn."""
        return "\n".join(f"{RESULT}: {result.content}" for result in results)
