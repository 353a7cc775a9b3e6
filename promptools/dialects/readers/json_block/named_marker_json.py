"""Dialects whose markers name the tool, and whose JSON is its arguments: opener, name, middle, JSON, closer.

    <|tool_call:begin|>a1b2c3d4e5<|tool_call:name|>get_weather<|tool_call:args|>{"city": "Oslo"}<|tool_call:end|>

A family is its markers and what it writes; see `promptools.dialects.families.declared`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Unpack

from promptools.dialects.calls.resolve import Evidence, ParseOptions
from promptools.dialects.contract import Head, MarkerDeclarations, Textual, Tier
from promptools.dialects.prefix_patterns import any_of, literal_text, optional_steps, sequence
from promptools.dialects.readers.json_block.block_markers import Closers
from promptools.dialects.readers.json_block.block_reader import JsonBlockReader
from promptools.dialects.readers.json_block.marked_json import FENCE, SPACE, fill_template
from promptools.dialects.rendering.declaration import explain_tools, json_lines
from promptools.parsing.parts import Candidate
from promptools.types import Call, Result

if TYPE_CHECKING:
    from promptools.schema import Tools

_GAP = r"\s{0,16}"
_ID = "[^<]{0,64}"


class NamedMarkerJson(Textual):
    """Opener, name, middle, JSON, closer.

    `before`: the text before the name, in one or more spellings, the first of which is written; `{id}` in it is the
    call's id. `between`: the text after the name. `after`: what closes the call, and `tail` what follows that;
    `wrapper`: the text before and after all calls of a turn. `name_pattern`: the pattern of a name. `declared`: its
    other markers.
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
        wrapper: tuple[str, str] = ("", ""),
        optional_token: str = "",
        name_pattern: str = r"[^<>\n{]{1,128}",
        tier: Tier = "S",
        tools: tuple[str, str] = ("<tools>", "</tools>"),
        result: str = "<tool_response>\n{content}\n</tool_response>",
        **declared: Unpack[MarkerDeclarations],
    ) -> None:
        self.declare_markers(**declared)
        self.name = name
        self.models = models
        self.tier = tier
        self._before, self._between, self._after, self._wrapper = before[0], between, after + tail, wrapper
        self._optional_token = optional_token
        self._tools_wrapper = tools
        self._result_template = result
        openers = [tuple(spelling.split("{id}")) for spelling in before]
        starts = [_TOKEN_BOUNDARY.split(pieces[0])[0] for pieces in openers]
        opened = any_of(
            *(
                sequence(
                    _partial_pattern(pieces[0]),
                    *(step for rest in pieces[1:] for step in (_ID, _partial_pattern(rest))),
                )
                for pieces in openers
            )
        )
        if wrapper[0]:
            opened = any_of(sequence(literal_text(wrapper[0]), _GAP, opened), opened)
        middle = [_partial_pattern(between)] + (
            [_GAP, optional_steps(literal_text(optional_token))] if optional_token else []
        )
        head = sequence(opened, _GAP, name_pattern, *middle, SPACE, FENCE)
        literals = tuple(dict.fromkeys(filter(None, (wrapper[0], *starts))))
        alone = rf"(?s:.*{_whole_pattern(between)}\s*(?:{re.escape(optional_token)}\s*)?)"
        self.heads = (Head(literals, head, body_starts="{<", sure_pattern=alone),)
        self.closers = tuple(filter(None, (wrapper[1], after, tail, wrapper[0])))
        wrong = (*filter(None, (tail, wrapper[1])), "</think>")
        self._closers = Closers(right=(after,), wrong=wrong, openers=literals)
        spelled = "|".join("[^<]*".join(map(_whole_pattern, pieces)) for pieces in openers)
        self._head_pattern = re.compile(
            rf"(?s:(?:{re.escape(wrapper[0])}\s*)?(?:{spelled})\s*(.*?)\s*{_whole_pattern(between)})"
        )

    def candidate(self, head: str, rules: ParseOptions, place: Evidence, *, definite: bool) -> Candidate:
        """Start reading at the bracket of the arguments."""
        match = self._head_pattern.match(head)
        return JsonBlockReader(head, self._closers, rules, place, definite=definite, name=match[1] if match else "")

    def render_tools(self, tools: Tools, *, parallel: bool = True, required: bool = False) -> str:
        """Write the block of the system message that declares the tools and the format."""
        opener, closer = self._tools_wrapper
        declared = f"{opener}\n{json_lines(tools)}\n{closer}"
        return explain_tools(self.render_calls, tools, declared, parallel=parallel, required=required)

    def render_calls(self, calls: Sequence[Call]) -> str:
        """Write calls in the model's own format."""
        written = "".join(self._render_call(call.id, call.name, call.arguments_json) for call in calls)
        return f"{self._wrapper[0]}{written}{self._wrapper[1]}"

    def render_results(self, results: Sequence[Result]) -> str:
        """Write results as one user turn."""
        return "\n".join(
            fill_template(self._result_template, replace(result, call_id=_word_characters(result.call_id)))
            for result in results
        )

    def _render_call(self, call_id: str, name: str, arguments: str) -> str:
        before = self._before.replace("{id}", _word_characters(call_id))
        return f"{before}{name}{self._between}{self._optional_token}{arguments}{self._after}"


_TOKEN_BOUNDARY = re.compile(r"(?<=>)(?=<)")
"""Where one token ends and the next begins."""


def _word_characters(call_id: str) -> str:
    """Keep letters, digits and underscores: servers make ids with dashes, which the model has never seen."""
    return re.sub(r"\W", "", call_id)


def _partial_pattern(tokens: str) -> str:
    """Return the pattern of tokens with optional white space between them, whole or cut off by the end of the text."""
    first, *more = map(literal_text, _TOKEN_BOUNDARY.split(tokens))
    return sequence(first, *(step for pattern in more for step in (_GAP, pattern)))


def _whole_pattern(tokens: str) -> str:
    """Return the pattern of whole tokens with optional white space between them."""
    return r"\s*".join(map(re.escape, _TOKEN_BOUNDARY.split(tokens)))
