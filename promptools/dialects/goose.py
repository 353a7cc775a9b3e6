"""Goose and others: `<toolcall>` around a tag named after the tool, with its arguments as JSON.

    <toolcall><shell>{"command": "ls"}</shell></toolcall>

Source: block/goose, for models that have no format of their own (2025).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING

from promptools.dialects.base import Head, Textual
from promptools.dialects.blocks.marked import FENCE, SPACE
from promptools.dialects.blocks.markers import Closers
from promptools.dialects.blocks.wrapped import WrappedCandidate
from promptools.dialects.declaration import explain, lines
from promptools.dialects.openings import then, token
from promptools.dialects.settle import Place, Rules
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
    heads = (Head((OPENER,), then(token(OPENER), r"\s{0,16}", "<", r"[\w.:-]{1,128}", ">", SPACE, FENCE), opens="{<"),)
    closers = (CLOSER,)

    def candidate(self, head: str, rules: Rules, place: Place, *, firm: bool) -> Candidate:
        """Read from the bracket of the arguments."""
        tag = _TAG.match(head)
        name = tag[1] if tag else ""
        return WrappedCandidate(head, _closers(name), rules, place, firm=firm, name=name)

    def render_tools(self, tools: Tools, *, parallel: bool = True, required: bool = False) -> str:
        """Render the system-prompt block that declares the tools and the format."""
        declared = f"<tools>\n{lines(tools)}\n</tools>"
        return explain(self.render_calls, tools, declared, parallel=parallel, required=required)

    def render_calls(self, calls: Sequence[Call]) -> str:
        """Render calls as the model would write them."""
        return "\n".join(f"{OPENER}<{call.name}>{call.arguments_json}</{call.name}>{CLOSER}" for call in calls)

    def render_results(self, results: Sequence[Result]) -> str:
        """Render results as one user turn."""
        return "\n".join(f"<tool_response>\n{result.content}\n</tool_response>" for result in results)
