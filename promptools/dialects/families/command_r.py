"""Command R and R+: `Action:` and a fenced list of calls.

    Action: ```json
    [
        {"tool_name": "get_weather", "parameters": {"city": "Oslo"}}
    ]```

An entry for the tool `directly_answer` means that no tool is called. Source: CohereForAI/c4ai-command-r-plus model card
(2024-04).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from promptools.dialects.calls.parse_options import Evidence, ParseOptions
from promptools.dialects.contract import Head, Textual, Tier
from promptools.dialects.prefix_patterns import literal_text, optional_steps, sequence
from promptools.dialects.prompt import describe, explain_tools
from promptools.dialects.readers.block_markers import Closers
from promptools.dialects.readers.json_block import JsonBlockReader
from promptools.jsontext.text import dump
from promptools.parsing.parts import Candidate, Part
from promptools.patterns import lazy_pattern
from promptools.types import Call, Result

if TYPE_CHECKING:
    from promptools.schema import Tools

CLOSERS = Closers(right=("```",), wrong=(), openers=())
_ANSWER = lazy_pattern(r'\{\s*"tool_name"\s*:\s*"directly[-_]answer"\s*,\s*"parameters"\s*:\s*\{\s*\}\s*\}', re.DOTALL)


class CommandR(Textual):
    """The dialect of Command R: `Action:` and a code fence with a list of `{"tool_name": ..., "parameters": {...}}`."""

    name = "command_r"
    models = "Command R, Command R+ (2024)"
    tier: Tier = "B"
    heads = (
        Head(
            ("Action:",),
            sequence(
                literal_text("Action:"), r"\s{0,16}", "`", "`", "`", optional_steps(literal_text("json")), r"\s{0,64}"
            ),
            body_starts="[",
        ),
    )
    stop = ("<results>",)

    def candidate(self, head: str, options: ParseOptions, evidence: Evidence, *, definite: bool) -> Candidate:
        """Return a `Candidate` that reads the list after `head`, which is `Action:` and the opening of a code fence."""
        return ActionCandidate(head, CLOSERS, options, evidence, definite=definite)

    def render_tools(self, tools: Tools, *, parallel: bool = True, required: bool = False) -> str:
        """Render the system-prompt block that declares the tools and the format."""
        declared = "\n\n".join(describe(tool) for tool in tools)
        return explain_tools(self.render_calls, tools, declared, parallel=parallel, required=required)

    def render_calls(self, calls: Sequence[Call]) -> str:
        """Render calls as the model would write them."""
        return _written([_object(dump(call.name), call.arguments_json) for call in calls])

    def render_results(self, results: Sequence[Result]) -> str:
        """Render tool results as the text of one user message."""
        documents = (f"Document: {number}\n{result.content}" for number, result in enumerate(results))
        return "<results>\n{}\n</results>".format("\n\n".join(documents))


def _object(name: str, arguments: str) -> str:
    return f'    {{\n        "tool_name": {name},\n        "parameters": {arguments}\n    }}'


def _written(objects: Sequence[str]) -> str:
    return "Action: ```json\n[\n{}\n]```".format(",\n".join(objects))


class ActionCandidate(JsonBlockReader):
    """Reads a code fence after `Action:`. An entry for the tool `directly_answer` is not a call."""

    def read_unusual(self, raw: str) -> list[Part] | None:
        """Return an entry for `directly_answer` as markup; None for any other text.

        Markup is left out of the content.
        """
        return [Part("markup", raw)] if _ANSWER.fullmatch(raw) else None
