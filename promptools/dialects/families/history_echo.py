"""Read calls that imitate how an agent program printed earlier calls in the conversation.

    [Calling tool: get_weather({"city": "Oslo"})]
    [Tool Call: get_weather] Arguments: {"city": "Oslo"}

No model is trained on these forms, and logs look the same. So they are read only with the strictness `lenient`, and
are never written. Calls are written in the `json` dialect instead, so that the model has a better example to copy.
"""

from __future__ import annotations

import re

from promptools.dialects.calls.parse_options import Evidence, ParseOptions
from promptools.dialects.calls.resolve import PLAUSIBLE_NAME
from promptools.dialects.contract import Head, Tier
from promptools.dialects.families.generic_json import GenericJson
from promptools.dialects.prefix_patterns import any_literal_text, any_of, literal_text, sequence
from promptools.dialects.readers.block_markers import Closers
from promptools.dialects.readers.json_block import JsonBlockReader
from promptools.parsing.parts import NEED_MORE, Candidate, NeedMore
from promptools.patterns import lazy_pattern

_NAME = r"[`\"']?[^\W\d][\w.-]{0,80}+[`\"']?"
_SPACES = r"[ \t]{0,4}"
_CALLING = sequence(literal_text("[Calling tool"), r"s?", r"\s{0,2}", ":", _SPACES, _NAME, _SPACES, r"\(?", r"\s{0,4}")
_TOOL_CALL = sequence(
    r"\[",
    any_of(literal_text("Tool Call"), literal_text("Tool call"), literal_text("tool_call")),
    _SPACES,
    ":",
    _SPACES,
    _NAME,
    _SPACES,
    r"\]",
    r"\s{0,8}",
    rf"(?:{sequence(literal_text('Arguments'), ':')})?",
    r"\s{0,8}",
)
_COUNTED = sequence(
    literal_text("Tool call"),
    r"[ \d]{0,4}",
    ":",
    _SPACES,
    any_of(literal_text("calling "), literal_text("Calling ")),
    _NAME,
    " ",
    literal_text("with"),
    r"\s{1,4}",
)
_LISTED = sequence(literal_text("Calling tools:"), r"\s{0,8}")
_PREVIOUS = sequence(
    literal_text("[Previous assistant tool use]"),
    r"\s{1,4}",
    literal_text("Tool:"),
    _SPACES,
    _NAME,
    r"\s{1,4}",
    literal_text("Input:"),
    r"\s{0,8}",
)
_WRENCH = sequence("🔧", r"\s{0,2}", _NAME, r"[ \t]{0,2}[:(]?\s{0,4}")
_NAMED = lazy_pattern(
    r"(?:\[Calling tools?\s*:|\[[Tt]ool.[Cc]all\s*:|Tool call[ \d]*:\s*[Cc]alling |.*\sTool:|🔧)\s*[`\"']?([\w.-]+)",
    re.DOTALL,
)
_BRACKETED = Closers(right=(")]",), wrong=(), openers=(), required=False)
_BARE = Closers(right=("```",), wrong=(), openers=(), required=False)


def _begins(text: str, start: int, end: int, *, fresh: bool, options: ParseOptions) -> bool | NeedMore:
    """Return whether a printed call begins at `text[start]`.

    This is so only if parsing is lenient and, if the text names a tool, that tool is offered.
    """
    del fresh
    if options.strictness != "lenient":
        return False
    if end == len(text):
        return NEED_MORE
    named = _NAMED.match(text, start, end)
    if text[end] not in "{[":
        return False
    if named is None:
        return text.startswith("Calling tools", start)
    return options.tools is not None and PLAUSIBLE_NAME.match(named[1]) is not None and _offered(named[1], options)


def _offered(name: str, options: ParseOptions) -> bool:
    return options.tools is not None and options.tools.find(name) is not None


def _line(pattern: str, gate: str) -> Head:
    return Head((), pattern, gate=gate, begins=_begins, at_line_start=True)


class HistoryEcho(GenericJson):
    """The dialect of printed calls, such as `[Calling tool: NAME({...})]`."""

    name = "mimicry"
    models = "none by training: models that copy a printed history"
    tier: Tier = "C"
    heads: tuple[Head, ...] = (
        _line(any_of(_CALLING, _TOOL_CALL, _PREVIOUS), r"(?=[\[])"),
        _line(any_of(_COUNTED, _LISTED), f"(?=[TC]){any_literal_text(('Tool call', 'Calling tools'))}"),
        _line(_WRENCH, "🔧"),
        *(head._replace(on_request=True, tier="B") for head in GenericJson.heads),
    )
    closers: tuple[str, ...] = ()

    def candidate(self, head: str, options: ParseOptions, evidence: Evidence, *, definite: bool) -> Candidate:
        """Return a `Candidate` that reads the arguments, or the list of calls, after the text `head`."""
        if head[:1] not in ("[", "T", "C", "🔧"):
            return super().candidate(head, options, evidence, definite=definite)
        named = _NAMED.match(head)
        closers = _BRACKETED if head.rstrip().endswith("(") else _BARE
        return JsonBlockReader(head, closers, options, evidence, definite=definite, name=named[1] if named else None)
