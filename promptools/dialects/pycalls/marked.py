"""The base of dialects that write Python calls between two markers."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING

from promptools.dialects.base import Textual
from promptools.dialects.pycalls.calls import CallBlock
from promptools.dialects.pycalls.code import calls_of, listed, says_results
from promptools.dialects.pycalls.parts import Layout
from promptools.dialects.settle import Place, Rules
from promptools.parsing.parts import Candidate
from promptools.types import Call, Result

if TYPE_CHECKING:
    from promptools.schema import Tools


class MarkedCalls(Textual):
    """Calls in Python's syntax after `opener` and before `closer`."""

    layout = Layout()
    opener = ""
    closer = ""
    between = "\n"
    """The text between two calls."""
    declared = ("", "")
    """The text before and after the list of tools."""
    naming = "Name each argument, and write its value as a literal of Python."

    def candidate(self, head: str, rules: Rules, place: Place, *, firm: bool) -> Candidate:
        """Start reading at the first call, or at the bracket before it."""
        return CallBlock(head, self.layout, rules, place, firm=firm)

    @abstractmethod
    def explain(self, *, parallel: bool) -> str:
        """Return the prompt's text on how a call is written."""

    def between_tags(self, verb: str, *, parallel: bool) -> str:
        """Return that text where the markers are tags around one call a line."""
        how_many = "Write one call a line to call several." if parallel else "Call one function at a time."
        return f"""You can {verb} functions. To do so, write the call between these tags, and nothing after them:

{self.opener}function_name(parameter="value", other=2){self.closer}

{how_many}"""

    def render_tools(self, tools: Tools, *, parallel: bool = True, required: bool = False) -> str:
        """Write the block of the system message that declares the tools and the format."""
        when = "You must call a function in this turn." if required else "If no function is needed, answer in words."
        return f"""{self.explain(parallel=parallel)}

{self.naming} {when}

The functions are:

{self.declared[0]}{listed(tools)}{self.declared[1]}"""

    def render_calls(self, calls: Sequence[Call]) -> str:
        """Write calls in the model's own format."""
        return f"{self.opener}{self.between.join(calls_of(calls))}{self.closer}" if calls else ""

    def render_results(self, results: Sequence[Result]) -> str:
        """Write results as one user turn."""
        return says_results(results)
