"""Mistral: `[TOOL_CALLS]`, then a list of calls (old), or a name and its arguments (since tokenizer v11).

    [TOOL_CALLS][{"name": "get_weather", "arguments": {"city": "Oslo"}, "id": "aB3dE6gH9"}]
    [TOOL_CALLS]get_weather[CALL_ID]aB3dE6gH9[ARGS]{"city": "Oslo"}
    [TOOL_CALLS]get_weather[ARGS]{"city": "Oslo"}

Source: mistral-common, tokenizers v3 to v13 (2024-05 to 2025-12), the chat templates of Small 3.2, Devstral and
Ministral 3. SGLang has seen calls with unclosed brackets.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from promptools.dialects.calls.parse_options import Evidence, ParseOptions
from promptools.dialects.contract import NAME_GATE, Head
from promptools.dialects.declared import DeclaredDialect
from promptools.dialects.prefix_patterns import literal_text, optional_steps, sequence
from promptools.dialects.readers.block_markers import Closers
from promptools.dialects.readers.json_block import JsonBlockReader
from promptools.dialects.readers.marked_json import (
    FENCE,
    LOST_OPENER,
    SPACE,
    NamedMarkerJson,
    unopened_head,
    unopened_name,
)
from promptools.dialects.readers.marked_python import CallsOrJson, begins_offered_call, marker_head
from promptools.dialects.readers.python_reader import CallLayout, PythonFallbackReader
from promptools.dialects.table import read_family
from promptools.jsontext.text import dump
from promptools.parsing.parts import NEED_MORE, Candidate, NeedMore
from promptools.parsing.reply_record import ID_LENGTH
from promptools.patterns import lazy_pattern
from promptools.types import Call, Fix

if TYPE_CHECKING:
    from promptools.schema import Tools

MARK, CLOSER = "[TOOL_CALLS]", "[/TOOL_CALLS]"

_NAME = r"[^\W\d][\w.:/-]{0,127}+"
_SPACES = r"\s{0,8}"
_ID = optional_steps(literal_text("[CALL_ID"), r"\]?", _SPACES, r"[\w-]{0,64}", _SPACES)
_ARGS = sequence(literal_text("[ARGS"), r"\]?", _SPACES)
_MARKS = rf"(?:{re.escape(MARK)}\s{{0,8}}){{0,4}}"
_OPENER = sequence(_MARKS + literal_text("[TOOL_CALLS"), r"\]?", _SPACES)

_BEFORE = sequence(_NAME, r"[ \t]{0,8}", literal_text("[TOOL_CALLS"), r"\]?", _SPACES, optional_steps(_ARGS), FENCE)
"""Matches a name and the marker after it. Only `[ARGS]` and a code fence may come between marker and arguments."""
_NAME_FIRST = lazy_pattern(rf"({_NAME})[ \t]*\[TOOL_CALLS")

_HEAD = lazy_pattern(
    rf"(?:\[TOOL_CALLS\]?\s*)+(?:({_NAME})\s*(?:\[CALL_ID\]?\s*([\w-]*)\s*)?)?(?:\[ARGS\]?\s*)?(?:```[\w+-]*\s*)?"
)
_AGAIN = lazy_pattern(sequence(rf"({_NAME})", _SPACES, _ID, _ARGS))
_STRING = lazy_pattern(r'[^"\\]*+(?:\\[\s\S][^"\\]*+)*+')
"""Matches the content of a JSON string, up to the closing quote or an incomplete escape."""
_RESIDUE = rf"{_NAME}(?:\Z|(?=\{{))"
"""Matches a tool's name with the call's id appended. A call begins like this if a server strips the markers."""

CLOSERS = Closers(
    right=(CLOSER,), wrong=("[/TOOL_CALL]", "[/THINK]"), openers=(MARK, "[TOOL_CALLS"), required=False, next_name=_AGAIN
)


_PYTHON = CallLayout(closers=(CLOSER, "[/TOOL_CALL]"), one_per_line=True)
"""The `CallLayout` of Python calls after the marker. Such calls were seen with third-party configurations."""


def _residue_begins(text: str, start: int, end: int, *, fresh: bool, options: ParseOptions) -> bool | NeedMore:
    """Return whether a line begins with an offered tool's name, an id of nine characters, and a bracket."""
    del fresh
    word = text[start:end]
    if options.tools is None:
        return False
    if end < len(text):
        whole = options.tools.get(word) is not None
        return not whole and options.tools.get(word[:-ID_LENGTH]) is not None and word[-ID_LENGTH:].isalnum()
    near = any(name.startswith(word) or word.startswith(name) for name in options.tools.all_names)
    return NEED_MORE if near else False


def _name_first_begins(text: str, start: int, end: int, *, fresh: bool, options: ParseOptions) -> bool | NeedMore:
    """Return whether a line begins with an offered tool's name, the marker, and arguments."""
    del fresh
    if options.tools is None:
        return False
    named = _NAME_FIRST.match(text, start)
    word = named[1] if named is not None else text[start:end].partition("[")[0].rstrip()
    marked = named is not None or len(word) < end - start
    if not (options.tools.find(word) is not None if marked else _may_be_offered(word, options.tools)):
        return False
    return NEED_MORE if end == len(text) else named is not None and text[end] == "{"


def _may_be_offered(word: str, tools: Tools) -> bool:
    """Return whether `word` is the name of an offered tool, or the beginning of such a name."""
    return any(name.startswith(word) for name in tools.all_names) or tools.find(word) is not None


HEADS = (
    Head(
        ("[TOOL_CALLS",),
        sequence(_OPENER, _NAME, _SPACES, _ID, _ARGS, FENCE),
        body_starts='{<["',
        sure_pattern=r"(?s:.*\[ARGS\]?\s*)",
    ),
    Head(
        ("[TOOL_CALLS",),
        sequence(_OPENER, _NAME, _SPACES, _ID, FENCE),
        body_starts="{",
        sure_pattern=rf"{_MARKS}{_NAME}\s*",
    ),
    Head(("[TOOL_CALLS",), sequence(_OPENER, optional_steps(_ARGS), SPACE, FENCE)),
    marker_head(MARK)._replace(begins=begins_offered_call),
    Head((), _BEFORE, body_starts="{", gate=NAME_GATE, begins=_name_first_begins, at_line_start=True),
    unopened_head(literal_text("[ARGS"), r"\]?", _SPACES, FENCE),
    Head((), _RESIDUE, body_starts="{", gate=NAME_GATE, begins=_residue_begins, at_line_start=True, tier="B"),
)


class Mistral(NamedMarkerJson):
    """The dialect of Mistral: `[TOOL_CALLS]name[ARGS]{...}`, or a list after the marker."""

    def candidate(self, head: str, options: ParseOptions, evidence: Evidence, *, definite: bool) -> Candidate:
        """Return a `Candidate` that reads the arguments, the list or the Python calls after the markers in `head`."""
        before = _NAME_FIRST.match(head)
        if before is not None:
            moved = Fix("marker", "the name is before the marker")
            return MistralCandidate(head, CLOSERS, options, evidence, definite=definite, name=before[1], fixes=[moved])
        header = _HEAD.fullmatch(head)
        if header is None and "[ARGS" in head:
            lost, name = Fix("marker", LOST_OPENER), unopened_name(head)
            return MistralCandidate(head, CLOSERS, options, evidence, definite=definite, name=name, fixes=[lost])
        if header is None:
            lost = Fix("marker", "the markers around its name and id are missing")
            return JsonBlockReader(
                head, CLOSERS, options, evidence, definite=definite, name=head[:-ID_LENGTH], fixes=[lost]
            )
        fixes = [Fix("marker", "a bracket of its markers is missing")] if head.count("[") != head.count("]") else []
        if header[1] is not None:
            return MistralCandidate(head, CLOSERS, options, evidence, definite=definite, name=header[1], fixes=fixes)
        return CallsOrJson(
            head,
            lambda: PythonFallbackReader(head, _PYTHON, options, evidence, definite=definite),
            lambda: JsonBlockReader(head, CLOSERS, options, evidence, definite=definite, fixes=fixes),
            definite=definite,
        )

    def render_calls(self, calls: Sequence[Call]) -> str:
        """Render each call in the new form, or in the old form if the tool's name is not valid in the new form."""
        return "".join(
            f"{MARK}{call.name}[ARGS]{call.arguments_json}"
            if re.fullmatch(_NAME, call.name)
            else f'{MARK}[{{"name": {dump(call.name)}, "arguments": {call.arguments_json}}}]'
            for call in calls
        )


def mistral() -> DeclaredDialect:
    """Return the dialect of Mistral."""
    dialect = read_family("mistral", Mistral)
    dialect.heads = HEADS
    return dialect


class MistralCandidate(JsonBlockReader):
    """Reads the arguments of a call. They may be inside a JSON string.

    If the text ends before any arguments, the name alone is a call, but only if a tool of this name is offered.
    """

    _string: list[str] | None = None
    """The pieces of the JSON string so far, with its opening quote; None if there is no string."""
    _escaped = False

    def feed(self, piece: str, start: int) -> int | None:
        """Read `piece[start:]`; return the index just past what was read, or None if more text is needed."""
        if self._string is None and self._lacks_body and piece[start : start + 1] == '"':
            self._string = []
        if self._string is None or self._body.has_text:
            return super().feed(piece, start)
        begun = bool(self._string)
        content = _STRING.match(piece, start + (self._escaped or not begun))
        end = content.end() if content is not None else len(piece)
        closed = piece[end : end + 1] == '"'
        self._escaped = piece[end : end + 1] == "\\"
        end = end + 1 if closed else len(piece)
        self._string.append(piece[start:end])
        if not closed:
            return None
        self._body.extend("".join(self._string))
        self._body_ended()
        return end if self._decided else super().feed(piece, end)

    def close(self, finish_reason: str | None) -> None:
        """Decide whether the text is a call, since no more text will come."""
        tools, name = self._options.tools, self._name or ""
        if self._string and not self._body.has_text:
            self._lookahead = "".join(self._string)
            self._report_truncated()
        elif self._lacks_body and "[ARGS" not in self.head and (tools is None or tools.find(name) is None):
            self._give_up("no tool of that name is offered, and no arguments follow")
        else:
            super().close(finish_reason)
