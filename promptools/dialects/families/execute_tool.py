"""Calls to be executed, between tags that models make up when a prompt speaks of executing.

<execute_tool>get_weather(city="Oslo")</execute_tool>
"""

from __future__ import annotations

from promptools.dialects.readers.python_calls.marked_python import MarkedPythonCalls
from promptools.dialects.readers.python_calls.python_heads import marker_head
from promptools.dialects.readers.python_calls.python_parts import CallLayout


class ExecuteTool(MarkedPythonCalls):
    """`<execute_tool>get_weather(city="Oslo")</execute_tool>`."""

    name = "execute_tool"
    models = "any model that is told to in its prompt"
    heads = (marker_head("<execute_tool>"),)
    closers = ("</execute_tool>",)
    layout = CallLayout(closers=("</execute_tool>",), one_per_line=True)
    opener, closer = "<execute_tool>", "</execute_tool>"

    def call_format(self, *, parallel: bool) -> str:
        """Return the instructions for writing a call."""
        return self.tag_format("execute", parallel=parallel)
