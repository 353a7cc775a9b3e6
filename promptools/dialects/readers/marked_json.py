"""The dialect kinds `json` (JSON between two markers) and `named` (JSON after markers that name the tool)."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from itertools import count
from typing import Final, Literal, Unpack

from promptools.dialects.calls.envelope import ARGUMENT_KEYS, NAME_KEYS
from promptools.dialects.calls.parse_options import Evidence, ParseOptions
from promptools.dialects.contract import NAME_GATE, Head
from promptools.dialects.declared import CommonKeys, DeclaredDialect
from promptools.dialects.prefix_patterns import (
    any_literal_text,
    any_of,
    label_gate,
    literal_text,
    optional_steps,
    sequence,
)
from promptools.dialects.prompt import fill
from promptools.dialects.readers.bare_json import bare_json_candidate, bare_json_heads
from promptools.dialects.readers.block_markers import Closers
from promptools.dialects.readers.json_block import JsonBlockReader
from promptools.dialects.reply_markers import WRONG_CLOSERS
from promptools.jsontext.text import dump
from promptools.parsing.parts import NEED_MORE, Candidate, NeedMore
from promptools.parsing.special_tokens import is_only_tokens
from promptools.patterns import lazy_pattern
from promptools.types import Call, Fix, Result

# The kind `json`: a marker, JSON, a marker.
#
# The body may be an object, a list or lines of objects, whichever of these the family writes, in every spelling of
# the envelope; `promptools.dialects.readers.json_block` reads it.


Shape = Literal["object", "list", "lines"]

FENCE = optional_steps("`", "`", "`", r"[\w+-]{0,16}", r"\s{0,16}")
"""The pattern of an optional code fence between a marker and its JSON."""
SPACE = r"\s{0,64}"


class MarkedJson(DeclaredDialect):
    """A dialect whose calls are JSON between two markers.

    The constructor's arguments are the keys of a TOML table that declares such a dialect; see
    `promptools.dialects.table`.
    """

    def __init__(
        self,
        name: str,
        openers: Mapping[str, str],
        *,
        also: Sequence[str] = (),
        stripped: str = "",
        shape: Shape = "object",
        body_starts: str = "{[",
        space: str = "",
        fence_label: str = "",
        separator: str = "\n",
        name_key: str = "name",
        arguments_key: str = "arguments",
        id_key: str = "",
        call: str = "",
        wrapper: str = "",
        on_request: bool = False,
        **common: Unpack[CommonKeys],
    ) -> None:
        marked = {opener: closer for opener, closer in openers.items() if opener}
        # some servers send the line ends of Windows
        marked |= {opener.replace("\n", "\r\n"): closer for opener, closer in marked.items() if "\n" in opener}
        closing = tuple(dict.fromkeys(filter(None, openers.values())))
        begin, _, end = (part.strip() for part in wrapper.partition(CALLS))
        common.setdefault("closers", (*filter(None, (end,)), *closing, *also, *filter(None, (begin,))))
        super().__init__(name, **common)
        self._openers = dict(openers)
        self._id_key = id_key
        self._call, self._wrapper, self._wrapper_opener = call, wrapper or CALLS, begin
        self._envelope = name_key, arguments_key
        self._has_common_keys = name_key in NAME_KEYS and arguments_key in ARGUMENT_KEYS
        self._shape: Shape = shape
        after = space if next(iter(openers.values())) else ""
        self._padding = (f"\n```{fence_label}\n", "\n```") if fence_label else (space, after)
        self._separator = separator
        self._stripped = stripped
        marks = self._marks = sorted(marked, key=len, reverse=True)
        self.heads = tuple(self._make_heads(body_starts, on_request=on_request))
        self._stripped_closers = Closers(right=(), wrong=closing, openers=(), required=False)
        self._closers = {opener: _closers(closer, closing, marks, also) for opener, closer in marked.items()}

    def _make_heads(self, body_starts: str, *, on_request: bool) -> Iterator[Head]:
        bare = "" in self._openers
        if self._marks:
            yield _marked_head(
                self._marks, body_starts, wrapper=self._wrapper_opener, on_request=on_request, beside_bare=bare
            )
        if self._stripped:
            yield _stripped_head(self._stripped)
        if bare:
            yield from (head._replace(tier="B", on_request=True) for head in bare_json_heads(self._shape))

    def closers_of(self, opener: str) -> Closers:
        """Return the markers that may end a block that begins with the opening marker `opener`."""
        return self._closers[opener]

    def candidate(self, head: str, options: ParseOptions, evidence: Evidence, *, definite: bool) -> Candidate:
        """Return a reader of the JSON after the opening marker `head`. The text to read starts at the first bracket."""
        keys = None if self._has_common_keys else self._envelope
        marked = head.removeprefix(self._wrapper_opener).lstrip() if self._wrapper_opener else head
        opener = next((mark for mark in self._marks if marked.startswith(mark)), None)
        if opener is not None:
            doubled = any(mark in marked[len(opener) :] for mark in self._marks)
            closers, fixes = self.closers_of(opener), [Fix("marker", "the opener came twice")] if doubled else []
        elif self._stripped and head.startswith(self._stripped):
            closers, fixes = self._stripped_closers, [Fix("marker", "the markers around its header are missing")]
        else:
            return bare_json_candidate(head, options, evidence, definite=definite)
        return JsonBlockReader(head, closers, options, evidence, definite=definite, fixes=fixes, envelope_keys=keys)

    def call_id(self, call: Call, number: int) -> str:
        """Return the number of a call if the format numbers its calls, else the id of the call."""
        return str(number) if self._id_key else call.id

    def render_calls(self, calls: Sequence[Call]) -> str:
        """Return calls as text in the model's own format."""
        return fill(self._wrapper, {"calls": self._render_blocks([*map(self._render_object, calls, count())])})

    def _render_object(self, call: Call, at: int) -> str:
        name_key, arguments_key = self._envelope
        name, arguments = dump(call.name), call.arguments_json
        number = call.id if call.id.isdigit() else str(at)
        if self._call:
            values = {"name": name, "arguments": arguments, "text": dump(arguments), "id": call.id, "index": number}
            return fill(self._call, values)
        if not name_key:
            return f"{{{name}: {arguments}}}"
        first = f'{dump(self._id_key)}: "{number}", ' if self._id_key else ""
        return f"{{{first}{dump(name_key)}: {name}, {dump(arguments_key)}: {arguments}}}"

    def _render_blocks(self, objects: Sequence[str]) -> str:
        if self._shape == "object":
            return self._separator.join(self._render_block(body) for body in objects)
        return self._render_block(f"[{', '.join(objects)}]" if self._shape == "list" else "\n".join(objects))

    def _render_block(self, body: str) -> str:
        opener, closer = next(iter(self._openers.items()))
        before, after = self._padding
        return f"{opener}{before}{body}{after}{closer}"


def _closers(closer: str, closing: Sequence[str], openers: Sequence[str], also: Sequence[str]) -> Closers:
    """Return the markers that may end a block whose correct closing marker is `closer`.

    `closing`: the closing markers of all blocks. `also`: further correct closing markers.
    """
    right = (*filter(None, [closer]), *also)
    return Closers(
        right=right,
        wrong=tuple(mark for mark in (*closing, *WRONG_CLOSERS) if mark not in right),
        # an opener that begins with a closer, like GigaChat's, or is the beginning of a closer is read as the closer
        openers=tuple(
            mark for mark in openers if not mark.startswith(right) and not any(end.startswith(mark) for end in right)
        ),
        required=bool(closer),
    )


def _marked_head(marks: Sequence[str], body_starts: str, *, wrapper: str, on_request: bool, beside_bare: bool) -> Head:
    """Return a `Head` that finds JSON after a marker. The wrapper's opening marker may precede this marker.

    `beside_bare`: whether the dialect also reads JSON without markers. If so, the dialect has the tier of bare JSON
    ("B"), and a head whose markers are special tokens gets a tier of its own ("S").
    """
    again = optional_steps(any_literal_text(marks), SPACE)
    alone = r"(?!)" if marks[-1][0].isalpha() else ""  # at the end of the text, a marker that is a word shows no call
    opened = any_literal_text(marks)
    if wrapper:
        opened = sequence(optional_steps(literal_text(wrapper), _GAP), opened)
    return Head(
        tuple(filter(None, (wrapper, *marks))),
        sequence(opened, SPACE, again, FENCE),
        body_starts=body_starts,
        on_request=on_request,
        sure_pattern=alone,
        tier="S" if beside_bare and all(map(is_only_tokens, marks)) else None,
    )


def _stripped_head(label: str) -> Head:
    """Return a `Head` that finds JSON after a label at the beginning of a line.

    The label is what remains of an opening marker whose tokens were stripped.
    """
    return Head(
        (label,),
        sequence(literal_text(label), r"\s{0,16}"),
        body_starts="{",
        gate=label_gate(label.split(maxsplit=1)[0]),
        at_line_start=True,
        tier="B",
    )


# The head of a call that has lost the token before its name: the name begins a line, and the token after it follows.
#
#     get_weather<｜tool▁sep｜>{"city": "Oslo"}<｜tool▁call▁end｜>
#
# A server strips a token that it knows, or its parser splits the text at the token, and the rest of the call remains.


LOST_OPENER: Final = "the token before its name is missing"
_NAME = r"[^\W\d][\w./-]{0,127}+"
_FIRST_NAME = lazy_pattern(rf"({_NAME})(?::\d{{1,4}})?\s*(\S?)")
_NUMBER = r"(?::\d{1,4})?"
"""The pattern of the optional number after the name, such as `:0`, with which Kimi K2 numbers its calls."""


def unopened_head(*steps: str) -> Head:
    """Return a `Head` that finds a call by an offered tool's name, if the token before the name is missing.

    `steps`: the patterns of the tokens between the name and the arguments.
    """
    return Head(
        (),
        sequence(_NAME, _NUMBER, r"\s{0,16}", *steps),
        body_starts="{",
        gate=NAME_GATE,
        begins=_begins,
        at_line_start=True,
        fence_labels=(None,),
    )


def unopened_name(head: str) -> str:
    """Return the tool's name in text that the head of `unopened_head` matched; empty if a token precedes the name."""
    name = _FIRST_NAME.match(head)
    return name[1] if name is not None else ""


def _begins(text: str, start: int, end: int, *, fresh: bool, options: ParseOptions) -> bool | NeedMore:
    """Return whether the text is the name of an offered tool, followed by a token and the arguments."""
    del fresh
    name = _FIRST_NAME.match(text, start, end)
    if name is None or options.tools is None:
        return False
    if not name[2]:
        return NEED_MORE if end == len(text) else False
    if options.tools.get(name[1]) is None:
        return False
    return text[end] == "{" if end < len(text) else NEED_MORE


# The kind `named`: markers that name the tool, and JSON that is its arguments.
#
#     <|tool_call:begin|>a1b2c3d4e5<|tool_call:name|>get_weather<|tool_call:args|>{"city": "Oslo"}<|tool_call:end|>
#
# A format is declared by the template of one call, by which calls are read and written:
# `...{id}...{name}...{arguments}...`. In the text around these placeholders, white space is optional between any two
# tokens and at both ends. A code fence before the arguments is optional too.


ARGUMENTS: Final = "{arguments}"
CALLS: Final = "{calls}"
_GAP = r"\s{0,16}"
_VALUES: Final = {
    "{id}": "[^<{others}]{{0,64}}",
    "{index}": "[0-9]{{0,9}}",
    "{name}": r"(?<!\w)(?![-*+]\s)[^<>\n{{{others}]{{1,128}}",
}
"""Maps each placeholder of a template to the pattern of the text in its place.

In a pattern, `{others}` is replaced by the bracket or bar that follows the placeholder in the template, if there is
one, so that the text ends before that character. A name begins at the beginning of a word, so `_list` is not found as a
name in `function_list`; and the bullet of a list item is not the beginning of a name.
"""
_FENCE = r"\s*(?:`{1,3}[\w+-]*\s*)?\Z"
_TOKEN_BOUNDARY = lazy_pattern(r"(?<=>)(?=<)|\s+")
"""Matches the boundary between two tokens of a template."""
_LEAST_TOKEN = 4
"""Minimum length of a token after a tool's name if the token is to show that a call begins.

The end of a tag, `>`, is too short for that.
"""
_KEY = lazy_pattern(r"(\{id\}|\{name\}|\{index\})")


class NamedMarkerJson(DeclaredDialect):
    """A dialect whose calls are JSON arguments after markers that contain the tool's name.

    The constructor's arguments are the keys of a TOML table that declares such a dialect; see
    `promptools.dialects.table`.
    """

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
        closer, *tail = _tokens(after.strip().removeprefix("```")) or [""]
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

    def candidate(self, head: str, options: ParseOptions, evidence: Evidence, *, definite: bool) -> Candidate:
        """Return a reader of one call's arguments. The text to read starts at the first bracket of the arguments."""
        header = re.compile(self._header).match(head)
        name = header[header.lastindex or 0] if header else unopened_name(head)
        fixes = () if header or not name else (Fix("marker", LOST_OPENER),)
        closers = self._closers_of(name if self._closer_has_name else "")
        return JsonBlockReader(head, closers, options, evidence, definite=definite, name=name, fixes=fixes)

    def render_calls(self, calls: Sequence[Call]) -> str:
        """Return calls as text in the model's own format."""
        written = (fill(self._call, self._values(call, number)) for number, call in enumerate(calls))
        return fill(self._wrapper, {"calls": self._separator.join(written)})

    def _render_examples(self, calls: Sequence[Call]) -> str:
        """Return the example calls of a prompt as text. The calls get made-up ids."""
        return self.render_calls([replace(call, id=f"call{number:05}") for number, call in enumerate(calls, 1)])

    def _values(self, call: Call, number: int) -> dict[str, str]:
        arguments = dump(call.arguments) if self._one_line else call.arguments_json
        return {"id": _word_characters(call.id), "name": call.name, "arguments": arguments, "index": str(number)}

    def render_results(self, results: Sequence[Result]) -> str:
        """Return results as the text of one user turn."""
        return super().render_results([replace(result, call_id=_word_characters(result.call_id)) for result in results])


def is_call_template(template: str) -> bool:
    """Return whether a text is a valid template of a call.

    A template must begin with a marker, contain `{name}` once, and have text between its placeholders.
    """
    before, *rest = template.split(ARGUMENTS)
    pieces = _KEY.split(before)
    return (
        len(rest) <= 1
        and bool(_tokens(pieces[0]))
        and pieces[1::2].count("{name}") == 1
        and len({*pieces[1::2]}) == len(pieces[1::2])
        and all(map(_tokens, pieces[2:-1:2]))
    )


def _tokens(text: str) -> list[str]:
    """Split a piece of a template into tokens: at white space, and between adjacent tags."""
    return [token for token in _TOKEN_BOUNDARY.split(text) if token]


def _header_head(literals: tuple[str, ...], headers: Sequence[str], begin: str) -> Head:
    """Return a `Head` that finds a call. `headers`: the templates of the text before the arguments.

    `begin`: the text that opens a wrapper, which may precede the header; empty if there is no wrapper.
    """
    opened = any_of(*map(_partial_pattern, headers))
    if begin:
        opened = sequence(optional_steps(literal_text(begin), _GAP), opened)
    split = [(_tokens(pieces[0]), _tokens(pieces[-1])) for pieces in map(_KEY.split, headers)]
    finished = (
        "|".join(rf".*{_whole_pattern(first)}.+{_whole_pattern(last)}\s*" for first, last in split if last) or r"(?!)"
    )
    return Head(literals, sequence(opened, SPACE, FENCE), body_starts="{<", sure_pattern=rf"(?s:{finished})")


def _unopened_heads(headers: Sequence[str]) -> Iterator[Head]:
    """Yield `Head` objects that find a call without the token before its name.

    There is such a head for each header with a token between the name and the arguments.
    """
    between = dict.fromkeys(tuple(_tokens(_KEY.split(header)[-1])) for header in headers)
    for first, *others in filter(None, between):
        if len(first) >= _LEAST_TOKEN:
            steps = (step for token in others for step in (_GAP, literal_text(token)))
            yield unopened_head(literal_text(first), *steps, SPACE, FENCE)


def _partial_pattern(header: str) -> str:
    """Return the pattern of text that fits the template `header`, even if the end of the text cuts it off."""
    pieces = _KEY.split(header)
    steps = [
        pattern
        for at, piece in enumerate(pieces)
        for pattern in (
            [_value_pattern(piece, pieces[at + 1])] if piece in _VALUES else map(literal_text, _tokens(piece))
        )
    ]
    return sequence(steps[0], *(step for pattern in steps[1:] for step in (_GAP, pattern)))


def _value_pattern(key: str, following: str) -> str:
    """Return the pattern of the text in place of the placeholder `key`. `following`: the template's text after it.

    If `following` begins with a bracket or a bar, the text ends before that character.
    """
    first = following.lstrip()[:1]
    return _VALUES[key].format(others=re.escape(first) if first in tuple("[(⟦【|") else "")


def _whole_pattern(tokens: Sequence[str]) -> str:
    """Return the pattern of whole tokens with optional white space between them."""
    return r"\s*".join(map(re.escape, tokens))


def _header_pattern(header: str) -> str:
    """Return the pattern of complete text that fits the template `header`. Its only group is the tool's name."""
    parts = [
        {"{id}": "[^<]*?", "{index}": "[0-9]*", "{name}": "(.*?)"}.get(piece) or _whole_pattern(_tokens(piece))
        for piece in _KEY.split(header)
    ]
    return r"\s*".join(parts)


def _word_characters(call_id: str) -> str:
    """Return only the word characters of an id, because servers add dashes, which the model has never seen in ids."""
    return re.sub(r"\W", "", call_id)
