"""Calls to be executed, between tags that models make up when a prompt speaks of executing.

<execute_tool>get_weather(city="Oslo")</execute_tool>
"""

from __future__ import annotations

from promptools.dialects.pycalls.heads import marked
from promptools.dialects.pycalls.marked import MarkedCalls
from promptools.dialects.pycalls.parts import Layout


class ExecuteTool(MarkedCalls):
    """`<execute_tool>get_weather(city="Oslo")</execute_tool>`."""

    name = "execute_tool"
    models = "any model that is told to in its prompt"
    heads = (marked("<execute_tool>"),)
    closers = ("</execute_tool>",)
    layout = Layout(right=("</execute_tool>",), lines=True)
    opener, closer = "<execute_tool>", "</execute_tool>"

    def explain(self, *, parallel: bool) -> str:
        """Return the instructions for writing a call."""
        return self.between_tags("execute", parallel=parallel)
