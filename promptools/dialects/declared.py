"""The base class of dialects that are declared as data, and the texts of their prompts.

A kind of dialect is a constructor, such as `MarkedJson`, that takes plain data as keyword arguments.
`promptools.dialects.table` reads this data from TOML.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, ClassVar, Unpack

from promptools.dialects.calls.parse_options import Evidence, ParseOptions
from promptools.dialects.contract import MarkerDeclarations, Textual, Tier
from promptools.dialects.prompt import (
    DEFAULT_INSTRUCTIONS,
    example_calls,
    explain_tools,
    fill_result,
    fill_tool,
    shown_functions,
)
from promptools.parsing.parts import Candidate
from promptools.types import Call, Result

if TYPE_CHECKING:
    from promptools.schema import Tools


class CommonKeys(MarkerDeclarations, total=False):
    """The keyword arguments that every kind of dialect takes."""

    models: str
    tier: Tier
    source: str
    stop: Sequence[str]
    closers: Sequence[str]
    tool: str
    tools: Sequence[str]
    instructions: Mapping[str, str]
    result: str
    error: str
    results: Sequence[str]


class DeclaredDialect(Textual):
    """A dialect whose markers and prompt texts are given as data.

    `source`: where the format is defined, with its date. `closers`: closing markers that may occur alone, after a call
    whose opener was lost. `tool`: the template for one tool in the prompt. `tools`: the texts before, between and after
    the tools; if only two texts are given, they are put before and after the tools, on separate lines. `instructions`:
    the prompt around the tools. `result` and `error`: the templates of a result and of a failed result. `results`: the
    texts before, between and after the results of a turn. `promptools.dialects.prompt` lists the keys of the templates.
    """

    wording: ClassVar = DEFAULT_INSTRUCTIONS
    """The default texts of the prompt for this kind of dialect; the argument `instructions` replaces some of them."""

    def __init__(
        self,
        name: str,
        *,
        models: str = "",
        tier: Tier = "A",
        source: str = "",
        stop: Sequence[str] = (),
        closers: Sequence[str] = (),
        tool: str = "{json}",
        tools: Sequence[str] = ("<tools>", "</tools>"),
        instructions: Mapping[str, str] | None = None,
        result: str = "<tool_response>\n{content}\n</tool_response>",
        error: str = "",
        results: Sequence[str] = ("", "\n", ""),
        **markers: Unpack[MarkerDeclarations],
    ) -> None:
        self.declare_markers(**markers)
        self.name = name
        self.models = models
        self.tier: Tier = tier
        self.source = source
        self.stop = tuple(stop)
        self.closers = tuple(closers)
        self._tool_template = tool
        self._tools_layout = tools if len(tools) == 3 else (f"{tools[0]}\n", "\n", f"\n{tools[1]}")
        self._instructions = self.wording._replace(**instructions or {})
        self._result_template = result
        self._error_template = error or result
        self._results_layout = results

    @abstractmethod
    def candidate(self, head: str, options: ParseOptions, evidence: Evidence, *, definite: bool) -> Candidate:
        """Return a `Candidate` that reads the text after `head`, the marker that begins a call."""

    def render_tools(self, tools: Tools, *, parallel: bool = True, required: bool = False) -> str:
        """Write the block of the system message that declares the tools and the format."""
        before, between, after = self._tools_layout
        listed = between.join(
            fill_tool(self._tool_template, tool, function)
            for tool, function in zip(tools, shown_functions(tools), strict=True)
        )
        return explain_tools(
            self._render_examples,
            tools,
            f"{before}{listed}{after}".rstrip(),
            parallel=parallel,
            required=required,
            instructions=self._instructions,
            examples=self.example_calls(tools),
        )

    def example_calls(self, tools: Tools) -> tuple[Call, Call]:
        """Return two example calls to offered tools; `GENERIC_CALL` twice if no call can serve as an example."""
        return example_calls(tools, self._shows)

    def _shows(self, call: Call) -> bool:
        """Return whether a call can serve as an example.

        A subclass returns False for a call that it would not write in its usual form but, for example, as JSON.
        """
        del call
        return True

    def _render_examples(self, calls: Sequence[Call]) -> str:
        """Return the example calls of a prompt as text; the calls may include `GENERIC_CALL`."""
        return self.render_calls(calls)

    def render_results(self, results: Sequence[Result]) -> str:
        """Write tool results as the text of one user message."""
        before, between, after = self._results_layout
        written = (
            fill_result(self._error_template if result.is_error else self._result_template, result)
            for result in results
        )
        return f"{before}{between.join(written)}{after}"
