"""OLMo 3 of Ai2: one Python call per line between tags that Anthropic's XML has too; literals may be JSON's.

    <function_calls>get_weather(city="Oslo")
    ping()</function_calls>

Source: chat template of Olmo-3-7B-Instruct (2025-11).
"""

from __future__ import annotations

from promptools.dialects.readers.python_calls.marked_python import MarkedPythonCalls
from promptools.dialects.readers.python_calls.python_heads import marker_head
from promptools.dialects.readers.python_calls.python_parts import CallLayout


class Olmo3(MarkedPythonCalls):
    """`<function_calls>get_weather(city="Oslo")</function_calls>`."""

    name = "olmo3"
    models = "OLMo 3, OLMo 3 Think"
    heads = (marker_head("<function_calls>"),)
    closers = ("</function_calls>",)
    layout = CallLayout(closers=("</function_calls>",), one_per_line=True)
    opener, closer = "<function_calls>", "</function_calls>"
    tools_wrapper = ("<functions>", "</functions>")

    def call_format(self, *, parallel: bool) -> str:
        """Return the instructions for writing a call."""
        return self.tag_format("call", parallel=parallel)
