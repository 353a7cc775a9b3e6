"""The kind `named`: markers that name the tool, and JSON that is its arguments.

    <|tool_call:begin|>a1b2c3d4e5<|tool_call:name|>get_weather<|tool_call:args|>{"city": "Oslo"}<|tool_call:end|>

A format is a template of one call, from which it is read and written: `...{id}...{name}...{arguments}...`. Of the text
around these keys, white space is optional between any two tokens and at each end, and so is a code fence before the
arguments.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Final, Unpack

from promptools.dialects.calls.parse_options import Evidence, ParseOptions
from promptools.dialects.contract import Head
from promptools.dialects.declared import CommonKeys, DeclaredDialect
from promptools.dialects.prefix_patterns import any_of, literal_text, optional_steps, sequence
from promptools.dialects.readers.json_block.block_markers import Closers
from promptools.dialects.readers.json_block.block_reader import JsonBlockReader
from promptools.dialects.readers.json_block.marked_json import FENCE, SPACE
from promptools.dialects.readers.json_block.unopened import LOST_OPENER, unopened_head, unopened_name
from promptools.dialects.rendering.templates import fill
from promptools.jsontext.text import dump
from promptools.parsing.parts import Candidate
from promptools.patterns import lazy_pattern
from promptools.types import Call, Fix, Result

ARGUMENTS: Final = "{arguments}"
CALLS: Final = "{calls}"
_GAP = r"\s{0,16}"
_VALUES: Final = {"{id}": "[^<]{0,64}", "{name}": r"(?<!\w)[^<>\n{]{1,128}"}
"""The patterns of what a template leaves open. A name is no rest of a word: `function_list` names no tool `_list`."""
_FENCE = r"\s*(?:`{1,3}[\w+-]*\s*)?\Z"
_TOKEN_BOUNDARY = lazy_pattern(r"(?<=>)(?=<)|\s+")
"""Where one token ends and the next begins."""
_LEAST_TOKEN = 4
"""Characters of a token that shows a call after a tool's name; the end of a tag does not."""
_KEY = lazy_pattern(r"(\{id\}|\{name\})")


class NamedMarkerJson(DeclaredDialect):
    """Markers around a name and JSON. The arguments are the keys of the kind, in `promptools.dialects.table_kinds`."""

    def __init__(
        self,
        name: str,
        call: str,
        *,
        spellings: Sequence[str] = (),
        separator: str = "\n",
        one_line: bool = False,
        wrapper: str = CALLS,
        **common: Unpack[CommonKeys],
    ) -> None:
        before, _, after = call.partition(ARGUMENTS)
        around = wrapper.partition(CALLS)
        begin, end = around[0].strip(), around[2].strip()
        closer, *tail = _tokens(after) or [""]
        closing = tuple(mark for mark in (end, closer, *tail, begin) if mark and "{name}" not in mark)
        common.setdefault("closers", closing)
        super().__init__(name, **common)
        self._call, self._separator, self._wrapper, self._one_line = call, separator, wrapper, one_line
        headers = [before, *(spelling.partition(ARGUMENTS)[0] for spelling in spellings)]
        marks = dict.fromkeys(_tokens(_KEY.split(header)[0])[0] for header in headers)
        literals = tuple(filter(None, (begin, *marks)))
        self.heads = (_header_head(literals, headers, begin), *_unopened_heads(headers))
        wrong = tuple(filter(None, (*tail, end, "</think>")))
        openers = tuple(mark for mark in literals if not closer.startswith(mark))

        @lru_cache(maxsize=32)
        def closers_of(tool: str) -> Closers:
            right = (fill(closer, {"name": tool}),) if closer else ()
            return Closers(right=right, wrong=wrong, openers=openers, required=bool(closer))

        self._closers_of = closers_of
        self._closer_has_name = "{name}" in closer
        named = "|".join(map(_header_pattern, headers))
        self._header = rf"(?s:(?:{re.escape(begin)}\s*)?(?:{named}){_FENCE})"

    def candidate(self, head: str, rules: ParseOptions, place: Evidence, *, definite: bool) -> Candidate:
        """Start reading at the bracket of the arguments."""
        header = re.compile(self._header).match(head)
        name = header[header.lastindex or 0] if header else unopened_name(head)
        fixes = () if header or not name else (Fix("marker", LOST_OPENER),)
        closers = self._closers_of(name if self._closer_has_name else "")
        return JsonBlockReader(head, closers, rules, place, definite=definite, name=name, fixes=fixes)

    def render_calls(self, calls: Sequence[Call]) -> str:
        """Write calls in the model's own format."""
        written = (fill(self._call, self._values(call)) for call in calls)
        return fill(self._wrapper, {"calls": self._separator.join(written)})

    def _render_examples(self, calls: Sequence[Call]) -> str:
        """Write the example calls of a prompt, with ids."""
        return self.render_calls([replace(call, id=f"call{number:05}") for number, call in enumerate(calls, 1)])

    def _values(self, call: Call) -> dict[str, str]:
        arguments = dump(call.arguments) if self._one_line else call.arguments_json
        return {"id": _word_characters(call.id), "name": call.name, "arguments": arguments}

    def render_results(self, results: Sequence[Result]) -> str:
        """Write results as one user turn."""
        return super().render_results([replace(result, call_id=_word_characters(result.call_id)) for result in results])


def is_call_template(template: str) -> bool:
    """Return whether a template of a call can be read: it begins with a marker, and text separates its keys."""
    before, *rest = template.split(ARGUMENTS)
    pieces = _KEY.split(before)
    return (
        len(rest) <= 1
        and bool(_tokens(pieces[0]))
        and pieces[1::2] in (["{name}"], ["{id}", "{name}"], ["{name}", "{id}"])
        and all(map(_tokens, pieces[2:-1:2]))
    )


def _tokens(text: str) -> list[str]:
    """Return the tokens in a piece of a template."""
    return [token for token in _TOKEN_BOUNDARY.split(text) if token]


def _header_head(literals: tuple[str, ...], headers: Sequence[str], begin: str) -> Head:
    """Return the head of a call with one of `headers`, after the text `begin` or without it."""
    opened = any_of(*map(_partial_pattern, headers))
    if begin:
        opened = sequence(optional_steps(literal_text(begin), _GAP), opened)
    split = [(_tokens(pieces[0]), _tokens(pieces[-1])) for pieces in map(_KEY.split, headers)]
    finished = (
        "|".join(rf".*{_whole_pattern(first)}.+{_whole_pattern(last)}\s*" for first, last in split if last) or r"(?!)"
    )
    return Head(literals, sequence(opened, SPACE, FENCE), body_starts="{<", sure_pattern=rf"(?s:{finished})")


def _unopened_heads(headers: Sequence[str]) -> Iterator[Head]:
    """Yield the heads of a call without the token before its name, if tokens are between name and arguments."""
    between = dict.fromkeys(tuple(_tokens(_KEY.split(header)[-1])) for header in headers)
    for first, *others in filter(None, between):
        if len(first) >= _LEAST_TOKEN:
            steps = (step for token in others for step in (_GAP, literal_text(token)))
            yield unopened_head(literal_text(first), *steps, SPACE, FENCE)


def _partial_pattern(header: str) -> str:
    """Return the pattern of a header, whole or cut off by the end of the text."""
    steps = [
        pattern
        for piece in _KEY.split(header)
        for pattern in ([_VALUES[piece]] if piece in _VALUES else map(literal_text, _tokens(piece)))
    ]
    return sequence(steps[0], *(step for pattern in steps[1:] for step in (_GAP, pattern)))


def _whole_pattern(tokens: Sequence[str]) -> str:
    """Return the pattern of whole tokens with optional white space between them."""
    return r"\s*".join(map(re.escape, tokens))


def _header_pattern(header: str) -> str:
    """Return the pattern of a whole header, whose only group is the name."""
    parts = [
        {"{id}": "[^<]*?", "{name}": "(.*?)"}.get(piece) or _whole_pattern(_tokens(piece))
        for piece in _KEY.split(header)
    ]
    return r"\s*".join(parts)


def _word_characters(call_id: str) -> str:
    """Keep letters, digits and underscores: servers make ids with dashes, which the model has never seen."""
    return re.sub(r"\W", "", call_id)
