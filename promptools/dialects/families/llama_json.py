"""Families whose calls are bare JSON. `json` reads their calls in any reply; these are for requests that name them.

    {"name": "get_weather", "parameters": {"city": "Oslo"}}                                    (Llama 3)
    [{"name": "get_weather", "arguments": {"city": "Oslo"}}]                                    (xLAM)

Llama 3 may write `<|python_tag|>` before it, which makes it Llama's own in any reply. Source: the
prompt formats of Llama 3.1 and 3.2 (2024-07, 2024-09); Salesforce/Llama-xLAM-2-8b-fc-r (2025-03).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from promptools.dialects.calls.resolve import Evidence, ParseOptions, dump
from promptools.dialects.contract import Head, JsonCandidate, Textual, Tier
from promptools.dialects.families.generic_json import GenericJson
from promptools.dialects.prefix_patterns import literal_text, sequence
from promptools.dialects.readers.json_block.block_markers import Closers
from promptools.dialects.readers.json_block.block_reader import JsonBlockReader
from promptools.dialects.readers.json_block.marked_json import FENCE, SPACE
from promptools.dialects.rendering.declaration import explain_tools, shown_functions
from promptools.parsing.parts import Candidate, Part
from promptools.types import Call, Result

if TYPE_CHECKING:
    from promptools.schema import Tools

TAG = "<|python_tag|>"
CLOSERS = Closers(right=("<|eom_id|>", "<|eot_id|>"), wrong=(), openers=(TAG,), required=False)
_OBJECT, _LIST, _ = GenericJson.heads
_EMPTY_LIST = re.compile(r"\[\s*\]")


def _empty_list_begins(text: str, start: int, end: int, *, fresh: bool, rules: ParseOptions) -> bool | None:
    """Whether the empty list is complete; it counts anywhere."""
    del fresh, rules
    return text[end - 1] == "]" or (None if end == len(text) else start < 0)


class BareJson(Textual):
    """What both families share."""

    tier: Tier = "B"
    stop: tuple[str, ...] = ()

    def candidate(self, head: str, rules: ParseOptions, place: Evidence, *, definite: bool) -> Candidate:
        """Read from the opening bracket."""
        if head.startswith(TAG):
            return JsonBlockReader(head, CLOSERS, rules, place, definite=definite)
        return GenericJson().candidate(head, rules, place, definite=definite)

    def render_results(self, results: Sequence[Result]) -> str:
        """Render results as one user turn."""
        return "\n".join(f"Result of {result.name}:\n{result.content}" for result in results)


class Llama3Json(BareJson):
    """`{"name": ..., "parameters": {...}}`, perhaps after `<|python_tag|>`."""

    name = "llama3_json"
    models = "Llama 3.1, 3.2 and 3.3"
    heads = (
        Head((TAG,), sequence(literal_text(TAG), SPACE, FENCE), tier="S"),
        _OBJECT._replace(on_request=True),
        _LIST._replace(on_request=True),
    )

    def render_tools(self, tools: Tools, *, parallel: bool = True, required: bool = False) -> str:
        """Render the system-prompt block that declares the tools and the format."""
        declared = "\n\n".join(dump({"type": "function", "function": function}) for function in shown_functions(tools))
        return explain_tools(self.render_calls, tools, declared, parallel=parallel, required=required)

    def render_calls(self, calls: Sequence[Call]) -> str:
        """Render calls as the model would write them."""
        return "; ".join(f'{{"name": {dump(call.name)}, "parameters": {call.arguments_json}}}' for call in calls)


class Xlam(BareJson):
    """`[{"name": ..., "arguments": {...}}]`; an empty list means no call."""

    name = "xlam"
    models = "xLAM"
    heads = (
        Head(
            ("[",),
            sequence(r"\[", r"\s{0,64}", r"\]"),
            body_starts="",
            gate=r"\[",
            begins=_empty_list_begins,
            on_request=True,
        ),
        _LIST._replace(on_request=True),
        _OBJECT._replace(on_request=True),
    )

    def candidate(self, head: str, rules: ParseOptions, place: Evidence, *, definite: bool) -> Candidate:
        """Read from the opening bracket."""
        return (
            super().candidate(head, rules, place, definite=definite)
            if head
            else EmptyListCandidate(rules, place, definite=definite)
        )

    def render_tools(self, tools: Tools, *, parallel: bool = True, required: bool = False) -> str:
        """Render the system-prompt block that declares the tools and the format."""
        declared = "\n\n".join(dump(function) for function in shown_functions(tools))
        return explain_tools(self.render_calls, tools, declared, parallel=parallel, required=required)

    def render_calls(self, calls: Sequence[Call]) -> str:
        """Render calls as the model would write them."""
        written = (f'{{"name": {dump(call.name)}, "arguments": {call.arguments_json}}}' for call in calls)
        return f"[{', '.join(written)}]"


class EmptyListCandidate(JsonCandidate):
    """A value that may be an empty list, with which xLAM says that it makes no call."""

    def _decide(self, *, close: bool, finish_reason: str | None) -> None:
        raw = self._body.raw
        if _EMPTY_LIST.fullmatch(raw) and not self._surplus:
            self.parts = [Part("markup", raw)]
        else:
            super()._decide(close=close, finish_reason=finish_reason)
