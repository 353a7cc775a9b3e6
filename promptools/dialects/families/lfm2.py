"""LFM2 and LFM2.5 of Liquid AI: a list of Python calls between special tokens; content may follow it.

    <|tool_call_start|>[get_weather(city="Oslo"), ping()]<|tool_call_end|>

The list may be of JSON objects, or one call without its brackets. Source: chat templates of LFM2 (2025-07) and
LFM2.5 (2026-01).
"""

from __future__ import annotations

from promptools.dialects.calls.resolve import Evidence, ParseOptions
from promptools.dialects.contract import Head
from promptools.dialects.families.pythonic import BARE_LAYOUT, LIST_PATTERN, list_begins
from promptools.dialects.readers.json_block.block_reader import Closers, JsonBlockReader
from promptools.dialects.readers.python_calls.marked_python import MarkedPythonCalls
from promptools.dialects.readers.python_calls.python_heads import CallsOrJson, marker_head
from promptools.dialects.readers.python_calls.python_parts import CallLayout
from promptools.dialects.readers.python_calls.python_reader import PythonCallReader
from promptools.parsing.parts import Candidate

OPENER, CLOSER = "<|tool_call_start|>", "<|tool_call_end|>"
_CLOSERS = Closers(right=(CLOSER,), wrong=(), openers=(OPENER,))


class Lfm2(MarkedPythonCalls):
    """`<|tool_call_start|>[get_weather(city="Oslo")]<|tool_call_end|>`."""

    def __init__(self) -> None:
        super().__init__(
            "lfm2",
            {OPENER: CLOSER},
            models="LFM2, LFM2.5",
            tier="S",
            stop=("<|tool_response_start|>",),
            spaces=("[", "]"),
            separator=", ",
            tools=("List of tools: [", ",\n", "]"),
            instructions={
                "text": """{tools}

You can call {how_many}. To do so, write a list of calls between your two tokens for tool calls:

[function_name(parameter="value", other=2)]

Name each argument, and write its value as a literal of Python. {when}""",
                "parallel": "one or more functions",
                "single": "one function",
            },
            result="<|tool_response_start|>{content}<|tool_response_end|>",
            error="<|tool_response_start|>Error: {content}<|tool_response_end|>",
            results=("", "\n", ""),
        )
        self.heads = (
            marker_head(OPENER, json=True, spaced=True, tier="S"),
            Head(
                ("[",), LIST_PATTERN, body_starts="", gate=LIST_PATTERN, begins=list_begins, tier="B", on_request=True
            ),
        )
        self._layout = CallLayout(closers=(CLOSER,), one_per_line=True, spaced_names=True, may_repeat=True)

    def candidate(self, head: str, rules: ParseOptions, place: Evidence, *, definite: bool) -> Candidate:
        """Read from the list, its first call, or the JSON."""
        if not head:  # the tokens were stripped
            return PythonCallReader(head, BARE_LAYOUT, rules, place, definite=definite)
        return CallsOrJson(
            head,
            lambda: PythonCallReader(head, self._layout, rules, place, definite=definite),
            lambda: JsonBlockReader(head, _CLOSERS, rules, place, definite=definite),
            definite=definite,
        )
