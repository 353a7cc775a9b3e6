"""LFM2 and LFM2.5 of Liquid AI: a list of Python calls between special tokens; content may follow it.

    <|tool_call_start|>[get_weather(city="Oslo"), ping()]<|tool_call_end|>

The list may be of JSON objects, or one call without its brackets. Source: chat templates of LFM2 (2025-07) and
LFM2.5 (2026-01).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from promptools.dialects.base import Head, Tier
from promptools.dialects.blocks.wrapped import Closers, WrappedCandidate
from promptools.dialects.pycalls.calls import CallBlock
from promptools.dialects.pycalls.code import listed
from promptools.dialects.pycalls.heads import Either, marked
from promptools.dialects.pycalls.marked import MarkedCalls
from promptools.dialects.pycalls.parts import Layout
from promptools.dialects.pythonic import BARE, LIST, list_begins
from promptools.dialects.settle import Place, Rules
from promptools.parsing.parts import Candidate
from promptools.types import Result

if TYPE_CHECKING:
    from promptools.schema import Tools

_CLOSERS = Closers(right=("<|tool_call_end|>",), wrong=(), openers=("<|tool_call_start|>",))


class Lfm2(MarkedCalls):
    """`<|tool_call_start|>[get_weather(city="Oslo")]<|tool_call_end|>`."""

    name = "lfm2"
    models = "LFM2, LFM2.5"
    tier: Tier = "S"
    heads = (
        marked("<|tool_call_start|>", json=True, spaced=True, tier="S"),
        Head(("[",), LIST, opens="", gate=LIST, begins=list_begins, tier="B", asked=True),
    )
    closers = ("<|tool_call_end|>",)
    stop = ("<|tool_response_start|>",)
    layout = Layout(right=("<|tool_call_end|>",), lines=True, spaced=True, echoed=True)
    opener, closer, between = "<|tool_call_start|>[", "]<|tool_call_end|>", ", "

    def candidate(self, head: str, rules: Rules, place: Place, *, firm: bool) -> Candidate:
        """Read from the list, its first call, or the JSON."""
        if not head:  # the tokens were stripped
            return CallBlock(head, BARE, rules, place, firm=firm)
        return Either(
            head,
            lambda: CallBlock(head, self.layout, rules, place, firm=firm),
            lambda: WrappedCandidate(head, _CLOSERS, rules, place, firm=firm),
            firm=firm,
        )

    def explain(self, *, parallel: bool) -> str:
        """Return the instructions for writing a call."""
        how_many = "one or more functions" if parallel else "one function"
        return f"""You can call {how_many}. To do so, write a list of calls between your two tokens for tool calls:

[function_name(parameter="value", other=2)]"""

    def render_tools(self, tools: Tools, *, parallel: bool = True, required: bool = False) -> str:
        """Render the system-prompt block that declares the tools and the format, the list of tools first."""
        when = "You must call a function in this turn." if required else "If no function is needed, answer in words."
        return f"""List of tools: {listed(tools)}

{self.explain(parallel=parallel)}

{self.naming} {when}"""

    def render_results(self, results: Sequence[Result]) -> str:
        """Render results as one user turn."""
        return "\n".join(
            f"<|tool_response_start|>{'Error: ' if result.is_error else ''}{result.content}<|tool_response_end|>"
            for result in results
        )
