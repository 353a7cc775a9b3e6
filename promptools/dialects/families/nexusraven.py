"""NexusRaven and Gorilla: a Python call after a label.

    Call: get_weather(city='Oslo')<bot_end>
    <<function>>get_weather(city='Oslo')

After its end token NexusRaven continues with a thought; without one the label is a word of prose, hence tier B.
Source: model cards of NexusRaven-V2-13B (2023-12) and Gorilla OpenFunctions (2023-11).
"""

from __future__ import annotations

from promptools.dialects.contract import Head, Tier
from promptools.dialects.readers.python_calls.marked_python import MarkedPythonCalls
from promptools.dialects.readers.python_calls.python_heads import CALLEE, begins_with_marker, marker_head
from promptools.dialects.readers.python_calls.python_parts import CallLayout


class NexusRaven(MarkedPythonCalls):
    """`Call: get_weather(city='Oslo')<bot_end>`."""

    name = "nexusraven"
    models = "NexusRaven-V2"
    tier: Tier = "B"
    heads: tuple[Head, ...] = (
        Head(
            (),
            rf"C(?:\Z|a(?:\Z|l(?:\Z|l(?:\Z|:[ \t]{{0,8}}+(?:(?={CALLEE}\()|\Z|{CALLEE}\Z)))))",
            body_starts="c",
            gate="Call:",
            begins=begins_with_marker,
            at_line_start=True,
            unindented=True,
        ),
    )
    closers: tuple[str, ...] = ("<bot_end>",)
    stop: tuple[str, ...] = ("<bot_end>",)
    layout = CallLayout(closers=("<bot_end>",), brackets=False, one_per_line=True, closer_is_final=True)
    opener, closer, between = "Call: ", "<bot_end>", "; "

    def call_format(self, *, parallel: bool) -> str:
        """Return the instructions for writing a call."""
        how_many = "Write a semicolon between several calls." if parallel else "Call one function at a time."
        return f"""You can call functions. To do so, write a line like this, and nothing after it:

Call: function_name(parameter="value", other=2)<bot_end>

{how_many}"""


class Gorilla(MarkedPythonCalls):
    """`<<function>>get_weather(city='Oslo')`."""

    name = "gorilla"
    models = "Gorilla OpenFunctions v1 and v2"
    tier: Tier = "A"
    heads: tuple[Head, ...] = (marker_head("<<function>>"),)
    layout = CallLayout(brackets=None)
    opener, between = "<<function>>", "\n<<function>>"

    def call_format(self, *, parallel: bool) -> str:
        """Return the instructions for writing a call."""
        how_many = "Write one line for each call." if parallel else "Call one function at a time."
        return f"""You can call functions. To do so, write a line like this, and nothing after it:

<<function>>function_name(parameter="value", other=2)

{how_many}"""
