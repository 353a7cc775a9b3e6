"""LFM2 and LFM2.5 of Liquid AI: a list of Python calls between special tokens; content may follow it.

    <|tool_call_start|>[get_weather(city="Oslo"), ping()]<|tool_call_end|>

The list may be of JSON objects, or one call without its brackets. Source: chat templates of LFM2 (2025-07) and
LFM2.5 (2026-01).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from promptools.dialects.calls.resolve import Evidence, ParseOptions
from promptools.dialects.contract import Head, Tier
from promptools.dialects.families.pythonic import BARE_LAYOUT, LIST_PATTERN, list_begins
from promptools.dialects.readers.json_block.block_reader import Closers, JsonBlockReader
from promptools.dialects.readers.python_calls.marked_python import MarkedPythonCalls
from promptools.dialects.readers.python_calls.python_heads import CallsOrJson, marker_head
from promptools.dialects.readers.python_calls.python_parts import CallLayout
from promptools.dialects.readers.python_calls.python_reader import PythonCallReader
from promptools.dialects.rendering.python_text import tools_as_json
from promptools.parsing.parts import Candidate
from promptools.types import Result

if TYPE_CHECKING:
    from promptools.schema import Tools

_CLOSERS = Closers(right=("<|tool_call_end|>",), wrong=(), openers=("<|tool_call_start|>",))


class Lfm2(MarkedPythonCalls):
    """`<|tool_call_start|>[get_weather(city="Oslo")]<|tool_call_end|>`."""

    name = "lfm2"
    models = "LFM2, LFM2.5"
    tier: Tier = "S"
    heads = (
        marker_head("<|tool_call_start|>", json=True, spaced=True, tier="S"),
        Head(("[",), LIST_PATTERN, body_starts="", gate=LIST_PATTERN, begins=list_begins, tier="B", on_request=True),
    )
    closers = ("<|tool_call_end|>",)
    stop = ("<|tool_response_start|>",)
    result_openers = ("<|tool_response_start|>",)
    layout = CallLayout(closers=("<|tool_call_end|>",), one_per_line=True, spaced_names=True, may_repeat=True)
    opener, closer, between = "<|tool_call_start|>[", "]<|tool_call_end|>", ", "

    def candidate(self, head: str, rules: ParseOptions, place: Evidence, *, definite: bool) -> Candidate:
        """Read from the list, its first call, or the JSON."""
        if not head:  # the tokens were stripped
            return PythonCallReader(head, BARE_LAYOUT, rules, place, definite=definite)
        return CallsOrJson(
            head,
            lambda: PythonCallReader(head, self.layout, rules, place, definite=definite),
            lambda: JsonBlockReader(head, _CLOSERS, rules, place, definite=definite),
            definite=definite,
        )

    def call_format(self, *, parallel: bool) -> str:
        """Return the instructions for writing a call."""
        how_many = "one or more functions" if parallel else "one function"
        return f"""You can call {how_many}. To do so, write a list of calls between your two tokens for tool calls:

[function_name(parameter="value", other=2)]"""

    def render_tools(self, tools: Tools, *, parallel: bool = True, required: bool = False) -> str:
        """Render the system-prompt block that declares the tools and the format, the list of tools first."""
        when = "You must call a function in this turn." if required else "If no function is needed, answer in text."
        return f"""List of tools: {tools_as_json(tools)}

{self.call_format(parallel=parallel)}

{self.argument_rule} {when}"""

    def render_results(self, results: Sequence[Result]) -> str:
        """Render results as one user turn."""
        return "\n".join(
            f"<|tool_response_start|>{'Error: ' if result.is_error else ''}{result.content}<|tool_response_end|>"
            for result in results
        )
