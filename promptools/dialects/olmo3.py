"""OLMo 3 of Ai2: one Python call per line between tags that Anthropic's XML has too; literals may be JSON's.

    <function_calls>get_weather(city="Oslo")
    ping()</function_calls>

Source: chat template of Olmo-3-7B-Instruct (2025-11).
"""

from __future__ import annotations

from promptools.dialects.pycalls.heads import marked
from promptools.dialects.pycalls.marked import MarkedCalls
from promptools.dialects.pycalls.parts import Layout


class Olmo3(MarkedCalls):
    """`<function_calls>get_weather(city="Oslo")</function_calls>`."""

    name = "olmo3"
    models = "OLMo 3, OLMo 3 Think"
    heads = (marked("<function_calls>"),)
    closers = ("</function_calls>",)
    layout = Layout(right=("</function_calls>",), lines=True)
    opener, closer = "<function_calls>", "</function_calls>"
    declared = ("<functions>", "</functions>")

    def explain(self, *, parallel: bool) -> str:
        """Return the instructions for writing a call."""
        return self.between_tags("call", parallel=parallel)
