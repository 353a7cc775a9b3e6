"""The kind `json`: a marker, JSON, a marker.

The body may be an object, a list or lines of objects, whichever of these the family writes, in every spelling of the
envelope; `promptools.dialects.readers.json_block.block_reader` reads it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Literal, Unpack

from promptools.dialects.calls.envelope import ARGUMENT_KEYS, NAME_KEYS
from promptools.dialects.calls.parse_options import Evidence, ParseOptions
from promptools.dialects.contract import Head
from promptools.dialects.declared import CommonKeys, DeclaredDialect
from promptools.dialects.prefix_patterns import any_literal_text, label_gate, literal_text, optional_steps, sequence
from promptools.dialects.readers.json_block.bare_json import bare_json_candidate, bare_json_heads
from promptools.dialects.readers.json_block.block_markers import Closers
from promptools.dialects.readers.json_block.block_reader import JsonBlockReader
from promptools.dialects.shared_markers import WRONG_CLOSERS
from promptools.jsontext.text import dump
from promptools.parsing.parts import Candidate
from promptools.parsing.special_tokens import is_only_tokens
from promptools.types import Call, Fix

Shape = Literal["object", "list", "lines"]

FENCE = optional_steps("`", "`", "`", r"[\w+-]{0,16}", r"\s{0,16}")
"""A code fence between a marker and its JSON."""
SPACE = r"\s{0,64}"


class MarkedJson(DeclaredDialect):
    """Marker, JSON, marker. The arguments are the keys of the kind: `promptools.dialects.table_kinds` explains them."""

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
        on_request: bool = False,
        **common: Unpack[CommonKeys],
    ) -> None:
        marked = {opener: closer for opener, closer in openers.items() if opener}
        closing = tuple(dict.fromkeys(filter(None, openers.values())))
        common.setdefault("closers", (*closing, *also))
        super().__init__(name, **common)
        self._openers = dict(openers)
        self._id_key = id_key
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
            yield _marked_head(self._marks, body_starts, on_request=on_request, beside_bare=bare)
        if self._stripped:
            yield _stripped_head(self._stripped)
        if bare:
            yield from (head._replace(tier="B", on_request=True) for head in bare_json_heads(self._shape))

    def closers_of(self, opener: str) -> Closers:
        """Return what may close a block that `opener` opened."""
        return self._closers[opener]

    def candidate(self, head: str, rules: ParseOptions, place: Evidence, *, definite: bool) -> Candidate:
        """Start reading after the opening marker, at the bracket."""
        keys = None if self._has_common_keys else self._envelope
        opener = next((mark for mark in self._marks if head.startswith(mark)), None)
        if opener is not None:
            doubled = any(mark in head[len(opener) :] for mark in self._marks)
            closers, fixes = self.closers_of(opener), [Fix("marker", "the opener came twice")] if doubled else []
        elif self._stripped and head.startswith(self._stripped):
            closers, fixes = self._stripped_closers, [Fix("marker", "the markers around its header are missing")]
        else:
            return bare_json_candidate(head, rules, place, definite=definite)
        return JsonBlockReader(head, closers, rules, place, definite=definite, fixes=fixes, envelope_keys=keys)

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

    def _render_object(self, number: str, name: str, arguments: str) -> str:
        name_key, arguments_key = self._envelope
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
    """Return what may close a block that ends in `closer`, where the dialect's other blocks end in `closing`."""
    right = (*filter(None, [closer]), *also)
    return Closers(
        right=right,
        wrong=tuple(mark for mark in (*closing, *WRONG_CLOSERS) if mark not in right),
        # an opener that begins with its closer is read as the closer, as GigaChat's is, or that begins it
        openers=tuple(
            mark for mark in openers if not mark.startswith(right) and not any(end.startswith(mark) for end in right)
        ),
        required=bool(closer),
    )


def _marked_head(marks: Sequence[str], body_starts: str, *, on_request: bool, beside_bare: bool) -> Head:
    """Return the head of JSON after a marker; `beside_bare`: the dialect's tier is that of JSON without markers."""
    again = optional_steps(any_literal_text(marks), SPACE)
    alone = r"(?!)" if marks[-1][0].isalpha() else ""  # a marker that is a word is only a word at the end
    return Head(
        tuple(marks),
        sequence(any_literal_text(marks), SPACE, again, FENCE),
        body_starts=body_starts,
        on_request=on_request,
        sure_pattern=alone,
        tier="S" if beside_bare and all(map(is_only_tokens, marks)) else None,
    )


def _stripped_head(label: str) -> Head:
    """Return the head of a line that is left of an opening marker."""
    return Head(
        (label,),
        sequence(literal_text(label), r"\s{0,16}"),
        body_starts="{",
        gate=label_gate(label.split(maxsplit=1)[0]),
        at_line_start=True,
        tier="B",
    )
