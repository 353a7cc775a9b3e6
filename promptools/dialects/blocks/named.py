"""Dialects whose markers name the tool, and whose JSON is its arguments: opener, name, middle, JSON, closer.

    <|tool_call:begin|>a1b2c3d4e5<|tool_call:name|>get_weather<|tool_call:args|>{"city": "Oslo"}<|tool_call:end|>

A family is its markers and what it writes; see `promptools.dialects.families`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from promptools.dialects.base import Head, Textual, Tier
from promptools.dialects.blocks.marked import FENCE, SPACE, filled
from promptools.dialects.blocks.markers import Closers
from promptools.dialects.blocks.wrapped import WrappedCandidate
from promptools.dialects.declaration import explain, lines
from promptools.dialects.openings import either, perhaps, then, token
from promptools.dialects.settle import Place, Rules
from promptools.parsing.parts import Candidate
from promptools.types import Call, Result

if TYPE_CHECKING:
    from promptools.schema import Tools

_GAP = r"\s{0,16}"
_ID = "[^<]{0,64}"


class Named(Textual):
    """Opener, name, middle, JSON, closer.

    `before`: the text before the name, in one or more spellings, the first of which is written; `{id}` in it is the
    call's id. `between`: the text after the name. `after`: what closes the call, and `tail` what follows that;
    `around`: the text before and after all calls of a turn. `name_is`: the pattern of a name.
    """

    def __init__(
        self,
        name: str,
        *,
        models: str,
        before: Sequence[str],
        between: str,
        after: str,
        tail: str = "",
        around: tuple[str, str] = ("", ""),
        optional: str = "",
        name_is: str = r"[^<>\n{]{1,128}",
        tier: Tier = "S",
        tools: tuple[str, str] = ("<tools>", "</tools>"),
        result: str = "<tool_response>\n{content}\n</tool_response>",
    ) -> None:
        self.name = name
        self.models = models
        self.tier = tier
        self._before, self._between, self._after, self._around = before[0], between, after + tail, around
        self._optional = optional
        self._tools = tools
        self._result = result
        openers = [tuple(spelling.split("{id}")) for spelling in before]
        starts = [_BORDER.split(pieces[0])[0] for pieces in openers]
        opened = either(
            *(
                then(_spaced(pieces[0]), *(step for rest in pieces[1:] for step in (_ID, _spaced(rest))))
                for pieces in openers
            )
        )
        if around[0]:
            opened = either(then(token(around[0]), _GAP, opened), opened)
        middle = [_spaced(between)] + ([_GAP, perhaps(token(optional))] if optional else [])
        head = then(opened, _GAP, name_is, *middle, SPACE, FENCE)
        literals = tuple(dict.fromkeys(filter(None, (around[0], *starts))))
        alone = rf"(?s:.*{_with_gaps(between)}\s*(?:{re.escape(optional)}\s*)?)"
        self.heads = (Head(literals, head, opens="{<", alone=alone),)
        self.closers = tuple(filter(None, (around[1], after, tail, around[0])))
        wrong = (*filter(None, (tail, around[1])), "</think>")
        self._closers = Closers(right=(after,), wrong=wrong, openers=literals)
        spelled = "|".join("[^<]*".join(map(_with_gaps, pieces)) for pieces in openers)
        self._form = re.compile(rf"(?s:(?:{re.escape(around[0])}\s*)?(?:{spelled})\s*(.*?)\s*{_with_gaps(between)})")

    def candidate(self, head: str, rules: Rules, place: Place, *, firm: bool) -> Candidate:
        """Start reading at the bracket of the arguments."""
        match = self._form.match(head)
        return WrappedCandidate(head, self._closers, rules, place, firm=firm, name=match[1] if match else "")

    def render_tools(self, tools: Tools, *, parallel: bool = True, required: bool = False) -> str:
        """Write the block of the system message that declares the tools and the format."""
        opener, closer = self._tools
        declared = f"{opener}\n{lines(tools)}\n{closer}"
        return explain(self.render_calls, tools, declared, parallel=parallel, required=required)

    def render_calls(self, calls: Sequence[Call]) -> str:
        """Write calls in the model's own format."""
        written = "".join(self._written(call.id, call.name, call.arguments_json) for call in calls)
        return f"{self._around[0]}{written}{self._around[1]}"

    def render_results(self, results: Sequence[Result]) -> str:
        """Write results as one user turn."""
        return "\n".join(filled(self._result, replace(result, call_id=_plain(result.call_id))) for result in results)

    def _written(self, call_id: str, name: str, arguments: str) -> str:
        before = self._before.replace("{id}", _plain(call_id))
        return f"{before}{name}{self._between}{self._optional}{arguments}{self._after}"


_BORDER = re.compile(r"(?<=>)(?=<)")
"""Where one token ends and the next begins."""


def _plain(call_id: str) -> str:
    """Keep letters, digits and underscores: servers make ids with dashes, which the model has never seen."""
    return re.sub(r"\W", "", call_id)


def _spaced(tokens: str) -> str:
    """Return the pattern of tokens with optional white space between them, whole or cut off by the end of the text."""
    first, *more = map(token, _BORDER.split(tokens))
    return then(first, *(step for pattern in more for step in (_GAP, pattern)))


def _with_gaps(tokens: str) -> str:
    """Return the pattern of whole tokens with optional white space between them."""
    return r"\s*".join(map(re.escape, _BORDER.split(tokens)))
