"""Mistral: `[TOOL_CALLS]`, then a list of calls (old), or a name and its arguments (since tokenizer v11).

    [TOOL_CALLS][{"name": "get_weather", "arguments": {"city": "Oslo"}, "id": "aB3dE6gH9"}]
    [TOOL_CALLS]get_weather[CALL_ID]aB3dE6gH9[ARGS]{"city": "Oslo"}
    [TOOL_CALLS]get_weather[ARGS]{"city": "Oslo"}

Source: mistral-common, tokenizers v3 to v13 (2024-05 to 2025-12), the chat templates of Small 3.2, Devstral and
Ministral 3. Brackets that are not closed: seen by SGLang.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from promptools.dialects.base import A_NAME, Head, Textual, Tier
from promptools.dialects.blocks.marked import FENCE, SPACE
from promptools.dialects.blocks.markers import Closers
from promptools.dialects.blocks.wrapped import WrappedCandidate
from promptools.dialects.declaration import ARGUMENTS, explain, functions
from promptools.dialects.openings import perhaps, then, token
from promptools.dialects.settle import Place, Rules, dump
from promptools.parsing.parts import Candidate
from promptools.types import Call, Fix, Result

if TYPE_CHECKING:
    from promptools.schema import Tools

MARK, CLOSER = "[TOOL_CALLS]", "[/TOOL_CALLS]"
ID_LENGTH = 9

_NAME = r"[^\W\d][\w.:/-]{0,127}+"
_SOME = r"\s{0,8}"
_ID = perhaps(token("[CALL_ID"), r"\]?", _SOME, r"[\w-]{0,64}", _SOME)
_ARGS = then(token("[ARGS"), r"\]?", _SOME)
_MARKS = rf"(?:{re.escape(MARK)}\s{{0,8}}){{0,4}}"
_OPENER = then(_MARKS + token("[TOOL_CALLS"), r"\]?", _SOME)

_HEAD = re.compile(
    rf"(?:\[TOOL_CALLS\]?\s*)+(?:({_NAME})\s*(?:\[CALL_ID\]?\s*([\w-]*)\s*)?(?:\[ARGS\]?\s*)?)?(?:```[\w+-]*\s*)?"
)
_AGAIN = re.compile(then(rf"({_NAME})", _SOME, _ID, _ARGS))
_RESIDUE = rf"{_NAME}(?:\Z|(?=\{{))"
"""A name with the id glued to it: what is left where a server strips the markers."""

CLOSERS = Closers(
    right=(CLOSER,), wrong=("[/TOOL_CALL]", "[/THINK]"), openers=(MARK, "[TOOL_CALLS"), needed=False, again=_AGAIN
)


def _glued(text: str, start: int, end: int, *, fresh: bool, rules: Rules) -> bool | None:
    """Tell whether a line begins with an offered tool's name, an id of nine characters, and a bracket."""
    del fresh
    word = text[start:end]
    if rules.tools is None:
        return False
    if end < len(text):
        whole = rules.tools.get(word) is not None
        return not whole and rules.tools.get(word[:-ID_LENGTH]) is not None and word[-ID_LENGTH:].isalnum()
    near = any(name.startswith(word) or word.startswith(name) for name in rules.tools.names)
    return None if near else False


class Mistral(Textual):
    """`[TOOL_CALLS]name[ARGS]{...}`, or a list behind the marker."""

    name = "mistral"
    models = "Mistral, Mixtral, Nemo, Small, Large, Codestral, Devstral, Magistral, Ministral 3"
    tier: Tier = "S"
    heads = (
        Head(
            ("[TOOL_CALLS",), then(_OPENER, _NAME, _SOME, _ID, _ARGS, FENCE), opens="{<[", alone=r"(?s:.*\[ARGS\]?\s*)"
        ),
        Head(("[TOOL_CALLS",), then(_OPENER, _NAME, _SOME, _ID, FENCE), opens="{"),
        Head(("[TOOL_CALLS",), then(_OPENER, SPACE, FENCE)),
        Head((), _RESIDUE, opens="{", gate=A_NAME, begins=_glued, line=True, tier="B"),
    )
    closers = (CLOSER, MARK)
    stop = ("[TOOL_RESULTS]",)

    def candidate(self, head: str, rules: Rules, place: Place, *, firm: bool) -> Candidate:
        """Start at the bracket of the list, or of the arguments."""
        found = _HEAD.fullmatch(head)
        if found is None:
            lost = Fix("marker", "the markers around its name and id are missing")
            return WrappedCandidate(head, CLOSERS, rules, place, firm=firm, name=head[:-ID_LENGTH], fixes=[lost])
        fixes = [Fix("marker", "a bracket of its markers is missing")] if head.count("[") != head.count("]") else []
        return WrappedCandidate(head, CLOSERS, rules, place, firm=firm, name=found[1], fixes=fixes)

    def render_tools(self, tools: Tools, *, parallel: bool = True, required: bool = False) -> str:
        """Write the block of the system message that declares the tools and the format."""
        listed = dump([{"type": "function", "function": each} for each in functions(tools)])
        return explain(
            f"[AVAILABLE_TOOLS]{listed}[/AVAILABLE_TOOLS]",
            f"{MARK}function_name[ARGS]{ARGUMENTS}",
            several=f"To call several functions, write one after the other, each with its own {MARK}.",
            parallel=parallel,
            required=required,
        )

    def render_calls(self, calls: Sequence[Call]) -> str:
        """Write calls as the model would have; in the old form where a name holds what the new one cannot."""
        return "".join(
            f"{MARK}{call.name}[ARGS]{call.arguments_json}"
            if re.fullmatch(_NAME, call.name)
            else f'{MARK}[{{"name": {dump(call.name)}, "arguments": {call.arguments_json}}}]'
            for call in calls
        )

    def render_results(self, results: Sequence[Result]) -> str:
        """Write results as one user turn."""
        return "".join(f"[TOOL_RESULTS]{result.content}[/TOOL_RESULTS]" for result in results)
