"""Calls in the notation of a harness that printed earlier turns: a model that reads such a history copies it.

    [Calling tool: get_weather({"city": "Oslo"})]
    [Tool Call: get_weather] Arguments: {"city": "Oslo"}

No model is trained on these, and logs look the same: they are read only at `lenient`, and never written. The `json`
dialect is written instead, so that the next turn has a better example to copy.
"""

from __future__ import annotations

import re

from promptools.dialects.base import Head, Tier
from promptools.dialects.blocks.markers import Closers
from promptools.dialects.blocks.wrapped import WrappedCandidate
from promptools.dialects.json import Json
from promptools.dialects.openings import either, then, token
from promptools.dialects.settle import PLAUSIBLE_NAME, Place, Rules
from promptools.parsing.parts import Candidate

_NAME = r"[`\"']?[^\W\d][\w.-]{0,80}+[`\"']?"
_SOME = r"[ \t]{0,4}"
_CALLING = then(token("[Calling tool"), r"s?", r"\s{0,2}", ":", _SOME, _NAME, _SOME, r"\(?", r"\s{0,4}")
_TOOL_CALL = then(r"\[", either(token("Tool Call"), token("Tool call"), token("tool_call")), _SOME, ":", _SOME, _NAME,
                  _SOME, r"\]", r"\s{0,8}", rf"(?:{then(token('Arguments'), ':')})?", r"\s{0,8}")  # fmt: skip
_COUNTED = then(token("Tool call"), r"[ \d]{0,4}", ":", _SOME, either(token("calling "), token("Calling ")), _NAME,
                " ", token("with"), r"\s{1,4}")  # fmt: skip
_LISTED = then(token("Calling tools:"), r"\s{0,8}")
_PREVIOUS = then(token("[Previous assistant tool use]"), r"\s{1,4}", token("Tool:"), _SOME, _NAME, r"\s{1,4}",
                 token("Input:"), r"\s{0,8}")  # fmt: skip
_WRENCH = then("🔧", r"\s{0,2}", _NAME, r"[ \t]{0,2}[:(]?\s{0,4}")
_NAMED = re.compile(
    r"(?:\[Calling tools?\s*:|\[[Tt]ool.[Cc]all\s*:|Tool call[ \d]*:\s*[Cc]alling |.*\sTool:|🔧)\s*[`\"']?([\w.-]+)",
    re.DOTALL,
)
_BRACKETED = Closers(right=(")]",), wrong=(), openers=(), needed=False)
_BARE = Closers(right=("```",), wrong=(), openers=(), needed=False)


def _begins(text: str, start: int, end: int, *, fresh: bool, rules: Rules) -> bool | None:
    """Whether printed history is read at all, and names an offered tool."""
    del fresh
    if rules.strictness != "lenient":
        return False
    if end == len(text):
        return None
    named = _NAMED.match(text, start, end)
    if text[end] not in "{[":
        return False
    if named is None:
        return text.startswith("Calling tools", start)
    return rules.tools is not None and PLAUSIBLE_NAME.match(named[1]) is not None and _offered(named[1], rules)


def _offered(name: str, rules: Rules) -> bool:
    return rules.tools is not None and rules.tools.find(name) is not None


def _line(pattern: str, gate: str) -> Head:
    return Head((), pattern, gate=gate, begins=_begins, line=True)


class Mimicry(Json):
    """`[Calling tool: NAME({...})]`, and other ways to print a call."""

    name = "mimicry"
    models = "none by training: models that copy a printed history"
    tier: Tier = "C"
    heads: tuple[Head, ...] = (
        _line(either(_CALLING, _TOOL_CALL, _PREVIOUS), r"(?=[\[])"),
        _line(either(_COUNTED, _LISTED), "(?=[TC])"),
        _line(_WRENCH, "🔧"),
        *(head._replace(asked=True, tier="B") for head in Json.heads),
    )
    closers: tuple[str, ...] = ()

    def candidate(self, head: str, rules: Rules, place: Place, *, firm: bool) -> Candidate:
        """Read from the arguments, or from the list of calls."""
        if head[:1] not in ("[", "T", "C", "🔧"):
            return super().candidate(head, rules, place, firm=firm)
        named = _NAMED.match(head)
        closers = _BRACKETED if head.rstrip().endswith("(") else _BARE
        return WrappedCandidate(head, closers, rules, place, firm=firm, name=named[1] if named else None)
