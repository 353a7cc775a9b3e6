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

from promptools.dialects.base import Head, JsonCandidate, Textual, Tier
from promptools.dialects.blocks.marked import FENCE, SPACE
from promptools.dialects.blocks.markers import Closers
from promptools.dialects.blocks.wrapped import WrappedCandidate
from promptools.dialects.declaration import explain, functions
from promptools.dialects.json import Json
from promptools.dialects.openings import then, token
from promptools.dialects.settle import Place, Rules, dump
from promptools.parsing.parts import Candidate, Part
from promptools.types import Call, Result

if TYPE_CHECKING:
    from promptools.schema import Tools

TAG = "<|python_tag|>"
CLOSERS = Closers(right=("<|eom_id|>", "<|eot_id|>"), wrong=(), openers=(TAG,), needed=False)
_OBJECT, _LIST, _ = Json.heads
_NOTHING = re.compile(r"\[\s*\]")


def _anywhere(text: str, start: int, end: int, *, fresh: bool, rules: Rules) -> bool | None:
    """Whether the empty list is complete; it counts anywhere."""
    del fresh, rules
    return text[end - 1] == "]" or (None if end == len(text) else start < 0)


class Bare(Textual):
    """What both families share."""

    tier: Tier = "B"
    stop: tuple[str, ...] = ()

    def candidate(self, head: str, rules: Rules, place: Place, *, firm: bool) -> Candidate:
        """Read from the opening bracket."""
        if head.startswith(TAG):
            return WrappedCandidate(head, CLOSERS, rules, place, firm=firm)
        return Json().candidate(head, rules, place, firm=firm)

    def render_results(self, results: Sequence[Result]) -> str:
        """Render results as one user turn."""
        return "\n".join(f"Result of {result.name}:\n{result.content}" for result in results)


class Llama3Json(Bare):
    """`{"name": ..., "parameters": {...}}`, perhaps after `<|python_tag|>`."""

    name = "llama3_json"
    models = "Llama 3.1, 3.2 and 3.3"
    heads = (
        Head((TAG,), then(token(TAG), SPACE, FENCE), tier="S"),
        _OBJECT._replace(asked=True),
        _LIST._replace(asked=True),
    )

    def render_tools(self, tools: Tools, *, parallel: bool = True, required: bool = False) -> str:
        """Render the system-prompt block that declares the tools and the format."""
        declared = "\n\n".join(dump({"type": "function", "function": function}) for function in functions(tools))
        return explain(self.render_calls, tools, declared, parallel=parallel, required=required)

    def render_calls(self, calls: Sequence[Call]) -> str:
        """Render calls as the model would write them."""
        return "; ".join(f'{{"name": {dump(call.name)}, "parameters": {call.arguments_json}}}' for call in calls)


class Xlam(Bare):
    """`[{"name": ..., "arguments": {...}}]`; an empty list means no call."""

    name = "xlam"
    models = "xLAM"
    heads = (
        Head(("[",), then(r"\[", r"\s{0,64}", r"\]"), opens="", gate=r"\[", begins=_anywhere, asked=True),
        _LIST._replace(asked=True),
        _OBJECT._replace(asked=True),
    )

    def candidate(self, head: str, rules: Rules, place: Place, *, firm: bool) -> Candidate:
        """Read from the opening bracket."""
        return super().candidate(head, rules, place, firm=firm) if head else ListCandidate(rules, place, firm=firm)

    def render_tools(self, tools: Tools, *, parallel: bool = True, required: bool = False) -> str:
        """Render the system-prompt block that declares the tools and the format."""
        declared = "\n\n".join(dump(function) for function in functions(tools))
        return explain(self.render_calls, tools, declared, parallel=parallel, required=required)

    def render_calls(self, calls: Sequence[Call]) -> str:
        """Render calls as the model would write them."""
        written = (f'{{"name": {dump(call.name)}, "arguments": {call.arguments_json}}}' for call in calls)
        return f"[{', '.join(written)}]"


class ListCandidate(JsonCandidate):
    """A value that may be an empty list, with which xLAM says that it makes no call."""

    def _decide(self, *, close: bool, finish_reason: str | None) -> None:
        raw = self._body.raw
        if _NOTHING.fullmatch(raw) and not self._surplus:
            self.parts = [Part("markup", raw)]
        else:
            super()._decide(close=close, finish_reason=finish_reason)
