"""Goose and others: `<toolcall>` around a tag named after the tool, with its arguments as JSON.

    <toolcall><shell>{"command": "ls"}</shell></toolcall>

Source: block/goose, for models that have no format of their own (2025).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING

from promptools.dialects.calls.resolve import Evidence, ParseOptions
from promptools.dialects.contract import Head, Textual
from promptools.dialects.prefix_patterns import literal_text, sequence
from promptools.dialects.readers.json_block.block_markers import Closers
from promptools.dialects.readers.json_block.block_reader import JsonBlockReader
from promptools.dialects.readers.json_block.marked_json import FENCE, SPACE
from promptools.dialects.rendering.declaration import explain_tools, json_lines
from promptools.parsing.parts import Candidate
from promptools.types import Call, Result

if TYPE_CHECKING:
    from promptools.schema import Tools

OPENER, CLOSER = "<toolcall>", "</toolcall>"
_TAG = re.compile(r"<toolcall>\s*<([^<>\s]+)>")


@lru_cache(maxsize=32)
def _closers(name: str) -> Closers:
    return Closers(right=(f"</{name}>",), wrong=(CLOSER,), openers=(OPENER,))


class Goose(Textual):
    """`<toolcall><NAME>{...}</NAME></toolcall>`."""

    name = "goose"
    models = "models that Goose prompts"
    heads = (
        Head(
            (OPENER,),
            sequence(literal_text(OPENER), r"\s{0,16}", "<", r"[\w.:-]{1,128}", ">", SPACE, FENCE),
            body_starts="{<",
        ),
    )
    closers = (CLOSER,)

    def candidate(self, head: str, rules: ParseOptions, place: Evidence, *, definite: bool) -> Candidate:
        """Read from the bracket of the arguments."""
        tag = _TAG.match(head)
        name = tag[1] if tag else ""
        return JsonBlockReader(head, _closers(name), rules, place, definite=definite, name=name)

    def render_tools(self, tools: Tools, *, parallel: bool = True, required: bool = False) -> str:
        """Render the system-prompt block that declares the tools and the format."""
        declared = f"<tools>\n{json_lines(tools)}\n</tools>"
        return explain_tools(self.render_calls, tools, declared, parallel=parallel, required=required)

    def render_calls(self, calls: Sequence[Call]) -> str:
        """Render calls as the model would write them."""
        return "\n".join(f"{OPENER}<{call.name}>{call.arguments_json}</{call.name}>{CLOSER}" for call in calls)

    def render_results(self, results: Sequence[Result]) -> str:
        """Render results as one user turn."""
        return "\n".join(f"<tool_response>\n{result.content}\n</tool_response>" for result in results)
