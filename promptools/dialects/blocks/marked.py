"""Dialects that are data: a marker, JSON, a marker. A family that is no more than that is one call of `Marked`.

The body may be an object, a list or lines of objects, whatever the family's own shape is, in every spelling of the
envelope; `promptools.dialects.blocks.wrapped` reads it. An app adds a family of its own by a TOML table: see `load`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Literal

from promptools.dialects.base import Head, Textual, Tier
from promptools.dialects.blocks.markers import Closers
from promptools.dialects.blocks.wrapped import WrappedCandidate
from promptools.dialects.declaration import explain, lines
from promptools.dialects.envelope import ARGUMENT_KEYS, NAME_KEYS
from promptools.dialects.openings import perhaps, then, tokens
from promptools.dialects.settle import Place, Rules, dump
from promptools.parsing.parts import Candidate
from promptools.types import Call, Fix, Result

if TYPE_CHECKING:
    from promptools.schema import Tools

Shape = Literal["object", "list", "lines"]

FENCE = perhaps("`", "`", "`", r"[\w+-]{0,16}", r"\s{0,16}")
"""A fence between a marker and its JSON."""
SPACE = r"\s{0,64}"
WRONG = ("</think>", "</tool_call>", "</tool_response>", "</response>")
"""Closers of other blocks, which models put where their own belongs."""
_SLOTS = re.compile(r"(\{content\}|\{json\}|\{name\}|\{id\})")


class Marked(Textual):
    """Marker, JSON, marker.

    `openers`: each marker that opens a block, and the one that closes it; empty: nothing does. The first is written.
    `name_key` empty: the name is the only key, and its value the arguments. `id_key`: what the number of a call is
    called, where it is written. `tools`: what stands before, between and behind the tools; of two texts, each has lines
    of its own. `result`: how one result is written, with `{content}`, `{json}` (the content where it is JSON, else the
    string that it is), `{name}` and `{id}` in it; `results`: what stands before, between and behind them.
    `needed`: a closer that is missing is a liberty. `also`: closers that others write, and that are none. `asked`: its
    markers are another dialect's too, so it is read only where it was asked for.
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
    ) -> None:
        self.name = name
        self.models = models
        self.tier: Tier = tier
        self.stop = tuple(stop)
        self._openers = dict(openers)
        self._id_key = id_key
        self._envelope = name_key, arguments_key
        self._common = name_key in NAME_KEYS and arguments_key in ARGUMENT_KEYS
        self._shape: Shape = shape
        self._space = space
        self._tools = tools if len(tools) == 3 else (f"{tools[0]}\n", "\n", f"\n{tools[1]}")
        self._result = result
        self._results = results
        marks = sorted(openers, key=len, reverse=True)
        alone = r"(?!)" if marks[-1][0].isalpha() else ""  # a word at the end of the text is no more than a word
        again = perhaps(tokens(marks), SPACE)
        self.heads = (
            Head(tuple(marks), then(tokens(marks), SPACE, again, FENCE), opens=opens, asked=asked, alone=alone),
        )
        closing = tuple(dict.fromkeys(filter(None, openers.values())))
        self.closers = (*closing, *also)
        self._closers = {
            opener: Closers(
                right=right,
                wrong=tuple(each for each in (*closing, *WRONG) if each not in right),
                # what begins with a closer is the closer first: GigaChat's stands in an opener too
                openers=tuple(each for each in marks if not each.startswith(right)),
                needed=needed and bool(closer),
            )
            for opener, closer in openers.items()
            for right in [(*filter(None, [closer]), *also)]
        }

    def closers_of(self, opener: str) -> Closers:
        """Give what may close a block that `opener` opened."""
        return self._closers[opener]

    def candidate(self, head: str, rules: Rules, place: Place, *, firm: bool) -> Candidate:
        """Start behind the opener, at the bracket."""
        opener = next(each for each in self.heads[0].literals if head.startswith(each))
        doubled = any(each in head[len(opener) :] for each in self._openers)
        fixes = [Fix("marker", "the opener stood twice")] if doubled else []
        keys = None if self._common else self._envelope
        return WrappedCandidate(head, self.closers_of(opener), rules, place, firm=firm, fixes=fixes, keys=keys)

    def render_tools(self, tools: Tools, *, parallel: bool = True, required: bool = False) -> str:
        """Write the block of the system message that declares the tools and the format."""
        opener, between, closer = self._tools
        listed = lines(tools).replace("\n", between)
        return explain(
            self.render_calls, tools, f"{opener}{listed}{closer}".rstrip(), parallel=parallel, required=required
        )

    def call_id(self, call: Call, number: int) -> str:
        """Count the calls where they are written with a number."""
        return str(number) if self._id_key else call.id

    def render_calls(self, calls: Sequence[Call]) -> str:
        """Write calls as the model would have."""
        return self._blocks(
            [
                self._object(call.id if call.id.isdigit() else str(at), dump(call.name), call.arguments_json)
                for at, call in enumerate(calls)
            ]
        )

    def render_results(self, results: Sequence[Result]) -> str:
        """Write results as one user turn."""
        before, between, behind = self._results
        return f"{before}{between.join(filled(self._result, result) for result in results)}{behind}"

    def _object(self, number: str, name: str, arguments: str) -> str:
        name_key, arguments_key = self._envelope
        if not name_key:
            return f"{{{name}: {arguments}}}"
        first = f'{dump(self._id_key)}: "{number}", ' if self._id_key else ""
        return f"{{{first}{dump(name_key)}: {name}, {dump(arguments_key)}: {arguments}}}"

    def _blocks(self, objects: Sequence[str]) -> str:
        if self._shape == "object":
            return "\n".join(self._block(each) for each in objects)
        return self._block(f"[{', '.join(objects)}]" if self._shape == "list" else "\n".join(objects))

    def _block(self, body: str) -> str:
        opener, closer = next(iter(self._openers.items()))
        return f"{opener}{self._space}{body}{self._space if closer else ''}{closer}"


def filled(template: str, result: Result) -> str:
    """Write one result: what stands in the template in braces, and nothing inside that, is put in."""
    values = {
        "{content}": result.content,
        "{json}": _as_json(result.content),
        "{name}": result.name,
        "{id}": result.call_id,
    }
    return "".join(values.get(piece, piece) for piece in _SLOTS.split(template))


def _as_json(content: str) -> str:
    """Leave JSON as it is, and make a string of everything else."""
    try:
        json.loads(content)
    except (ValueError, RecursionError):
        return dump(content)
    return content
