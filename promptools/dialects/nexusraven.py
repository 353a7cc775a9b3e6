"""NexusRaven and Gorilla: a Python call after a label.

    Call: get_weather(city='Oslo')<bot_end>
    <<function>>get_weather(city='Oslo')

After its end token NexusRaven continues with a thought; without one the label is a word of prose, hence tier B.
Source: model cards of NexusRaven-V2-13B (2023-12) and Gorilla OpenFunctions (2023-11).
"""

from __future__ import annotations

from promptools.dialects.base import Head, Tier
from promptools.dialects.pycalls.heads import CALLEE, behind, marked
from promptools.dialects.pycalls.marked import MarkedCalls
from promptools.dialects.pycalls.parts import Layout


class NexusRaven(MarkedCalls):
    """`Call: get_weather(city='Oslo')<bot_end>`."""

    name = "nexusraven"
    models = "NexusRaven-V2"
    tier: Tier = "B"
    heads: tuple[Head, ...] = (
        Head(
            (),
            rf"C(?:\Z|a(?:\Z|l(?:\Z|l(?:\Z|:[ \t]{{0,8}}+(?:(?={CALLEE}\()|\Z|{CALLEE}\Z)))))",
            opens="c",
            gate="Call:",
            begins=behind,
            line=True,
            flush=True,
        ),
    )
    closers: tuple[str, ...] = ("<bot_end>",)
    stop: tuple[str, ...] = ("<bot_end>",)
    layout = Layout(right=("<bot_end>",), brackets=False, lines=True, seals=True)
    opener, closer, between = "Call: ", "<bot_end>", "; "

    def explain(self, *, parallel: bool) -> str:
        """Return the instructions for writing a call."""
        how_many = "Write a semicolon between several calls." if parallel else "Call one function at a time."
        return f"""You can call functions. To do so, write a line like this, and nothing after it:

Call: function_name(parameter="value", other=2)<bot_end>

{how_many}"""


class Gorilla(MarkedCalls):
    """`<<function>>get_weather(city='Oslo')`."""

    name = "gorilla"
    models = "Gorilla OpenFunctions v1 and v2"
    tier: Tier = "A"
    heads: tuple[Head, ...] = (marked("<<function>>"),)
    layout = Layout(brackets=None)
    opener, between = "<<function>>", "\n<<function>>"

    def explain(self, *, parallel: bool) -> str:
        """Return the instructions for writing a call."""
        how_many = "Write one line for each call." if parallel else "Call one function at a time."
        return f"""You can call functions. To do so, write a line like this, and nothing after it:

<<function>>function_name(parameter="value", other=2)

{how_many}"""
