"""Dialects that are data: a marker, JSON, a marker. A family that is no more than that is one call of `MarkedJson`.

The body may be an object, a list or lines of objects, whichever of these the family writes, in every spelling of the
envelope; `promptools.dialects.readers.json_block.block_reader` reads it. An app adds a family of its own with a TOML
table: see `load`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Literal, Unpack

from promptools.dialects.calls.envelope import ARGUMENT_KEYS, NAME_KEYS
from promptools.dialects.calls.resolve import Evidence, ParseOptions, dump
from promptools.dialects.contract import Head, MarkerDeclarations, Textual, Tier
from promptools.dialects.prefix_patterns import any_literal_text, optional_steps, sequence
from promptools.dialects.readers.json_block.block_markers import Closers
from promptools.dialects.readers.json_block.block_reader import JsonBlockReader
from promptools.dialects.rendering.declaration import explain_tools, json_lines
from promptools.parsing.parts import Candidate
from promptools.types import Call, Fix, Result

if TYPE_CHECKING:
    from promptools.schema import Tools

Shape = Literal["object", "list", "lines"]

FENCE = optional_steps("`", "`", "`", r"[\w+-]{0,16}", r"\s{0,16}")
"""A code fence between a marker and its JSON."""
SPACE = r"\s{0,64}"
FOREIGN_CLOSERS = ("</think>", "</tool_call>", "</tool_response>", "</response>")
"""Closing markers of other formats, which models write in place of the right one."""
_PLACEHOLDERS = re.compile(r"(\{content\}|\{json\}|\{name\}|\{id\})")


class MarkedJson(Textual):
    """Marker, JSON, marker.

    `openers`: maps each opening marker to its closing marker, which is empty where there is none; the first pair is the
    one that is written. `name_key`: empty where the name is the object's only key and the arguments are its value.
    `id_key`: the key of a call's number, for formats that number their calls. `tools`: the text before, between and
    after the tools; of two texts, each is put on a line of its own. `result`: the template of one result, with
    `{content}`, `{json}` (the content if it is JSON, else the content as a JSON string), `{name}` and `{id}`;
    `results`: the text before, between and after them. `needed`: a missing closing marker is recorded as a fix.
    `also`: closing markers that other writers use, accepted without a fix. `asked`: its markers belong to another
    dialect too, so it is read only where the request asked for it. `declared`: its other markers.
    """

    def __init__(
        self,
        name: str,
        openers: Mapping[str, str],
        *,
        models: str = "",
        tier: Tier = "A",
        id_key: str = "",
        name_key: str = "name",
        arguments_key: str = "arguments",
        shape: Shape = "object",
        space: str = "",
        needed: bool = True,
        opens: str = "{[",
        also: Sequence[str] = (),
        asked: bool = False,
        tools: tuple[str, str] | tuple[str, str, str] = ("<tools>", "</tools>"),
        result: str = "<tool_response>\n{content}\n</tool_response>",
        results: tuple[str, str, str] = ("", "\n", ""),
        stop: Sequence[str] = (),
        **declared: Unpack[MarkerDeclarations],
    ) -> None:
        self.declare_markers(**declared)
        self.name = name
        self.models = models
        self.tier: Tier = tier
        self.stop = tuple(stop)
        self._openers = dict(openers)
        self._id_key = id_key
        self._envelope = name_key, arguments_key
        self._has_common_keys = name_key in NAME_KEYS and arguments_key in ARGUMENT_KEYS
        self._shape: Shape = shape
        self._padding = space
        self._tools_layout = tools if len(tools) == 3 else (f"{tools[0]}\n", "\n", f"\n{tools[1]}")
        self._result_template = result
        self._results_layout = results
        marks = sorted(openers, key=len, reverse=True)
        alone = r"(?!)" if marks[-1][0].isalpha() else ""  # a marker that is a word is only a word at the end
        again = optional_steps(any_literal_text(marks), SPACE)
        self.heads = (
            Head(
                tuple(marks),
                sequence(any_literal_text(marks), SPACE, again, FENCE),
                body_starts=opens,
                on_request=asked,
                sure_pattern=alone,
            ),
        )
        closing = tuple(dict.fromkeys(filter(None, openers.values())))
        self.closers = (*closing, *also)
        self._closers = {
            opener: Closers(
                right=right,
                wrong=tuple(mark for mark in (*closing, *FOREIGN_CLOSERS) if mark not in right),
                # an opener that begins with its closer is read as the closer: GigaChat's does
                openers=tuple(mark for mark in marks if not mark.startswith(right)),
                required=needed and bool(closer),
            )
            for opener, closer in openers.items()
            for right in [(*filter(None, [closer]), *also)]
        }

    def closers_of(self, opener: str) -> Closers:
        """Return what may close a block that `opener` opened."""
        return self._closers[opener]

    def candidate(self, head: str, rules: ParseOptions, place: Evidence, *, definite: bool) -> Candidate:
        """Start reading after the opening marker, at the bracket."""
        opener = next(mark for mark in self.heads[0].literals if head.startswith(mark))
        doubled = any(mark in head[len(opener) :] for mark in self._openers)
        fixes = [Fix("marker", "the opener came twice")] if doubled else []
        keys = None if self._has_common_keys else self._envelope
        return JsonBlockReader(
            head, self.closers_of(opener), rules, place, definite=definite, fixes=fixes, envelope_keys=keys
        )

    def render_tools(self, tools: Tools, *, parallel: bool = True, required: bool = False) -> str:
        """Write the block of the system message that declares the tools and the format."""
        opener, between, closer = self._tools_layout
        listed = json_lines(tools).replace("\n", between)
        return explain_tools(
            self.render_calls, tools, f"{opener}{listed}{closer}".rstrip(), parallel=parallel, required=required
        )

    def call_id(self, call: Call, number: int) -> str:
        """Return the call's number in formats that number their calls, else its id."""
        return str(number) if self._id_key else call.id

    def render_calls(self, calls: Sequence[Call]) -> str:
        """Write calls in the model's own format."""
        return self._render_blocks(
            [
                self._render_object(call.id if call.id.isdigit() else str(at), dump(call.name), call.arguments_json)
                for at, call in enumerate(calls)
            ]
        )

    def render_results(self, results: Sequence[Result]) -> str:
        """Write results as one user turn."""
        before, between, after = self._results_layout
        return f"{before}{between.join(fill_template(self._result_template, result) for result in results)}{after}"

    def _render_object(self, number: str, name: str, arguments: str) -> str:
        name_key, arguments_key = self._envelope
        if not name_key:
            return f"{{{name}: {arguments}}}"
        first = f'{dump(self._id_key)}: "{number}", ' if self._id_key else ""
        return f"{{{first}{dump(name_key)}: {name}, {dump(arguments_key)}: {arguments}}}"

    def _render_blocks(self, objects: Sequence[str]) -> str:
        if self._shape == "object":
            return "\n".join(self._render_block(body) for body in objects)
        return self._render_block(f"[{', '.join(objects)}]" if self._shape == "list" else "\n".join(objects))

    def _render_block(self, body: str) -> str:
        opener, closer = next(iter(self._openers.items()))
        return f"{opener}{self._padding}{body}{self._padding if closer else ''}{closer}"


def fill_template(template: str, result: Result) -> str:
    """Fill in the template of one result. Braces inside the values that are put in are left alone."""
    values = {
        "{content}": result.content,
        "{json}": _content_as_json(result.content),
        "{name}": result.name,
        "{id}": result.call_id,
    }
    return "".join(values.get(piece, piece) for piece in _PLACEHOLDERS.split(template))


def _content_as_json(content: str) -> str:
    """Return `content` if it is JSON, else `content` as a JSON string."""
    try:
        json.loads(content)
    except (ValueError, RecursionError):
        return dump(content)
    return content
