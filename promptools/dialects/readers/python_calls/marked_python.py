"""The base of dialects that write Python calls between two markers."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING

from promptools.dialects.calls.resolve import Evidence, ParseOptions
from promptools.dialects.contract import Textual
from promptools.dialects.readers.python_calls.python_parts import CallLayout
from promptools.dialects.readers.python_calls.python_reader import PythonCallReader
from promptools.dialects.rendering.python_text import python_calls, results_as_text, tools_as_json
from promptools.parsing.parts import Candidate
from promptools.types import Call, Result

if TYPE_CHECKING:
    from promptools.schema import Tools


class MarkedPythonCalls(Textual):
    """Calls in Python's syntax after `opener` and before `closer`."""

    layout = CallLayout()
    opener = ""
    closer = ""
    between = "\n"
    """The text between two calls."""
    tools_wrapper = ("", "")
    """The text before and after the list of tools."""
    argument_rule = "Name each argument, and write its value as a literal of Python."

    def candidate(self, head: str, rules: ParseOptions, place: Evidence, *, definite: bool) -> Candidate:
        """Start reading at the first call, or at the bracket before it."""
        return PythonCallReader(head, self.layout, rules, place, definite=definite)

    @abstractmethod
    def call_format(self, *, parallel: bool) -> str:
        """Return the prompt's text on how a call is written."""

    def tag_format(self, verb: str, *, parallel: bool) -> str:
        """Return that text where the markers are tags around one call a line."""
        how_many = "Write one call a line to call several." if parallel else "Call one function at a time."
        return f"""You can {verb} functions. To do so, write the call between these tags, and nothing after them:

{self.opener}function_name(parameter="value", other=2){self.closer}

{how_many}"""

    def render_tools(self, tools: Tools, *, parallel: bool = True, required: bool = False) -> str:
        """Write the block of the system message that declares the tools and the format."""
        when = (
            "You must call a function in this turn." if required else "If no function is needed, answer in plain text."
        )
        return f"""{self.call_format(parallel=parallel)}

{self.argument_rule} {when}

The functions are:

{self.tools_wrapper[0]}{tools_as_json(tools)}{self.tools_wrapper[1]}"""

    def render_calls(self, calls: Sequence[Call]) -> str:
        """Write calls in the model's own format."""
        return f"{self.opener}{self.between.join(python_calls(calls))}{self.closer}" if calls else ""

    def render_results(self, results: Sequence[Result]) -> str:
        """Write results as one user turn."""
        return results_as_text(results)
